"""An open file that is read at any place, by several threads."""

from __future__ import annotations

import os


class OpenFile:
    """A file that is open for reading, by its descriptor.

    It is closed with the last reference to it, since another thread may be reading, and the number would be given to
    the next file that is opened.

    Attributes:
        number: The descriptor.
    """

    number = -1

    def __init__(self, path: str) -> None:
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, offset: int, size: int) -> bytes:
        """Return the bytes at a place, all of them."""
        found = os.pread(self.number, size, offset)
        if len(found) != size:
            raise EOFError(f"{len(found)} of {size} bytes are there")
        return found

    def read_into(self, pieces: list[memoryview | bytearray], offset: int, size: int) -> None:
        """Fill pieces of memory, of `size` bytes together, with what is at a place."""
        found = os.preadv(self.number, pieces, offset)
        if found != size:
            raise EOFError(f"{found} of {size} bytes are there")

    def __del__(self) -> None:
        if self.number >= 0:  # it could be opened
            os.close(self.number)
