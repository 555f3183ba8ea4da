"""The memory of one task in a worker: the slots that it may write to, more of which it asks the pool for.

What is handed out by :meth:`TaskMemory.empty` lies in a slot, so that a batch that was gathered there need not be
copied to reach the consumer. A slot belongs to one task at a time; the pool's process alone decides which.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ...memory_pool import ALIGNMENT, SMALLEST_LEASE, BufferPool
from .protocol import SMALLEST_OUTSIDE, Frame, Placed
from .shared_memory import SharedView

SLOT = "slot"
"""The kind of question that asks for a slot: ``(SLOT, number of the task, bytes)``."""


class TaskMemory:
    """Where a task takes memory from; one for each task, and what the task asks the pool by.

    Args:
        view: The shared memory; None where there is none.
        slots: The slots that came with the task.
        number: Number of the task.
        ask: Sends a question to the pool and returns the answer, waiting for it.
        scratch: Reused memory of the worker's own.
    """

    __slots__ = ("_copies", "_number", "_own", "_slots", "_used", "_view", "ask", "common", "scratch")

    def __init__(
        self,
        view: SharedView | None,
        slots: list[Placed],
        number: int,
        ask: Callable[[tuple[Any, ...]], Frame],
        scratch: BufferPool,
    ) -> None:
        self._view = view
        self.common = None if view is None else view.bytes
        self._slots = slots
        self._used = [0] * len(slots)
        # What was handed out: which slot, where in it. By weak references, for a further one would look like an owner.
        self._own: list[tuple[weakref.ref[np.ndarray], int, int]] = []
        self._copies: dict[tuple[int, int], tuple[int, int]] = {}  # what was copied, and is still there: the same
        self._number = number
        self.ask = ask
        self.scratch = scratch

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Return an array to be written: in a slot if it is large and there is one, C order, writable."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < SMALLEST_OUTSIDE or dtype.hasobject:
            return np.empty(shape, dtype)
        array = self._carve(nbytes, shape, dtype)
        return self.scratch.empty(shape, dtype) if array is None else array

    def _carve(self, nbytes: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray | None:
        """Return an array of so many bytes in a slot."""
        if self._view is None:
            return None
        for i, slot in enumerate(self._slots):
            used = self._used[i]
            if used + nbytes <= slot.size:
                self._used[i] = used + -(-nbytes // ALIGNMENT) * ALIGNMENT
                array: np.ndarray = np.ndarray(shape, dtype, self._view.bytes, slot.offset + used)
                self._own.append((weakref.ref(array), i, used))
                return array
        more = self.ask((SLOT, self._number, nbytes)).placed if nbytes >= SMALLEST_LEASE else []
        if not more:
            return None
        self._slots.append(more[0])
        self._used.append(0)
        return self._carve(nbytes, shape, dtype)

    def find(self, array: np.ndarray) -> tuple[int, int] | None:
        """Return in which slot `array`, which is contiguous, lies and where in it; None if it lies in none."""
        for own, i, start in self._own:
            if own() is array:
                return i, start
        if self._view is None:
            return None
        if self._copies and (where := self._copies.get(_span(array))) is not None:
            return where
        offset = array.__array_interface__["data"][0] - self._view.address
        for i, (slot, used) in enumerate(zip(self._slots, self._used, strict=True)):
            if slot.offset <= offset and offset + array.nbytes <= slot.offset + used:
                return i, offset - slot.offset
        return None

    def placed(self, array: np.ndarray) -> Placed | None:
        """Return where in the shared memory `array`, which is contiguous, lies; None if it lies in no slot."""
        where = self.find(array)
        return None if where is None else Placed(self._slots[where[0]].offset + where[1], array.nbytes)

    def within(self, array: np.ndarray) -> tuple[int, int] | None:
        """Return in which slot `array`, which is contiguous, lies and where in it; copied there if it lies elsewhere.

        None if there is no room.
        """
        where = self.find(array)
        if where is not None:
            return where
        copy = self._carve(array.nbytes, array.shape, array.dtype)
        if copy is None:
            return None
        copy[...] = array
        where = self._copies[_span(array)] = self._own[-1][1:]
        return where

    def written(self, i: int) -> Placed:
        """Return the part of slot `i` that was handed out."""
        slot = self._slots[i]
        return Placed(slot.offset, min(self._used[i], slot.size))

    def place(self, buffer: memoryview) -> Placed | memoryview:
        """Return where the bytes of `buffer` lie, copied to a slot if need be; `buffer` itself if there is no room."""
        array = np.frombuffer(buffer, np.uint8)
        where = self.within(array)
        return buffer if where is None else Placed(self._slots[where[0]].offset + where[1], array.nbytes)

    def contiguous(self, array: np.ndarray) -> np.ndarray:
        """Return `array` such that its bytes can be sent as they lie, copied to a slot if need be."""
        if array.flags.c_contiguous or array.flags.f_contiguous or array.dtype.hasobject:
            return array
        copy = self.empty(array.shape, array.dtype)
        copy[...] = array
        return copy


def _span(array: np.ndarray) -> tuple[int, int]:
    return array.__array_interface__["data"][0], array.nbytes
