"""``arrays``: 20,000 images of 128x128x3 bytes in memory, 983 MB, with a label each, no map.

Each peer loads the file into its own memory, as its users would. Some libraries send a ``numpy.memmap`` of a shared
file to their workers by name, so a memmap would not represent the data of their users.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workloads import base


def make(folder: Path, quick: bool) -> base.Workload:
    """Write the images and the labels."""
    return write("arrays", folder, *((200, 16) if quick else (20_000, 128)))


def write(kind: str, folder: Path, samples: int, side: int) -> base.Workload:
    """Write `samples` images of a size, and their labels."""
    return save(kind, folder, np.random.default_rng(0).integers(0, 256, (samples, side, side, 3), dtype=np.uint8))


def save(kind: str, folder: Path, images: np.ndarray) -> base.Workload:
    """Write these images and their labels."""
    np.save(folder / "images.npy", images)
    return base.Workload(
        kind=kind,
        folder=str(folder),
        samples=len(images),
        y_sum=base.save_labels(folder, len(images)),
        x_sum=int(base.probe(images).sum()),
        nbytes=images.nbytes,
    )


class Data(base.Data):
    """Two arrays. Mapped arrays are pickled as the names of their files, because a pickled memmap is a copy."""

    def __init__(self, workload: base.Workload) -> None:
        folder = Path(workload.folder)
        images = np.load(folder / "images.npy", mmap_mode="r" if workload.mapped else None)
        self.columns = (images, np.load(folder / "labels.npy"))
        self._workload = workload

    def __reduce__(self) -> str | tuple[Any, ...]:
        return (Data, (self._workload,)) if self._workload.mapped else super().__reduce__()

    def sample(self, row: int) -> tuple[Any, ...]:
        return self.columns[0][row], self.columns[1][row]

    def fill(self, rows: base.Rows, out: base.Batch) -> None:
        for place, column in zip(out, self.columns, strict=True):
            np.take(column, rows, axis=0, out=place, mode="clip")  # any other mode makes an extra copy
