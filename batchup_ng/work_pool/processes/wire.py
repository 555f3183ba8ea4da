"""The sockets between the pool and its workers: one wait for all of them, reads and writes that never wait.

Ownership. A :class:`WorkerHandle` has the pool's end of one worker's socket: the messages that the socket has not taken
yet, the tasks that the worker was sent, each with its slot, and the constants that it has. The :class:`Wire` has the
wait for all sockets. By a pair of sockets of its own, any thread can end that wait. After
:meth:`Wire.close` it may be opened again.

Locks. Only the thread that has the turn (:mod:`.turn`) waits and reads. The pool's lock guards what is written to
workers, and which descriptors are waited for. With that lock, any thread may send a task, also while another waits.
:meth:`Wire.wake` takes no lock, because a finalizer may call it.

On a crash: if a process or its socket ends, :meth:`Wire.read` returns the messages that it had sent, and that the
worker is gone. Half a message counts as none.
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import weakref
from contextlib import AbstractContextManager
from typing import Any

from ...memory.leases import Buffers
from . import protocol
from .future import ProcessFuture
from .process import WorkerProcess
from .protocol import Frame, FrameReader, FrameWriter, Kind, Placed
from .schedule import ScheduledWorker
from .shared_arrays import SharedCopies
from .shared_constants import SharedConstant
from .shared_memory import Slot, SlotPool

LONGEST_WAIT = 3600.0
"""Seconds after which a wait for messages ends in any case."""


class WorkerHandle(ScheduledWorker[ProcessFuture]):
    """A worker process with its number in the pool.

    Large buffers from its socket are read into `memory`. Its slots come from `slots`. `watched` says whether the wire
    waits until its socket can be written.
    """

    def __init__(
        self, number: int, process: WorkerProcess, started: float, memory: Buffers, slots: SlotPool | None
    ) -> None:
        super().__init__(started)
        self.number = number
        self.process = process
        self.reader = FrameReader(process.sock, memory)
        self.writer = FrameWriter(process.sock)
        self.writer.add(protocol.pieces(Kind.NUMBER, number))
        self.writer.write()
        self.constants: dict[int, weakref.ref[SharedConstant]] = {}  # by number
        self.watched = False
        self.start_error = ""
        self._slots = slots
        self.sent: dict[int, tuple[ProcessFuture, Slot | None]] = {}

    def send(self, future: ProcessFuture, copies: SharedCopies | None) -> None:
        """Queue a task. First queue the constants that it needs and this worker does not have."""
        kind, pickled, buffers, constants = future.encoded
        room = 0
        for constant in constants:
            room = max(room, constant.slot_bytes)
            if constant.number not in self.constants:
                self._add(constant, copies)
                self.loads(future)
        # No slot before the first result, which says how large it must be. Taken late, to use few slots. The slot that
        # was freed last comes first, because it is in the CPU's caches.
        slot = self._slots.take(room) if room and self._slots is not None else None
        placed = [] if slot is None else [Placed(slot.offset, slot.bytes.nbytes)]
        self.sent[future.number] = future, slot
        self.writer.add(protocol.pieces(kind, future.number, pickled, [*buffers, *placed]))

    def _add(self, constant: SharedConstant, copies: SharedCopies | None) -> None:
        self.constants[constant.number] = weakref.ref(constant)
        self.writer.add(constant.frame(copies))

    def load_as(self, other: WorkerHandle, copies: SharedCopies | None) -> bool:
        """Queue the constants that another worker has. Return False if the socket has not taken all of them yet."""
        for number, of_number in other.constants.items():
            constant = of_number()
            if constant is not None and number not in self.constants:
                self._add(constant, copies)
                self.loading += 1
        return self.writer.write()

    def forget(self, number: int) -> bool:
        """Let the worker drop a constant. Return False if the socket has not taken the message yet."""
        if number in self.constants:
            del self.constants[number]
            self.writer.add(protocol.pieces(Kind.FORGET, number))
        return self.writer.write()


def resolve(frame: Frame, slot: Slot | None) -> None:
    """Replace the offsets in a result by the memory of its slot."""

    def find(placed: Placed) -> Any:
        start = -1 if slot is None else placed.offset - slot.offset
        if slot is None or start < 0 or start + placed.size > slot.bytes.nbytes:
            raise ValueError(f"a worker says that it wrote to {placed}, which it was not lent")
        return slot.bytes[start : start + placed.size]

    frame.place(find)


class Wire:
    """The sockets of all workers. `lock` is the pool's lock.

    Like the ``selectors`` module, without features that the pool does not need, in a third of the time.
    """

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        self._poll: Any = None
        self._found: dict[int, tuple[WorkerHandle | None, bool]] = {}  # for each descriptor, the entry of its event
        self._wakes: socket.socket | None = None
        self._waker: socket.socket | None = None

    def open(self) -> None:
        """Open the pair of sockets for :meth:`wake`."""
        wakes, waker = socket.socketpair()
        for end in (wakes, waker):
            end.setblocking(False)
        self._poll = select.poll()
        self._poll.register(wakes.fileno(), select.POLLIN)
        self._found = {wakes.fileno(): (None, False)}
        self._wakes, self._waker = wakes, waker

    def close(self) -> None:
        """Close that pair. All workers have ended. May be called again."""
        wakes, waker, self._wakes, self._waker = self._wakes, self._waker, None, None
        self._found.clear()
        for end in (wakes, waker):
            if end is not None:
                end.close()

    # -- any thread --------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """End the wait, which then finds None. If the wire is not open, do nothing."""
        waker = self._waker
        if waker is not None:
            with contextlib.suppress(OSError):  # a full socket ends the wait as well; another thread may close it
                waker.send(b"w")

    # -- with the pool's lock held -----------------------------------------------------------------------------

    def add(self, worker: WorkerHandle) -> None:
        """Also wait for a worker: its messages and, if the system reports it, its end."""
        self._poll.register(worker.process.sock.fileno(), select.POLLIN)
        self._found[worker.process.sock.fileno()] = worker, False
        if worker.process.death is not None:
            self._poll.register(worker.process.death, select.POLLIN)
            self._found[worker.process.death] = worker, True
        self.watch(worker)
        self.wake()  # a wait that has begun is without it

    def remove(self, worker: WorkerHandle) -> None:
        """Stop waiting for a worker."""
        for fd in (worker.process.sock.fileno(), worker.process.death):
            if fd is not None and self._found.pop(fd, None) is not None:
                with contextlib.suppress(OSError):
                    self._poll.unregister(fd)

    def dismiss(self, worker: WorkerHandle) -> None:
        """Let a worker without tasks end. From now on, only wait for its end."""
        worker.constants.clear()  # nothing is written to it any more
        worker.writer.waiting.clear()
        self.watch(worker)
        fd = worker.process.sock.fileno()
        with contextlib.suppress(OSError):
            worker.process.sock.shutdown(socket.SHUT_WR)
        if worker.process.death is not None:  # otherwise the end of its socket shows it
            del self._found[fd]
            self._poll.unregister(fd)

    def watch(self, worker: WorkerHandle) -> None:
        """Wait until a worker's socket can be written, exactly as long as there is more to write."""
        fd, waiting = worker.process.sock.fileno(), bool(worker.writer.waiting)
        if waiting != worker.watched and fd in self._found:
            worker.watched = waiting
            self._poll.register(fd, select.POLLIN | (select.POLLOUT if waiting else 0))
            if waiting:
                self.wake()  # a wait that has begun is for messages only

    # -- the thread that has the turn --------------------------------------------------------------------------

    def wait(self, seconds: float) -> dict[WorkerHandle | None, bool]:
        """Wait at most `seconds`. Return the workers whose socket is ready or that ended, each with whether it ended.

        None among them stands for a call of :meth:`wake`.
        """
        found: dict[WorkerHandle | None, bool] = {}
        for fd, _ in self._poll.poll(math.ceil(min(seconds, LONGEST_WAIT) * 1000)):
            if fd in self._found:
                worker, ended = self._found[fd]
                found[worker] = ended or found.get(worker, False)
        return found

    def woken(self) -> None:
        """Clear all calls of :meth:`wake` so far."""
        if self._wakes is not None:
            with contextlib.suppress(BlockingIOError):
                self._wakes.recv(4096)

    def read(self, worker: WorkerHandle, ended: bool) -> tuple[list[Frame], bool]:
        """Read the messages of a worker. Return them, and whether the worker is gone: no more will come.

        If the process has `ended`, read to the last message; otherwise no more than :data:`.MAX_READ` at once. First
        write the rest of the messages to the worker.
        """
        if worker.watched:
            with self._lock:
                worker.writer.write()
                self.watch(worker)
        messages: list[Frame] = []
        while (frames := worker.reader.read()) is not None:
            messages += frames
            if not ended or worker.reader.dry:
                return messages, ended
        return messages, True
