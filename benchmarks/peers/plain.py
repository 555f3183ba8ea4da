"""Hand-written loops that the loaders are compared with.

They are the least that the task costs on this machine: no errors handled, no order kept by anybody else, memory
reused by hand. ``plain``, ``plain-1thread`` and ``plain-loop`` use one thread; ``plain-threads`` and ``pool-imap`` use
as many workers as the loaders do.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from multiprocessing.pool import Pool

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.base import Batch, Variant
from benchmarks.readers import ArrayReader, ImageReader, Reader, Rows, open_reader, shuffled_batches
from benchmarks.workloads import Workload


def variants(kind: str) -> tuple[Variant, ...]:
    """The loops of a workload.

    ``plain-threads`` is about the best that so many workers can do, who share the memory's bandwidth. ``pool-imap-16``
    hands its tasks out by sixteen, which is quicker where they are small, and later to begin.
    """
    loop = partial(Variant, module=__name__, family="plain", baseline=True)
    return {
        "arrays": (loop(name="plain", open=TakeLoop), loop(name="plain-threads", open=TakeThreads)),
        "images": (loop(name="plain-1thread", open=DecodeLoop), loop(name="plain-threads", open=DecodeThreads)),
        "python": (loop(name="plain-loop", open=WorkLoop), loop(name="pool-imap", open=PoolImap)),
        "tiny": (
            loop(name="plain-loop", open=WorkLoop),
            loop(name="pool-imap", open=PoolImap),
            loop(name="pool-imap-16", open=partial(PoolImap, chunksize=16)),
        ),
    }[kind]


class TakeLoop:
    """``numpy.take`` into one reused batch (``mode="clip"``, for without it NumPy makes a copy on the way)."""

    def __init__(self, workload: Workload, workers: int) -> None:
        self._workload = workload
        self._reader = ArrayReader(workload)
        self._x = np.empty((workload.batch_size, *self._reader.images.shape[1:]), np.uint8)
        self._y = np.empty(workload.batch_size, np.int64)

    def epoch(self, number: int) -> Iterator[Batch]:
        for rows in shuffled_batches(self._workload, number):
            x, y = self._x[: len(rows)], self._y[: len(rows)]
            np.take(self._reader.images, rows, axis=0, out=x, mode="clip")
            np.take(self._reader.labels, rows, axis=0, out=y, mode="clip")
            yield x, y

    def close(self) -> None:
        """Nothing was started."""


class DecodeLoop:
    """Decode one picture after the other into one reused batch."""

    def __init__(self, workload: Workload, workers: int) -> None:
        self._workload = workload
        self._reader = ImageReader(workload)
        self._x = np.empty((workload.batch_size, *workload.size, 3), np.uint8)

    def epoch(self, number: int) -> Iterator[Batch]:
        for rows in shuffled_batches(self._workload, number):
            x = self._x[: len(rows)]
            self._reader.decode_into(rows, x)
            yield x, self._reader.labels[rows]

    def close(self) -> None:
        """Nothing was started."""


class Threads:
    """A bare executor that makes whole batches, a few ahead, in a ring of reused ones."""

    def __init__(self, workload: Workload, workers: int, shape: tuple[int, ...], labels: NDArray[np.int64]) -> None:
        self._workload = workload
        self._workers = workers
        self._labels = labels
        self._ring = [np.empty((workload.batch_size, *shape), np.uint8) for _ in range(2 * workers)]
        self._executor: ThreadPoolExecutor | None = None

    def read_into(self, rows: Rows, x: NDArray[np.uint8]) -> None:
        """Write the pictures of `rows` to `x`."""
        raise NotImplementedError

    def epoch(self, number: int) -> Iterator[Batch]:
        self._executor = self._executor or ThreadPoolExecutor(self._workers)
        running: deque[tuple[Future[None], NDArray[np.uint8], Rows]] = deque()
        for k, rows in enumerate(shuffled_batches(self._workload, number)):
            if len(running) == len(self._ring):
                yield self._oldest(running)
            x = self._ring[k % len(self._ring)][: len(rows)]
            running.append((self._executor.submit(self.read_into, rows, x), x, rows))
        while running:
            yield self._oldest(running)

    def _oldest(self, running: deque[tuple[Future[None], NDArray[np.uint8], Rows]]) -> Batch:
        future, x, rows = running.popleft()
        future.result()
        return x, self._labels[rows]

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown()


class TakeThreads(Threads):
    """``numpy.take``, which lets go of the interpreter's lock, on as many threads as there are workers."""

    def __init__(self, workload: Workload, workers: int) -> None:
        reader = ArrayReader(workload)
        super().__init__(workload, workers, reader.images.shape[1:], reader.labels)
        self._images = reader.images

    def read_into(self, rows: Rows, x: NDArray[np.uint8]) -> None:
        np.take(self._images, rows, axis=0, out=x, mode="clip")


class DecodeThreads(Threads):
    """Pillow on as many threads as there are workers."""

    def __init__(self, workload: Workload, workers: int) -> None:
        reader = ImageReader(workload)
        super().__init__(workload, workers, (*workload.size, 3), reader.labels)
        self._reader = reader

    def read_into(self, rows: Rows, x: NDArray[np.uint8]) -> None:
        self._reader.decode_into(rows, x)


class WorkLoop:
    """The work, in the one process that also consumes it."""

    def __init__(self, workload: Workload, workers: int) -> None:
        self._workload = workload
        self._reader = open_reader(workload)

    def epoch(self, number: int) -> Iterator[Batch]:
        return map(self._reader.many, shuffled_batches(self._workload, number))

    def close(self) -> None:
        """Nothing was started."""


class PoolImap:
    """A bare ``multiprocessing.Pool.imap`` whose tasks are whole batches, with the platform's start method.

    Each worker opens its reader once, so that a task is a function's name and the rows.
    """

    def __init__(self, workload: Workload, workers: int, chunksize: int = 1) -> None:
        self._workload = workload
        self._workers = workers
        self._chunksize = chunksize
        self._pool: Pool | None = None

    def epoch(self, number: int) -> Iterator[Batch]:
        self._pool = self._pool or multiprocessing.Pool(self._workers, _keep_reader, (self._workload,))
        return self._pool.imap(_read, shuffled_batches(self._workload, number), self._chunksize)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()


_kept: list[Reader] = []
"""In a worker of :class:`PoolImap`, its reader."""


def _keep_reader(workload: Workload) -> None:
    _kept[:] = [open_reader(workload)]


def _read(rows: Rows) -> Batch:
    return _kept[0].many(rows)
