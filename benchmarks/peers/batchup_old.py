"""BatchUp 0.2.3, the library that this one follows.

Its last release still works with current Python and NumPy on the paths used here: what it takes from older
versions (``collections.Iterator``, in ``coerce_data_source``) is given back before the import.
"""

from __future__ import annotations

import collections
import collections.abc
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.peers.base import Batch, Feed, Variant
from benchmarks.readers import ArrayReader, ImageReader, Pictures, PythonReader, TinyReader
from benchmarks.workloads import Workload, nothing


def variants(kind: str) -> tuple[Variant, ...]:
    """One for each kind of worker; its process pool sends a pickle of the arrays to every worker."""
    make = partial(Variant, module=__name__, family="batchup", needs=("batchup", "six", "joblib"))
    return (
        make(name="batchup-serial", open=partial(_open, pool=None)),
        make(name="batchup-threads", open=partial(_open, pool="WorkerThreadPool")),
        make(name="batchup-processes", open=partial(_open, pool="WorkerProcessPool"), copies=6),
    )


class BatchupFeed:
    """A data source, with a pool that is made in the first epoch.

    Attributes:
        pool: The pool, once it is made.
        count: Its workers.

    Args:
        source: The data source.
        batch_size: Samples of a batch.
        pool: The class of the pool; None for the source's own iterator.
        workers: How many workers the pool has.
    """

    def __init__(self, source: Any, batch_size: int, pool: str | None, workers: int) -> None:
        self._source = source
        self._batch_size = batch_size
        self._class = pool
        self.count = workers
        self.pool: Any = None
        self._feed: Any = None

    def epoch(self, number: int) -> Iterator[Batch]:
        self._feed = self._feed or self._start()
        batches: Iterator[Batch] = self._feed.batch_iterator(self._batch_size, shuffle=np.random.RandomState(number))
        return batches

    def _start(self) -> Any:
        if self._class is None:
            return self._source
        self.make_pool()
        return self.pool.parallel_data_source(self._source)

    def make_pool(self) -> None:
        """Start the workers."""
        self.pool = getattr(import_module("batchup.work_pool"), self._class or "")(processes=self.count)

    def close(self) -> None:
        """The pools of BatchUp have no close; their processes end with the process group."""
        self._feed = None


def _open(workload: Workload, workers: int, *, pool: str | None) -> Feed:
    return BatchupFeed(source(workload), workload.batch_size, pool, workers)


def source(workload: Workload) -> Any:
    """The data source of a workload; None where there are no data."""
    return _SOURCES[workload.kind](workload, _import())


def _arrays(workload: Workload, data_source: Any) -> Any:
    arrays = ArrayReader(workload)
    return data_source.ArrayDataSource([arrays.images, arrays.labels])


def _images(workload: Workload, data_source: Any) -> Any:
    images = ImageReader(workload)
    return data_source.ArrayDataSource([Pictures(images), images.labels])


def _python(workload: Workload, data_source: Any) -> Any:
    return data_source.ArrayDataSource([np.arange(workload.samples)]).map(PythonReader(workload).many)


def _tiny(workload: Workload, data_source: Any) -> Any:
    return data_source.ArrayDataSource([TinyReader(workload).numbers]).map(nothing)


_SOURCES: dict[str, Callable[[Workload, Any], Any]] = {
    "arrays": _arrays,
    "images": _images,
    "python": _python,
    "tiny": _tiny,
    "none": lambda workload, data_source: None,
}


def _import() -> Any:
    if not hasattr(collections, "Iterator"):
        collections.Iterator = collections.abc.Iterator  # type: ignore[attr-defined]  # gone since Python 3.10
    return import_module("batchup.data_source")
