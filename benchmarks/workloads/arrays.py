"""Workloads of arrays in memory, without a map.

Each peer loads the files into its own memory, as its users would. Some libraries send a ``numpy.memmap`` of a shared
file to their workers by name, so a memmap would not represent the data of their users.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.workloads import base


class Arrays(base.Data):
    """20,000 images of 128x128x3 bytes, 983 MB, with a label each.

    Mapped arrays are pickled as the names of their files, because a pickled memmap is a copy.
    """

    shape: ClassVar[tuple[int, ...]] = (20_000, 128, 128, 3)
    quick_shape: ClassVar[tuple[int, ...]] = (200, 16, 16, 3)

    @classmethod
    def make(cls, folder: Path, quick: bool) -> base.Workload:
        x = cls.draw(cls.quick_shape if quick else cls.shape)
        np.save(folder / "x.npy", x)
        return base.Workload(
            folder=str(folder), samples=len(x), y_sum=base.save_labels(folder, len(x)),
            x_sum=int(base.probe(x).sum(dtype=np.float64)), nbytes=x.nbytes,
        )  # fmt: skip

    @classmethod
    def draw(cls, shape: tuple[int, ...]) -> np.ndarray:
        """Return the first array of all samples."""
        return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)

    def __init__(self, workload: base.Workload) -> None:
        super().__init__(workload)
        folder = Path(workload.folder)
        x = np.load(folder / "x.npy", mmap_mode="r" if workload.mapped else None)
        self.columns = (x, np.load(folder / "labels.npy"))

    def __reduce__(self) -> str | tuple[Any, ...]:
        return (type(self), (self.workload,)) if self.workload.mapped else super().__reduce__()

    def sample(self, row: int) -> tuple[Any, ...]:
        return self.columns[0][row], self.columns[1][row]

    def fill(self, rows: base.Rows, out: base.Batch) -> None:
        for place, column in zip(out, self.columns, strict=True):
            np.take(column, rows, axis=0, out=place, mode="clip")  # any other mode makes an extra copy


class Decoded(Arrays):
    """4,096 images of 224x224x3 bytes, 617 MB, as input of a network."""

    shape, quick_shape = (4_096, 224, 224, 3), (32, 32, 32, 3)


class Digits(Arrays):
    """60,000 images of 28x28 bytes, 47 MB: the size of MNIST."""

    shape, quick_shape = (60_000, 28, 28, 1), (200, 28, 28, 1)


class Table(Arrays):
    """20,000 rows of 64 numbers and a label. Variants put them into tables of their own library."""

    shape, quick_shape = (20_000, 64), (200, 64)

    @classmethod
    def draw(cls, shape: tuple[int, ...]) -> np.ndarray:
        return np.random.default_rng(4).integers(0, 100, shape).astype(np.float32)  # sums of a batch are exact


class Remote(Arrays):
    """4,000 images of 128x128x3 bytes; a worker waits 0.5 ms for each, as for remote storage.

    A clock sets the rate, independent of the load of the machine. Any further wait of the consumer comes from the
    library.
    """

    shape = (4_000, 128, 128, 3)
    seconds = 0.0005

    def map(self, images: Any, labels: Any) -> base.Batch:
        time.sleep(self.seconds * len(labels))
        return images, labels

    def sample(self, row: int) -> tuple[Any, ...]:
        time.sleep(self.seconds)
        return super().sample(row)

    def fill(self, rows: base.Rows, out: base.Batch) -> None:
        time.sleep(self.seconds * len(rows))
        super().fill(rows, out)
