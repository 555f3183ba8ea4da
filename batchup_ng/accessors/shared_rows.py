"""Rows of one shape that threads, processes and programs share. Each row is there whole or not at all.

    in memory                                       in a folder
    ┌────────────────────────────────────┐          ┌────────────────────────────────────┐
    │ table, a nameless file in memory:  │          │ table, a nameless file in memory:  │
    │   one byte a row, 1 if it is there │          │   one byte a row, 1 if it is there │
    │ rows, a nameless file in memory:   │          │ rows, a file:                      │
    │   row r at r × its bytes           │          │   header | a CRC-32 a row | rows,  │
    └────────────────────────────────────┘          │   then one byte                    │
                                                    └────────────────────────────────────┘

Ownership. The process that made the rows, and each that received a pickle of them, has both files open, and mapped for
reading. A pickle names the places of both (:mod:`~batchup_ng.memory.shared_file`). So all processes of a program share
one table, and nothing with a name is left in memory, however they end.

Publication. The bytes of a row are written, then, in a folder, its checksum, then its byte of the table. ``pread``
reads the checksums, because on a full disk in memory (tmpfs) an access to a mapped page that nobody wrote is a SIGBUS.
If a writer is killed in between, its row is not there. Each row has one place and one value, so writers need no lock:
two of them write the same bytes.

A table lives as long as its program. A row that an earlier program left in a folder has a checksum that is not zero. It
gets its byte of the table if its bytes have that checksum. They may have another: at a power failure, the system may
have written the checksum to the disk and not yet the row.

A file that another program cuts short is lost for every process that has it open. From then on, these processes read
the rows from the accessor. They check the file's length before and after they copy rows. The system copies the rows,
one call for some 1000 of them, because an access to a page that was cut off would be a SIGBUS. No row lies at the end
of the file, so writing one never restores the file's length. Only the process that created a file writes its beginning.
"""

from __future__ import annotations

import contextlib
import errno
import math
import mmap
import os
import sys
import zlib
from typing import Any, NamedTuple

import numpy as np

from ..memory.budget import BUDGET, Holder
from ..memory.paging import announce_rows, copy_rows, map_pages
from ..memory.shared_file import LocalMemory, Place, SharedFile, memory_for_all
from ..platforms import system
from .base import fill_rows

HEADER_BYTES = 4096
"""Bytes before the checksums of a file."""

PART_BYTES = 1 << 20
"""Bytes of checksums to read at once."""

ROW_IS_HERE = b"\x01"
"""The byte of the table for a row that is there."""


class Form(NamedTuple):
    """Which rows are kept: the first `capacity` of `total` rows of `shape` and `dtype`, in memory or in `path`.

    The file begins with `header`, which identifies its rows.
    """

    total: int
    capacity: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    path: str | None = None
    header: bytes = b""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def place(self) -> str:
        """The name of the rows' place in messages."""
        return "memory" if self.path is None else repr(self.path)

    @property
    def start(self) -> int:
        """Where the rows begin in their file."""
        return 0 if self.path is None else HEADER_BYTES + -(-4 * self.total // HEADER_BYTES) * HEADER_BYTES

    @property
    def file_bytes(self) -> int:
        """Bytes of the file of all rows, with a byte after the last row that is never written."""
        return self.start + self.total * self.row_bytes + 1


class SharedRows(Holder):
    """The rows of a form that are there already. Row numbers count from 0.

    Args:
        form: The form of the rows.
        places: The files of another process, table and rows. If they are out of reach, on another machine or because
            that process has ended, they are opened as if they were made here: a file by its path, memory without a
            row in it.

    Raises:
        OSError: there is no room for the table, or the file cannot be made.
    """

    def __init__(self, form: Form, places: tuple[Place | None, Place | None] = (None, None)) -> None:
        self.form = form
        table: SharedFile | LocalMemory | None
        file: SharedFile | LocalMemory | None
        table, file = map(SharedFile.reached, places)
        if table is None or file is None:
            table = memory_for_all(form.total)
            table.reserve(0, form.total)  # otherwise reading it might find no memory: a SIGBUS
            file = memory_for_all(form.capacity * form.row_bytes) if form.path is None else _file(form)
            BUDGET.add(self)  # here alone, for the memory is the same in each process
        self._table_file, self._file = table, file
        self._table = np.frombuffer(table.map(mmap.ACCESS_READ), np.bool_)
        nbytes = form.start + form.capacity * form.row_bytes
        try:
            mapped = file.map(mmap.ACCESS_READ, nbytes or 1)
        except ValueError:  # the file is shorter
            mapped = mmap.mmap(-1, 1)
        rows = form.capacity if len(mapped) >= nbytes else 0
        self._mapped = mapped
        self._values: np.ndarray = np.ndarray((rows, *form.shape), form.dtype, mapped, form.start if rows else 0)

    def held(self) -> dict[str, int]:
        return {"cached rows": 0 if self.form.path is not None else self.form.capacity * self.form.row_bytes}

    def untouched(self) -> int:
        return max(0, self.held()["cached rows"] - self._file.taken())

    def lost(self) -> bool:
        """Return whether another program cut the file short. Its rows then no longer count."""
        return self.form.path is not None and os.fstat(self._file.fd).st_size != self.form.file_bytes

    def there(self, rows: np.ndarray) -> np.ndarray:
        """Return which of `rows`, ``(n,) int``, are there: ``(n,) bool``. It holds as long as the file is not lost."""
        if self.lost():
            return np.zeros(len(rows), np.bool_)
        there: np.ndarray = self._table[rows]
        if self.form.path is not None and not there.all():
            for place in np.flatnonzero(~there & (rows < self.form.capacity)).tolist():
                row = int(rows[place])
                found = int.from_bytes(system.pread(self._file.fd, 4, HEADER_BYTES + 4 * row), sys.byteorder)
                data = np.empty(self.form.row_bytes, np.uint8)
                if found and self._pread(row, data) and checksum(data) == found:
                    self._table_file.write(ROW_IS_HERE, row)
                    there[place] = True
        return there

    def copy(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write `rows`, ``(n,) int64``, all of them there, into `out`, ``(n, ...)``.

        If the file is lost during the call, the written rows do not count.
        """
        if self.form.path is None:
            fill_rows(self._values, rows, out)
        elif not out.flags.c_contiguous:  # the system would write beside it
            in_order = np.empty(out.shape, out.dtype)
            self.copy(rows, in_order)
            out[...] = in_order
        elif len(self._values):
            announce_rows(self._values, rows)
            if not copy_rows(self._values, rows, out):
                for row, data in zip(rows.tolist(), out.reshape(len(rows), -1).view(np.uint8), strict=True):
                    self._pread(row, data)

    def _pread(self, row: int, data: np.ndarray) -> bool:
        """Read the bytes of a row, ``(row_bytes,) uint8``, from the file; return whether all are there."""
        view, offset = memoryview(data.data), self.form.start + row * self.form.row_bytes
        while view and (done := system.pread_into(self._file.fd, [view], offset)):
            view, offset = view[done:], offset + done
        return not view

    def publish(self, row: int, data: np.ndarray) -> None:
        """Keep a row below the capacity; `data` is its bytes, ``(row_bytes,) uint8``.

        Raises:
            OSError: there is no room for it, or the file is lost; the row is then not there.
        """
        if self.lost():
            raise OSError(errno.ESTALE, "its file was cut short by another program")
        if self.form.path is None and not BUDGET.spares(self.form.row_bytes):
            raise OSError(errno.ENOMEM, "the system has no memory to spare")
        start = self.form.start + row * self.form.row_bytes
        end = self._file.write(data, start)
        map_pages(self._mapped, start, end)  # else the second epoch is a third slower (measured)
        if self.form.path is not None:
            self._file.write(checksum(data).to_bytes(4, sys.byteorder), HEADER_BYTES + 4 * row)
        self._table_file.write(ROW_IS_HERE, row)

    def count(self) -> int:
        """Return how many rows are there, including rows of earlier programs."""
        if self.lost():
            return 0
        if self.form.path is None:
            return int(np.count_nonzero(self._table))
        end = HEADER_BYTES + 4 * self.form.capacity
        starts = range(HEADER_BYTES, end, PART_BYTES)
        parts = (system.pread(self._file.fd, min(PART_BYTES, end - at), at) for at in starts)
        return sum(int(np.count_nonzero(np.frombuffer(part, np.uint32, len(part) // 4))) for part in parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedRows, (self.form, (self._table_file.place, self._file.place))


def checksum(data: np.ndarray) -> int:
    """Return the CRC-32 of a row; 1 instead of 0, which stands for a row that was never written."""
    return zlib.crc32(data.data) or 1


def _file(form: Form) -> SharedFile:
    """Return the file of some rows, by its path. Make the file if there is none that fits.

    A file that does not fit is unlinked, not written to: a program that has it open keeps it as it is.
    """
    path, how = os.path.realpath(str(form.path)), os.O_RDWR | system.NOT_INHERITED  # a link may lead to no file yet
    while True:
        try:
            file, is_new = SharedFile(os.open(path, how | os.O_CREAT | os.O_EXCL, 0o666)), True
        except FileExistsError:
            try:
                file, is_new = SharedFile(os.open(path, how | system.NO_WAIT)), False
            except FileNotFoundError:
                continue
        try:
            system.lock_file(file.fd)  # of two programs, one makes it
            found = os.fstat(file.fd)
            if is_new and found.st_nlink:
                os.ftruncate(file.fd, form.file_bytes)
                file.write(form.header, 0)
            if file.size == form.file_bytes and system.pread(file.fd, len(form.header), 0) == form.header:
                system.unlock_file(file.fd)  # a worker's descriptor would not release it
                return file
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(path), found):  # else another program has replaced it
                    os.unlink(path)
        except BaseException:
            file.close()
            raise
        file.close()
