"""An open file that several threads can read at any place."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ...platforms import system
from .remote import RemoteFile, Stamp, is_remote


def regular(path: str) -> os.stat_result:
    """Return the status of a file. Refuse a file that is not regular: opening a pipe, for example, would block."""
    found = os.stat(path)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "a directory, not a file")
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return found


class OpenFile:
    """A file that is open for reading, by its descriptor.

    It is closed with the last reference to it. If it were closed while another thread reads, the next file opened would
    get the same number.

    Attributes:
        number: The descriptor.
        scan_bytes: How many bytes to read at once when reading all of a file.
    """

    number = -1
    scan_bytes = 1 << 22

    def __init__(self, path: str) -> None:
        self.number = os.open(path, os.O_RDONLY | system.NOT_INHERITED)

    def read(self, offset: int, size: int) -> bytes:
        """Return all `size` bytes from `offset` on."""
        found = system.pread(self.number, size, offset)
        while len(found) < size and (more := system.pread(self.number, size - len(found), offset + len(found))):
            found += more  # Linux reads 2 GiB at once at most
        if len(found) != size:
            raise EOFError(f"{len(found)} of {size} bytes are there")
        return found

    def read_many(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes at several places. A place is its first byte and its number of bytes."""
        return [self.read(*place) for place in places]

    def walk(self, size: int) -> Callable[[int, int], bytes]:
        """Return ``read(offset, n)``, which returns fewer bytes at the end of the file; `size` is the file's."""
        return lambda offset, n: system.pread(self.number, n, offset)

    def __del__(self) -> None:
        if self.number >= 0:  # it could be opened
            os.close(self.number)


AnyFile: TypeAlias = OpenFile | RemoteFile


def opened(path: str, stamp: Stamp) -> AnyFile:
    """Open a file. A file at a URL is only read as long as it has the stamp."""
    return RemoteFile(path, stamp) if is_remote(path) else OpenFile(path)
