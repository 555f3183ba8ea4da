"""``plain-processes``: forked processes that read into shared memory made once, 16 batches in flight.

Each worker gets only row numbers, through a pipe, and answers with a byte. The consumer gets views of the memory.
"""

from __future__ import annotations

import mmap
import multiprocessing
from collections import deque
from collections.abc import Iterator
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.peers.base import Variant
from benchmarks.peers.plain import Loop
from benchmarks.peers.plain_threads import AHEAD
from benchmarks.workloads.base import Batch, Workload, shuffled


class Processes(Loop):
    """Forked workers. A batch's number over all epochs gives its worker and slot. A batch is valid until the next."""

    def __init__(self, workload: Workload, workers: int) -> None:
        super().__init__(workload, workers)
        self.slots = [[shared_like(array) for array in self.slot] for _ in range(AHEAD)]
        self.started: list[tuple[Any, Connection]] = []
        self.numbers = count()

    def epoch(self, number: int) -> Iterator[Batch]:
        if not self.started:
            self.started, self.numbers = [self.start(first) for first in range(self.workers)], count()
        running: deque[tuple[Connection, Batch]] = deque()
        for rows in shuffled(self.workload, number):
            if len(running) == AHEAD:
                yield oldest(running)
            k = next(self.numbers)
            pipe = self.started[k % self.workers][1]
            pipe.send_bytes(rows.tobytes())
            running.append((pipe, [array[: len(rows)] for array in self.slots[k % AHEAD]]))
        while running:
            yield oldest(running)

    def start(self, first: int) -> tuple[Any, Connection]:
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
            self.data.fill(rows, [array[: len(rows)] for array in self.slots[k % AHEAD]])
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


def oldest(running: deque[tuple[Connection, Batch]]) -> Batch:
    """Wait for the next batch and return it."""
    pipe, out = running.popleft()
    pipe.recv_bytes()
    return out


VARIANTS = (Variant(name="plain-processes", family="plain", module=__name__, open=Processes),)
