"""Reusable memory that an array holds on lease until its last reference is gone.

Touching fresh memory is what a batch costs most, so blocks are allocated once, touched once and handed out
again. Who owns what: a :class:`BufferPool` owns the free blocks; an array that it hands out owns its block
through a small :class:`Lease`, which every view of the array keeps alive; when the last view goes, on
whichever thread that happens, the lease puts the block back. Nothing is ever overwritten while it can be seen.

A lease may end in the middle of anything (the garbage collector runs where it likes), so giving back takes no
lock: it is one ``deque.append``, which is atomic. Nor does it run Python code: that would be where an interrupt
(Ctrl-C) is noticed now and then, and an exception that is raised in a finalizer is printed and lost.
"""

from __future__ import annotations

import collections
import math
import weakref
from typing import Any, NamedTuple

import numpy as np

ALIGNMENT = 64
"""Bytes to which every leased array is aligned: a cache line, which is also the widest vector register."""

PAGE, IN_PAGE = 4096, 1024
"""Where in a page a block begins. NumPy's large arrays begin a few bytes behind the beginning of one. A copy to a place
a little farther in its page is slowed down: a load is held back by a store to an address whose lower 12 bits are alike.
"""

SMALLEST_LEASE = 1 << 16
"""Bytes below which fresh memory from the allocator is cheaper than a lease (a lease costs some 3 µs)."""


def is_plain(dtype: np.dtype[Any]) -> bool:
    """Return whether a type string tells the whole of `dtype`: no fields, no metadata, none that a library added."""
    return dtype.kind in "biufcSUMm" and dtype.isbuiltin != 2 and not dtype.metadata


class Buffers:
    """Where the memory of a batch comes from; here it is new each time.

    Attributes:
        common: The array that those of one task are parts of, which nothing else has; None where there is none.
        smallest: Bytes from which on a reader asks for memory here; smaller arrays it makes itself.
    """

    common: np.ndarray | None = None
    smallest: int = SMALLEST_LEASE

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Return an array to be written, with contents as they may be: C order, writable."""
        return np.empty(shape, dtype)

    @property
    def scratch(self) -> Buffers:
        """Where to take the memory of what is not handed out itself: the arrays that a map will replace."""
        return self


FRESH = Buffers()


class Block(NamedTuple):
    """A piece of aligned memory, which lives as long as `keep`; `offset` is where it begins in the memory that several
    processes share, -1 where it is of this process alone.
    """

    address: int
    size: int
    offset: int
    keep: Any


class Lease:
    """The owner at the root of a leased array: its block goes to `free` when it dies."""

    __slots__ = ("__array_interface__", "__weakref__", "_returned")

    def __init__(self, block: Block, shape: tuple[int, ...], kind: str, free: collections.deque[Returned]) -> None:
        self.__array_interface__ = {"shape": shape, "typestr": kind, "data": (block.address, False), "version": 3}
        # No call between the two: a signal's handler that raised there would give back a lease without a block.
        self._returned, self._returned.block = Returned(self, free.append), block


class Returned(weakref.ref[Lease]):
    """A block that was lent: what a lease leaves behind where it was told to.

    The lease itself keeps it, which is enough: weak references are called before an object lets go of what it holds.
    (Not where both are found by the collector of cycles, which sees no array's base: that takes a cycle through the
    lease itself.)
    """

    __slots__ = ("block",)

    block: Block


class BufferPool(Buffers):
    """Memory that is used again as soon as nothing refers to the array it was lent to. Safe to use from several
    threads.

    What waits for use is bounded: at most `max_free` blocks of each size and `max_bytes` bytes of each, the other sizes
    being released when together they have more. What comes back beyond that goes to the system. Arrays below `smallest`
    bytes, and those of objects, come from the ordinary allocator.
    """

    def __init__(self, max_free: int = 32, max_bytes: int = 1 << 30, smallest: int = SMALLEST_LEASE) -> None:
        self.smallest = smallest
        self._most_free = max_free
        self._most_bytes = max_bytes
        self._free: dict[int, collections.deque[Returned]] = {}

    def __reduce__(self) -> tuple[type[BufferPool], tuple[int, int, int]]:
        # Memory does not travel: what holds a pool arrives with an empty one.
        return BufferPool, (self._most_free, self._most_bytes, self.smallest)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Return an array of `shape` and `dtype` to be written: 64-byte aligned if leased, C order, writable."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < self.smallest or dtype.hasobject:
            return np.empty(shape, dtype)
        if not is_plain(dtype):
            return self.empty((nbytes,), np.dtype(np.uint8)).view(dtype).reshape(shape)
        size = size_class(nbytes)
        free = self._free.get(size)
        if free is None:
            most = max(1, min(self._most_free, self._most_bytes // size))
            free = self._free.setdefault(size, collections.deque(maxlen=most))
        try:
            block = free.pop().block
        except IndexError:
            if self.free_bytes() + size > self._most_bytes:
                for other in list(self._free.values()):
                    other.clear()
            memory = np.empty(size + PAGE, np.uint8)
            block = Block(memory.ctypes.data + (IN_PAGE - memory.ctypes.data) % PAGE, size, -1, memory)
        return np.asarray(Lease(block, shape, dtype.str, free))

    def free_bytes(self) -> int:
        """Return how many bytes wait for use."""
        return sum(size * len(free) for size, free in list(self._free.items()))

    def clear(self) -> None:
        """Release what waits for use; arrays that are out keep their memory."""
        for free in list(self._free.values()):
            free.clear()
        self._free.clear()


def on_lease(block: Block, free: collections.deque[Returned]) -> np.ndarray:
    """Return the bytes of `block`, ``(size,) uint8``, which goes to `free` when nothing refers to them any more."""
    return np.asarray(Lease(block, (block.size,), "|u1", free))


def size_class(nbytes: int) -> int:
    """Return the block size for `nbytes`: at most an eighth above it, so that ragged batches share blocks."""
    step = max(4096, 1 << (nbytes.bit_length() - 4))
    return -(-nbytes // step) * step
