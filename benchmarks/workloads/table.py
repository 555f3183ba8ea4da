"""``table``: 20,000 rows of 64 numbers and a label. Variants put them into tables of their own library."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.workloads import base


def make(folder: Path, quick: bool) -> base.Workload:
    """Write the numbers and the labels."""
    samples = 200 if quick else 20_000
    numbers = np.random.default_rng(4).integers(0, 100, (samples, 64)).astype(np.float32)  # sums of a batch are exact
    np.save(folder / "numbers.npy", numbers)
    return base.Workload(
        kind="table", folder=str(folder), samples=samples, y_sum=base.save_labels(folder, samples),
        x_sum=int(numbers.sum(dtype=np.float64)), nbytes=numbers.nbytes,
    )  # fmt: skip


class Data(base.Data):
    """Two arrays."""

    def __init__(self, workload: base.Workload) -> None:
        folder = Path(workload.folder)
        self.columns = (np.load(folder / "numbers.npy"), np.load(folder / "labels.npy"))
