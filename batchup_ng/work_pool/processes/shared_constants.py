"""Objects that reach each worker once. Workers keep them until the pool drops them.

Ownership. In the pool's process a :class:`SharedConstant` owns its value, its pickle, its number and the shared copies
of its large arrays. Tasks contain a :class:`ConstantRef` instead. A worker gets the pickle in a frame before the first
task that needs it, on the same socket. When the last reference to the :class:`SharedConstant` goes, its copies are
released, and workers get a message to drop it. A task on its way holds the constants that it needs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...errors import ArgumentTypeError, SerializationError, SharedMemoryWarning
from ...interpreter import numbers
from ...warn import warn_consumer
from . import protocol
from .protocol import Frame, Kind, Piece, Placed
from .serialization import SMALLEST_APART, Packer, pack
from .shared_arrays import Copy, SharedCopies, temporary_folder, words_for
from .shared_memory import ArenaFull, SharedView

_next_number = numbers(1)


class SharedConstant:
    """A value that reaches each worker once. ``pool.shared_constant`` makes one. The value must not change afterwards.

    The constructor packs the value and copies small arrays. :meth:`share` puts large arrays where workers can map them.

    Attributes:
        arrays: How its large arrays reach workers: ``"shared"`` (one copy in memory), ``"spilled"`` (one copy in a
            temporary file), ``"mapped"`` (from files), ``"sent"`` (a copy for each worker); ``""`` if there are none or
            the value is not shared yet.
        copies: The copies of its arrays. This list keeps them alive.
        slot_bytes: Size of the slots for results that are made with it; 0 if it is unknown.

    Raises:
        SerializationError: the value cannot be pickled.
    """

    def __init__(self, value: Any, packer: type[Packer] | None = None) -> None:
        self.value = value
        self.number = _next_number()
        self.arrays = ""
        self.copies: list[Copy] = []
        self.slot_bytes = 0
        packed = pack(value, packer)
        # Workers get it one after the other, a replacement much later. All must see the present bytes.
        buffers = [raw if raw.nbytes >= SMALLEST_APART else memoryview(bytes(raw)) for raw in packed.buffers]
        self._packed = packed._replace(buffers=buffers)
        self._home: SharedCopies | None = None
        self._frame: list[Piece] | None = None

    def share(self, home: SharedCopies | None) -> None:
        """Copy the large arrays to `home`, where workers can map them. If it is None, they are sent. Called once.

        Raises :class:`SerializationError` if there is no room for a copy.
        """
        self._home = home
        self.arrays = "mapped" if self._packed.mapped else ""
        buffers = [self._placed(raw, home) for raw in self._packed.buffers]
        self._frame = protocol.pieces(Kind.CONSTANT, self.number, self._packed.pickled, buffers)

    def _placed(self, raw: memoryview, home: SharedCopies | None) -> Placed | memoryview:
        """Return the place of an array's copy; if the array is sent along, return `raw`."""
        if raw.nbytes < SMALLEST_APART:
            return raw
        if home is None:
            self.arrays = "sent"
            return raw
        what = f"{words_for(raw)} in the {type(self.value).__name__}"
        remedy = "save it by numpy.save and open it by numpy.load(..., mmap_mode='r'), or use WorkerThreadPool"
        try:
            copy = home.copy(raw)
        except ArenaFull as error:
            raise SerializationError(
                f"{what} cannot be shared with worker processes: there is no room for a copy; {error}. Make it "
                f"smaller, {remedy}, or name a folder on a disk that has room: WorkerProcessPool(spill=...)"
            ) from error
        self.copies.append(copy)
        if copy.file is not None:
            self.arrays = "spilled"
            warn_consumer(
                f"{what} does not fit into memory a second time; the copy that workers share lies in a temporary file "
                f"in {home.spill or temporary_folder()!r}, so rows may have to be read from the disk. To avoid that, "
                f"{remedy}",
                SharedMemoryWarning,
            )
        elif self.arrays != "spilled":
            self.arrays = "shared"
        return copy.placed

    def frame(self, home: SharedCopies | None) -> list[Piece]:
        """Return the frame for workers of the pool with the copies `home`. For another pool, it contains all data."""
        if self._frame is not None and self._home is home:
            return self._frame
        return protocol.pieces(Kind.CONSTANT, self.number, self._packed.pickled, self._packed.buffers)

    def saw(self, nbytes: int) -> None:
        """Record the bytes that a result needs in its slot. Slots are as large as the largest recent result."""
        self.slot_bytes = max(nbytes, self.slot_bytes - (self.slot_bytes >> 10))

    def __reduce__(self) -> Any:
        raise ArgumentTypeError("a shared constant may only stand among the arguments of a task, not inside one")


class ConstantRef(NamedTuple):
    """The stand-in for a shared constant in the arguments of a task."""

    number: int


class WorkerConstants:
    """A worker's constants, its view of the shared memory and its number. Several threads read them.

    `worker` is the worker's number in its pool. No other living worker has this number. A worker that replaces a dead
    one gets a free number.
    """

    def __init__(self) -> None:
        self.view: SharedView | None = None
        self.worker = 0
        self._values: dict[int, Any] = {}
        self._not_loaded: dict[int, Frame] = {}

    def put(self, frame: Frame) -> None:
        """Load a constant that has arrived. If that fails, each task that needs the constant raises the error."""
        try:
            self._values[frame.number] = self._loaded(frame)
        except BaseException:
            self._not_loaded[frame.number] = frame

    def get(self, number: int) -> Any:
        """Return the value of a constant."""
        return self._values[number] if number in self._values else self._loaded(self._not_loaded[number])

    def _loaded(self, frame: Frame) -> Any:
        placed = [buffer for buffer in frame.buffers if type(buffer) is Placed]
        if self.view is not None and placed:
            frame.place(self.view.private(placed).__getitem__)
        return frame.load()

    def forget(self, number: int) -> None:
        """Drop a constant."""
        self._not_loaded.pop(number, None)
        self._values.pop(number, None)


WORKER_CONSTANTS = WorkerConstants()
