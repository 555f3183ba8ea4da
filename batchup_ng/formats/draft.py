"""A file that is changed first in memory, then on the disk. A change that a kill or a full disk broke can be undone.

A library writes into a :class:`Draft`, which cannot fail: HDF5 ends the program when its disk does. ``commit`` then
writes the bytes that it replaces to a log, brings the log to the disk, and changes the file. :func:`undo` makes the
file again what it was. A record of the log counts only if its checksum is right. If it is wrong, the record was cut off
before the file was changed.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path
from typing import Any

from ..platforms import system
from .base import pread_all, pwrite_all, synchronised

DRAFT_PAGE_BYTES = 1 << 16
"""Bytes that are kept and written together: fewer take longer, more lengthen the log of scattered changes."""

LOG_RECORD = struct.Struct("<QQI")
"""Header of replaced bytes in the log: their place in the file, their number, their CRC-32."""


class Draft(io.RawIOBase):
    """A file with changes that are kept in memory until ``commit``.

    Args:
        path: The file; an empty one is made if there is none.
    """

    _file = -1

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | system.NOT_INHERITED, 0o666)
        self._before = self._kept = self._size = os.fstat(self._file).st_size
        self._at = 0
        self._pages: dict[int, bytearray] = {}

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")[: max(0, self._size - self._at)]
        done = 0
        while done < len(view):
            number, first = divmod(self._at + done, DRAFT_PAGE_BYTES)
            n = min(DRAFT_PAGE_BYTES - first, len(view) - done)
            page = self._pages.get(number) or self._stored(number)
            view[done : done + n] = page[first : first + n]
            done += n
        self._at += done
        return done

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            number, first = divmod(self._at + done, DRAFT_PAGE_BYTES)
            n = min(DRAFT_PAGE_BYTES - first, len(view) - done)
            if number not in self._pages:
                self._pages[number] = bytearray(DRAFT_PAGE_BYTES) if n == DRAFT_PAGE_BYTES else self._stored(number)
            self._pages[number][first : first + n] = view[done : done + n]
            done += n
        self._at += done
        self._size = max(self._size, self._at)
        return done

    def truncate(self, size: int | None = None) -> int:
        size = self._at if size is None else size
        for number in [number for number in self._pages if number * DRAFT_PAGE_BYTES >= size]:
            del self._pages[number]
        if size < self._size and size % DRAFT_PAGE_BYTES:
            page = self._pages.setdefault(size // DRAFT_PAGE_BYTES, self._stored(size // DRAFT_PAGE_BYTES))
            page[size % DRAFT_PAGE_BYTES :] = bytes(DRAFT_PAGE_BYTES - size % DRAFT_PAGE_BYTES)
        self._kept = min(self._kept, size)
        self._size = size
        return size

    def commit(self, log: Path) -> int:
        """Change the file on the disk; return its size. Afterwards :func:`undo` can restore it by `log`.

        Raises:
            OSError: the disk is full, or fails. The file must then be undone.
        """
        for old in log.parent.glob("undo-*"):
            old.unlink()
        changed = set(self._pages)
        if self._kept < self._before:
            changed.update(range(self._kept // DRAFT_PAGE_BYTES, -(-self._before // DRAFT_PAGE_BYTES)))
        with open(log, "wb") as file:
            for start in sorted(number * DRAFT_PAGE_BYTES for number in changed):
                if start < self._before:
                    replaced = pread_all(self._file, min(DRAFT_PAGE_BYTES, self._before - start), start)
                    file.write(LOG_RECORD.pack(start, len(replaced), zlib.crc32(replaced)) + replaced)
            file.flush()
            os.fsync(file.fileno())
        synchronised(log.parent)
        if self._kept < self._before:
            os.ftruncate(self._file, self._kept)  # bytes beyond it are then zero unless they are written
        for number, page in sorted(self._pages.items()):
            pwrite_all(
                self._file, memoryview(page)[: self._size - number * DRAFT_PAGE_BYTES], number * DRAFT_PAGE_BYTES
            )
        os.ftruncate(self._file, self._size)
        os.fsync(self._file)
        return self._size

    def close(self) -> None:
        """Forget all changes. HDF5 may still ask for bytes, if an interrupt kept it from closing its file."""
        handle, self._file = self._file, -1
        if handle >= 0:
            os.close(handle)
        super().close()

    def _stored(self, number: int) -> bytearray:
        """Return a page of the file, filled up with zeros after the file's end."""
        size = min(DRAFT_PAGE_BYTES, self._kept - number * DRAFT_PAGE_BYTES)
        stored = pread_all(self._file, size, number * DRAFT_PAGE_BYTES) if self._file >= 0 and size > 0 else b""
        return bytearray(stored.ljust(DRAFT_PAGE_BYTES, b"\0"))


def undo(path: Path, log: Path, size: int) -> None:
    """Restore a file from when it had `size` bytes, by the log of the ``commit`` after that."""
    data = log.read_bytes() if log.exists() else b""
    at = 0
    with open(path, "r+b", buffering=0) as file:
        while at + LOG_RECORD.size <= len(data):
            start, length, checksum = LOG_RECORD.unpack_from(data, at)
            at += LOG_RECORD.size + length
            if zlib.crc32(old := data[at - length : at]) != checksum:
                break
            pwrite_all(file.fileno(), old, start)
        os.ftruncate(file.fileno(), size)
        os.fsync(file.fileno())
