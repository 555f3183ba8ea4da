"""batchup_ng itself, with each kind of worker and the user's defaults.

``ours-one-process`` runs its workers as threads of one other process. ``ours-spawn`` starts a new interpreter for each
worker instead of forking workers from a server.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.peers.base import OURS, Variant
from benchmarks.workloads import open_data
from benchmarks.workloads.base import Batch, Workload

SEED = 7
SHUFFLES: dict[str, Any] = {"random": SEED, "contiguous": False, "blocks": ("blocks", SEED)}


class OurFeed:
    """A data source with a pool that the first epoch makes. Without `pool`, the source's own iterator."""

    def __init__(self, workload: Workload, workers: int, pool: str = "", **options: Any) -> None:
        import batchup_ng as bu

        data = open_data(workload)
        source = bu.ArrayDataSource(data.accessors(), indices=data.rows)
        self.source = source if data.map is None else source.map(data.map)
        self.size, self.shuffle = workload.batch_size, SHUFFLES[workload.order]
        self.make = partial(getattr(bu, pool), **{"processes": workers, **options}) if pool else None
        self.pool: Any = None
        self.feed: Any = None

    def epoch(self, number: int) -> Iterator[Batch]:
        if self.feed is None:
            self.pool = self.make() if self.make else None
            self.feed = self.pool.parallel_data_source(self.source) if self.pool else self.source
        batches: Iterator[Batch] = self.feed.batch_iterator(self.size, shuffle=self.shuffle, epoch=number)
        return batches

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()
        self.pool = self.feed = None


def one_process(workload: Workload, workers: int) -> OurFeed:
    """Return a pool of one process that runs `workers` tasks at once."""
    return OurFeed(workload, workers, "WorkerProcessPool", processes=1, threads=workers)


make = partial(Variant, module=__name__, family=OURS, needs=("batchup_ng",))
in_processes = partial(OurFeed, pool="WorkerProcessPool")
VARIANTS = (
    make(name="ours-serial", open=OurFeed),
    make(name="ours-threads", open=partial(OurFeed, pool="WorkerThreadPool")),
    make(name="ours-one-process", open=one_process, copies=2),
    make(name="ours-processes", open=in_processes, copies=2),
    make(name="ours-spawn", open=partial(in_processes, start_method="spawn"), copies=2, usual=False),
)
