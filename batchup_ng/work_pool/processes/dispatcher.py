"""The dispatcher of the process pool: who has which task, what comes back.

Who owns what. The dispatcher owns the workers, each with one socket; the futures of the tasks that wait; the futures
of those that each worker has. Its one thread reads what workers send. Any thread may submit: it queues the task and
hands it to a worker that has room, writing as much as the socket takes at once; the dispatcher's thread writes the
rest. All of that state is guarded by one lock, which is held only for steps that cannot wait.

What crosses the boundary: to a worker, constants once, then tasks as pickles; from it, results, whose arrays are read
straight into the pool's reused buffers, or exceptions with the text of their traceback. A result is unpickled by the
consumer that asks for it, not by the dispatcher's thread.

What happens on a crash: a worker whose socket ends is lost; the tasks that it had fail with
:class:`~batchup_ng.errors.WorkerLost`, which tells how it ended, a new worker takes its place. One that
ends before it was ready has seen no task, so its tasks go to another; after :data:`START_TRIES` of these in a row none
can be had: the pool closes, all that waits fails.
"""

from __future__ import annotations

import collections
import contextlib
import os
import selectors
import signal
import socket
import threading
from typing import Any

from ...buffers import BufferPool
from ...errors import CannotTravel, PoolClosed, WorkerLost
from ..future import TaskFuture
from ..stream import Task, check_process
from . import channel
from .channel import FrameReader, FrameWriter, Kind
from .constants import SharedConstant, culprit
from .launch import Launcher, WorkerProcess

AHEAD = 1
"""Tasks that wait at a worker beside those that it runs, so that it need not wait for the next."""

START_TRIES = 3
"""Workers in a row that may end before they are ready, until none is started any more."""


class ResultFuture(TaskFuture):
    """The future of a task in another process; its result is unpickled when it is asked for."""

    __slots__ = ()

    def result(self) -> Any:
        frame = super().result()
        if frame.kind is Kind.RESULT:
            return frame.load()
        error, remote = frame.load()
        raise error from remote


class _Job:
    """A task on its way."""

    __slots__ = ("begun", "constants", "future", "task")

    def __init__(self, task: Task, constants: list[SharedConstant]) -> None:
        self.future = ResultFuture()
        self.begun = False
        self.task = task
        self.constants = constants


class _Worker:
    """A worker as the core sees it."""

    def __init__(self, process: WorkerProcess, memory: BufferPool) -> None:
        self.process = process
        self.reader = FrameReader(process.sock, memory)
        self.writer = FrameWriter(process.sock)
        self.jobs: dict[int, _Job] = {}
        self.constants: set[int] = set()
        self.ready = False


class Dispatcher:
    """Everything of the pool that its dispatcher needs; knows nothing of the pool, which may be forgotten."""

    def __init__(self, processes: int, threads: int, starter: Launcher) -> None:
        self._starter = starter
        self._room = threads + AHEAD
        self._lock = threading.Lock()
        self._closed = False
        self._broken: WorkerLost | None = None
        self._waiting: collections.deque[_Job] = collections.deque()
        self._workers: list[_Worker] = []
        self._numbers = 0
        self._failed_starts = 0
        self.memory = BufferPool(most_free=64)
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        for end in (self._wake_read, self._wake_write):
            end.setblocking(False)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._owner_pid = os.getpid()
        try:
            for _ in range(processes):
                self._add_worker()
        except BaseException:
            self._release()
            raise
        self._thread = threading.Thread(target=self._dispatch, name="batchup_ng-dispatch", daemon=True)
        self._thread.start()

    # -- any thread --------------------------------------------------------------------------------------------

    def submit(self, task: Task, constants: list[SharedConstant]) -> ResultFuture:
        check_process(self._owner_pid)
        job = _Job(task, constants)
        with self._lock:
            self.check_open()
            self._waiting.append(job)
            self._hand_out()
        return job.future

    def check_open(self) -> None:
        """Raise :class:`PoolClosed` if the pool was closed, or closed itself because no worker could be had."""
        if self._closed:
            raise PoolClosed("this pool was closed; make a new one") from self._broken

    def forget(self, number: int) -> None:
        """Tell the workers that a constant is no longer needed. Takes no lock: it may run inside any code."""
        self._waiting.append(_Forget(number))  # type: ignore[arg-type]  # see _hand_out

    def pids(self) -> list[int]:
        """Return the process numbers of the workers."""
        with self._lock:
            return [worker.process.pid for worker in self._workers]

    def close(self) -> None:
        if os.getpid() != self._owner_pid:
            return  # a fork of the user's: the workers belong to its parent
        with self._lock:
            self._closed = True
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._release()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_write.send(b"w")

    # -- with the lock held ------------------------------------------------------------------------------------

    def _add_worker(self) -> None:
        worker = _Worker(self._starter.start(), self.memory)
        self._workers.append(worker)
        self._selector.register(worker.process.sock, selectors.EVENT_READ, worker)

    def _hand_out(self) -> None:
        """Give waiting tasks to workers that have room, the least busy first."""
        while self._waiting:
            if isinstance(self._waiting[0], _Forget):
                self._send_forget(self._waiting.popleft().number)  # type: ignore[attr-defined]
                continue
            worker = min(self._workers, key=lambda w: len(w.jobs), default=None)
            if worker is None or len(worker.jobs) >= self._room:
                return
            job = self._waiting.popleft()
            job.begun = job.begun or job.future.begin()
            if job.begun:
                self._send(worker, job)

    def _send(self, worker: _Worker, job: _Job) -> None:
        self._numbers += 1
        try:
            frame = channel.encode(Kind.TASK, self._numbers, job.task)
        except Exception as error:
            name = getattr(job.task[0], "__qualname__", repr(job.task[0]))
            failure = CannotTravel(f"{culprit(f'task {name}', job.task)} cannot be sent to a worker process: {error}")
            failure.__cause__ = error
            job.future.set_error(failure)
            return
        for constant in job.constants:
            if constant.number not in worker.constants:
                worker.constants.add(constant.number)
                worker.writer.put(constant.frame)
        worker.jobs[self._numbers] = job
        worker.writer.put(frame)
        if worker.writer.waiting:
            self._wake()

    def _send_forget(self, number: int) -> None:
        for worker in self._workers:
            if number in worker.constants:
                worker.constants.discard(number)
                worker.writer.put(channel.pieces(Kind.FORGET, number))

    # -- the dispatcher ----------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        try:
            while not self._closed:
                self._watch_writers()
                for key, _ in self._selector.select():
                    self._serve(key.data)
        except BaseException as error:
            self._broken = WorkerLost(f"the pool's dispatcher failed: {error!r}")
            self._broken.__cause__ = error
            raise
        finally:
            self._fail_all()

    def _watch_writers(self) -> None:
        with self._lock:
            for worker in self._workers:
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.writer.waiting else 0)
                if self._selector.get_key(worker.process.sock).events != events:
                    self._selector.modify(worker.process.sock, events, worker)

    def _serve(self, worker: _Worker | None) -> None:
        """Write and read what can be written and read without waiting."""
        if worker is None:
            with contextlib.suppress(BlockingIOError):
                self._wake_read.recv(4096)
            return
        with self._lock:
            worker.writer.write()
        frames = worker.reader.read()
        finished = []
        with self._lock:
            if frames is None:
                self._lost(worker)
                return
            for frame in frames:
                if frame.kind is Kind.READY:
                    worker.ready = True
                    self._failed_starts = 0
                elif (job := worker.jobs.pop(frame.number, None)) is not None:
                    finished.append((job, frame))
            self._hand_out()
        for job, frame in finished:
            job.future.set_result(frame)

    def _lost(self, worker: _Worker) -> None:
        """Fail what a worker had, put another in its place. Called with the lock held."""
        self._selector.unregister(worker.process.sock)
        self._workers.remove(worker)
        code = worker.process.end()
        if worker.ready:
            error = WorkerLost(f"a worker process (pid {worker.process.pid}) {describe_exit(code)}")
            for job in worker.jobs.values():
                job.future.set_error(error)
        else:
            self._waiting.extendleft(reversed(worker.jobs.values()))  # it never saw them
            self._failed_starts += 1
        if self._failed_starts >= START_TRIES:
            self._broken = WorkerLost(
                f"worker processes cannot be started: {START_TRIES} ended before they were ready, the last of which "
                f"{describe_exit(code)}; their own messages tell more"
            )
            self._closed = True
            return
        self._add_worker()
        self._hand_out()

    def _fail_all(self) -> None:
        """Fail whatever still waits: the dispatcher's last act."""
        with self._lock:
            self._closed = True
            running = [job for worker in self._workers for job in worker.jobs.values()]
            waiting = [job for job in self._waiting if isinstance(job, _Job)]
            self._waiting.clear()
            for worker in self._workers:
                worker.jobs.clear()
        error = self._broken or PoolClosed("the pool was closed before this result was made")
        for job in running:
            job.future.set_error(error)
        for job in waiting:
            if job.begun or job.future.begin():
                job.future.set_error(error)

    def _release(self) -> None:
        """End the processes, close the descriptors: once the dispatcher is gone."""
        with self._lock:
            workers, self._workers = self._workers, []
        for worker in workers:
            worker.process.hang_up()
        for worker in workers:
            worker.process.end()
        self._starter.close()
        self._selector.close()
        self._wake_read.close()
        self._wake_write.close()
        self.memory.clear()


class _Forget:
    """A word in the queue of tasks that a constant is no longer needed."""

    def __init__(self, number: int) -> None:
        self.number = number


def describe_exit(code: int | None) -> str:
    """Return how a process ended, in words."""
    if code is None:
        return "hung up and could not be ended"
    if code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            hint = "; perhaps the system ran out of memory" if name == "SIGKILL" else ""
            return f"was ended by {name}{hint}"
    return f"ended with exit code {code} while it had work to do"
