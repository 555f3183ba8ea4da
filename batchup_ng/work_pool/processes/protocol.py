"""Messages on the one socket between the pool and a worker.

A frame is a header (kind, number, size of the pickle, number of buffers, size of the times), the place and size of each
buffer, the pickle, the times of a batch, then the raw bytes of buffers that are not in shared memory (pickle protocol
5, out of band). An array is written from its own memory and read into the memory where it is used. For a buffer in
shared memory, the frame has only its place. Only the two ends of a socket ever touch it. Workers share no lock or
queue, so a worker that is killed while it writes leaves half a frame on its own socket and nothing else.

The worker reads and writes whole frames and waits as long as necessary. The pool never waits for one worker:
:meth:`FrameReader.read` and :class:`FrameWriter` go as far as the socket allows, and :class:`.Wire` waits for all.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import itertools
import pickle
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...memory.leases import FRESH, Buffers
from ...memory.shared_file import Place

_HEADER = struct.Struct("<BQQII")
_BUFFER = struct.Struct("<QQiiQQ")
_INLINE = (1 << 64) - 1  # instead of an offset

MAX_READ = 1 << 22
"""Bytes read from one worker before other workers have their turn."""

SMALLEST_OUTSIDE = 4096
"""Bytes below which an array goes in the pickle."""

READ_AHEAD = 1 << 16
"""Bytes that one system call reads, enough for many small frames. Larger buffers are read into their own memory."""

MAX_PIECES = 64
"""Pieces of memory that one system call writes."""

Piece = memoryview


class Placed(NamedTuple):
    """A buffer that lies in the shared memory, or in a file of its own: the numbers from `pid` on are its place."""

    offset: int
    size: int
    pid: int = 0
    fd: int = -1
    device: int = 0
    inode: int = 0

    @property
    def file(self) -> Place | None:
        """The file of its own; None in the shared memory."""
        return Place(*self[2:]) if self.fd >= 0 else None


class Kind(enum.IntEnum):
    """The kind of a frame.

    To the worker: NUMBER, the first frame, with the number of the worker in its pool; TASK; BATCH, the task of making a
    batch; CONSTANT; FORGET, to drop a constant. From the worker: READY, when it has started, with its pid; LOADED, for
    a constant; RESULT; ARRAYS, a result that is a tuple or dict of arrays; ERROR, with number 0 if the worker could not
    start. RESULT and the kinds after it end a task.
    """

    NUMBER = 1
    TASK = 2
    BATCH = 3
    CONSTANT = 4
    FORGET = 5
    READY = 6
    LOADED = 7
    RESULT = 8
    ARRAYS = 9
    ERROR = 10


_KINDS = {int(kind): kind for kind in Kind}


ArrayPart = tuple[Any, str, tuple[int, ...]]
"""An array of an ARRAYS frame: its start in the buffer, or its bytes if it is small; its dtype; its shape."""


@dataclasses.dataclass(eq=False, slots=True)
class Frame:
    """A message that was read: a pickle and the memory of its arrays. `number` identifies the task or the constant.

    `times` are those of a batch, packed; no bytes if they were not measured. The `buffers` are writable. A buffer in
    shared memory is a :class:`Placed` until :meth:`place` is called.
    """

    kind: Kind
    number: int
    pickled: bytes
    buffers: list[Any]
    times: bytes = b""

    def place(self, find: Callable[[Placed], Any]) -> None:
        """Replace each :class:`Placed` by the memory that `find` returns for it."""
        self.buffers = [find(buffer) if type(buffer) is Placed else buffer for buffer in self.buffers]

    def load(self) -> Any:
        """Return the object; its arrays use the memory of the frame's buffers."""
        return pickle.loads(self.pickled, buffers=self.buffers)

    def arrays(self) -> tuple[np.ndarray, ...] | dict[str, np.ndarray]:
        """Return the arrays of an ARRAYS frame. They are writable; large ones lie in the memory of its buffer."""
        parts: list[ArrayPart]
        names, parts = pickle.loads(self.pickled)
        memory = self.buffers[0] if self.buffers else None
        arrays = tuple(
            [
                np.ndarray(shape, kind, bytearray(at)) if type(at) is bytes else np.ndarray(shape, kind, memory, at)
                for at, kind, shape in parts
            ]
        )
        return arrays if names is None else dict(zip(names, arrays, strict=True))


def pieces(
    kind: Kind,
    number: int,
    pickled: bytes = b"",
    buffers: Sequence[memoryview | Placed] = (),
    times: bytes = b"",
) -> list[Piece]:
    """Return the pieces of memory that make up a frame."""
    head = _HEADER.pack(kind, number, len(pickled), len(buffers), len(times))
    inline: list[memoryview] = []
    for buffer in buffers:
        if isinstance(buffer, Placed):
            head += _BUFFER.pack(*buffer)
        else:
            head += _BUFFER.pack(_INLINE, buffer.nbytes, 0, -1, 0, 0)
            inline.append(buffer)
    return [memoryview(head + pickled + times), *[piece for piece in inline if piece.nbytes]]


def write_frame(sock: socket.socket, frame: Sequence[Piece]) -> None:
    """Write a whole frame. Wait until the socket has taken it."""
    for piece in frame:
        sock.sendall(piece)


class FrameReader:
    """Reads frames in parts, without waiting if the socket does not block. Large buffers go to `memory`."""

    def __init__(self, sock: socket.socket, memory: Buffers = FRESH) -> None:
        self._sock = sock
        self._memory = memory
        self._ahead = memoryview(bytearray(READ_AHEAD))
        self._first = self._last = 0  # start and end of its bytes that are not parsed yet
        self._head = _HEADER.size  # bytes up to the first buffer of the next frame, as far as is known
        self._frame: Frame | None = None  # the frame whose buffers are being read
        self._todo: collections.deque[Piece] = collections.deque()  # the unfilled memory of its buffers
        self.dry = False  # the latest read emptied the socket

    def read(self) -> list[Frame] | None:
        """Read a socket that does not block. Return the frames that became whole; None if the other end is closed."""
        frames: list[Frame] = []
        left = MAX_READ
        self.dry = False
        while True:
            while (frame := self._parsed()) is not None:
                frames.append(frame)
            if left <= 0:
                break
            try:
                n, room = self._receive()
            except (BlockingIOError, InterruptedError):
                self.dry = True
                break
            if n == 0:
                return frames or None
            # Fewer bytes than there was room for are all that there are. Another call would find nothing.
            left = left - n if n == room else 0
        return frames

    def next(self) -> Frame | None:
        """Wait for the next frame of a socket that blocks, and return it; None if the other end is closed."""
        while (frame := self._parsed()) is None:
            if self._receive()[0] == 0:
                return None
        return frame

    def _receive(self) -> tuple[int, int]:
        """Read once. Return the number of bytes read, 0 at the end of the stream, and the room that there was."""
        todo = self._todo
        into = todo[0] if todo else self._room_ahead()
        try:
            n = self._sock.recv_into(into)
        except ConnectionError:
            n = 0
        if todo:
            self._filled(n)
        else:
            self._last += n
        return n, into.nbytes

    def _parsed(self) -> Frame | None:
        """Return the next frame if all of it was read."""
        if self._frame is None:
            first = self._first
            if self._last - first < self._head:
                return None
            kind, number, size, n_buffers, size_of_times = _HEADER.unpack_from(self._ahead, first)
            places = first + _HEADER.size
            start = places + n_buffers * _BUFFER.size
            end = start + size
            self._head = end + size_of_times - first
            if self._last - first < self._head:
                return None
            self._first, self._head = end + size_of_times, _HEADER.size
            pickled, times = bytes(self._ahead[start:end]), bytes(self._ahead[end : end + size_of_times])
            self._frame = Frame(_KINDS[kind], number, pickled, [], times)
            for place in range(places, start, _BUFFER.size):
                self._frame.buffers.append(self._buffer(*_BUFFER.unpack_from(self._ahead, place)))
        while self._todo and self._first < self._last:
            n = min(self._todo[0].nbytes, self._last - self._first)
            self._todo[0][:n] = self._ahead[self._first : self._first + n]
            self._first += n
            self._filled(n)
        if self._todo:
            return None
        frame, self._frame = self._frame, None
        return frame

    def _buffer(self, offset: int, size: int, *file: int) -> Any:
        """Return the place of a buffer in shared memory, or new memory to read it into."""
        if offset != _INLINE:
            return Placed(offset, size, *file)
        memory: Any = self._memory.empty((size,), np.dtype(np.uint8))
        if size:
            self._todo.append(memoryview(memory))
        return memory

    def _filled(self, n: int) -> None:
        if n < self._todo[0].nbytes:
            self._todo[0] = self._todo[0][n:]
        else:
            self._todo.popleft()

    def _room_ahead(self) -> Piece:
        """Return the free memory after the unparsed bytes, enough for the head of the next frame."""
        unread = self._ahead[self._first : self._last]
        size = max(READ_AHEAD, self._head)
        if size != len(self._ahead):
            self._ahead = memoryview(bytearray(size))
        self._first, self._last = 0, len(unread)
        if not unread:
            return self._ahead
        self._ahead[: self._last] = unread
        return self._ahead[self._last :]


class FrameWriter:
    """Holds frames until the socket has taken them. `waiting` are the pieces that it has not taken yet."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.waiting: collections.deque[Piece] = collections.deque()

    def add(self, frame: Sequence[Piece]) -> None:
        """Queue a frame."""
        self.waiting.extend(frame)

    def write(self) -> bool:
        """Write as much as the socket takes, many pieces per call. Return whether it has taken all."""
        waiting = self.waiting
        while waiting:
            try:
                n = self._sock.sendmsg(itertools.islice(waiting, MAX_PIECES))
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:
                waiting.clear()  # the worker is gone, as its sentinel will show
                break
            while n:
                piece = waiting[0]
                if n < piece.nbytes:
                    waiting[0] = piece.cast("B")[n:]
                    return False
                n -= piece.nbytes
                waiting.popleft()
        return True
