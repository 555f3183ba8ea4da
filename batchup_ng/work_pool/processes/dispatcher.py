"""The dispatcher of the process pool: it starts, replaces and ends the workers, as the schedule decides.

Ownership. The dispatcher owns the workers with one socket each, the shared memory, and the futures of the tasks that
wait or are under way. Its thread starts the first workers and ends them all. A second, short-lived thread starts
replacements, because a stopped fork server does not answer for a minute. Any thread may submit a task. It pickles the
task and hands it to a worker that has room, with a slot for the result if the needed size is known. It writes as much
as the socket takes at once. The consumer that asks for a result unpickles it.

The turn is a lock. The thread that has it reads the messages of workers and writes the rest of the messages to them. A
consumer that waits for a result takes the turn if it is free. While no consumer has it, the dispatcher's thread has it.
One more lock guards all other state. It is not held while a thread waits for another process. Its longest step is to
find memory for a new slot.

On a crash: if the process or socket of a worker ends, the worker is lost. The dispatcher first receives the messages
that it sent, then takes back its slots. The :class:`~.schedule.Schedule` decides about its tasks, and another worker
replaces it.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future

from ...errors import PoolBroken, PoolClosed, SampleTimeout, WorkerDied
from ...memory.leases import BufferPool
from ...signals import InterruptsHeld, leave_interrupts_to_others
from ..prefetch_buffer import check_process
from ..task import Submission, Task, TaskFuture
from .job import DONE, REST, ProcessJob, job_of, transport_and_room
from .process import CLOSE_TIMEOUT, GRACE, Launcher, WorkerProcess, refused
from .protocol import Frame, Kind, Poll
from .schedule import LATE, NOT_LOADED, Action, Kill, Schedule, Send
from .shared_arrays import Copy, SharedCopies
from .shared_memory import Slot, SlotPool
from .worker_handle import WorkerHandle, resolve

LOOK_EVERY = 0.05
"""Seconds between two checks of due actions while messages keep coming."""

START_PAUSE = 1.0
"""Seconds between two attempts to start a worker."""

LONGEST = 3600.0
"""Longest wait for messages, in seconds."""

NO_OTHER = ", and no other could be started: "
BARREN = "; others ended before they had done anything, too"


class Dispatcher:
    """Owns the workers and hands out tasks. It has no reference to the pool, which the program may drop.

    `degraded_reason` says why there are fewer workers than asked for; empty if there never were fewer.
    """

    def __init__(
        self, processes: int, threads: int, launcher: Launcher, copies: SharedCopies | None, slots: SlotPool | None
    ) -> None:
        self._schedule: Schedule[WorkerHandle, ProcessJob] = Schedule(
            processes, threads, launcher.start_timeout
        )
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._server = 0  # the consumer's thread that has the turn
        self._relieved = False
        self._launcher = launcher
        self._replacing = False  # whether the thread below is starting workers
        self._starter: threading.Thread | None = None
        self._closed = False
        self._broken: WorkerDied | None = None
        self._last_exit = ""
        self.degraded_reason = ""
        self._start_again = 0.0
        self._wakes_at = math.inf
        self._looks_at = 0.0
        self._look_now = True
        self._forgotten: deque[int] = deque()
        self._numbers = itertools.count(1)
        self._owner_pid = os.getpid()
        self._start: Future[None] | None = None
        self._poll: Poll
        self._started = self._opened = False
        self._thread: threading.Thread | None = None
        self._memory = BufferPool(max_free=8)
        self.slots = slots
        self.copies = copies

    # -- any thread --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """If the workers are not started yet, start them, and wait until each has a process.

        Raises :class:`PoolBroken` if they cannot be started; a later call may succeed. Raises :class:`PoolClosed` if
        the pool is closed during the start.
        """
        check_process(self._owner_pid)
        if self._started:
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

    def submit(self, task: Task, how: Submission) -> ProcessJob:
        self.start()
        job = job_of(next(self._numbers), task, how, self.serve)
        while not self._try_submit(job):
            with self._lock:
                leaving = self._thread if self._schedule.broken else None  # otherwise another thread has restarted it
            if leaving is not None:
                leaving.join()
            self.start()
        return job

    def _try_submit(self, job: ProcessJob) -> bool:
        """Submit a job. Return False if no worker could be kept alive and the workers must be started again."""
        with InterruptsHeld(), self._lock:
            self.check_open()
            if not self._started or self._schedule.broken:
                return False
            if not job.finished:
                self._do(self._schedule.submit(job, time.monotonic()))
                if job.how.timeout is not None and self._schedule.next_tick() < self._wakes_at:
                    self.wake()  # otherwise the dispatcher would sleep past this job's time limit
            return True

    def check_open(self) -> None:
        """Raise :class:`PoolClosed` if the pool was closed, :class:`WorkerDied` if its dispatcher failed."""
        if self._broken is not None:
            raise WorkerDied(f"this pool is broken, make a new one: {self._broken}") from self._broken
        if self._closed:
            raise PoolClosed("this pool was closed; make a new one")

    def forget(self, number: int, copies: list[Copy]) -> None:
        """Let the workers drop a constant. Takes no lock, because it may run inside any code."""
        copies.clear()  # first: the memory is then free when the dispatcher wakes up
        self._forgotten.append(number)
        self.wake()

    def pids(self) -> list[int]:
        """Return the pids of the workers."""
        with self._lock:
            return [worker.process.pid for worker in self._schedule.workers]

    def close(self) -> None:
        """End the processes and wait until they are gone. May be called again."""
        if os.getpid() != self._owner_pid:
            return  # in a fork by the user: the workers belong to its parent
        if self._server == threading.get_ident():
            return self.abandon()  # the collector ran in `serve`: the dispatcher waits for this thread's turn
        with self._lock:
            thread = self._thread
            self.abandon()
        if thread is not None and threading.current_thread() is not thread:
            if not self._started or self._schedule.broken:
                self._launcher.interrupt()
            thread.join()

    def abandon(self) -> None:
        """Let the dispatcher end the processes soon. Waits for no lock, because it may run inside any code."""
        self._closed = True
        if self._thread is None:
            self._close_memory()  # no thread was started that could do it
        self.wake()

    def wake(self) -> None:
        if self._started:
            self._poll.wake()

    # -- mostly with the lock held ------------------------------------------------------------------------------------

    def _add(self, process: WorkerProcess) -> None:
        """Add a started worker."""
        taken = {worker.number for worker in self._schedule.workers}
        number = next(number for number in itertools.count() if number not in taken)
        worker = WorkerHandle(number, process, time.monotonic(), self._memory, self.slots)
        self._schedule.add(worker)
        self._poll.watch(process.sock.fileno(), (worker, False))
        if process.death is not None:
            self._poll.watch(process.death, (worker, True))

    def _do(self, actions: Iterable[Action[WorkerHandle, ProcessJob]]) -> None:
        """Carry out the actions of the schedule."""
        given: dict[WorkerHandle, None] = {}
        for action in actions:
            if isinstance(action, Send):
                action.worker.send(action.job, self.copies)
                given[action.worker] = None
            elif isinstance(action, Kill):
                action.worker.kill()
            else:
                action.job.fail(self._error_of(action.job, action.why))
        for worker in given:
            worker.writer.write()
            if worker.writer.waiting:
                self.wake()

    def _error_of(self, job: ProcessJob, why: str) -> BaseException:
        if why is LATE:
            return SampleTimeout(f"a task ran for more than timeout={job.how.timeout:g} s; its worker was ended")
        if why is NOT_LOADED:
            return PoolBroken(
                f"a worker process did not load the source (its modules, its data) within "
                f"start_timeout={self._schedule.start_timeout:g} s, for which it was ended; pass more to "
                f"WorkerProcessPool(start_timeout=)"
            )
        if self._schedule.broken:
            return PoolBroken(
                f"worker processes cannot be kept alive: {self._last_exit}{BARREN}; see their own messages above"
            )
        return WorkerDied(f"{self._last_exit} while running this task")

    def _watch_writers(self) -> None:
        for worker in self._schedule.workers:
            if worker.writer.waiting != worker.watched:
                worker.watched = worker.writer.waiting
                self._poll.watch(worker.process.sock.fileno(), (worker, False), worker.watched)

    # -- the dispatcher ----------------------------------------------------------------------------------------

    def _dispatch(self, start: Future[None]) -> None:
        leave_interrupts_to_others()
        try:
            self._poll = Poll()
            self._opened = True
            while self._schedule.missing() > 0:
                self._add(self._launcher.start())
        except BaseException as error:
            self._leave()
            if self._closed:
                start.set_exception(PoolClosed("this pool was closed while its workers were started"))
            else:
                start.set_exception(refused(error) if isinstance(error, OSError) else error)
            return
        self._started = True
        start.set_result(None)
        try:
            while self._open():
                if self._relieved:
                    self._relieved = False
                    time.sleep(REST)
                    continue
                with self._turn:
                    if self._open():  # as before a consumer had the turn
                        self._serve_once(LONGEST)
        finally:
            with self._turn:
                self._leave()

    def _open(self) -> bool:
        """Return whether there are workers to serve."""
        return not (self._closed or self._schedule.broken)

    def _serve_once(self, seconds: float) -> None:
        """Wait for messages, at most `seconds`, and process them. With the turn held."""
        try:
            due = self._seconds_to_wait()
        except BaseException as error:
            self._break(error)
            raise
        found = self._poll.wait(min(due, seconds))  # outside the try, because the user's signal handler may raise here
        try:
            for each in found:
                if each is None:
                    self._wake_up()
                else:
                    self._serve(*each)
        except BaseException as error:
            self._break(error)
            raise

    def _break(self, error: BaseException) -> None:
        self._broken = WorkerDied(f"the pool's dispatcher failed: {error!r}")
        self._broken.__cause__ = error
        self._closed = True

    def serve(self, future: TaskFuture, deadline: float) -> None:
        """Read results until `future` is done or the time is up, unless another thread is reading.

        A consumer that waits does the dispatcher's work itself. To wake another thread for each result, and to be woken
        by it, costs more than the work. The dispatcher's thread rests during this time.
        """
        check_process(self._owner_pid)
        self._relieved = True
        with InterruptsHeld(self.wake) as held:
            if not self._turn.acquire(blocking=False):
                return
            try:
                self._server = threading.get_ident()
                while self._started and self._open() and not (future.done() or held.came):
                    left = deadline - time.monotonic()
                    if left <= 0:
                        break
                    self._serve_once(left)
                    self._relieved = True
            finally:
                self._server = 0
                self._turn.release()

    def _leave(self) -> None:
        """Remove all workers, as the dispatcher's last step. The next use of an open pool starts new workers."""
        with self._lock:
            error = self._broken or PoolClosed("the pool was closed before this result was made")
            for action in self._schedule.fail_all():
                action.job.fail(error)
        if self._closed:
            self._launcher.interrupt()
        self._end_workers()
        if self._starter is not None:
            self._starter.join()  # it ends the worker that it has just started
        self._launcher.rest()
        if self._opened:
            self._poll.close()
        with self._lock:
            self._schedule.reset()
            self._last_exit = self.degraded_reason = ""
            self._start_again = 0.0
            self._started = self._opened = False
            self._start = self._thread = None
            if self._closed:
                self._close_memory()

    def _end_workers(self) -> None:
        """End the workers. They share one period to end without a kill."""
        workers = self._schedule.take_all()
        for worker in workers:
            if not worker.ready:
                worker.kill()  # it has done nothing yet, and may notice the end late
            worker.process.hang_up()
        began = time.monotonic()
        for worker in workers:
            deadline = began + (GRACE if worker.sent else CLOSE_TIMEOUT)
            worker.process.end(max(0.0, deadline - time.monotonic()))

    def _seconds_to_wait(self) -> float:
        now = time.monotonic()
        if now < self._looks_at and not self._look_now:
            return self._looks_at - now
        with self._lock:
            self._look_now = False
            due = self._schedule.next_tick()
            if due <= now:
                self._do(self._schedule.tick(now))
                due = self._schedule.next_tick()
            if self._is_missing() and not self._replacing:
                if self._start_again <= now:
                    self._start_replacements()
                else:
                    due = min(due, self._start_again)
            self._watch_writers()
            self._wakes_at = due
            self._looks_at = min(now + LOOK_EVERY, due)
        return min(LONGEST, max(0.0, due - time.monotonic()))

    def _wake_up(self) -> None:
        self._look_now = True
        self._poll.woken()
        if self.copies is not None:
            self.copies.sweep()
        with self._lock:
            while self._forgotten:
                number = self._forgotten.popleft()
                for worker in self._schedule.workers:
                    worker.forget(number)

    def _serve(self, worker: WorkerHandle, died: bool) -> None:
        """Write and read as much as possible without waiting. Replace a worker that is gone."""
        if worker not in self._schedule.workers:
            return  # already lost, by its other descriptor
        if worker.watched or worker.writer.waiting:
            self._look_now = True
            with self._lock:
                worker.writer.write()
        while (frames := worker.reader.read()) is not None:
            if frames:
                self._receive(worker, frames)
            if not died or worker.reader.dry:
                break
        if died or frames is None:
            self._lost(worker)

    def _receive(self, worker: WorkerHandle, frames: list[Frame]) -> None:
        """Receive messages of a worker: first give it and others new work, then hand over its results."""
        now = time.monotonic()
        done: list[tuple[Frame, ProcessJob, Slot | None]] = []
        actions: list[Action[WorkerHandle, ProcessJob]] = []
        with self._lock:
            for frame in frames:
                kind = frame.kind
                if kind >= Kind.RESULT and frame.number:
                    job, slot = worker.sent.pop(frame.number)
                    actions += self._schedule.result(worker, job, now)
                    done.append((frame, job, slot))
                elif kind is Kind.READY:
                    actions += self._schedule.ready(worker, now)
                elif kind is Kind.LOADED:
                    self._schedule.loaded(worker, now)
                else:
                    worker.start_error = frame.load()
            self._do(actions)
        for frame, job, slot in done:
            job.transport, room = transport_and_room(frame, 0 if slot is None else slot.bytes.nbytes)
            if frame.kind is not Kind.ERROR:
                for constant in job.task[3]:
                    if room != constant.slot_bytes:
                        constant.saw(room)
            if frame.buffers:
                resolve(frame, slot)
            job.task = DONE
            job.set_result(frame)

    def _lost(self, worker: WorkerHandle) -> None:
        """Replace a worker that is gone. Hand out its tasks again."""
        self._look_now = True
        with self._lock:
            self._poll.forget(worker.process.sock.fileno())
            if worker.process.death is not None:
                self._poll.forget(worker.process.death)
        code = worker.process.end(0.2)
        worker.sent.clear()  # and free its slots, because the process writes no more
        with self._lock:
            self._last_exit = worker.describe_exit(code, self._schedule.start_timeout)
            self._do(self._schedule.died(worker, time.monotonic()))
            if self._schedule.given_up and not self._schedule.broken and not self.degraded_reason:
                self.degraded_reason = f"{self._last_exit}{BARREN}"

    # -- replacing workers ---------------------------------------------------------------------------------------

    def _is_missing(self) -> bool:
        """Return whether a worker is to be started. With the lock held, like the next method."""
        return not self._closed and self._schedule.missing() > 0

    def _start_replacements(self) -> None:
        """Have a thread start workers while some are missing."""
        thread = threading.Thread(target=self._replace, name="batchup_ng-start", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._not_replaced(refused(error))
        else:
            self._starter, self._replacing = thread, True

    def _replace(self) -> None:
        leave_interrupts_to_others()
        process: WorkerProcess | None = None
        while True:
            with self._lock:
                if process is not None and not self._closed and not self._schedule.broken:
                    self._add(process)
                    process = None
                    self.wake()  # the dispatcher serves it while others are started
                self._replacing = process is None and self._is_missing()
            if not self._replacing:
                break
            try:
                process = self._launcher.start()
            except Exception as error:
                with self._lock:
                    self._not_replaced(error)
                    self._replacing = False
                break
        if process is not None:
            process.end(0.0)  # the pool was closed or broke during the start
        self.wake()

    def _not_replaced(self, error: Exception) -> None:
        """Schedule another attempt for a worker that could not be started. With the lock held."""
        self._last_exit = f"{self._last_exit.partition(NO_OTHER)[0]}{NO_OTHER}{error}"  # only the last attempt
        self.degraded_reason = self.degraded_reason or f"{self._last_exit}; that is tried again every {START_PAUSE:g} s"
        self._do(self._schedule.not_started())
        self._start_again = time.monotonic() + START_PAUSE

    def _close_memory(self) -> None:
        self._memory.clear()
        if self.copies is not None and self.slots is not None:
            self.copies.close()
            self.slots.close()
            self.copies.arena.close()
