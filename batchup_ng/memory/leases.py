"""Reusable memory that an array holds on lease until its last reference is gone.

Touching fresh memory is the largest cost of a batch, so blocks are allocated once, touched once and handed out again.
A :class:`BufferPool` owns the free blocks. An array that it hands out owns its block through a small :class:`Lease`,
and every view of the array keeps the lease alive. When the last view goes, on any thread, the lease puts the block
back. Nothing is ever overwritten while it can be seen.

A lease may end in the middle of anything, because the garbage collector runs anywhere. So giving back takes no lock: it
is one ``deque.append``, which is atomic. It does not run Python code either: Python might notice an interrupt (Ctrl-C)
there, and an exception in a finalizer is printed and lost.
"""

from __future__ import annotations

import collections
import math
import weakref
from typing import Any, NamedTuple

import numpy as np

from .budget import BUDGET, Holder, Living, Step

ALIGNMENT = 64
"""Alignment of every leased array in bytes: a cache line, and also the widest vector register."""

PAGE, IN_PAGE = 4096, 1024
"""Size of a page, and where in a page a block begins. NumPy's large arrays begin a few bytes after the start of a page.
A copy to a place a little farther in its page is slow: a store delays a load from an address with the same lower 12
bits.
"""

SHARE_OF_FREE_BLOCKS = 0.25
"""Part of a limit that the free blocks of one size may have."""

SMALLEST_LEASE = 1 << 16
"""Bytes below which fresh memory from the allocator is cheaper than a lease (a lease costs some 3 µs)."""


def is_plain(dtype: np.dtype[Any]) -> bool:
    """Return whether a type string describes `dtype` fully: no fields, no metadata, not added by a library."""
    return dtype.kind in "biufcSUMm" and dtype.isbuiltin != 2 and not dtype.metadata


class Buffers:
    """The source of memory for a batch; this class allocates new memory each time.

    Attributes:
        common: The array that contains all arrays of one task and nothing else; None if there is none.
        smallest: From this many bytes on, a reader asks here for memory; smaller arrays it makes itself.
    """

    common: np.ndarray | None = None
    smallest: int = SMALLEST_LEASE

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Return an array to be written, with undefined contents: C order, writable."""
        return np.empty(shape, dtype)

    @property
    def scratch(self) -> Buffers:
        """Memory for arrays that are not handed out themselves, because a map will replace them."""
        return self


FRESH = Buffers()


class Block(NamedTuple):
    """A piece of aligned memory, which lives as long as `keep`. `offset` is its start in the memory that several
    processes share, or -1 if the memory belongs to this process alone.
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
        # No call between the two: if a signal handler raised there, a lease without a block would be given back.
        self._returned, self._returned.block = Returned(self, free.append), block


class Returned(weakref.ref[Lease]):
    """Weak reference that returns the block to its free list when the lease dies.

    The lease itself keeps it, which is enough: Python calls weak references before an object releases its members. (Not
    if the collector of cycles finds both. It does not see the base of an array, so it finds both only in a cycle
    through the lease itself.)
    """

    __slots__ = ("block",)

    block: Block


class BufferPool(Buffers, Holder):
    """Memory that is used again as soon as nothing refers to the array that holds it on lease. Safe to use from several
    threads.

    Free memory is bounded: at most `max_free` blocks of each size and `max_bytes` bytes of each size. If a new block
    would bring the total above `max_bytes`, all free blocks are released. Blocks that come back beyond these bounds go
    to the system. Arrays below `smallest` bytes, and arrays of objects, come from the ordinary allocator.

    The budget of the program counts its blocks, and clears its free lists first if memory is short.
    """

    def __init__(self, max_free: int = 32, max_bytes: int = 1 << 30, smallest: int = SMALLEST_LEASE) -> None:
        self.smallest = smallest
        self._most_free = max_free
        self._most_bytes = max_bytes
        self._free: dict[int, collections.deque[Returned]] = {}
        self._blocks: Living[np.ndarray] = Living()
        BUDGET.add(self)

    def __reduce__(self) -> tuple[type[BufferPool], tuple[int, int, int]]:
        # Memory does not travel: an object that holds a pool arrives with an empty one.
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
            if BUDGET.limit is not None:  # free memory goes to the system then, not to the list, and others may take it
                most = min(most, int(BUDGET.limit * SHARE_OF_FREE_BLOCKS) // size)
            free = self._free.setdefault(size, collections.deque(maxlen=most))
        try:
            block = free.pop().block
        except IndexError:
            if self.free_bytes() + size > self._most_bytes:
                for other in list(self._free.values()):
                    other.clear()
            memory = _fresh(size)
            self._blocks.add(memory)
            block = Block(memory.ctypes.data + (IN_PAGE - memory.ctypes.data) % PAGE, size, -1, memory)
        return np.asarray(Lease(block, shape, dtype.str, free))

    def free_bytes(self) -> int:
        """Return the number of free bytes."""
        return sum(size * len(free) for size, free in list(self._free.items()))

    def held(self) -> dict[str, int]:
        free, blocks = self.free_bytes(), self._blocks.all()
        return {"buffers": max(0, sum([memory.nbytes - PAGE for memory in blocks]) - free), "free lists": free}

    def give_back(self, step: Step, nbytes: int) -> int:
        free = self.free_bytes() if step is Step.FREE_LISTS else 0
        for blocks in list(self._free.values()) if free else ():
            blocks.clear()
        return free

    def clear(self) -> None:
        """Release all free blocks; arrays in use keep their memory."""
        for free in list(self._free.values()):
            free.clear()
        self._free.clear()


def _fresh(size: int) -> np.ndarray:
    """Return new memory of at least `size` bytes from any place in a page on. Others give some back if it is short.

    Raises ``MemoryError`` if the system has none even then.
    """
    BUDGET.within(size)  # for its effect: others give back what they can; this memory is needed in any case
    try:
        return np.empty(size + PAGE, np.uint8)
    except MemoryError:
        BUDGET.make_room(size)
    try:
        return np.empty(size + PAGE, np.uint8)
    except MemoryError as error:
        raise MemoryError(f"the system has no {size} bytes for a part of a batch ({BUDGET.in_words()})") from error


def on_lease(block: Block, free: collections.deque[Returned]) -> np.ndarray:
    """Return the bytes of `block`, ``(size,) uint8``; it goes to `free` when nothing refers to them any more."""
    return np.asarray(Lease(block, (block.size,), "|u1", free))


def size_class(nbytes: int) -> int:
    """Return the block size for `nbytes`: at most an eighth more, for ragged batches to share blocks."""
    step = max(4096, 1 << (nbytes.bit_length() - 4))
    return -(-nbytes // step) * step
