"""``plain``: a hand-written loop, the lowest cost of the task on one thread.

It handles no errors, and reuses the memory of one batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.peers.base import Variant
from benchmarks.workloads import open_data
from benchmarks.workloads.base import Batch, Workload, shuffled


class Loop:
    """One thread that reads into the memory of one batch."""

    def __init__(self, workload: Workload, workers: int) -> None:
        self.workload = workload
        self.workers = workers
        self.data = open_data(workload)
        self.slot = self.data.batch(np.zeros(workload.batch_size, np.int64))

    def epoch(self, number: int) -> Iterator[Batch]:
        for rows in shuffled(self.workload, number):
            out = [array[: len(rows)] for array in self.slot]
            self.data.fill(rows, out)
            yield out

    def close(self) -> None:
        """Do nothing, because nothing was started."""


VARIANTS = (Variant(name="plain", family="plain", module=__name__, open=Loop),)
