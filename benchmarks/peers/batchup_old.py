"""BatchUp 0.2.3, the model of this library. Its process pool sends a pickle of the arrays to every worker.

Its last release needs names of older Pythons (``collections.Iterator``), which are restored before the import.
"""

from __future__ import annotations

import collections
import collections.abc
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.peers.base import Feed, Variant
from benchmarks.workloads import open_data
from benchmarks.workloads.base import Batch, Workload


class BatchupFeed(Feed):
    """A data source with a pool that the first epoch makes. Without `pool`, the source's own iterator."""

    def __init__(self, workload: Workload, workers: int, pool: str = "") -> None:
        if not hasattr(collections, "Iterator"):
            collections.Iterator = collections.abc.Iterator  # type: ignore[attr-defined]  # gone since Python 3.10
        data = open_data(workload)
        source = import_module("batchup.data_source").ArrayDataSource(list(data.columns))
        self.source = source if data.map is None else source.map(data.map)
        self.size = workload.batch_size
        pools = import_module("batchup.work_pool")
        self.make = partial(getattr(pools, pool), processes=workers) if pool else None
        self.feed: Any = None

    def epoch(self, number: int) -> Iterator[Batch]:
        if self.feed is None:
            self.feed = self.make().parallel_data_source(self.source) if self.make else self.source
        batches: Iterator[Batch] = self.feed.batch_iterator(self.size, shuffle=np.random.RandomState(number))
        return batches

    def close(self) -> None:
        """Drop the source. BatchUp's pools have no close; their processes end with the process group."""
        self.feed = None


make = partial(Variant, family="batchup", needs=("batchup", "six", "joblib"))
VARIANTS = (
    make(name="batchup-serial", open=BatchupFeed),
    make(name="batchup-threads", open=partial(BatchupFeed, pool="WorkerThreadPool")),
    make(name="batchup-processes", open=partial(BatchupFeed, pool="WorkerProcessPool"), copies=6),
)
