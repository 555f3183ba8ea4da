"""batchup_ng itself.

One data source a workload, run by each kind of worker with the defaults that a user would have.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers.base import Batch, Feed, Variant
from benchmarks.readers import ArrayReader, PythonReader, image_paths, load_labels
from benchmarks.workloads import Workload

SEED = 7


def variants(kind: str) -> tuple[Variant, ...]:
    """One for each kind of worker; the process pool shares one copy of the arrays among its workers."""
    make = partial(Variant, module=__name__, family="ours", needs=("batchup_ng",))
    return (
        make(name="ours-serial", open=partial(_open, pool=None)),
        make(name="ours-threads", open=partial(_open, pool="WorkerThreadPool")),
        make(name="ours-processes", open=partial(_open, pool="WorkerProcessPool"), copies=4),
    )


class OurFeed:
    """A data source, with a pool that is made in the first epoch."""

    def __init__(self, source: Any, batch_size: int, pool: str | None, workers: int) -> None:
        self._source = source
        self._batch_size = batch_size
        self._pool_name = pool
        self._workers = workers
        self._pool: Any = None
        self._feed: Any = None

    def epoch(self, number: int) -> Iterator[Batch]:
        if self._feed is None:
            self._start()
        batches: Iterator[Batch] = self._feed.batch_iterator(self._batch_size, shuffle=SEED, epoch=number)
        return batches

    def _start(self) -> None:
        import batchup_ng as bu

        if self._pool_name is None:
            self._feed = self._source
            return
        self._pool = getattr(bu, self._pool_name)(self._workers)
        self._feed = self._pool.parallel_data_source(self._source)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()


def _open(workload: Workload, workers: int, *, pool: str | None) -> Feed:
    return OurFeed(_source(workload), workload.batch_size, pool, workers)


def _source(workload: Workload) -> Any:
    import batchup_ng as bu

    if workload.kind == "arrays":
        arrays = ArrayReader(workload)
        return bu.ArrayDataSource([arrays.images, arrays.labels])
    if workload.kind == "images":
        return bu.ArrayDataSource([bu.ImageFiles(image_paths(workload), size=workload.size), load_labels(workload)])
    return bu.ArrayDataSource([np.arange(workload.samples)]).map(PythonReader(workload).many)
