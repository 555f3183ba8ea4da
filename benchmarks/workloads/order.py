"""``order``: 10**8 computed rows, each equal to its number: only their order has a cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workloads import base


def make(folder: Path, quick: bool) -> base.Workload:
    """Return the workload; it has no files."""
    samples = 10**5 if quick else 10**8
    total = samples * (samples - 1) // 2
    return base.Workload(
        kind="order", folder=str(folder), samples=samples, batch_size=1024, y_sum=total, x_sum=total
    )


class Numbers:
    """A column whose row k is k."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, rows: Any) -> Any:
        return np.array(rows)


class Data(base.Data):
    """One column."""

    def __init__(self, workload: base.Workload) -> None:
        self.columns = (Numbers(workload.samples),)
