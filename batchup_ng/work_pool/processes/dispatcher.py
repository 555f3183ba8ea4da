"""The dispatcher of the process pool: does what the schedule says.

Who owns what. The dispatcher owns the workers, each with one socket; the shared memory; the futures of the tasks that
wait or are under way. Its one thread starts the first workers and reads what workers send; another, which lives no
longer than that takes, starts the replacements. Any thread may submit: it pickles the task and hands it, with a slot
for its result, to a worker that has room, writing as much as the socket takes at once; the dispatcher's thread writes
the rest. All of that state is guarded by one lock, which is held for no step that waits for another process; the
longest is finding memory for a slot that is new.

What crosses the boundary: to a worker, constants once, then tasks as pickles, each with a slot where one is known to
be large enough; from it, results, whose arrays lie in the slot or follow the message, or exceptions with the text of
their traceback. A result is unpickled by the consumer that asks for it, not by the dispatcher's thread.

What happens on a crash: a worker whose process or socket ends is lost; what it had sent is received first, then the
slots that it was lent are taken back, for no process writes to them any more. The :class:`~.schedule.Schedule` says
what becomes of the tasks that it had; another worker takes its place.
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
from ..prefetch_buffer import check_process
from ..task import Submission, Task
from .job import Job, ResultFuture, job_of, room_for, transport_of
from .process import WorkerProcess, refused
from .protocol import RESULTS, Frame, Kind, Poll
from .schedule import LATE, Action, Kill, Schedule, Send
from .shared_arrays import SharedCopies
from .shared_memory import Arena, Slot, SlotPool
from .signals import InterruptsHeld, leave_interrupts_to_others
from .supervisor import Launcher, Supervisor, no_thread
from .worker_handle import WorkerHandle, resolve

LOOK_EVERY = 0.05
"""Seconds between two looks at what is due, or may have become so, while messages keep coming."""

START_PAUSE = 1.0
"""Seconds until starting a worker that could not be started is tried again."""

NO_OTHER = ", and no other could be started: "
BARREN = "; others ended before they had done anything, too"
ORDINALS = {2: "second", 3: "third"}


class Dispatcher:
    """Owns the workers and hands out tasks; knows nothing of the pool, which may be forgotten.

    Attributes:
        slots: Where slots come from; None where there is no shared memory.
        copies: The copies of arrays that workers share; None likewise.
        degraded_reason: Why there are fewer workers than there should be, in words; empty as long as that was not so.
    """

    def __init__(
        self,
        processes: int,
        threads: int,
        launcher: Launcher,
        arena: Arena | None,
        slots: SlotPool | None,
        spill: str | None = None,
    ) -> None:
        self._schedule: Schedule[WorkerHandle, Job] = Schedule(processes, threads)
        self._lock = threading.Lock()
        self._launcher = launcher
        self._supervisor = Supervisor(launcher, self._lock, self)
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
        self._arena = arena
        self.slots = slots
        self.copies = None if arena is None else SharedCopies(arena, self.wake, spill)

    # -- any thread --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the workers, if they were not started yet, and wait until each has a process.

        Raises:
            WorkerDied: that cannot be; a later call may have better luck.
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
                thread = threading.Thread(
                    target=self._dispatch, args=(start,), name="batchup_ng-dispatch", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:
                    raise no_thread(error) from error
                self._start, self._thread = start, thread
        start.result()

    def submit(self, task: Task, how: Submission) -> ResultFuture:
        self.start()
        job = job_of(next(self._numbers), task, how, self._running_for)
        while not self._try_submit(job):
            with self._lock:
                leaving = self._thread if self._schedule.broken else None  # else another has started over already
            if leaving is not None:
                leaving.join()
            self.start()
        return job.future

    def _try_submit(self, job: Job) -> bool:
        """Submit a job; return False if no worker could be kept alive, and the workers must be started again."""
        with InterruptsHeld(), self._lock:
            self.check_open()
            if not self._started or self._schedule.broken:
                return False
            if self._forgotten:
                self._forget()
            if not job.finished:
                self._do(self._schedule.submit(job, time.monotonic()))
                due = None if job.how.timeout is None else self._schedule.next_tick()
                if due is not None and due < self._wakes_at:
                    self.wake()  # the dispatcher sleeps, and would miss the time of this one
            return True

    def _running_for(self, number: int) -> float | None:
        with self._lock:
            began = [at for worker in self._schedule.workers if (at := worker.began_at(number)) is not None]
        return time.monotonic() - min(began) if began else None

    def check_open(self) -> None:
        """Raise :class:`PoolClosed` if the pool was closed, :class:`WorkerDied` if its dispatcher failed."""
        if self._broken is not None:
            raise WorkerDied(f"this pool is broken, make a new one: {self._broken}") from self._broken
        if self._closed:
            raise PoolClosed("this pool was closed; make a new one")

    def forget(self, number: int) -> None:
        """Tell the workers that a constant is no longer needed. Takes no lock: it may run inside any code."""
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

    def _start_missing(self) -> None:
        """Start workers until there are as many as there should be."""
        while self._schedule.missing() > 0:
            self._add(self._launcher.start())

    def _add(self, process: WorkerProcess) -> None:
        """Add a worker that was started."""
        worker = WorkerHandle(process, time.monotonic(), self._memory, self.slots)
        self._schedule.add(worker)
        self._poll.watch(process.sock.fileno(), (worker, False))
        if process.death is not None:
            self._poll.watch(process.death, (worker, True))

    def _do(self, actions: Iterable[Action[WorkerHandle, Job]]) -> None:
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

    def _error_of(self, job: Job, why: str) -> BaseException:
        if why is LATE:
            return SampleTimeout(f"a task ran for more than timeout={job.how.timeout:g} s; its worker was ended")
        if self._schedule.broken:
            return PoolBroken(
                f"worker processes cannot be kept alive: {self._last_exit}{BARREN}; see their own messages above"
            )
        times = f" ({ORDINALS[job.deaths]} time)" if job.deaths > 1 else ""
        return WorkerDied(f"{self._last_exit} while running this task{times}")

    def _forget(self) -> None:
        while self._forgotten:
            number = self._forgotten.popleft()
            for worker in self._schedule.workers:
                worker.forget(number)

    def _watch_writers(self) -> None:
        for worker in self._schedule.workers:
            if worker.writer.waiting != worker.watched:
                worker.watched = worker.writer.waiting
                self._poll.watch(worker.process.sock.fileno(), (worker, False), worker.watched)

    # -- the dispatcher ----------------------------------------------------------------------------------------

    def _dispatch(self, start: Future[None]) -> None:
        leave_interrupts_to_others()
        try:
            try:
                self._poll = Poll()
            except OSError as error:
                raise refused(error) from error
            self._opened = True
            self._start_missing()
        except BaseException as error:
            self._not_started(start, error)
            return
        self._started = True
        start.set_result(None)
        try:
            while not self._closed and not self._schedule.broken:
                for found in self._poll.wait(self._seconds_to_wait()):
                    if found is None:
                        self._wake_up()
                    else:
                        self._serve(*found)
        except BaseException as error:
            self._broken = WorkerDied(f"the pool's dispatcher failed: {error!r}")
            self._broken.__cause__ = error
            raise
        finally:
            if self._closed or self._broken is not None:
                self._end()
            else:
                self._start_over()

    def _end(self) -> None:
        """Leave nothing: the dispatcher's last act."""
        with self._lock:
            self._closed = True
            self._fail_all(self._broken or PoolClosed("the pool was closed before this result was made"))
        self._launcher.interrupt()
        self._end_workers()
        self._supervisor.settle()
        self._close_descriptors()
        self._close_memory()

    def _start_over(self) -> None:
        """Leave nothing of workers that could not be kept alive; the next use of the pool starts others."""
        self._supervisor.settle()
        self._close_descriptors()
        with self._lock:
            self._schedule.reset()
            self._last_exit = self.degraded_reason = ""
            self._start_again = 0.0
            self._started = False
            self._allow_start()

    def _allow_start(self) -> None:
        """Let another dispatcher begin; if the pool was closed meanwhile there will be none. With the lock held."""
        self._start = self._thread = None
        if self._closed:
            self._close_memory()

    def _not_started(self, start: Future[None], error: BaseException) -> None:
        """Leave nothing of a start that failed; the next use starts again."""
        self._end_workers()
        self._launcher.rest()
        self._close_descriptors()
        with self._lock:
            self._allow_start()
        typed = isinstance(error, WorkerDied) or not isinstance(error, RuntimeError)
        start.set_exception(error if typed else no_thread(error))

    def _seconds_to_wait(self) -> float | None:
        now = time.monotonic()
        if now < self._looks_at and not self._look_now:
            return self._looks_at - now
        with self._lock:
            self._look_now = False
            due = self._schedule.next_tick()
            if due is not None and due <= now:
                self._do(self._schedule.tick(now))
                due = self._schedule.next_tick()
            if self.is_missing() and not self._supervisor.replacing:
                if self._start_again <= now:
                    self._supervisor.start_replacements()
                else:
                    due = min(due or self._start_again, self._start_again)
            self._watch_writers()
            self._wakes_at = math.inf if due is None else due
            self._looks_at = min(now + LOOK_EVERY, self._wakes_at)
        return None if due is None else max(0.0, due - time.monotonic())

    def _wake_up(self) -> None:
        self._look_now = True
        self._poll.woken()
        if self.copies is not None:
            self.copies.sweep()
        with self._lock:
            self._forget()

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
        done: list[tuple[Frame, Job, Slot | None]] = []
        actions: list[Action[WorkerHandle, Job]] = []
        with self._lock:
            for frame in frames:
                kind = frame.kind
                if kind >= RESULTS and frame.number:
                    job, slot = worker.done(frame.number)
                    job.future.took = None if (began := worker.began.get(job)) is None else now - began
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
            job.future.transport = transport_of(frame)
            if frame.kind is not Kind.ERROR:
                room = room_for(frame, 0 if slot is None else slot.bytes.nbytes)
                for constant in job.constants:
                    if room != constant.slot_bytes:
                        constant.saw(room)
            if frame.buffers:
                resolve(frame, slot)
            job.future.set_result(frame)

    def _lost(self, worker: WorkerHandle) -> None:
        """Replace a worker that is gone, and hand out its tasks again."""
        self._look_now = True
        with self._lock:
            self._poll.forget(worker.process.sock.fileno())
            if worker.process.death is not None:
                self._poll.forget(worker.process.death)
        code = worker.process.end(0.2)
        worker.release_slots()
        with self._lock:
            self._last_exit = worker.describe_exit(code)
            self._do(self._schedule.died(worker, time.monotonic()))
            if self._schedule.given_up and not self._schedule.broken and not self.degraded_reason:
                self.degraded_reason = f"{self._last_exit}{BARREN}"
            if self.is_missing():
                self._supervisor.start_replacements()

    def is_missing(self) -> bool:
        """Return whether a worker is to be started. Called with the lock held, as the two below."""
        return not self._closed and self._schedule.missing() > 0

    def accept(self, process: WorkerProcess) -> bool:
        """Add a worker that was started in the place of another, unless there are to be no more meanwhile."""
        wanted = not self._closed and not self._schedule.broken
        if wanted:
            self._add(process)
        return wanted

    def not_replaced(self, error: Exception) -> None:
        """Have a worker that could not be started be tried again in a while."""
        self._last_exit = f"{self._last_exit.partition(NO_OTHER)[0]}{NO_OTHER}{error}"  # of the last try alone
        self.degraded_reason = self.degraded_reason or f"{self._last_exit}; that is tried again every {START_PAUSE:g} s"
        self._do(self._schedule.not_started())
        self._start_again = time.monotonic() + START_PAUSE

    def _fail_all(self, error: BaseException) -> None:
        """Fail all jobs that still wait. With the lock held."""
        for action in self._schedule.fail_all():
            action.job.fail(error)

    def _end_workers(self) -> None:
        workers = self._schedule.take_all()
        for worker in workers:
            if not worker.ready:
                worker.kill()  # it has done nothing yet, and may take long to find that it need not
        self._supervisor.end([worker.process for worker in workers])

    def _close_descriptors(self) -> None:
        if self._opened:
            self._opened = False
            self._poll.close()

    def _close_memory(self) -> None:
        self._memory.clear()
        if self.copies is not None:
            self.copies.close()
        if self.slots is not None:
            self.slots.close()
        if self._arena is not None:
            self._arena.close()
