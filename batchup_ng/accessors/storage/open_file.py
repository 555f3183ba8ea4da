"""An open file that is read at any place, by several threads."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from typing import TypeAlias

from .remote import RemoteFile, Stamp, is_remote


def regular(path: str) -> os.stat_result:
    """Return the facts of a file; refuse what is none, such as a pipe, which would be waited for."""
    found = os.stat(path)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "a directory, not a file")
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return found


class OpenFile:
    """A file that is open for reading, by its descriptor.

    It is closed with the last reference to it, since another thread may be reading, and the number would be given to
    the next file that is opened.

    Attributes:
        number: The descriptor.
        scan_bytes: How many bytes are well read at once where all of a file is.
    """

    number = -1
    scan_bytes = 1 << 22

    def __init__(self, path: str) -> None:
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, offset: int, size: int) -> bytes:
        """Return the bytes at a place, all of them."""
        found = os.pread(self.number, size, offset)
        while len(found) < size and (more := os.pread(self.number, size - len(found), offset + len(found))):
            found += more  # Linux reads 2 GiB at once at most
        if len(found) != size:
            raise EOFError(f"{len(found)} of {size} bytes are there")
        return found

    def read_many(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes at several places, each where it begins and how many bytes."""
        return [self.read(*place) for place in places]

    def walk(self, size: int) -> Callable[[int, int], bytes]:
        """Return what reads so many bytes at a place, fewer where the file ends; `size` is that of the file."""
        return lambda offset, n: os.pread(self.number, n, offset)

    def __del__(self) -> None:
        if self.number >= 0:  # it could be opened
            os.close(self.number)


AnyFile: TypeAlias = OpenFile | RemoteFile


def opened(path: str, stamp: Stamp) -> AnyFile:
    """Open a file, or have one at a URL read as long as it has a stamp."""
    return RemoteFile(path, stamp) if is_remote(path) else OpenFile(path)
