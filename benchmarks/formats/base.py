"""Shared parts of all file formats of the ``storage`` workload.

A file holds images ``x``, ``(n, 128, 128, 3) uint8``, and labels ``y``, ``(n,) int64``. Labels are small. If a
format stores them in one piece, plain code holds them in memory. Libraries are imported where they are used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

GROUP = 64
"""Rows of a chunk, row group or record batch; equal to the rows of a batch."""
Rows: TypeAlias = "NDArray[np.int64]"
Shape: TypeAlias = "tuple[int, ...]"


class Format(ABC):
    """An open file of one format, for one thread.

    Args:
        path: The file or folder.
        shape: Shape of an image.

    Attributes:
        x: Object that holds the images, of any type.
        y: Labels, ``(n,) int64``.
    """

    title: ClassVar[str]
    accessor: ClassVar[str]  # name of our accessor
    needs: ClassVar[tuple[str, ...]] = ()
    chunk: ClassVar[int] = 0  # rows that are read together; 0 if the order in blocks is not measured
    drawn: ClassVar[int] = 0  # batches of a random epoch, if all rows would take minutes; 0 for all
    x: Any
    y: np.ndarray

    @classmethod
    @abstractmethod
    def write(cls, path: Path, images: np.ndarray, labels: np.ndarray) -> None:
        """Write a file of this format."""

    @abstractmethod
    def __init__(self, path: Path, shape: Shape) -> None: ...

    @abstractmethod
    def pick(self, rows: Rows, x: np.ndarray) -> None:
        """Write the images of `rows`, in any order, into `x`, which has their length."""

    @abstractmethod
    def run(self, start: int, x: np.ndarray) -> None:
        """Fill `x` with the images from row `start` on."""

    def take(self, rows: Rows, x: np.ndarray, y: np.ndarray) -> None:
        """Write the images and labels of `rows`, in any order, into `x` and `y`, which have their length."""
        self.pick(rows, x)
        np.take(self.y, rows, out=y, mode="clip")  # any other mode makes an extra copy

    def slice(self, start: int, x: np.ndarray, y: np.ndarray) -> None:
        """Fill `x` and `y` with the images and labels from row `start` on."""
        self.run(start, x)
        np.copyto(y, self.y[start : start + len(y)])

    def sample(self, row: int) -> tuple[Any, Any]:
        """Return the sample of a row, read as data sets for PyTorch commonly do."""
        return self.x[row], self.y[row]

    @classmethod
    def ours(cls, path: Path, shape: Shape) -> list[Any]:
        """Return our accessors of images and labels."""
        import batchup_ng as bu

        accessor = getattr(bu, cls.accessor)
        return [accessor(path, "x"), accessor(path, "y")]


class Mapped(Format):
    """A format that stores `x` in one piece: plain code maps it."""

    def pick(self, rows: Rows, x: np.ndarray) -> None:
        np.take(self.x, rows, axis=0, out=x, mode="clip")

    def run(self, start: int, x: np.ndarray) -> None:
        np.copyto(x, self.x[start : start + len(x)])


class Grouped(Format):
    """A format that plain code reads in groups of rows. At random, it reads each group that has some of the rows."""

    chunk = GROUP

    def pick(self, rows: Rows, x: np.ndarray) -> None:
        groups, within = np.divmod(rows, GROUP)
        for group in np.unique(groups).tolist():
            images = self.group(group)
            for place in np.flatnonzero(groups == group).tolist():
                x[place] = images[within[place]]

    def run(self, start: int, x: np.ndarray) -> None:
        for first in range(0, len(x), GROUP):
            part = x[first : first + GROUP]
            np.copyto(part, self.group((start + first) // GROUP))

    @abstractmethod
    def group(self, number: int) -> np.ndarray:
        """Return the images of a group, valid until the next call."""
