"""The memory of one task in a worker: the slots that it may write to, more of which it asks the pool for.

What is handed out by :meth:`TaskMemory.empty` lies in a slot, so that a batch that was gathered there need not be
copied to reach the consumer. A slot belongs to one task at a time; the pool's process alone decides which.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...buffers import ALIGNMENT, SMALLEST_LEASE, BufferPool
from .arena import SharedView
from .channel import SMALLEST_OUTSIDE, Placed


class TaskMemory:
    """Where a task takes memory from; one for each task.

    Args:
        view: The shared memory; None where there is none.
        slots: The slots that came with the task.
        ask: Asks the pool for a slot of so many bytes, waiting for the answer; None if there is none to be had.
        scratch: Reused memory of the worker's own.
    """

    def __init__(
        self,
        view: SharedView | None,
        slots: list[Placed],
        ask: Callable[[int], Placed | None],
        scratch: BufferPool,
    ) -> None:
        self._view = view
        self._slots = slots
        self._used = [0] * len(slots)
        self._ask = ask
        self.scratch = scratch

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Return an array to be written: in a slot if it is large and there is one, C order, writable."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < SMALLEST_OUTSIDE or dtype.hasobject:
            return np.empty(shape, dtype)
        memory = self._carve(nbytes)
        if memory is None:
            return self.scratch.empty(shape, dtype)
        return np.ndarray(shape, dtype, memory)

    def _carve(self, nbytes: int) -> np.ndarray | None:
        """Return so many bytes of a slot, ``(nbytes,) uint8``."""
        if self._view is None:
            return None
        for i, (slot, used) in enumerate(zip(self._slots, self._used, strict=True)):
            if used + nbytes <= slot.size:
                self._used[i] = used + -(-nbytes // ALIGNMENT) * ALIGNMENT
                return self._view.array(slot.offset + used, nbytes)
        more = self._ask(nbytes) if nbytes >= SMALLEST_LEASE else None
        if more is None:
            return None
        self._slots.append(more)
        self._used.append(0)
        return self._carve(nbytes)

    def placed(self, array: np.ndarray) -> Placed | None:
        """Return where `array`, which is contiguous, lies in the slots of this task; None if it does not."""
        if self._view is None:
            return None
        offset = array.__array_interface__["data"][0] - self._view.address
        nbytes = array.nbytes
        for slot, used in zip(self._slots, self._used, strict=True):
            if slot.offset <= offset and offset + nbytes <= slot.offset + used:
                return Placed(offset, nbytes)
        return None

    def place(self, buffer: memoryview) -> Placed | memoryview:
        """Return where the bytes of `buffer` lie, copied to a slot if need be; `buffer` itself if there is no room."""
        array = np.frombuffer(buffer, np.uint8)
        where = self.placed(array)
        if where is not None:
            return where
        copy = self._carve(buffer.nbytes)
        if copy is None:
            return buffer
        np.copyto(copy, array)
        return self.placed(copy) or buffer

    def contiguous(self, array: np.ndarray) -> np.ndarray:
        """Return `array` such that its bytes can be sent as they lie, copied to a slot if need be."""
        if array.flags.c_contiguous or array.flags.f_contiguous or array.dtype.hasobject:
            return array
        copy = self.empty(array.shape, array.dtype)
        copy[...] = array
        return copy
