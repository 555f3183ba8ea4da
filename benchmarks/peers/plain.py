"""Hand-written loops, without a library: the lowest cost of the task on one thread, in threads and in processes.

They handle no errors and use their memory again. ``plain`` has one batch of memory. ``plain-threads`` and
``plain-processes`` have 16 batches in flight, as many slots, and a batch is valid until the next.
"""

from __future__ import annotations

import mmap
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.peers.base import AHEAD, Feed, Variant, in_flight
from benchmarks.workloads import open_data
from benchmarks.workloads.base import Batch, Rows, Workload, shuffled


class Loop(Feed):
    """One thread that reads into the memory of one batch."""

    def __init__(self, workload: Workload, workers: int) -> None:
        self.workload, self.workers = workload, workers
        self.data = open_data(workload)
        self.slot = self.data.batch(np.zeros(workload.batch_size, np.int64))

    def epoch(self, number: int) -> Iterator[Batch]:
        for rows in shuffled(self.workload, number):
            yield self.read(rows, self.slot)

    def read(self, rows: Rows, slot: Batch) -> Batch:
        """Read the batch of `rows` into a slot; return the part of the slot that it fills."""
        out = [array[: len(rows)] for array in slot]
        self.data.fill(rows, out)
        return out


class Threads(Loop):
    """An executor whose threads read into the slots."""

    def __init__(self, workload: Workload, workers: int) -> None:
        super().__init__(workload, workers)
        self.slots = [[np.empty_like(array) for array in self.slot] for _ in range(AHEAD)]
        self.executor: ThreadPoolExecutor | None = None

    def epoch(self, number: int) -> Iterator[Batch]:
        executor = self.executor = self.executor or ThreadPoolExecutor(self.workers)

        def start(k: int, rows: Rows) -> Future[Batch]:
            return executor.submit(self.read, rows, self.slots[k % AHEAD])

        return in_flight(shuffled(self.workload, number), start, Future.result)

    def close(self) -> None:
        if self.executor is not None:
            self.executor.shutdown()
        self.executor = None


class Processes(Loop):
    """Forked workers that read into shared slots. Each gets row numbers through a pipe, and answers with a byte.

    A batch's number over all epochs gives its worker and slot.
    """

    def __init__(self, workload: Workload, workers: int) -> None:
        super().__init__(workload, workers)
        self.slots = [[shared_like(array) for array in self.slot] for _ in range(AHEAD)]
        self.started: list[tuple[Any, Connection]] = []
        self.numbers = count()

    def epoch(self, number: int) -> Iterator[Batch]:
        if not self.started:
            self.started, self.numbers = [self.fork(first) for first in range(self.workers)], count()
        return in_flight(shuffled(self.workload, number), self.start, self.finish)

    def start(self, _: int, rows: Rows) -> tuple[Connection, Batch]:
        k = next(self.numbers)
        pipe = self.started[k % self.workers][1]
        pipe.send_bytes(rows.tobytes())
        return pipe, [array[: len(rows)] for array in self.slots[k % AHEAD]]

    def finish(self, begun: tuple[Connection, Batch]) -> Batch:
        begun[0].recv_bytes()
        return begun[1]

    def fork(self, first: int) -> tuple[Any, Connection]:
        """Fork a worker. It has the data, because it is a copy of this process."""
        here, there = multiprocessing.Pipe()
        worker = multiprocessing.get_context("fork").Process(target=self.serve, args=(there, first), daemon=True)
        worker.start()
        return worker, here

    def serve(self, pipe: Connection, first: int) -> None:
        """Read each requested batch, until an empty message arrives."""
        for k in count(first, self.workers):
            rows = np.frombuffer(pipe.recv_bytes(), np.int64)
            if len(rows) == 0:
                return
            self.read(rows, self.slots[k % AHEAD])
            pipe.send_bytes(b"1")

    def close(self) -> None:
        for worker, pipe in self.started:
            pipe.send_bytes(b"")
            worker.join()
            pipe.close()
        self.started = []


def shared_like(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array like `array` in memory that forked processes share."""
    return np.frombuffer(mmap.mmap(-1, array.nbytes), array.dtype).reshape(array.shape)


VARIANTS = (
    Variant(name="plain", family="plain", open=Loop),
    Variant(name="plain-processes", family="plain", open=Processes),
    Variant(name="plain-threads", family="plain", open=Threads),
)
