"""Ray on this machine: bare actors, our pool of actors, Ray Data.

Each variant has its own Ray, with as many CPUs as workers. Its first epoch starts Ray and waits for it;
``figures["connect_seconds"]`` is the time of that start. All variants except ``ray-data`` decode images by simplejpeg
and resize them by Pillow, as :class:`~batchup_ng.ImageFiles` does.

``plain-ray`` copies each batch into reused memory, as ``ours-ray`` does. ``plain-ray-views`` delivers views of Ray's
store, as ``ours-ray-views`` does. In both, 16 calls are in flight.

``ray-data`` follows the guides of Ray Data: a data set of blocks of 2,000 rows in Ray's store, read with the blocks in
another order each epoch and shuffled among 1,000 rows ("local shuffle"), or ``read_images`` of shuffled paths, which
decodes by Pillow. For arrays it omits the shuffle of all rows that every other variant does; ``ray-data-shuffle`` does
it by ``random_shuffle``. ``ray-data-rows`` is Ray Data's closest counterpart to ours: its data set is the shuffled row
numbers, and its tasks turn them into batches, from the same data in Ray's store.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from abc import abstractmethod
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers.base import AHEAD, OURS, Feed, Variant, in_flight
from benchmarks.peers.ours import OurFeed
from benchmarks.workloads import images, open_data
from benchmarks.workloads.base import Batch, Data, Rows, Workload, shuffled

BLOCK, LOCAL, TOGETHER = 2_000, 1_000, 16
"""Rows of a block of ``ray-data``; rows among which it shuffles; batches of a block of ``ray-data-rows``, which was
slower with 1 and with 4."""


class Ray(Feed):
    """A feed with a Ray cluster of only this machine, which its first epoch starts."""

    def __init__(self, workload: Workload, workers: int) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        import ray

        self.ray = ray
        self.options = {"num_cpus": workers, "object_store_memory": 3 * workload.nbytes + (1 << 30)}
        self.folder = ""  # for its sockets, whose names may have at most 107 bytes
        self.figures: dict[str, float] = {}

    def connect(self) -> None:
        """Start Ray if it does not run."""
        if not self.ray.is_initialized():
            self.folder = tempfile.mkdtemp(prefix="r", dir="/tmp")
            begin = time.perf_counter()
            quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
            self.ray.init("local", **self.options, **quiet, _temp_dir=self.folder)
            self.figures["connect_seconds"] = time.perf_counter() - begin

    def close(self) -> None:
        self.ray.shutdown()
        shutil.rmtree(self.folder, ignore_errors=True)


class Ours(Ray):
    """Our pool of actors."""

    def __init__(self, workload: Workload, workers: int, *, copy: bool) -> None:
        super().__init__(workload, workers)
        import batchup_ng as bu

        self.feed = OurFeed(workload, workers)
        self.feed.make = partial(bu.WorkerRayPool, actors=workers, copy=copy)

    def epoch(self, number: int) -> Iterator[Batch]:
        self.connect()
        return self.feed.epoch(number)

    def close(self) -> None:
        self.feed.close()
        super().close()


class Theirs(Ray):
    """A feed without our library, whose first epoch also puts the data into Ray's store."""

    def __init__(self, workload: Workload, workers: int) -> None:
        super().__init__(workload, workers)
        self.workload = images.decoded(workload, "turbo") if workload.kind == "images" else workload
        self.workers, self.size = workers, workload.batch_size
        self.data = open_data(self.workload)
        self.stored: Any = None

    def epoch(self, number: int) -> Iterator[Batch]:
        self.connect()
        if self.stored is None:
            self.stored = self.store()
        return self.batches(number)

    def store(self) -> Any:
        """Put the data into Ray's store; return the reference."""
        return self.ray.put(self.data)

    @abstractmethod
    def batches(self, number: int) -> Iterator[Batch]:
        """Yield the batches of an epoch from the stored data."""

    def tables(self, data: Any, **options: Any) -> Any:
        """Return the batches of a data set of Ray Data."""
        return data.iter_batches(batch_size=self.size, batch_format="numpy", prefetch_batches=AHEAD, **options)

    def close(self) -> None:
        self.stored = None
        super().close()


class Reader:
    """An actor that reads batches into memory made once, which Ray copies."""

    def __init__(self, data: Data, rows: int) -> None:
        self.data = data
        self.slot = data.batch(np.zeros(rows, np.int64))

    def batch(self, rows: Rows) -> Batch:
        out = [array[: len(rows)] for array in self.slot]
        self.data.fill(rows, out)
        return out


class Actors(Theirs):
    """A loop over bare actors, which get row numbers. Batches arrive in order."""

    def __init__(self, workload: Workload, workers: int, *, copy: bool) -> None:
        super().__init__(workload, workers)
        self.slot = self.data.batch(np.zeros(self.size, np.int64)) if copy else None

    def store(self) -> Any:
        data, actor = self.ray.put(self.data), self.ray.remote(Reader)
        return [actor.remote(data, self.size) for _ in range(self.workers)]

    def batches(self, number: int) -> Iterator[Batch]:
        def start(k: int, rows: Rows) -> Any:
            return self.stored[k % self.workers].batch.remote(rows)

        return in_flight(shuffled(self.workload, number), start, self.finish)

    def finish(self, call: Any) -> Batch:
        """Wait for a batch; return it, or a copy."""
        batch: Batch = self.ray.get(call)
        if self.slot is None:
            return batch
        copies = [array[: len(each)] for array, each in zip(self.slot, batch, strict=True)]
        for copy, each in zip(copies, batch, strict=True):
            copy[...] = each
        return copies


def read(table: dict[str, Any], data: Any) -> dict[str, Any]:
    """Return the samples of a Ray Data batch of row numbers."""
    import ray

    return dict(zip("xy", ray.get(data).batch(table["data"]), strict=False))


class DataOfRows(Theirs):
    """Ray Data over row numbers."""

    def batches(self, number: int) -> Iterator[Batch]:
        order = np.concatenate(list(shuffled(self.workload, number)))
        size = self.size * TOGETHER
        rows = self.ray.data.from_numpy(np.split(order, range(size, len(order), size)))
        batches = rows.map_batches(read, batch_size=self.size, fn_kwargs={"data": self.stored})
        return (list(table.values()) for table in self.tables(batches))


class DataOfBlocks(Theirs):
    """Ray Data over blocks of the samples; with `whole`, all rows are shuffled."""

    def __init__(self, workload: Workload, workers: int, *, whole: bool = False) -> None:
        super().__init__(workload, workers)
        self.whole = whole

    def store(self) -> Any:
        import pyarrow
        from ray.data.extensions import ArrowTensorArray

        x, y = self.data.columns
        parts = [slice(k, k + BLOCK) for k in range(0, len(y), BLOCK)]
        tables = [pyarrow.table({"x": ArrowTensorArray.from_numpy(x[part]), "y": y[part]}) for part in parts]
        return self.ray.data.from_arrow(tables)

    def batches(self, number: int) -> Iterator[Batch]:
        if self.whole:
            tables = self.tables(self.stored.random_shuffle(seed=number))
        else:
            local = {"local_shuffle_buffer_size": LOCAL, "local_shuffle_seed": number}
            tables = self.tables(self.stored.randomize_block_order(seed=number), **local)
        return ((table["x"], table["y"]) for table in tables)


class DataOfFiles(Theirs):
    """Ray Data over images. Labels are looked up by path."""

    def store(self) -> Any:
        pictures, labels = self.data.columns
        return dict(zip(pictures.paths, labels, strict=True))

    def batches(self, number: int) -> Iterator[Batch]:
        options = {"size": images.SIZE, "mode": "RGB", "include_paths": True, "shuffle": "files"}
        for table in self.tables(self.ray.data.read_images(list(self.stored), **options)):
            yield table["image"], np.array([self.stored[path] for path in table["path"]])


def by_kind(workload: Workload, workers: int) -> Feed:
    """Ray Data as in its guides."""
    return (DataOfFiles if workload.kind == "images" else DataOfBlocks)(workload, workers)


make = partial(Variant, needs=("ray",), copies=2, workloads=("arrays", "images", "empty"), usual=False)
ours = partial(make, family=OURS)
theirs = partial(make, family="ray", needs=("ray", "pyarrow"))
VARIANTS = (
    make(name="plain-ray", family="plain", open=partial(Actors, copy=True)),
    make(name="plain-ray-views", family="plain", open=partial(Actors, copy=False)),
    ours(name="ours-ray", open=partial(Ours, copy=True)),
    ours(name="ours-ray-views", open=partial(Ours, copy=False)),
    theirs(name="ray-data", open=by_kind, workloads=("arrays", "images")),
    theirs(name="ray-data-rows", open=DataOfRows),
    theirs(name="ray-data-shuffle", open=partial(DataOfBlocks, whole=True), workloads=("arrays",)),
)
