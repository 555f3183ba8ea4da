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
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers.base import OURS, Variant
from benchmarks.peers.ours import OurFeed
from benchmarks.peers.plain_threads import AHEAD
from benchmarks.workloads import images, open_data
from benchmarks.workloads.base import Batch, Data, Rows, Workload, shuffled

BLOCK, LOCAL, TOGETHER = 2_000, 1_000, 16
"""Rows of a block of ``ray-data``; rows among which it shuffles; batches of a block of ``ray-data-rows``, which was
slower with 1 and with 4."""


class Connection:
    """A Ray cluster of only this machine."""

    def __init__(self, workload: Workload, workers: int) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        import ray

        self.ray = ray
        self.options = {"num_cpus": workers, "object_store_memory": 3 * workload.nbytes + (1 << 30)}
        self.folder = ""  # for its sockets, whose names may have at most 107 bytes
        self.figures: dict[str, float] = {}

    def open(self) -> None:
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


class Ours(OurFeed):
    """Our pool of actors."""

    def __init__(self, workload: Workload, workers: int, *, copy: bool) -> None:
        super().__init__(workload, workers)
        import batchup_ng as bu

        self.connection = Connection(workload, workers)
        self.figures = self.connection.figures
        self.make = partial(bu.WorkerRayPool, actors=workers, copy=copy)

    def epoch(self, number: int) -> Iterator[Batch]:
        self.connection.open()
        return super().epoch(number)

    def close(self) -> None:
        super().close()
        self.connection.close()


class Reader:
    """An actor that reads batches into memory made once, which Ray copies."""

    def __init__(self, data: Data, rows: int) -> None:
        self.data = data
        self.slot = data.batch(np.zeros(rows, np.int64))

    def batch(self, rows: Rows) -> Batch:
        out = [array[: len(rows)] for array in self.slot]
        self.data.fill(rows, out)
        return out


class Feed:
    """Shared base of the variants without our library."""

    def __init__(self, workload: Workload, workers: int) -> None:
        self.workload = images.decoded(workload, images.by_turbo) if workload.kind == "images" else workload
        self.workers = workers
        self.data = open_data(self.workload)
        self.connection = Connection(workload, workers)
        self.figures = self.connection.figures
        self.stored: Any = None

    def open(self) -> None:
        """Start Ray, and store the data for all epochs."""
        self.connection.open()
        if self.stored is None:
            self.stored = self.store(self.connection.ray)

    def store(self, ray: Any) -> Any:
        """Put the data into Ray's store; return the reference."""
        return ray.put(self.data)

    def close(self) -> None:
        self.stored = None
        self.connection.close()


class Actors(Feed):
    """A loop over bare actors, which get row numbers. Batches arrive in order."""

    def __init__(self, workload: Workload, workers: int, *, copy: bool) -> None:
        super().__init__(workload, workers)
        self.slot = self.data.batch(np.zeros(workload.batch_size, np.int64)) if copy else None

    def store(self, ray: Any) -> Any:
        data, actor = ray.put(self.data), ray.remote(Reader)
        return [actor.remote(data, self.workload.batch_size) for _ in range(self.workers)]

    def epoch(self, number: int) -> Iterator[Batch]:
        self.open()
        running: deque[Any] = deque()
        for k, rows in enumerate(shuffled(self.workload, number)):
            if len(running) == AHEAD:
                yield self.oldest(running)
            running.append(self.stored[k % self.workers].batch.remote(rows))
        while running:
            yield self.oldest(running)

    def oldest(self, running: deque[Any]) -> Batch:
        """Wait for the next batch and return it."""
        batch: Batch = self.connection.ray.get(running.popleft())
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


class DataOfRows(Feed):
    """Ray Data over row numbers."""

    def epoch(self, number: int) -> Iterator[Batch]:
        self.open()
        size = self.workload.batch_size
        order = np.concatenate(list(shuffled(self.workload, number)))
        rows = self.connection.ray.data.from_numpy(np.split(order, range(size * TOGETHER, len(order), size * TOGETHER)))
        batches = rows.map_batches(read, batch_size=size, fn_kwargs={"data": self.stored})
        for table in batches.iter_batches(batch_size=size, batch_format="numpy", prefetch_batches=AHEAD):
            yield list(table.values())


class DataOfBlocks(Feed):
    """Ray Data over blocks of the samples."""

    def __init__(self, workload: Workload, workers: int, *, whole: bool = False) -> None:
        super().__init__(workload, workers)
        self.whole = whole

    def store(self, ray: Any) -> Any:
        import pyarrow
        from ray.data.extensions import ArrowTensorArray

        x, y = self.data.columns
        parts = [slice(k, k + BLOCK) for k in range(0, len(y), BLOCK)]
        tables = [pyarrow.table({"x": ArrowTensorArray.from_numpy(x[part]), "y": y[part]}) for part in parts]
        return ray.data.from_arrow(tables)

    def epoch(self, number: int) -> Iterator[Batch]:
        self.open()
        size = {"batch_size": self.workload.batch_size, "batch_format": "numpy", "prefetch_batches": AHEAD}
        if self.whole:
            batches = self.stored.random_shuffle(seed=number).iter_batches(**size)
        else:
            local = {"local_shuffle_buffer_size": LOCAL, "local_shuffle_seed": number}
            batches = self.stored.randomize_block_order(seed=number).iter_batches(**size, **local)
        for table in batches:
            yield table["x"], table["y"]


class DataOfFiles(Feed):
    """Ray Data over images. Labels are looked up by path."""

    def store(self, ray: Any) -> Any:
        pictures, labels = self.data.columns
        return dict(zip(pictures.paths, labels, strict=True))

    def epoch(self, number: int) -> Iterator[Batch]:
        self.open()
        read = self.connection.ray.data.read_images(
            list(self.stored), size=images.SIZE, mode="RGB", include_paths=True, shuffle="files"
        )
        for table in read.iter_batches(
            batch_size=self.workload.batch_size, batch_format="numpy", prefetch_batches=AHEAD
        ):
            yield table["image"], np.array([self.stored[path] for path in table["path"]])


def by_kind(workload: Workload, workers: int) -> Feed:
    """Ray Data as in its guides."""
    return (DataOfFiles if workload.kind == "images" else DataOfBlocks)(workload, workers)


make = partial(Variant, module=__name__, needs=("ray",), copies=2, workloads=("arrays", "images", "empty"), usual=False)
ours = partial(make, family=OURS, needs=("batchup_ng", "ray"))
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
