"""``plain``: the loop that one writes by hand, the least that the task costs one thread.

No errors are handled; one batch of memory is used again and again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.peers.base import Variant
from benchmarks.workloads import open_data
from benchmarks.workloads.base import Batch, Workload, shuffled


class Loop:
    """One thread, which reads into one batch."""

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
        """Nothing was started."""


VARIANTS = (Variant(name="plain", family="plain", module=__name__, open=Loop),)
