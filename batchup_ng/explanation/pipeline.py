"""A model of the way of batches from the workers to the loop: it predicts what another setting would do.

The model simulates batch after batch with the measured times. The loop asks for a batch, waits until it has arrived,
and takes it. Then the pool submits the next task, if the buffer has room. The first free worker makes it. Batches are
handed out in order, so a slow batch holds up those that are done.

The times of a batch are those that it has alone. CPUs and the interpreter's lock are shared by all workers and the
loop, so they set a least time between two batches. It is the largest of three: the simulated time, the CPU time of all
that a batch needs divided by the number of CPUs, and the time that a batch holds the lock.
"""

from __future__ import annotations

import dataclasses
import heapq

import numpy as np

LEAST_BATCHES = 300
"""Number of batches that a simulation hands out at least; measured ones come again in the same order."""


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """The times and sizes of a simulation. Times are in seconds, those of arrays for each batch.

    Attributes:
        make: Time of a worker for a batch, on a machine of its own.
        step: Time of the loop between two batches.
        take: Time of the loop's thread to receive a batch that has arrived.
        transfer: Time of a finished batch until it arrives.
        workers: Number of batches that are made at once; 0 for none, where the loop makes each batch in its ``next``.
        buffer: Number of batches that are ahead of the loop.
        floor: Least time between two batches, from CPUs and lock.
    """

    make: np.ndarray
    step: np.ndarray
    take: np.ndarray
    transfer: np.ndarray
    workers: int
    buffer: int
    floor: float = 0.0

    def seconds_per_batch(self) -> float:
        """Return the time from one batch to the next, on average."""
        return max(self.floor, _simulated(self))


def _simulated(pipeline: Pipeline) -> float:
    n = len(pipeline.make)
    least = max(LEAST_BATCHES, 5 * pipeline.buffer)
    make, step, take, transfer = (
        np.resize(values, n * -(-least // n)).tolist()
        for values in (pipeline.make, pipeline.step, pipeline.take, pipeline.transfer)
    )
    n = len(make)
    if not pipeline.workers:
        return float(sum(make) + sum(step) + sum(take)) / n
    free = [0.0] * pipeline.workers  # when each worker is free, a heap
    arrived: list[float] = []
    taken: list[float] = []
    warm = min(n - 1, 2 * pipeline.buffer)  # batches until the begin is over
    asked = 0.0

    def submit(number: int, at: float) -> None:
        done = max(at, heapq.heappop(free)) + make[number]
        heapq.heappush(free, done)
        arrived.append(done + transfer[number])

    for number in range(min(n, pipeline.buffer)):
        submit(number, 0.0)
    for number in range(n):
        got = max(asked, arrived[number]) + take[number]
        if number + pipeline.buffer < n:
            submit(number + pipeline.buffer, got)
        taken.append(got)
        asked = got + step[number]
    return float(taken[-1] - taken[warm]) / max(1, n - 1 - warm) if n - 1 > warm else float(taken[-1]) / n
