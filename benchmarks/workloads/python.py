"""``python``: 4,000 samples of about 0.5 ms of pure-Python arithmetic each.

Each step is one of a Lehmer generator. Its n-th state has a closed form, which gives the expected sum without the work.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.workloads import base

MULTIPLIER, MODULUS = 48271, 2**31 - 1
LOOPS = 8_000


def burn(row: int, loops: int) -> int:
    """Keep the interpreter busy for `loops` steps; return a result that depends only on the row.

    >>> burn(5, 1000) == 6 * pow(MULTIPLIER, 1000, MODULUS) % MODULUS
    True
    """
    state = row + 1
    for _ in range(loops):
        state = state * MULTIPLIER % MODULUS
    return state


def make(folder: Path, quick: bool) -> base.Workload:
    """Return the workload; it has no files."""
    samples, loops = (200, 20) if quick else (4_000, LOOPS)
    y_sum = sum((row + 1) * pow(MULTIPLIER, loops, MODULUS) % MODULUS for row in range(samples))
    return base.Workload(
        kind="python", folder=str(folder), samples=samples, y_sum=y_sum, x_sum=sum(range(samples)),
        detail={"loops": loops},
    )  # fmt: skip


class Data(base.Data):
    """Row numbers. The map adds the result of its work to each."""

    def __init__(self, workload: base.Workload) -> None:
        self.columns = (np.arange(workload.samples),)
        self._loops = workload.detail["loops"]

    def map(self, rows: base.Rows) -> base.Batch:
        return rows, np.array([burn(row, self._loops) for row in rows.tolist()], np.int64)

    def sample(self, row: int) -> tuple[int, int]:
        return row, burn(row, self._loops)
