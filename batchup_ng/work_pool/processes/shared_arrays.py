"""The one copy of a large array that all workers of a pool read.

Who owns what. A :class:`SharedCopies` belongs to one pool and cuts its copies from that pool's arena. A :class:`Copy`
is owned by the constants that use it; when the last of them goes, on whichever thread and in the middle of whatever
that is, its extent is put on a list (one ``deque.append``, without a lock), the pool is woken, and the extent goes back
to the arena at the next :meth:`SharedCopies.sweep`. What crosses the boundary is the place of the copy, never its
bytes; a worker maps them for itself, so that nothing that it writes is seen by others. If it dies, nothing is lost.

Memory that a living copy was made of is not copied again: it is found by its address, then all its bytes are compared,
which takes a tenth of the time of a copy into fresh memory (measured). So two sources over one array share a copy, and
one that was written to meanwhile gets a new one.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import math
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...errors import PoolClosed
from .huge import HugePages
from .protocol import Placed
from .shared_memory import Arena, Extent

PIECE = 1 << 26
"""Bytes that are copied or compared at once; between two pieces an interrupt has its turn."""

GAPPY_PIECE = 1 << 22
"""The same for arrays with gaps, whose pieces are gathered first: few enough to stay in the cache."""


class Bulk:
    """The memory of an array, to be copied as it lies; that of an array with gaps is packed together.

    Args:
        array: Any array that is not of objects.

    Attributes:
        nbytes: Bytes that the copy will have.
        key: Equal for what may be the same memory.
        view: Shape, strides and offset of the array in the copy.
    """

    def __init__(self, array: np.ndarray) -> None:
        low, high = span_of(array)
        if high - low <= array.nbytes:
            # Without gaps, in whatever order; repeated rows and sliding windows have less memory than elements.
            address = array.__array_interface__["data"][0]
            self._array = _bytes_at(low, high - low, array)
            self.view = (array.shape, array.strides, address - low)
        else:
            # The axes in the order of memory, so that the order of the copy is the same.
            axes = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
            self._array = array.transpose(axes)
            strides = _dense_strides(self._array.shape, array.dtype.itemsize)
            self.view = (array.shape, tuple([strides[axes.index(axis)] for axis in range(array.ndim)]), 0)
        self.nbytes = self._array.nbytes
        self.key = (low, self._array.shape, self._array.strides, self._array.itemsize)

    def pieces(self) -> Iterator[np.ndarray]:
        """Yield the bytes of the copy, ``(n,) uint8`` each."""
        rows = len(self._array)
        contiguous = self._array.flags.c_contiguous
        step = max(1, (PIECE if contiguous else GAPPY_PIECE) * rows // max(1, self.nbytes))
        for i in range(0, rows, step):
            piece = np.ascontiguousarray(self._array[i : i + step])
            yield piece.reshape(-1).view(np.uint8)

    def memory(self) -> memoryview:
        """Return the bytes of the copy, without copying where they lie together."""
        if self._array.flags.c_contiguous:
            return self._array.reshape(-1).view(np.uint8).data
        return np.ascontiguousarray(self._array).reshape(-1).view(np.uint8).data

    def equals(self, memory: np.ndarray) -> bool:
        """Return whether `memory`, ``(n,) uint8``, begins with the bytes of the copy."""
        at = 0
        for piece in self.pieces():
            if _LIBC.memcmp(_address_of(piece), _address_of(memory) + at, piece.nbytes):
                return False
            at += piece.nbytes
        return True


class Copy:
    """A copy in shared memory; its extent is given back when nothing refers to it.

    Attributes:
        placed: Where it lies.
    """

    __slots__ = ("__weakref__", "_drop", "_extent", "placed")

    def __init__(self, extent: Extent, nbytes: int, drop: Callable[[Extent], None]) -> None:
        self.placed = Placed(extent.offset, nbytes)
        self._extent = extent
        self._drop = drop

    def __del__(self) -> None:
        self._drop(self._extent)


class SharedCopies:
    """The copies of one pool; safe to use from several threads.

    Args:
        arena: Where they are made.
        wake: Called when there is something to sweep, in the middle of anything: it must take no lock.
    """

    def __init__(self, arena: Arena, wake: Callable[[], None] = lambda: None) -> None:
        self.arena = arena
        self._wake = wake
        self._closed = False
        self._huge = HugePages(arena)
        self._lock = threading.RLock()
        self._copies: dict[Any, weakref.ref[Copy]] = {}
        self._dropped: collections.deque[Extent] = collections.deque()

    def copy(self, bulk: Bulk) -> Copy:
        """Return a copy of `bulk`, one that is there or a new one.

        Raises:
            ArenaFull: there is no memory for it.
            PoolClosed: the pool was closed, perhaps meanwhile.
        """
        self.sweep()
        with self._lock:  # one at a time, so that two threads do not copy the same array
            self._check_open()
            copy = self._living(bulk)
            if copy is not None and bulk.equals(self.arena.array(Extent(*copy.placed))):
                return copy
            copy = Copy(self.arena.store(self._while_open(bulk), bulk.nbytes), bulk.nbytes, self._drop)
            self._copies[bulk.key] = weakref.ref(copy)
            self._huge.want(copy)
            return copy

    def _while_open(self, bulk: Bulk) -> Iterator[np.ndarray]:
        for piece in bulk.pieces():
            self._check_open()
            yield piece

    def _check_open(self) -> None:
        if self._closed:
            raise PoolClosed("the pool was closed before the arrays of a source were copied for it; make a new one")

    def has(self, bulk: Bulk) -> bool:
        """Return whether there is a copy of that memory, as it was when it was copied."""
        return self._living(bulk) is not None

    def _living(self, bulk: Bulk) -> Copy | None:
        found = self._copies.get(bulk.key)
        return None if found is None else found()

    def _drop(self, extent: Extent) -> None:
        self._dropped.append(extent)
        self._wake()

    def sweep(self) -> None:
        """Give back the memory of copies that nothing uses any more."""
        with contextlib.suppress(IndexError):
            while True:
                self.arena.give_back(self._dropped.popleft())
        if len(self._copies) > 64 and self._lock.acquire(blocking=False):  # not while a copy is made
            try:
                self._copies = {key: copy for key, copy in self._copies.items() if copy() is not None}
            finally:
                self._lock.release()

    def close(self) -> None:
        """Make no copies any more, and wait until one that is being made has ended; the arena may be closed then."""
        self._closed = True
        with self._lock:
            self._copies = {}
        self._huge.close()


def span_of(array: np.ndarray) -> tuple[int, int]:
    """Return the addresses of the first byte of `array` and of that behind its last.

    >>> low, high = span_of(np.arange(8, dtype=np.uint8)[::-2])
    >>> high - low
    7
    """
    low = int(array.__array_interface__["data"][0])
    high = low + array.itemsize
    if array.size == 0:
        return low, low
    for n, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0:
            low += (n - 1) * stride
        else:
            high += (n - 1) * stride
    return low, high


class _Memory:
    """Memory of an array as NumPy wants it told."""

    __slots__ = ("__array_interface__", "_keep")

    def __init__(self, address: int, nbytes: int, keep: Any) -> None:
        # Told as read-only: whether or not the array may be written to, nobody will do it by way of this.
        self.__array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address, True), "version": 3}
        self._keep = keep


def _bytes_at(address: int, nbytes: int, keep: Any) -> np.ndarray:
    return np.asarray(_Memory(address, nbytes, keep))


def _dense_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple([itemsize * math.prod(shape[i + 1 :]) for i in range(len(shape))])


def _address_of(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


_LIBC = ctypes.CDLL(None)
_LIBC.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
