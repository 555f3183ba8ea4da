"""The dispatcher of the process pool: starts, replaces and ends the workers, and does what the schedule says.

Who owns what. The dispatcher owns the workers, each with one socket; the shared memory; the futures of the tasks that
wait or are under way. Its thread starts the first workers and ends them all; another, which lives no longer than that
takes, starts replacements, since a fork server that is stopped answers nothing for a minute. Any thread may submit: it
pickles the task, hands it to a worker that has room, with a slot for its result if one is known to be large enough, and
writes as much as the socket takes at once. A result is unpickled by the consumer that asks for it.

What workers send is read, and the rest of what they are sent is written, by the thread that has the turn, a lock. A
consumer that waits for a result takes it if it is free; as long as none does so the dispatcher's thread has it. All
other state is guarded by one more lock, which is held for no step that waits for another process; the longest is
finding memory for a slot that is new.

What happens on a crash: a worker whose process or socket ends is lost; what it had sent is received first, then the
slots that it was lent are taken back. The :class:`~.schedule.Schedule` says what becomes of the tasks that it had;
another worker takes its place.
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
from ...memory_pool import BufferPool
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
"""Seconds between two looks at what is due, or may have become so, while messages keep coming."""

START_PAUSE = 1.0
"""Seconds until starting a worker that could not be started is tried again."""

LONGEST = 3600.0
"""Seconds that messages are waited for at most."""

NO_OTHER = ", and no other could be started: "
BARREN = "; others ended before they had done anything, too"


class Dispatcher:
    """Owns the workers and hands out tasks; knows nothing of the pool, which may be forgotten.

    `degraded_reason` is why there are fewer workers than there should be; empty as long as that was not so.
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
        """Start the workers, if they were not started yet, and wait until each has a process.

        Raises :class:`PoolBroken` if that cannot be, and a later call may have better luck; :class:`PoolClosed` if the
        pool is closed meanwhile.
        """
        check_process(self._owner_pid)
        if self._started:
            return
        with InterruptsHeld(), self._lock:
            self.check_open()
            start = self._start
            if start is None:
                start = Future()
                # Not on this thread: an interrupt would leave a process that the pool does not know.
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
                leaving = self._thread if self._schedule.broken else None  # else another has started over already
            if leaving is not None:
                leaving.join()
            self.start()
        return job

    def _try_submit(self, job: ProcessJob) -> bool:
        """Submit a job; return False if no worker could be kept alive, and the workers must be started again."""
        with InterruptsHeld(), self._lock:
            self.check_open()
            if not self._started or self._schedule.broken:
                return False
            if not job.finished:
                self._do(self._schedule.submit(job, time.monotonic()))
                if job.how.timeout is not None and self._schedule.next_tick() < self._wakes_at:
                    self.wake()  # the dispatcher sleeps, and would miss the time of this one
            return True

    def check_open(self) -> None:
        """Raise :class:`PoolClosed` if the pool was closed, :class:`WorkerDied` if its dispatcher failed."""
        if self._broken is not None:
            raise WorkerDied(f"this pool is broken, make a new one: {self._broken}") from self._broken
        if self._closed:
            raise PoolClosed("this pool was closed; make a new one")

    def forget(self, number: int, copies: list[Copy]) -> None:
        """Tell the workers that a constant is no longer needed. Takes no lock: it may run inside any code."""
        copies.clear()  # so that the memory is free before the dispatcher wakes up
        self._forgotten.append(number)
        self.wake()

    def pids(self) -> list[int]:
        """Return the process numbers of the workers."""
        with self._lock:
            return [worker.process.pid for worker in self._schedule.workers]

    def close(self) -> None:
        """End the processes and wait until they are gone; may be called again."""
        if os.getpid() != self._owner_pid:
            return  # a fork of the user's: the workers belong to its parent
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
        """Let the dispatcher end the processes, some time soon. Waits for no lock: it may run inside any code."""
        self._closed = True
        if self._thread is None:
            self._close_memory()  # nothing was ever started that could do it
        self.wake()

    def wake(self) -> None:
        if self._started:
            self._poll.wake()

    # -- mostly with the lock held ------------------------------------------------------------------------------------

    def _add(self, process: WorkerProcess) -> None:
        """Add a worker that was started."""
        taken = {worker.number for worker in self._schedule.workers}
        number = next(number for number in itertools.count() if number not in taken)
        worker = WorkerHandle(number, process, time.monotonic(), self._memory, self.slots)
        self._schedule.add(worker)
        self._poll.watch(process.sock.fileno(), (worker, False))
        if process.death is not None:
            self._poll.watch(process.death, (worker, True))

    def _do(self, actions: Iterable[Action[WorkerHandle, ProcessJob]]) -> None:
        """Do what the schedule says."""
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
        """Return whether there are workers to be served."""
        return not (self._closed or self._schedule.broken)

    def _serve_once(self, seconds: float) -> None:
        """Wait for messages, that long at most; deal with them. With the turn held."""
        try:
            due = self._seconds_to_wait()
        except BaseException as error:
            self._break(error)
            raise
        found = self._poll.wait(min(due, seconds))  # apart, for a handler of the user's may raise there
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
        """Read results until `future` is done or the time is up, if no other thread does so just now.

        A consumer that waits does the dispatcher's work itself: to wake another thread for each result, and be woken by
        it, costs more than the work. The dispatcher's thread rests meanwhile.
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
        """Leave nothing of the workers: the dispatcher's last act. The next use of an open pool starts others."""
        with self._lock:
            error = self._broken or PoolClosed("the pool was closed before this result was made")
            for action in self._schedule.fail_all():
                action.job.fail(error)
        if self._closed:
            self._launcher.interrupt()
        self._end_workers()
        if self._starter is not None:
            self._starter.join()  # it ends what it has just started
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
        """End the workers: all together have some time to do so by themselves."""
        workers = self._schedule.take_all()
        for worker in workers:
            if not worker.ready:
                worker.kill()  # it has done nothing yet, and may take long to find that it need not
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
        """Write and read what can be written and read without waiting; replace a worker that is gone."""
        if worker not in self._schedule.workers:
            return  # lost a moment ago, by its other descriptor
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
        """Receive messages of a worker: give it and others new work first, then hand over what it sent."""
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
        """Replace a worker that is gone, and hand out its tasks again."""
        self._look_now = True
        with self._lock:
            self._poll.forget(worker.process.sock.fileno())
            if worker.process.death is not None:
                self._poll.forget(worker.process.death)
        code = worker.process.end(0.2)
        worker.sent.clear()  # with its slots, for the process writes to none any more
        with self._lock:
            self._last_exit = worker.describe_exit(code, self._schedule.start_timeout)
            self._do(self._schedule.died(worker, time.monotonic()))
            if self._schedule.given_up and not self._schedule.broken and not self.degraded_reason:
                self.degraded_reason = f"{self._last_exit}{BARREN}"

    # -- replacing workers ---------------------------------------------------------------------------------------

    def _is_missing(self) -> bool:
        """Return whether a worker is to be started. With the lock held, as the next."""
        return not self._closed and self._schedule.missing() > 0

    def _start_replacements(self) -> None:
        """Have a thread start workers as long as some are missing."""
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
                    self.wake()  # so that it is served while others are started
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
            process.end(0.0)  # there are to be no more meanwhile
        self.wake()

    def _not_replaced(self, error: Exception) -> None:
        """Have a worker that could not be started be tried again in a while. With the lock held."""
        self._last_exit = f"{self._last_exit.partition(NO_OTHER)[0]}{NO_OTHER}{error}"  # of the last try alone
        self.degraded_reason = self.degraded_reason or f"{self._last_exit}; that is tried again every {START_PAUSE:g} s"
        self._do(self._schedule.not_started())
        self._start_again = time.monotonic() + START_PAUSE

    def _close_memory(self) -> None:
        self._memory.clear()
        if self.copies is not None and self.slots is not None:
            self.copies.close()
            self.slots.close()
            self.copies.arena.close()
