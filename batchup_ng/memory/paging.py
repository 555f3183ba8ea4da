"""Pages of mapped files: announces rows before they are read, maps files, copies rows that may be cut off.

By default the system reads up to megabytes of a mapped file around a page, and the reader waits each time. If the file
fits into memory, all of it is needed sooner or later. For a larger file, these functions announce the next rows. The
system then reads these, all at once, and no others.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
from typing import Any

import numpy as np

from ..platforms import system
from . import limits

_POPULATE_READ = 22
"""``MADV_POPULATE_READ`` of Linux 5.14, which the standard library does not name."""

_SEGMENTS, _MOST_BYTES = 1024, 2**30
"""Rows, and bytes, that ``process_vm_readv`` takes at once, at most: ``IOV_MAX``, and below 2 GiB."""


def exceeds_memory(array: np.ndarray) -> bool:
    """Return whether an array lies over a file and is larger than half of the memory: other things need memory too."""
    return is_mapped(array) and array.nbytes > _half_of_memory()


def is_mapped(array: np.ndarray) -> bool:
    """Return whether an array lies over mapped memory. A worker's array may do so without being a ``numpy.memmap``."""
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
    system.advise_will_need(list(zip(first.tolist(), lengths.tolist(), strict=True)))


def map_pages(mapping: mmap.mmap, start: int, end: int) -> None:
    """Map the bytes from `start` to `end` into this process now: mapping each page at its first access costs more.

    An older Linux ignores this.
    """
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    with contextlib.suppress(OSError):
        mapping.madvise(_POPULATE_READ, first, end - first)


@functools.cache
def _half_of_memory() -> float:
    """Return half of the machine's memory in bytes, or of a container's limit."""
    return min([system.memory_of_machine(), *[limit for limit, _ in limits.memory_limits()]]) / 2


def file_name(accessor: Any) -> str | None:
    """Return the file that an array is mapped from; None if there is none."""
    while accessor is not None:
        if isinstance(accessor, np.memmap) and accessor.filename is not None:
            return str(accessor.filename)
        accessor = getattr(accessor, "base", None) if isinstance(accessor, np.ndarray) else None
    return None


def copy_rows(array: np.ndarray, rows: np.ndarray, out: np.ndarray) -> bool:
    """Write rows of an array into `out`, both in C order; return False if some page of it cannot be read.

    `rows` are ``(n,) int64``, in range.

    The file under the array may have been cut short. The system copies the rows and notices that, while an access to
    such a page would end the process by SIGBUS. This takes two to six times as long as a copy, and at least 0.7 µs a
    row (measured). ``pread`` of large rows takes less, but releases the interpreter lock for each. The function also
    returns False if a container forbids the call.
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
        copied = system.copy_segments(to, segments)
        if copied is None:  # no such call
            np.take(array, rows, axis=0, out=out)
            return True
        if copied != int(to[1]):
            return False
        to[0] += to[1]
    return True
