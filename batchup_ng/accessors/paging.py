"""Asks the system for the rows that are about to be read from a file that is larger than memory.

The system reads a mapped file with up to megabytes around a page, and lets the reader wait each time. Of a file that
fits into memory all is wanted sooner or later; of a larger one, told which rows come next, it reads these, all at once,
and no others.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
from typing import Any

import numpy as np

from .. import system_limits

_POPULATE_READ = 22
"""``MADV_POPULATE_READ`` of Linux 5.14, which the standard library does not name."""

_SEGMENTS, _MOST_BYTES = 1024, 2**30
"""How many rows, and how many bytes, ``process_vm_readv`` takes at once at most: ``IOV_MAX``, and below 2 GiB."""


def exceeds_memory(array: np.ndarray) -> bool:
    """Return whether an array lies over a file and is larger than half of the memory, which other things need too."""
    return is_mapped(array) and array.nbytes > _half_of_memory()


def is_mapped(array: np.ndarray) -> bool:
    """Return whether an array lies over mapped memory, which that of a worker does without being a ``numpy.memmap``."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return isinstance(owner.obj if isinstance(owner, memoryview) else owner, mmap.mmap)


def announce_rows(array: np.ndarray, rows: np.ndarray) -> None:
    """Let the system begin to read `rows`, ``(n,) int64`` in range, of an array in C order, if it exceeds memory."""
    if not exceeds_memory(array):
        return
    row_bytes = array.nbytes // len(array)
    starts = array.__array_interface__["data"][0] + rows * row_bytes
    first = starts // mmap.PAGESIZE * mmap.PAGESIZE
    lengths = starts + row_bytes - first
    # Calls that keep the interpreter's lock: releasing it for microseconds may cost milliseconds to get it back.
    for address, length in zip(first.tolist(), lengths.tolist(), strict=True):
        _LIBC.madvise(address, length, mmap.MADV_WILLNEED)


def map_pages(mapping: mmap.mmap, start: int, end: int) -> None:
    """Have this process map the bytes from `start` to `end` now: each first look at a page would cost it more.

    An older Linux leaves it at that.
    """
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    with contextlib.suppress(OSError):
        mapping.madvise(_POPULATE_READ, first, end - first)


@functools.cache
def _half_of_memory() -> float:
    """Return half of the bytes of memory that there are, or that a container allows."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([memory, *[limit for limit, _ in system_limits.memory_limits()]]) / 2


def file_name(accessor: Any) -> str | None:
    """Return the file that an array is mapped from; None if it is from none."""
    while accessor is not None:
        if isinstance(accessor, np.memmap) and accessor.filename is not None:
            return str(accessor.filename)
        accessor = getattr(accessor, "base", None) if isinstance(accessor, np.ndarray) else None
    return None


def copy_rows(array: np.ndarray, rows: np.ndarray, out: np.ndarray) -> bool:
    """Write rows of an array into `out`, both in C order; return False if some page of it cannot be read.

    `rows` are ``(n,) int64``, in range.

    The file below it may have been cut short: the system, which copies, finds that out, where a look at such a page
    would end the process by SIGBUS. It takes two to six times as long as a copy, and 0.7 µs a row at least
    (measured). ``pread`` of large rows takes less, but lets the interpreter's lock go for each. False, too, where a
    container does not let it.
    """
    row_bytes = array.nbytes // len(array)
    at_once = min(_SEGMENTS, max(1, _MOST_BYTES // row_bytes))
    to = np.array([out.__array_interface__["data"][0], 0], np.uint64)
    for start in range(0, len(rows), at_once):
        some = rows[start : start + at_once]
        segments = np.empty((len(some), 2), np.uint64)
        segments[:, 0] = array.__array_interface__["data"][0] + some * row_bytes
        segments[:, 1] = row_bytes
        to[1] = len(some) * row_bytes
        if _UNLOCKED.process_vm_readv(os.getpid(), to.ctypes.data, 1, segments.ctypes.data, len(some), 0) != int(to[1]):
            return False
        to[0] += to[1]
    return True


_LIBC = ctypes.PyDLL(None)
_LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

_UNLOCKED = ctypes.CDLL(None)
if hasattr(_UNLOCKED, "process_vm_readv"):  # of Linux
    _OF_SEGMENTS = (ctypes.c_void_p, ctypes.c_ulong)
    _UNLOCKED.process_vm_readv.argtypes = [ctypes.c_int, *_OF_SEGMENTS, *_OF_SEGMENTS, ctypes.c_ulong]
    _UNLOCKED.process_vm_readv.restype = ctypes.c_ssize_t
