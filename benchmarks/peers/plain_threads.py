"""``plain-threads``: a bare executor whose threads read into memory made once, 16 batches in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from benchmarks.peers.base import Variant
from benchmarks.peers.plain import Loop
from benchmarks.workloads.base import Batch, Workload, shuffled

AHEAD = 16
"""Batches in flight."""


class Threads(Loop):
    """A thread executor. A batch is valid until the next, which reuses its slot for a new batch."""

    def __init__(self, workload: Workload, workers: int) -> None:
        super().__init__(workload, workers)
        self.slots = [[np.empty_like(array) for array in self.slot] for _ in range(AHEAD)]
        self.executor: ThreadPoolExecutor | None = None

    def epoch(self, number: int) -> Iterator[Batch]:
        self.executor = self.executor or ThreadPoolExecutor(self.workers)
        running: deque[tuple[Future[None], Batch]] = deque()
        for k, rows in enumerate(shuffled(self.workload, number)):
            if len(running) == AHEAD:
                yield oldest(running)
            out = [array[: len(rows)] for array in self.slots[k % AHEAD]]
            running.append((self.executor.submit(self.data.fill, rows, out), out))
        while running:
            yield oldest(running)

    def close(self) -> None:
        if self.executor is not None:
            self.executor.shutdown()
        self.executor = None


def oldest(running: deque[tuple[Future[None], Batch]]) -> Batch:
    """Wait for the next batch and return it."""
    future, out = running.popleft()
    future.result()
    return out


VARIANTS = (Variant(name="plain-threads", family="plain", module=__name__, open=Threads),)
