"""Objects that reach each worker once, kept there until the pool forgets them.

Who owns what. In the pool's process a :class:`SharedConstant` owns its value, its pickle, its number, the shared copies
of its large arrays; tasks carry a :class:`ConstantRef` in its place. A worker gets the pickle in a frame before the
first task that needs it, on the same socket, so that it is always there in time. When the last reference to the
:class:`SharedConstant` goes, its copies are released, the workers get a message to forget it. A task that is on its
way holds the constants that it needs, so no copy goes while a worker may read it.

What crosses the boundary: the pickle, the place of each shared copy. A worker maps those places for itself alone, so
that no other process sees what it writes there.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from typing import Any

from ...errors import ArgumentTypeError, SerializationError, SharedMemoryWarning
from ...warn import warn_consumer
from . import protocol
from .protocol import Frame, Kind, Piece, Placed
from .serialization import SMALLEST_APART, pack
from .shared_arrays import Copy, NoRoom, SharedCopies, temporary_folder, words_for
from .shared_memory import SharedView

_numbers = itertools.count(1)

class SharedConstant:
    """A value that reaches each worker once. Made by ``pool.shared_constant``.

    It is packed when it is made, which copies no large array; :meth:`share` puts those where workers can map them.

    Args:
        value: The value; it must not change afterwards.

    Attributes:
        arrays: How its large arrays reach workers: ``"shared"`` (one copy in memory), ``"spilled"`` (one copy in a
            temporary file, of some of them), ``"mapped"`` (from files), ``"sent"`` (a copy for each worker); ``""``
            where there are none or it was not shared yet.
        slot_bytes: How large the slots are to be that results made with it are written to; 0 where that is not known.

    Raises:
        SerializationError: it cannot be pickled.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self.number = next(_numbers)
        self.arrays = ""
        self.slot_bytes = 0
        self._packed = pack(value)
        self._home: SharedCopies | None = None
        self._frame: list[Piece] | None = None
        self._holds: list[Copy] = []

    def share(self, copies: SharedCopies | None) -> None:
        """Copy the large arrays to where workers can map them, or send them where `copies` is None; once.

        Raises:
            SerializationError: there is room for a copy neither in memory nor on a disk.
        """
        self._home = copies
        self.arrays = "mapped" if self._packed.mapped else ""
        buffers = [self._placed(raw, copies) for raw in self._packed.buffers]
        self._frame = protocol.pieces(Kind.CONSTANT, self.number, self._packed.pickled, buffers)

    def _placed(self, raw: memoryview, copies: SharedCopies | None) -> Placed | memoryview:
        """Return where the memory of an array was put; that memory, if it is sent along."""
        if raw.nbytes < SMALLEST_APART:
            return raw
        if copies is None:
            self.arrays = "sent"
            return raw
        which = f"{words_for(raw)} in the {type(self.value).__name__}"
        try:
            copy = copies.copy(raw)
        except NoRoom as error:
            raise SerializationError(
                f"{which} cannot be shared with worker processes: there is no room for a copy; {error}. Make it "
                f"smaller, open it from a file by numpy.memmap, use WorkerThreadPool, or name a folder on a disk with "
                f"room: WorkerProcessPool(spill=...)"
            ) from error
        self._holds.append(copy)
        if copy.placed.file >= 0:
            self.arrays = "spilled"
            warn_consumer(
                f"{which} does not fit into the memory that is free: the copy that workers share lies in a temporary "
                f"file in {copies.spill or temporary_folder()!r}, so rows may have to be read from the disk. To avoid "
                f"that make the array smaller, open it from a file by numpy.memmap, or use WorkerThreadPool",
                SharedMemoryWarning,
            )
        elif self.arrays != "spilled":
            self.arrays = "shared"
        return copy.placed

    def frame(self, copies: SharedCopies | None) -> list[Piece]:
        """Return the frame for workers of the pool with those copies; one that it was not shared with gets all data."""
        if self._frame is not None and self._home is copies:
            return self._frame
        return protocol.pieces(Kind.CONSTANT, self.number, self._packed.pickled, self._packed.buffers)

    def saw(self, nbytes: int) -> None:
        """Take note of the bytes that a result needs in its slot: slots are as large as the largest of late."""
        self.slot_bytes = max(nbytes, self.slot_bytes - (self.slot_bytes >> 10))

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
        view: The shared memory from the worker's side; None where there is none.
    """

    def __init__(self) -> None:
        self.view: SharedView | None = None
        self._frames: dict[int, Frame] = {}
        self._values: dict[int, Any] = {}
        self._lock = threading.RLock()

    def put(self, frame: Frame) -> None:
        """Keep a constant that has arrived, and load it; an error in that is raised by the tasks that need it."""
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
                    frame.place(self.view.private(frame.placed).__getitem__)
                self._values[number] = frame.load()
                del self._frames[number]
            return self._values[number]

    def forget(self, number: int) -> None:
        """Drop a constant."""
        self._frames.pop(number, None)
        self._values.pop(number, None)


WORKER_CONSTANTS = WorkerConstants()
