"""``empty``: 320,000 samples of one number of 4 bytes, with a map that does nothing: all cost is the loader's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workloads import base


def make(folder: Path, quick: bool) -> base.Workload:
    """Return the workload; it has no files."""
    samples = 640 if quick else 320_000
    total = sum(range(samples))
    return base.Workload(kind="empty", folder=str(folder), samples=samples, y_sum=total, x_sum=total)


def nothing(x: Any) -> Any:
    """Return the array unchanged, in the tuple that a map returns."""
    return (x,)


class Data(base.Data):
    """One array of numbers."""

    map = staticmethod(nothing)

    def __init__(self, workload: base.Workload) -> None:
        self.columns = (np.arange(workload.samples, dtype=np.int32),)

    def sample(self, row: int) -> tuple[Any, ...]:
        sample: tuple[Any, ...] = nothing(self.columns[0][row])
        return sample
