"""Objects that reach each worker once, kept there until the pool forgets them.

Who owns what. In the pool's process a :class:`SharedConstant` owns its value, its pickle, its number, the shared copies
of its large arrays; tasks carry a :class:`ConstantRef` in its place. A worker gets the pickle in a frame before the
first task that needs it, on the same socket, so that it is always there in time; it loads it when it is first used.
When the last reference to the :class:`SharedConstant` goes, its copies are given up, the workers are told to forget the
number. A task that is on its way holds the constants that it needs, so no copy goes while a worker may read it.

What crosses the boundary: the pickle, the place of each shared copy. A worker maps those places for itself alone, so
that what it writes there nobody else sees.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from typing import Any

import numpy as np

from ...errors import ArgumentTypeError
from ...system_limits import available
from . import protocol
from .blame import name_of_array
from .mapping import HUGE, PAGE
from .protocol import Frame, Kind, Piece, Placed
from .roads import checked_road, road_for
from .serialization import pack
from .served import Offer
from .shared_arrays import Bulk, Copy, SharedCopies
from .shared_memory import ArenaFull, SharedView

_numbers = itertools.count(1)


LATELY = 64
"""Results after which a slot is as large as the largest of them, however large others were before."""


class Room:
    """The bytes of the slots that results of one kind are given: as many as the largest of late had.

    Attributes:
        bytes: That number; 0 where nothing is known.
    """

    __slots__ = ("_largest", "_seen", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self._largest = 0
        self._seen = 0

    def saw(self, nbytes: int) -> None:
        """Take note of the bytes that a result had in its slot."""
        if nbytes > self.bytes:
            self.bytes = nbytes
        if nbytes > self._largest:
            self._largest = nbytes
        self._seen += 1
        if self._seen == LATELY:
            self.bytes, self._largest, self._seen = self._largest, 0, 0


class SharedConstant:
    """A value that reaches each worker once. Made by ``pool.shared_constant``.

    It is packed when it is made, which copies no large array; :meth:`share` puts those where workers can map them.

    Args:
        value: The value; it must not change afterwards.

    Attributes:
        arrays: How its large arrays reach workers: ``"shared"`` (one copy), ``"served"`` (row by row), ``"mapped"``
            (from files), ``"sent"`` (a copy for each worker); ``""`` where there are none or it was not shared yet.
        room: How large the slots are to be that results made with it are written to.

    Raises:
        SerializationError: it cannot be pickled.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self.number = next(_numbers)
        self.arrays = ""
        self.room = Room()
        self._packed = pack(value)
        self._home: SharedCopies | None = None
        self._frame: list[Piece] | None = None
        self._holds: list[Copy | Offer] = []

    def share(self, copies: SharedCopies | None, arrays: str = "auto") -> None:
        """Copy the large arrays to memory that workers share, or offer them; once, before the first task.

        Args:
            copies: The shared copies of the pool; None where there is no shared memory: then all is sent.
            arrays: ``"shared"``, ``"served"``, or ``"auto"``: as the memory that is free allows.

        Raises:
            SerializationError: there is no memory for arrays that must be copied.
        """
        transport = self._road(copies, checked_road(arrays))
        self._home = copies
        try:
            self._encode(copies, transport)
        except ArenaFull:
            if arrays != "auto" or not self._packed.servable:
                self._encode(None, "shared")
            else:
                self._encode(copies, "served")

    def _road(self, copies: SharedCopies | None, arrays: str) -> str:
        """Return the transport of arrays that can be served."""
        servable, others = [item.bulk for item in self._packed.servable], self._packed.others
        if copies is None:
            return "served" if arrays == "served" else "shared"
        if arrays != "auto" or not (servable or others):
            return arrays
        need = [sum(bulk.nbytes for bulk in bulks if not copies.has(bulk)) for bulks in (servable, others)]
        free = min(available(), copies.arena.span - copies.arena.taken)
        arrays_of_sources = {id(item.array) for item in self._packed.servable}
        return road_for(arrays, need[0], need[1], free, lambda: name_of_array(self.value, arrays_of_sources))

    def _encode(self, copies: SharedCopies | None, transport: str) -> None:
        self._holds = []
        self.arrays = "mapped" if self._packed.mapped else ""

        def place(bulk: Bulk) -> Placed | memoryview:
            if copies is None:
                self.arrays = "sent"
                return bulk.memory()
            copy = copies.copy(bulk)
            self._holds.append(copy)
            self.arrays = self.arrays if self.arrays == "served" else "shared"
            return copy.placed

        def serve(array: np.ndarray) -> int:
            offer = Offer(array)
            self._holds.append(offer)
            self.arrays = "served"
            return offer.number

        buffers = self._packed.buffers(place, serve if transport == "served" else None)
        self._frame = protocol.pieces(Kind.CONSTANT, self.number, self._packed.pickled, buffers)

    def frame(self, copies: SharedCopies | None) -> list[Piece]:
        """Return the frame for workers of the pool with those copies; one that it was not shared with gets all data."""
        if self._frame is not None and self._home is copies:
            return self._frame
        buffers = self._packed.buffers(Bulk.memory)
        return protocol.pieces(Kind.CONSTANT, self.number, self._packed.pickled, buffers)

    def __reduce__(self) -> Any:
        raise ArgumentTypeError("a shared constant may only stand among the arguments of a task, not inside one")


class ConstantRef:
    """Stands for a shared constant among the arguments of a task."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[type[ConstantRef], tuple[int]]:
        return ConstantRef, (self.number,)

    def value(self) -> Any:
        """Return the constant's value; only in a worker."""
        return WORKER_CONSTANTS.get(self.number)


class WorkerConstants:
    """The constants that a worker holds; safe to use from several threads.

    Attributes:
        view: The arena from the worker's side; None where there is none.
    """

    def __init__(self) -> None:
        self.view: SharedView | None = None
        self._frames: dict[int, Frame] = {}
        self._values: dict[int, Any] = {}
        self._lock = threading.RLock()

    def put(self, frame: Frame) -> None:
        """Keep a constant that has arrived, and load it; what goes wrong in that the tasks that need it will see."""
        self._frames[frame.number] = frame
        with contextlib.suppress(BaseException):
            self.get(frame.number)

    def get(self, number: int) -> Any:
        """Return the value, loading it when it is first used."""
        if number in self._values:  # without the lock: most tasks find it there
            return self._values[number]
        with self._lock:
            if number not in self._values:
                # The frame stays until the load has worked, so that its error is the same for each task.
                frame = self._frames[number]
                if self.view is not None and frame.placed:
                    frame.place(privately(self.view, frame.placed).__getitem__)
                self._values[number] = frame.load()
                del self._frames[number]
            return self._values[number]

    def forget(self, number: int) -> None:
        """Let go of a constant."""
        self._frames.pop(number, None)
        self._values.pop(number, None)


def privately(view: SharedView, places: list[Placed]) -> dict[Placed, np.ndarray]:
    """Return the memory at `places`, ``(size,) uint8`` each; what is written there only this process sees.

    Neighbours are mapped together, in as few mappings as can be. Where the system promises no memory for so
    much private writing, the memory is that of all, read-only.
    """
    found: dict[Placed, np.ndarray] = {}
    runs: list[list[Placed]] = []
    for place in sorted(set(places)):
        if runs and place.offset - sum(runs[-1][-1]) <= HUGE:
            runs[-1].append(place)
        else:
            runs.append([place])
    for run in runs:
        start = run[0].offset // PAGE * PAGE
        memory = _mapped(view, start, max(sum(place) for place in run) - start)
        found.update({place: memory[place.offset - start :][: place.size] for place in run})
    return found


def _mapped(view: SharedView, start: int, size: int) -> np.ndarray:
    try:
        return view.private(start, size)
    except OSError:
        memory = view.bytes[start : start + size]
        memory.flags.writeable = False
        return memory


WORKER_CONSTANTS = WorkerConstants()
