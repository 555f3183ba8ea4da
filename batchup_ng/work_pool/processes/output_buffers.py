"""The memory of one task in a worker: the slot that it may write to, and the places of its arrays in the slot.

A batch that is gathered into the slot reaches the consumer without a copy. Arrays without room in the slot go with the
result's message, and the pool gives out larger slots from then on. Nearly all batches are tuples or dicts of arrays.
Their message, an ARRAYS frame, has the start of each array in its buffers, or the bytes of a small array, its dtype and
its shape: :func:`packed`, :meth:`.protocol.Frame.arrays`.
"""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np

from ...memory.leases import ALIGNMENT, BufferPool, Buffers, is_plain
from .protocol import SMALLEST_OUTSIDE, ArrayPart, Placed
from .shared_arrays import address_of
from .shared_memory import SharedView


class TaskMemory(Buffers):
    """The memory for one task: its slot in the shared memory, if there is one, and the worker's own memory."""

    __slots__ = ("_slot", "_used", "_view", "common", "scratch")

    def __init__(self, view: SharedView | None, slot: Placed | None, scratch: BufferPool) -> None:
        self._view = view
        self.common = None if view is None else view.bytes
        self._slot = slot
        self._used = 0
        self.scratch = scratch  # type: ignore[misc]  # a property there

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Return a new array, writable and in C order: in the slot if it is large and there is room."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < SMALLEST_OUTSIDE or dtype.hasobject:
            return np.empty(shape, dtype)
        array = self._carve(nbytes, shape, dtype)
        return self.scratch.empty(shape, dtype) if array is None else array

    def _carve(self, nbytes: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray | None:
        """Return an array of `nbytes` in the slot; None without room."""
        used = self._used
        if self._slot is None or self._view is None or used + nbytes > self._slot.size:
            return None
        self._used = used + -(-nbytes // ALIGNMENT) * ALIGNMENT
        return np.ndarray(shape, dtype, self._view.bytes, self._slot.offset + used)

    def within(self, array: np.ndarray) -> int | None:
        """Return the offset of a contiguous array in the slot. If necessary, copy it there; None without room."""
        if self._slot is None or self._view is None:
            return None
        first = self._view.address + self._slot.offset
        start = address_of(array) - first
        if start >= 0 and start + array.nbytes <= self._used:
            return start
        copy = self._carve(array.nbytes, array.shape, array.dtype)
        if copy is None:
            return None
        copy[...] = array
        return address_of(copy) - first

    def written(self) -> Placed:
        """Return the part of the slot that is in use."""
        assert self._slot is not None
        return Placed(self._slot.offset, min(self._used, self._slot.size))

    def place(self, buffer: memoryview) -> Placed | memoryview:
        """Return the place of `buffer` in the slot. If necessary, copy it there; `buffer` itself without room."""
        start = self.within(np.frombuffer(buffer, np.uint8))
        return buffer if start is None or self._slot is None else Placed(self._slot.offset + start, buffer.nbytes)


def packed(result: Any, memory: TaskMemory) -> tuple[bytes, list[Placed]] | None:
    """Return the pickle and the buffers of the ARRAYS frame of `result`; None if it needs a RESULT frame.

    Large arrays outside the slot are copied there.
    """
    names = None
    if type(result) is dict and all(type(name) is str for name in result):
        names, result = tuple(result), tuple(result.values())
    if type(result) is not tuple or len(set(map(id, result))) < len(result):
        return None
    for part in result:
        if type(part) is not np.ndarray or not (part.nbytes and part.flags.c_contiguous and is_plain(part.dtype)):
            return None
    parts: list[ArrayPart] = []
    large = False
    for part in result:
        where: Any
        if part.nbytes < SMALLEST_OUTSIDE:
            where = part.tobytes()
        else:
            large = True
            where = memory.within(part)
            if where is None:
                return None
        parts.append((where, part.dtype.str, part.shape))
    return pickle.dumps((names, parts), 5), [memory.written()] if large else []
