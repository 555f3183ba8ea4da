"""The dispatcher of a process pool: it connects the schedule, which decides, with the wire and the workers.

Ownership. :class:`.Workers` own the processes, :class:`.Wire` waits for their sockets, and :class:`.Turn` says which
thread reads. The :class:`Dispatcher` owns the futures of the tasks that wait or are under way, and the shared memory.
It reports each result, death and deadline to the schedule, and carries out what the schedule decides.

Any thread may submit a task. It pickles the task and hands it to a worker that has room, with a slot for the result if
the needed size is known. It writes as much as the socket takes at once. The thread that has the turn reads results,
hands out the next tasks and settles futures. The consumer that asks for a result unpickles it. The dispatcher's thread
starts the first workers, reads while no consumer does, and ends them all.

Lock. `_lock`, the pool's lock, guards the schedule, the tasks that were sent, the messages to workers, the set of
workers, and the start of the dispatcher's thread. It is not held while a thread waits for another process. Its longest
step is to find memory for a new slot. The turn guards the times of the looks (`_looks_at`, `_look_now`).
`_closed` and `_broken` are set once, in one step, without a lock.

On a crash: if the process or socket of a worker ends, the worker is lost. The dispatcher first receives the messages
that it sent, then takes back its slots. The schedule decides about its tasks, and another worker replaces it. If the
dispatcher itself fails, all tasks fail with that error, and the pool stays closed.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from concurrent.futures import Future

from ...errors import PoolBroken, PoolClosed, SampleTimeout, WorkerDied
from ...interpreter import numbers
from ...signals import InterruptsHeld, leave_interrupts_to_others
from ..prefetch_buffer import in_a_fork
from ..task import POOL_CLOSED
from .future import NO_CALL, ProcessFuture, transport_and_room
from .process import Launcher, refused
from .protocol import Frame, Kind
from .schedule import LATE, NOT_LOADED, Action, Dismiss, Kill, Schedule, Send
from .shared_arrays import Copy, SharedCopies
from .shared_memory import Slot, SlotPool
from .turn import Turn
from .wire import Wire, WorkerHandle, resolve
from .workers import OTHERS_ENDED_TOO, Actions, Workers

LOOK_EVERY = 0.05
"""Seconds between two checks of due actions while messages keep coming."""


class Dispatcher:
    """Hands out tasks and settles their futures. It has no reference to the pool, which the program may drop."""

    def __init__(
        self, processes: int, threads: int, launcher: Launcher, copies: SharedCopies | None, slots: SlotPool | None
    ) -> None:
        self.copies = copies
        self.slots = slots
        self._lock = threading.Lock()
        self._schedule: Schedule[WorkerHandle, ProcessFuture] = Schedule(processes, threads, launcher.start_timeout)
        self._wire = Wire(self._lock)
        self._turn = Turn(self._read, self._wire.wake)
        self.workers = Workers(
            self._schedule, launcher, self._wire, self._lock, slots, self._do, is_closed=lambda: self._closed
        )
        self._next_number = numbers(1)
        self._forgotten: deque[int] = deque()  # numbers of constants that workers are to drop
        self._owner_pid = os.getpid()
        self._start: Future[None] | None = None  # while the dispatcher's thread runs
        self._thread: threading.Thread | None = None
        self._closed = False
        self._broken: WorkerDied | None = None
        self._wakes_at = math.inf  # when the reader looks at the latest, though there is no message
        self._looks_at = 0.0
        self._look_now = True

    # -- any thread --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """If the workers are not started yet, start them, and wait until each has a process.

        Raises :class:`PoolBroken` if they cannot be started; a later call may succeed. Raises :class:`PoolClosed` if
        the pool is closed during the start.
        """
        if os.getpid() != self._owner_pid:
            raise in_a_fork(self._owner_pid)
        if self._turn.open:
            return
        with InterruptsHeld(), self._lock:
            self.check_open()
            start = self._start
            if start is None:
                start = Future()
                # Not on this thread: an interrupt could leave a process that the pool does not know.
                thread = threading.Thread(target=self._dispatch, args=(start,), name="batchup_ng-dispatch", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    raise refused(error) from error
                self._start, self._thread = start, thread
        start.result()

    def submit(self, future: ProcessFuture) -> None:
        """Hand out a task."""
        self.start()
        future.number, future.serve, future.wake = self._next_number(), self._turn.serve, self._wire.wake
        while not self._try_submit(future):
            with self._lock:
                leaving = self._thread if self._schedule.broken else None  # otherwise another thread has restarted it
            if leaving is not None:
                leaving.join()
            self.start()

    def _try_submit(self, future: ProcessFuture) -> bool:
        """Submit a task. Return False if no worker could be kept alive and the workers must be started again."""
        with InterruptsHeld(), self._lock:
            if not self._turn.open or self._schedule.broken:
                self.check_open()
                return False
            if not future.finished:
                self._do(self._schedule.submit(future, time.monotonic()))
                if future.how.timeout is not None and self._schedule.next_tick() < self._wakes_at:
                    self._wire.wake()  # otherwise the reader would sleep past this task's time limit
            return True

    def resize(self, processes: int) -> None:
        """Change the number of workers. It takes effect soon, or when the first workers start."""
        if os.getpid() != self._owner_pid:
            raise in_a_fork(self._owner_pid)
        with InterruptsHeld(), self._lock:
            self.check_open()
            self._do(self._schedule.resize(processes, time.monotonic()))
        self._wire.wake()  # the reader has missing workers started

    def check_open(self) -> None:
        """Raise :class:`PoolClosed` if the pool was closed, :class:`WorkerDied` if its dispatcher failed."""
        if self._broken is not None:
            raise WorkerDied(f"this pool is broken, make a new one: {self._broken}") from self._broken
        if self._closed:
            raise PoolClosed(POOL_CLOSED)

    def forget(self, number: int, copies: list[Copy]) -> None:
        """Let the workers drop a constant. Takes no lock, because it may run inside any code."""
        copies.clear()  # first: the memory is then free when the reader wakes up
        self._forgotten.append(number)
        self._wire.wake()

    def pids(self) -> list[int]:
        """Return the pids of the workers."""
        with self._lock:
            return [worker.process.pid for worker in self._schedule.workers]

    def at_work_for(self) -> float:
        """Return the seconds that all workers have been at their present tasks; 0.0 if one of them has none."""
        with self._lock:
            began = [worker.tasks[0].began if worker.tasks else None for worker in self._schedule.workers]
        now = time.monotonic()
        return min((now - (now if each is None else each) for each in began), default=0.0)

    def close(self) -> None:
        """End the processes and wait until they are gone. May be called again."""
        if os.getpid() != self._owner_pid:
            return  # in a fork by the user: the workers belong to its parent
        if self._turn.is_mine():
            return self.abandon()  # called by the collector in mid-read: the dispatcher waits for this thread's turn
        with self._lock:
            thread = self._thread
            serving = self._start is not None and self._start.done() and not self._schedule.broken
            self.abandon()
        if thread is not None and threading.current_thread() is not thread:
            if not serving:
                self.workers.launcher.interrupt()
            thread.join()

    def abandon(self) -> None:
        """Let the dispatcher end the processes soon. Waits for no lock, because it may run inside any code."""
        self._closed = True
        self._turn.open = False
        if self._thread is None:
            self._close_memory()  # no thread was started that could do it
        self._wire.wake()

    # -- with the lock held ------------------------------------------------------------------------------------

    def _do(self, actions: Actions) -> None:
        """Carry out the actions of the schedule."""
        given: dict[WorkerHandle, None] = {}
        for action in actions:
            if isinstance(action, Send):
                action.worker.send(action.task, self.copies)
                given[action.worker] = None
            elif isinstance(action, Kill):
                action.worker.process.kill()  # the wire notices its end like any other
            elif isinstance(action, Dismiss):
                self._wire.dismiss(action.worker)
            else:
                action.task.fail(self._error_of(action.task, action.why))
        for worker in given:
            if not worker.writer.write():
                self._wire.watch(worker)

    def _load_as_others(self, worker: WorkerHandle) -> None:
        others = [other for other in self._schedule.workers if other.ready and not other.leaving]
        if others and not worker.load_as(max(others, key=lambda other: len(other.constants)), self.copies):
            self._wire.watch(worker)

    def _error_of(self, future: ProcessFuture, why: str) -> BaseException:
        if why is LATE:
            return SampleTimeout(f"a task ran for more than timeout={future.how.timeout:g} s; its worker was ended")
        if why is NOT_LOADED:
            return PoolBroken(
                f"a worker process did not load the source (its modules, its data) within "
                f"start_timeout={self._schedule.start_timeout:g} s, for which it was ended; pass more to "
                f"WorkerProcessPool(start_timeout=)"
            )
        if self._schedule.broken:
            return PoolBroken(
                f"worker processes cannot be kept alive: {self.workers.last_exit}{OTHERS_ENDED_TOO}; see their own "
                f"messages above"
            )
        return WorkerDied(f"{self.workers.last_exit} while running this task")

    # -- the dispatcher's thread -------------------------------------------------------------------------------

    def _dispatch(self, start: Future[None]) -> None:
        leave_interrupts_to_others()
        try:
            self._wire.open()
            self.workers.start()
        except BaseException as error:
            self._leave()
            if self._closed:
                start.set_exception(PoolClosed("this pool was closed while its workers were started"))
            else:
                start.set_exception(refused(error) if isinstance(error, OSError) else error)
            return
        self._turn.open = True
        if self._closed:  # as `abandon` may have cleared `open` just before
            self._turn.open = False
        start.set_result(None)
        self._turn.stand_in(self._leave)

    def _leave(self) -> None:
        """Remove all workers, as the thread's last step. The next use of an open pool starts new workers."""
        self._turn.open = False
        with self._lock:
            for action in self._schedule.fail_all():
                action.task.fail(self._broken or PoolClosed("the pool was closed before this result was made"))
        if self._closed:
            self.workers.launcher.interrupt()
        self.workers.end_all()
        self._wire.close()
        with self._lock:
            self._schedule.reset()
            self._start = self._thread = None
            if self._closed:
                self._close_memory()

    def _close_memory(self) -> None:
        self.workers.memory.clear()
        if self.copies is not None and self.slots is not None:
            self.copies.close()
            self.slots.close()
            self.copies.arena.close()

    # -- the thread that has the turn --------------------------------------------------------------------------

    def _read(self, seconds: float) -> None:
        """Wait for messages, at most `seconds`, and process them."""
        try:
            due = self._look()
        except BaseException as error:
            self._break(error)
            raise
        found = self._wire.wait(min(due, seconds))  # outside the try, because the user's signal handler may raise here
        try:
            for worker, ended in found.items():
                if worker is None:
                    self._wake_up()
                    continue
                messages, gone = self._wire.read(worker, ended)
                if messages:
                    self._receive(worker, messages)
                if gone:
                    self._lost(worker)
        except BaseException as error:
            self._break(error)
            raise

    def _break(self, error: BaseException) -> WorkerDied:
        """Close the pool, because its dispatcher failed. Return the error for the tasks."""
        if self._broken is None:
            broken = WorkerDied(f"the pool's dispatcher failed: {error!r}")
            broken.__cause__ = error
            self._broken = broken
        self._closed = True
        self._turn.open = False
        return self._broken

    def _look(self) -> float:
        """Do what is due, unless that was done just now. Return the seconds until the next look."""
        now = time.monotonic()
        if now < self._looks_at and not self._look_now:
            return self._looks_at - now
        with self._lock:
            self._look_now = False
            due = self._schedule.next_tick()
            if due <= now:
                self._do(self._schedule.tick(now))
                due = self._schedule.next_tick()
            if self._schedule.missing() > 0:
                due = min(due, self.workers.replace(now))
            if self._schedule.broken:
                self._turn.open = False
                due = now
            self._wakes_at = due
            self._looks_at = min(now + LOOK_EVERY, due)
        return max(0.0, due - time.monotonic())

    def _wake_up(self) -> None:
        self._look_now = True
        self._wire.woken()
        if self.copies is not None:
            self.copies.sweep()
        with self._lock:
            while self._forgotten:
                number = self._forgotten.popleft()
                for worker in self._schedule.workers:
                    if not worker.forget(number):
                        self._wire.watch(worker)

    def _receive(self, worker: WorkerHandle, frames: list[Frame]) -> None:
        """Receive messages of a worker: first give it and others new work, then hand over its results."""
        now = time.monotonic()
        done: list[tuple[Frame, ProcessFuture, Slot | None]] = []
        actions: list[Action[WorkerHandle, ProcessFuture]] = []
        try:
            with self._lock:
                for frame in frames:
                    kind = frame.kind
                    if kind >= Kind.RESULT and frame.number:
                        future, slot = worker.sent.pop(frame.number)
                        actions += self._schedule.result(worker, future, now)
                        done.append((frame, future, slot))
                    elif kind is Kind.READY:
                        self._load_as_others(worker)
                        actions += self._schedule.ready(worker, now)
                    elif kind is Kind.LOADED:
                        actions += self._schedule.loaded(worker, now)
                    else:
                        worker.start_error = frame.load()
                self._do(actions)
            for frame, future, slot in done:
                future.transport, room = transport_and_room(frame, 0 if slot is None else slot.bytes.nbytes)
                if frame.kind is not Kind.ERROR:
                    for constant in future.encoded[3]:
                        if room != constant.slot_bytes:
                            constant.saw(room)
                if frame.buffers:
                    resolve(frame, slot)
                future.encoded = NO_CALL
                future.made = frame.times
                future.set_result(frame)
        except BaseException as error:
            broken = self._break(error)
            for _, future, _ in done:  # the schedule has finished with them, so nobody else would fail them
                if not future.done():
                    future.fail(broken)
            raise

    def _lost(self, worker: WorkerHandle) -> None:
        """Bury a worker that is gone. Hand out its tasks again."""
        self._look_now = True
        self.workers.bury(worker)
        with self._lock:
            self._do(self._schedule.died(worker, time.monotonic()))
            if self._schedule.given_up and not self._schedule.broken:
                self.workers.give_up()
