"""batchup_ng itself.

One data source a workload, run by each kind of worker with the defaults that a user would have.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.answers import answering, nap
from benchmarks.peers.base import Batch, Variant
from benchmarks.readers import ArrayReader, PythonReader, TinyReader, image_paths, load_labels
from benchmarks.workloads import Workload, nothing

SEED = 7


def variants(kind: str) -> tuple[Variant, ...]:
    """One for each kind of worker; ``ours-one-process`` runs its workers as threads of one other process."""
    make = partial(Variant, module=__name__, family="ours", needs=("batchup_ng",))
    return (
        make(name="ours-serial", open=partial(open_feed, pool=None)),
        make(name="ours-threads", open=partial(open_feed, pool=threads)),
        make(name="ours-one-process", open=partial(open_feed, pool=one_process), copies=3),
        make(name="ours-processes", open=partial(open_feed, pool=processes), copies=4),
    )


def threads(workers: int) -> Any:
    """A pool of threads."""
    import batchup_ng as bu

    return bu.WorkerThreadPool(workers)


def one_process(workers: int) -> Any:
    """A pool of one process that runs so many tasks at once."""
    import batchup_ng as bu

    return bu.WorkerProcessPool(1, threads=workers)


def processes(workers: int, start_method: str | None = None) -> Any:
    """A pool of processes; without a method, started as the library's default has it."""
    import batchup_ng as bu

    return bu.WorkerProcessPool(workers, start_method=start_method)


class OurFeed:
    """A data source, with a pool that is made in the first epoch.

    Args:
        source: The data source.
        batch_size: Samples of a batch.
        make_pool: Makes the pool for the workers; None for the source's own iterator.
        workers: How many of them.
    """

    def __init__(self, source: Any, batch_size: int, make_pool: Callable[[int], Any] | None, workers: int) -> None:
        self._source = source
        self._batch_size = batch_size
        self._make_pool = make_pool
        self._workers = workers
        self._pool: Any = None
        self._feed: Any = None

    def epoch(self, number: int) -> Iterator[Batch]:
        if self._feed is None:
            self._start()
        batches: Iterator[Batch] = self._feed.batch_iterator(self._batch_size, shuffle=SEED, epoch=number)
        return batches

    def _start(self) -> None:
        if self._make_pool is None:
            self._feed = self._source
            return
        self._pool = self._make_pool(self._workers)
        self._feed = self._pool.parallel_data_source(self._source)

    def workers(self) -> Sequence[int]:
        stream = self._pool.work_stream(itertools.repeat((nap,)), 2 * self._workers)
        with stream:
            return answering(stream.retrieve_iter(), self._workers)

    def ready(self) -> Sequence[int]:
        assert self._make_pool is not None
        self._pool = self._make_pool(self._workers)
        return self.workers()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
        self._pool = self._feed = None


def open_feed(workload: Workload, workers: int, *, pool: Callable[[int], Any] | None) -> OurFeed:
    """The feed of a workload, whose pool that function makes."""
    return OurFeed(_source(workload), workload.batch_size, pool, workers)


def _source(workload: Workload) -> Any:
    return _SOURCES[workload.kind](workload)


def _arrays(workload: Workload) -> Any:
    import batchup_ng as bu

    arrays = ArrayReader(workload)
    return bu.ArrayDataSource([arrays.images, arrays.labels])


def _images(workload: Workload) -> Any:
    import batchup_ng as bu

    return bu.ArrayDataSource([bu.ImageFiles(image_paths(workload), size=workload.size), load_labels(workload)])


def _python(workload: Workload) -> Any:
    import batchup_ng as bu

    return bu.ArrayDataSource([np.arange(workload.samples)]).map(PythonReader(workload).many)


def _tiny(workload: Workload) -> Any:
    import batchup_ng as bu

    return bu.ArrayDataSource([TinyReader(workload).numbers]).map(nothing)


_SOURCES: dict[str, Callable[[Workload], Any]] = {
    "arrays": _arrays,
    "images": _images,
    "python": _python,
    "tiny": _tiny,
    "none": lambda workload: None,
}
