"""The base of the formats: a writer that stores rows in their order, and can go on after a kill.

The conversion calls `begin`, then `write` for batch after batch. After some batches it calls `checkpoint`: the writer
brings everything that it was given to the disk, and returns its place. After a kill, `resume` goes back to that place;
everything written after it is cut off or overwritten. So a format only needs a place that it can go back to.
"""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..platforms import system
from .columns import Column, Values

CHUNK_BYTES = 1 << 20
"""Bytes of a chunk; reading one row decodes its whole chunk."""


class Writer(ABC):
    """Writes rows into one target.

    Args:
        made: The folder where the target is made, and nothing else.
        work: A folder for temporary files.
        name: The name of the file or folder that is made.
        columns: The columns to write.
        rows: The number of rows; fewer are written if samples are left out.
        part_rows: Rows between two checkpoints; there are fewer if rows are larger than the first ones.
        class_names: The names of the classes that labels are numbers of; empty if there are none.
        options: The options of the format that were given.
    """

    ending: ClassVar[str]
    can_hold: ClassVar[str]
    """The contents that it can hold, in words."""
    options: ClassVar[tuple[str, ...]] = ()
    compressions: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[tuple[str, ...]] = ()
    """The name of the extra, then the modules that the format imports."""
    _handle: int | None = None  # of the open file, if the format writes it by itself

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
        self.row = 0  # of the next row
        self.check()

    def check(self) -> None:  # noqa: B027  # most have nothing to refuse
        """Refuse columns and options that do not go together."""

    @classmethod  # noqa: B027  # most take any
    def check_name(cls, name: str, options: dict[str, Any]) -> None:
        """Refuse a name of the target that does not fit the options."""

    @classmethod
    def existing(cls, path: Path) -> list[Path]:
        """Return the files that are at the place of the target now."""
        return [path] if os.path.lexists(path) else []

    @classmethod
    @abstractmethod
    def holds(cls, column: Column) -> bool:
        """Return whether the format can hold such a column."""

    @classmethod
    def chosen(cls, columns: Sequence[Column], options: dict[str, Any]) -> type[Writer]:
        """Return the writer of this format for these columns and options."""
        return cls

    @abstractmethod
    def begin(self) -> None:
        """Create an empty target. Overwrite leftovers."""

    @abstractmethod
    def resume(self, place: Any) -> None:
        """Go back to the checkpoint that returned `place`; `row` has its value of that time."""

    @abstractmethod
    def write(self, values: Values, n: int) -> None:
        """Write `n` rows; the caller raises `row` afterwards."""

    @abstractmethod
    def checkpoint(self) -> Any:
        """Bring the written rows to the disk; return the place for :meth:`resume`, as a JSON value."""

    @abstractmethod
    def finish(self) -> None:
        """Complete the target with `row` rows, all at a checkpoint, and bring it to the disk."""

    def close(self) -> None:
        """Close everything that is open, in any state; may be called again."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


class PartsWriter(Writer):
    """A writer that keeps the batches until a checkpoint, then writes them at once."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._kept: list[Values] = []
        self._done = 0  # rows already written

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
    """Return the values of several batches as the values of one."""
    if isinstance(parts[0], np.ndarray):
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
    return [value for part in parts for value in part]


def dividing(rows: int, most: int) -> int:
    """Return the largest divisor of `rows` that is at most `most`: chunks of that size are written only once.

    >>> dividing(384, 100)
    96
    """
    return next(n for n in range(max(1, min(rows, most)), 0, -1) if rows % n == 0)


def synchronised(path: str | os.PathLike[str]) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    system.synchronise(os.fspath(path))


def pwrite_all(handle: int, data: Any, offset: int) -> None:
    """Write all bytes of `data`, which is contiguous, at `offset`; the system may take several pieces.

    Raises:
        OSError: they cannot all be written, for example because the disk is full.
    """
    view = memoryview(data).cast("B")
    while view:
        done = system.pwrite(handle, view, offset)
        if done == 0:  # some file systems return 0 forever when they are full
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view, offset = view[done:], offset + done


def pread_all(handle: int, size: int, offset: int) -> bytes:
    """Return `size` bytes at `offset`, fewer at the end of the file."""
    parts = []
    while size and (part := system.pread(handle, size, offset)):
        parts.append(part)
        size, offset = size - len(part), offset + len(part)
    return b"".join(parts)
