"""Messages on the one socket between the pool and a worker.

A frame is a header (kind, number, size of the pickle, number of buffers), the place and size of each buffer, the
pickle, then those buffers that are not in shared memory, as they lie (pickle protocol 5, out of band), so that
an array is written from where it is and read to where it will be used. A buffer in shared memory is only named.
Only the two ends of a socket ever touch it: no lock or queue is shared between workers, so one that is killed in
mid-frame leaves half a frame on its own socket and nothing else.

The worker reads and writes whole frames, waiting as long as it takes (:meth:`FrameReader.next`, :func:`write_frame`).
The pool never waits for a worker: :meth:`FrameReader.read` and :class:`FrameWriter` go as far as the socket lets them.
"""

from __future__ import annotations

import collections
import enum
import itertools
import pickle
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...memory_pool import SMALLEST_LEASE, BufferPool
from . import by_value

_HEADER = struct.Struct("<BQQI")
_BUFFER = struct.Struct("<QQ")
_INLINE = (1 << 64) - 1

READ_AT_MOST = 1 << 22
"""Bytes read from one worker before the others have their turn."""

SMALLEST_OUTSIDE = 4096
"""Bytes below which an array goes in the pickle."""

READ_AHEAD = 1 << 16
"""Bytes that are read at once, so that small frames cost one call of the system; larger buffers are read in place."""

MAX_PIECES = 64
"""Pieces of memory that are written by one call of the system."""

Piece = memoryview


class Placed(NamedTuple):
    """A buffer that lies in the memory that all share."""

    offset: int
    size: int


class Kind(enum.IntEnum):
    """What a frame says.

    To the worker: TASK; BATCH, the task of making a batch; CONSTANT, FORGET, ANSWER. From it: READY, when it has
    started, with its process number; LOADED, for a constant; RESULT; ARRAYS, a result that is a tuple of arrays; ERROR;
    ASK, which waits for an ANSWER of the same number.
    """

    TASK = 1
    CONSTANT = 2
    FORGET = 3
    READY = 4
    RESULT = 5
    ERROR = 6
    ASK = 7
    ANSWER = 8
    LOADED = 9
    BATCH = 10
    ARRAYS = 11


RESULTS = frozenset({Kind.RESULT, Kind.ARRAYS, Kind.ERROR})
"""The kinds that end a task; an ERROR of number 0 is what a worker said that could not start."""

_KINDS = {int(kind): kind for kind in Kind}


class Frame:
    """A message that was read.

    Attributes:
        kind: What it says.
        number: Number of the task or constant.
        pickled: The pickle, without its buffers.
        buffers: The buffers, writable; those in shared memory are :class:`Placed` until :meth:`place` was called.
    """

    __slots__ = ("buffers", "kind", "number", "pickled")

    def __init__(self, kind: Kind, number: int, pickled: Any, buffers: list[Any]) -> None:
        self.kind = kind
        self.number = number
        self.pickled = pickled
        self.buffers = buffers

    @property
    def placed(self) -> list[Placed]:
        """The buffers that lie in shared memory."""
        return [buffer for buffer in self.buffers if type(buffer) is Placed]

    def place(self, find: Callable[[Placed], Any]) -> None:
        """Put the memory in the place of each buffer that lies in shared memory."""
        for i, buffer in enumerate(self.buffers):
            if type(buffer) is Placed:
                self.buffers[i] = find(buffer)

    def load(self) -> Any:
        """Return the object; its arrays use the memory of the frame's buffers."""
        return pickle.loads(self.pickled, buffers=self.buffers)


def encode(kind: Kind, number: int, obj: Any) -> list[Piece]:
    """Return the pieces of memory that make up the frame of `obj`."""
    return pieces(kind, number, *dump(obj))


def dump(obj: Any) -> tuple[bytes, list[memoryview]]:
    """Return the pickle of `obj` with the memory of its large arrays.

    Functions and classes that a worker could not import travel by value.
    """
    outside = Outside()
    return by_value.dumps(obj, outside), outside.buffers


class Outside:
    """Keeps the memory of large arrays out of a pickle; small ones are cheaper in it.

    Attributes:
        buffers: The memory that was kept out.
    """

    def __init__(self) -> None:
        self.buffers: list[memoryview] = []

    def __call__(self, buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < SMALLEST_OUTSIDE:
            return True
        self.buffers.append(raw)
        return False


def pieces(
    kind: Kind, number: int, pickled: bytes = b"", buffers: Sequence[memoryview | Placed] = ()
) -> list[Piece]:
    """Return the pieces of memory that make up a frame."""
    head = _HEADER.pack(kind, number, len(pickled), len(buffers))
    inline: list[memoryview] = []
    for buffer in buffers:
        if type(buffer) is Placed:
            head += _BUFFER.pack(*buffer)
        else:
            head += _BUFFER.pack(_INLINE, buffer.nbytes)  # type: ignore[union-attr]  # the only other kind
            inline.append(buffer)  # type: ignore[arg-type]
    return [memoryview(head + pickled), *[piece for piece in inline if piece.nbytes]]


def write_frame(sock: socket.socket, frame: Sequence[Piece]) -> None:
    """Write a whole frame, waiting until the other end has taken it."""
    for piece in frame:
        sock.sendall(piece)


class FrameReader:
    """Reads frames bit by bit, never beyond what the socket holds.

    Args:
        sock: The socket, blocking or not.
        memory: Where large buffers are read to; fresh memory without.

    Attributes:
        dry: Whether the latest :meth:`read` found that the socket holds nothing more.
    """

    def __init__(self, sock: socket.socket, memory: BufferPool | None = None) -> None:
        self._sock = sock
        self._memory = memory
        self._ahead = memoryview(bytearray(READ_AHEAD))
        self._first = self._last = 0  # what of it is yet to be looked at
        self.dry = False
        self._begin()

    def _begin(self) -> None:
        self._fresh = True
        self._kind = self._number = self._pickle_size = self._n_buffers = 0
        self._pickled: Any = b""
        self._buffers: list[Any] = []
        self._stage = 0
        self._head = bytearray(_HEADER.size)
        self._todo: collections.deque[Piece] = collections.deque([memoryview(self._head)])

    def read(self, max_frames: int = 1 << 30) -> list[Frame] | None:
        """Return the frames that became whole; None if the other end is closed."""
        frames: list[Frame] = []
        self._left = READ_AT_MOST
        self.dry = False
        while len(frames) < max_frames:
            if self._first == self._last and self._todo and self._todo[0].nbytes < READ_AHEAD:
                n = self._receive(self._ahead)
                if not n:
                    return frames if n is None else frames or None
                self._first, self._last = 0, n
            if self._fresh and (frame := self._whole()) is not None:
                frames.append(frame)
                continue
            if self._todo:
                n = self._fill(self._todo[0])
                if not n:
                    return frames if n is None else frames or None
                if n < self._todo[0].nbytes:
                    self._todo[0] = self._todo[0][n:]
                    continue
                self._todo.popleft()
            if not self._todo and self._advance():
                frames.append(Frame(_KINDS[self._kind], self._number, self._pickled, self._buffers))
                self._begin()
        return frames

    def _whole(self) -> Frame | None:
        """Return the next frame if all of it was read ahead, as small ones are: the quick way."""
        if self._last - self._first < _HEADER.size:
            return None
        kind, number, size, n_buffers = _HEADER.unpack_from(self._ahead, self._first)
        at = self._first + _HEADER.size
        start = at + n_buffers * _BUFFER.size
        if start + size > self._last:
            return None
        buffers: list[Any] = []
        for place in range(at, start, _BUFFER.size):
            buffer = Placed(*_BUFFER.unpack_from(self._ahead, place))
            if buffer.offset == _INLINE:
                return None
            buffers.append(buffer)
        self._first = start + size
        return Frame(_KINDS[kind], number, bytes(self._ahead[start : self._first]), buffers)

    def next(self) -> Frame | None:
        """Return the next frame of a socket that blocks, waiting for it; None if the other end is closed."""
        while (frames := self.read(max_frames=1)) is not None:
            if frames:
                return frames[0]
        return None

    def _fill(self, piece: Piece) -> int | None:
        """Write to `piece` what there is; return how many bytes, 0 at the end, None if there is nothing now."""
        self._fresh = False
        if self._first == self._last:
            return self._receive(piece)
        n = min(piece.nbytes, self._last - self._first)
        piece[:n] = self._ahead[self._first : self._first + n]
        self._first += n
        return n

    def _receive(self, memory: Piece) -> int | None:
        """Read from the socket; return how many bytes, 0 at the end, None if there is nothing now."""
        if self._left <= 0:
            return None
        try:
            n = self._sock.recv_into(memory)
        except (BlockingIOError, InterruptedError):
            self.dry = True
            return None
        except ConnectionError:
            return 0
        # Less than there was room for is all that there is: to ask again would only cost a call.
        self._left = self._left - n if n == memory.nbytes else 0
        return n

    def _advance(self) -> bool:
        """Go on to the next part of the frame, once one is read; return whether it is whole."""
        if self._stage == 0:
            self._kind, self._number, self._pickle_size, self._n_buffers = _HEADER.unpack(self._head)
            self._places = bytearray(_BUFFER.size * self._n_buffers)
            self._pickled = bytearray(self._pickle_size)
            self._stage = 1
            self._want(self._places, self._pickled)
        elif self._stage == 1:
            places = _BUFFER.iter_unpack(self._places)
            self._buffers = [self._room(size) if at == _INLINE else Placed(at, size) for at, size in places]
            self._stage = 2
            self._want(*[buffer for buffer in self._buffers if type(buffer) is not Placed])
        return self._stage > 0 and not self._todo and (self._stage == 2 or not self._n_buffers)

    def _want(self, *memory: Any) -> None:
        self._todo.extend(memoryview(part) for part in memory if len(part))

    def _room(self, size: int) -> Any:
        """Return `size` bytes to read into."""
        if self._memory is None or size < SMALLEST_LEASE:
            return np.empty(size, np.uint8)
        return self._memory.lease(size)


class FrameWriter:
    """Holds frames until the socket has taken them."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._todo: collections.deque[Piece] = collections.deque()

    @property
    def waiting(self) -> bool:
        """Whether something is yet to be written."""
        return bool(self._todo)

    def add(self, frame: Sequence[Piece]) -> None:
        """Queue a frame."""
        self._todo.extend(frame)

    def put(self, frame: Sequence[Piece]) -> None:
        """Queue a frame and write what can be written now."""
        self._todo.extend(frame)
        self.write()

    def write(self) -> None:
        """Write as much as the socket takes, many pieces a call."""
        todo = self._todo
        while todo:
            try:
                n = self._sock.send(todo[0]) if len(todo) == 1 else self._sock.sendmsg(_first(todo))
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                todo.clear()  # the worker is gone; its sentinel tells
                return
            while n:
                piece = todo[0]
                if n < piece.nbytes:
                    todo[0] = piece.cast("B")[n:]
                    return
                n -= piece.nbytes
                todo.popleft()


def _first(todo: collections.deque[Piece]) -> list[Piece]:
    return list(itertools.islice(todo, MAX_PIECES))
