"""What all file formats of the ``storage`` workload share.

A file holds images ``x``, ``(n, 128, 128, 3) uint8``, and labels ``y``, ``(n,) int64``. Labels are small, so that plain
code has them in memory where a format has them in one piece. Libraries are imported where they are used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np

from benchmarks.workloads.base import Rows

GROUP = 64
"""Rows of a chunk, row group or record batch; as many as a batch has."""
Shape: TypeAlias = "tuple[int, ...]"


class Format(ABC):
    """A file of one format, open, for one thread.

    Args:
        path: The file or folder.
        shape: Of an image.

    Attributes:
        x: What holds the images, of any kind.
        y: The labels, ``(n,) int64``.
    """

    title: ClassVar[str]
    accessor: ClassVar[str]  # the name of ours
    needs: ClassVar[tuple[str, ...]] = ()
    chunk: ClassVar[int] = 0  # rows that are read together; 0 where the order in blocks is not measured
    drawn: ClassVar[int] = 0  # batches of a random epoch, where all rows would take minutes; 0 for all
    x: Any
    y: np.ndarray

    @classmethod
    @abstractmethod
    def write(cls, path: Path, images: np.ndarray, labels: np.ndarray) -> None:
        """Write such a file."""

    @abstractmethod
    def __init__(self, path: Path, shape: Shape) -> None: ...

    @abstractmethod
    def take(self, rows: Rows, x: np.ndarray, y: np.ndarray) -> None:
        """Write rows in any order into arrays of their length."""

    @abstractmethod
    def slice(self, start: int, x: np.ndarray, y: np.ndarray) -> None:
        """Write as many rows from `start` on as the arrays hold."""

    def sample(self, row: int) -> tuple[Any, Any]:
        """The sample of one row, as data sets for PyTorch commonly read it."""
        return self.x[row], self.y[row]

    @classmethod
    def ours(cls, path: Path, shape: Shape) -> list[Any]:
        """Our accessors of both."""
        import batchup_ng as bu

        accessor = getattr(bu, cls.accessor)
        return [accessor(path, "x"), accessor(path, "y")]


class Mapped(Format):
    """Formats in which `x` is one piece of the file: plain code maps it."""

    def take(self, rows: Rows, x: np.ndarray, y: np.ndarray) -> None:
        np.take(self.x, rows, axis=0, out=x, mode="clip")  # any other mode makes a copy on the way
        np.take(self.y, rows, out=y, mode="clip")

    def slice(self, start: int, x: np.ndarray, y: np.ndarray) -> None:
        np.copyto(x, self.x[start : start + len(x)])
        np.copyto(y, self.y[start : start + len(y)])


class Grouped(Format):
    """Formats in which plain code reads groups of rows, at random those that some of the rows are in, one by one."""

    chunk = GROUP

    def take(self, rows: Rows, x: np.ndarray, y: np.ndarray) -> None:
        groups, within = np.divmod(rows, GROUP)
        for group in np.unique(groups).tolist():
            images = self.group(group)
            for place in np.flatnonzero(groups == group).tolist():
                x[place] = images[within[place]]
        np.take(self.y, rows, out=y, mode="clip")

    def slice(self, start: int, x: np.ndarray, y: np.ndarray) -> None:
        for first in range(0, len(x), GROUP):
            part = x[first : first + GROUP]
            np.copyto(part, self.group((start + first) // GROUP))
        np.copyto(y, self.y[start : start + len(y)])

    @abstractmethod
    def group(self, number: int) -> np.ndarray:
        """The images of one group, as they are until the next is asked for."""
