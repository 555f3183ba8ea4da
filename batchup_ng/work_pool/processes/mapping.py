"""Mappings of a file into this process's memory.

Those of the standard library keep a descriptor open as long as an array of theirs lives, and hold the interpreter's
lock while pages are made; hence these.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from typing import Any

import numpy as np

PAGE = 4096

_POPULATE_READ, _POPULATE_WRITE = 22, 23
"""``MADV_POPULATE_READ`` and ``_WRITE`` of Linux 5.14, which the standard library does not name."""


class Mapping:
    """Part of a file, mapped until nothing refers to it or to an array of it.

    Args:
        fd: The file, which may be closed afterwards.
        length: Bytes to map.
        offset: Where they begin, a multiple of the page size.
        private: Whether what is written stays in this process.

    Attributes:
        address: Where the mapping begins.

    Raises:
        OSError: the system refuses.
    """

    def __init__(self, fd: int, length: int, offset: int = 0, private: bool = False) -> None:
        flags = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
        address = _LIBC.mmap(None, length, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, offset)
        if address == ctypes.c_void_p(-1).value:
            raise _last_error()
        self.address: int = address
        self._length = length
        for advice in ("MADV_HUGEPAGE", "MADV_DONTDUMP"):
            # Where the kernel was built without, it says so, which changes nothing.
            _LIBC.madvise(address, length, getattr(mmap, advice, -1))

    def __del__(self) -> None:
        if hasattr(self, "address"):
            _LIBC.munmap(self.address, self._length)

    def array(self, offset: int, size: int) -> np.ndarray:
        """Return bytes of the mapping, ``(size,) uint8``, writable, which keep it alive."""
        return np.asarray(_Bytes(self, self.address + offset, size))

    def populate(self, offset: int, size: int, write: bool = True) -> None:
        """Make the pages of a part; an error where there is no memory for them, instead of a signal later.

        Args:
            offset: Where the part begins.
            size: How many bytes it has.
            write: Whether pages that the file has not are made; else those that it has are mapped.

        Raises:
            OSError: there is none; with ``errno.EINVAL`` the system, an older one, cannot say.
        """
        advice = _POPULATE_WRITE if write else _POPULATE_READ
        if size and _LIBC.madvise(self.address + offset, size, advice):
            error = _last_error()
            if write or error.errno != errno.EINVAL:
                raise error

    def remove(self, offset: int, size: int) -> None:
        """Give the pages of a part back to the system, for all who map the file."""
        if size and _LIBC.madvise(self.address + offset, size, mmap.MADV_REMOVE):
            raise _last_error()


class _Bytes:
    """The root of an array of a mapping."""

    __slots__ = ("__array_interface__", "_mapping")

    def __init__(self, mapping: Mapping, address: int, size: int) -> None:
        self._mapping = mapping
        self.__array_interface__: dict[str, Any] = {
            "shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3
        }  # fmt: skip


def _last_error() -> OSError:
    code = ctypes.get_errno() or errno.EINVAL
    return OSError(code, os.strerror(code))


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
