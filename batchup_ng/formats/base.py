"""What writes rows into a storage, in their order, so that it can go on after a kill: the base of the formats.

A writer is told to begin, then to write batches. After some of them it is asked for a checkpoint: it brings all that it
was given to the disk, and says where it is. After a kill it is told to resume from there; what was written behind that
is cut off or written over. So a format needs no more than a place to which it can go back.
"""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .columns import Column, Values

CHUNK_BYTES = 1 << 20
"""Bytes of a chunk, which is decoded whole to read a row of it."""


class Writer(ABC):
    """Writes rows into one storage.

    Args:
        made: The folder in which it is made, and in which nothing else is.
        work: A folder for files that are not wanted in the end.
        name: Of the file or folder that is made.
        columns: What is written.
        rows: How many, or fewer where samples are left out.
        part_rows: How many lie between two checkpoints, or fewer where rows are larger than the first ones.
        class_names: The names of the classes that labels are numbers of; empty where there are none.
        options: Options of the format, those that were given.
    """

    ending: ClassVar[str]
    can_hold: ClassVar[str]
    """What it can hold, in words."""
    options: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[tuple[str, ...]] = ()
    """Modules that it imports, the first of which is the extra's name."""

    def __init__(
        self, made: Path, work: Path, name: str, columns: Sequence[Column], rows: int, part_rows: int,
        class_names: Sequence[str], options: dict[str, Any],
    ) -> None:  # fmt: skip
        self.made = made
        self.work = work
        self.path = made / name
        self.columns = list(columns)
        self.rows = rows
        self.part_rows = part_rows
        self.class_names = list(class_names)
        self.given = options
        self.row = 0  # the next
        self.check()

    def check(self) -> None:  # noqa: B027  # most have nothing to refuse
        """Refuse columns and options that do not go together."""

    @classmethod  # noqa: B027  # most take any
    def check_name(cls, name: str, options: dict[str, Any]) -> None:
        """Refuse a name of the target that does not go with the options."""

    @classmethod
    def existing(cls, path: Path) -> list[Path]:
        """Return what is at the place of the target now."""
        return [path] if os.path.lexists(path) else []

    @classmethod
    @abstractmethod
    def holds(cls, column: Column) -> bool:
        """Return whether it can hold such a column."""

    @classmethod
    def chosen(cls, columns: Sequence[Column], options: dict[str, Any]) -> type[Writer]:
        """Return the writer of this format for these columns and options."""
        return cls

    @abstractmethod
    def begin(self) -> None:
        """Make an empty storage; what is there of another is nobody's."""

    @abstractmethod
    def resume(self, place: Any) -> None:
        """Go back to the checkpoint that returned `place`, when `row` was what it is now."""

    @abstractmethod
    def write(self, values: Values, n: int) -> None:
        """Write `n` rows; `row` is raised behind it."""

    @abstractmethod
    def checkpoint(self) -> Any:
        """Bring what was written to the disk; return by what it is found again, as JSON has it."""

    @abstractmethod
    def finish(self) -> None:
        """Make the storage whole, with `row` rows, all at a checkpoint, and bring it to the disk."""

    def close(self) -> None:  # noqa: B027  # most keep nothing open
        """Close what is open, whatever state that is in; may be called again."""


class PartsWriter(Writer):
    """A writer that keeps the batches until a checkpoint, and writes them at once."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._kept: list[Values] = []
        self._done = 0  # rows that were written

    def write(self, values: Values, n: int) -> None:
        self._kept.append(values)

    def checkpoint(self) -> Any:
        kept, self._kept = self._kept, []
        place = self.write_part({each.name: joined([values[each.name] for values in kept]) for each in self.columns})
        self._done = self.row
        return place

    @abstractmethod
    def write_part(self, values: Values) -> Any:
        """Write rows `_done` to `row`, bring them to the disk, and return the place."""


def joined(parts: list[Any]) -> Any:
    """Return the values of several batches as those of one."""
    if isinstance(parts[0], np.ndarray):
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
    return [value for part in parts for value in part]


def dividing(rows: int, most: int) -> int:
    """Return the largest divisor of `rows` that is at most `most`, so that no chunk is written twice.

    >>> dividing(384, 100)
    96
    """
    return next(n for n in range(max(1, min(rows, most)), 0, -1) if rows % n == 0)


def synchronised(path: str | os.PathLike[str]) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def pwrite_all(handle: int, data: Any, offset: int) -> None:
    """Write all bytes of `data`, which is contiguous, at `offset`; the system may take them in several pieces.

    Raises:
        OSError: they cannot all be written, as when the disk is full.
    """
    view = memoryview(data).cast("B")
    while view:
        done = os.pwrite(handle, view, offset)
        if done == 0:  # for ever, on some file systems that are full
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view, offset = view[done:], offset + done


def pread_all(handle: int, size: int, offset: int) -> bytes:
    """Return `size` bytes at `offset`, fewer where the file ends."""
    parts = []
    while size and (part := os.pread(handle, size, offset)):
        parts.append(part)
        size, offset = size - len(part), offset + len(part)
    return b"".join(parts)
