"""batchup_ng itself, with each kind of worker and the user's defaults, and with rows that ``Cached`` keeps.

``ours-one-process`` runs its workers as threads of one other process. ``ours-spawn`` starts a new interpreter for each
worker instead of forking workers from a server. ``ours-array-*`` is the upper limit of a cache: images that were
decoded in advance.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers.base import OURS, Feed, Variant
from benchmarks.workloads import open_data
from benchmarks.workloads.base import Batch, Workload

SEED = 7
SHUFFLES: dict[str, Any] = {"random": SEED, "contiguous": False, "blocks": ("blocks", SEED)}


class OurFeed(Feed):
    """A data source with a pool that the first epoch makes.

    Args:
        workload: The data.
        workers: Threads or processes of the pool.
        pool: Class of the pool; empty for the source's own iterator.
        kept: Where the source keeps its rows: ``memory``, ``file`` (in its own folder), or ``array``; empty for none.
        column: Options of the first accessor.
        options: Options of the pool.
    """

    def __init__(
        self, workload: Workload, workers: int, pool: str = "", kept: str = "", column: Any = None, **options: Any
    ) -> None:
        import batchup_ng as bu

        data = open_data(workload)
        columns = data.accessors(**(column or {}))
        if kept == "array":
            columns[0] = np.concatenate([columns[0][at : at + 64] for at in range(0, workload.samples, 64)])
        source = bu.ArrayDataSource(columns, indices=data.rows)
        self.source: Any = source if data.map is None else source.map(data.map)
        self.folder = tempfile.TemporaryDirectory() if kept == "file" else None
        if kept in ("memory", "file"):
            self.source = self.source.cache(self.folder.name if self.folder else None)
        self.size, self.shuffle = workload.batch_size, SHUFFLES[workload.order]
        self.make: Any = partial(getattr(bu, pool), workers, **options) if pool else None
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
        if self.folder is not None:
            self.folder.cleanup()  # the next epoch uses the open file


def one_process(workload: Workload, workers: int) -> OurFeed:
    """Return a pool of one process that runs `workers` tasks at once."""
    return OurFeed(workload, 1, "WorkerProcessPool", threads=workers)


make = partial(Variant, family=OURS)
in_threads = partial(OurFeed, pool="WorkerThreadPool")
in_processes = partial(OurFeed, pool="WorkerProcessPool")
VARIANTS = (
    make(name="ours-serial", open=OurFeed),
    make(name="ours-threads", open=in_threads),
    make(name="ours-one-process", open=one_process, copies=2),
    make(name="ours-processes", open=in_processes, copies=2),
    make(name="ours-spawn", open=partial(in_processes, start_method="spawn"), copies=2, usual=False),
    *(
        make(name=f"ours-{kept}-{how}", open=partial(pool, kept=kept), copies=2, workloads=("images",), usual=False)
        for kept in ("memory", "file", "array")
        for how, pool in (("threads", in_threads), ("processes", in_processes))
    ),
)
CACHED = tuple(variant.name for variant in VARIANTS if variant.workloads)
