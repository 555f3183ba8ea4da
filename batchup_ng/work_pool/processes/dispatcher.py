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
import itertools
import os
import selectors
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

from ...buffers import BufferPool
from ...errors import CannotTravel, PoolClosed, WorkerLost
from ..future import STOPPED, TaskFuture
from ..stream import Task, check_process
from . import channel
from .arena import Arena
from .blame import culprit
from .channel import Frame, FrameReader, FrameWriter, Kind, Piece
from .constants import SharedConstant
from .copies import SharedCopies
from .launch import EXIT_UNKNOWN, Launcher, WorkerProcess
from .served import Server
from .travel import travels

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
        if isinstance(error, StopIteration):
            error = RuntimeError(STOPPED)
        raise error from remote


class _Job:
    """A task on its way."""

    __slots__ = ("begun", "constants", "frame", "future", "number")

    def __init__(self, number: int, frame: list[Piece], constants: list[SharedConstant]) -> None:
        self.future = ResultFuture()
        self.begun = False
        self.number = number
        self.frame = frame
        self.constants = constants


class _Forget:
    """A word in the queue of tasks that a constant is no longer needed."""

    def __init__(self, number: int) -> None:
        self.number = number


class _Worker:
    """A worker as the dispatcher sees it."""

    def __init__(self, process: WorkerProcess, memory: BufferPool) -> None:
        self.process = process
        self.reader = FrameReader(process.sock, memory)
        self.writer = FrameWriter(process.sock)
        self.jobs: dict[int, _Job] = {}
        self.constants: set[int] = set()
        self.ready = False


class Dispatcher:
    """Owns the workers and hands out tasks; knows nothing of the pool, which may be forgotten."""

    def __init__(self, processes: int, threads: int, starter: Launcher, arena: Arena) -> None:
        self._starter = starter
        self._arena = arena
        self.copies = SharedCopies(arena, self._wake)
        self._server = Server(arena)
        self._room = threads + AHEAD
        self._lock = threading.Lock()
        self._closed = False
        self._broken: WorkerLost | None = None
        self._waiting: collections.deque[_Job | _Forget] = collections.deque()
        self._workers: list[_Worker] = []
        self._numbers = itertools.count(1)
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
                self._watch(_Worker(self._starter.start(), self.memory))
        except BaseException:
            self._release()
            raise
        self._thread = threading.Thread(target=self._dispatch, name="batchup_ng-dispatch", daemon=True)
        self._thread.start()

    # -- any thread --------------------------------------------------------------------------------------------

    def submit(self, task: Task, constants: list[SharedConstant]) -> ResultFuture:
        check_process(self._owner_pid)
        job = self._encoded(task, constants)
        with self._lock:
            self.check_open()
            self._waiting.append(job)
            self._hand_out()
        return job.future

    def _encoded(self, task: Task, constants: list[SharedConstant]) -> _Job:
        """Return the job of a task, pickled on the caller's thread; one that cannot be has failed already."""
        number = next(self._numbers)
        try:
            return _Job(number, channel.encode(Kind.TASK, number, task), constants)
        except Exception as error:
            name = getattr(task[0], "__qualname__", repr(task[0]))
            blamed = culprit(f"task {name}", task, travels)
            failure = CannotTravel(f"{blamed} cannot be sent to a worker process: {error}")
            failure.__cause__ = error
        job = _Job(number, [], [])
        job.future.begin()
        job.future.set_error(failure)
        return job

    def check_open(self) -> None:
        """Raise :class:`PoolClosed` if the pool was closed, or closed itself because no worker could be had."""
        if self._closed:
            raise PoolClosed("this pool was closed; make a new one") from self._broken

    def forget(self, number: int) -> None:
        """Tell the workers that a constant is no longer needed. Takes no lock: it may run inside any code."""
        self._waiting.append(_Forget(number))
        self._wake()

    def pids(self) -> list[int]:
        """Return the process numbers of the workers."""
        with self._lock:
            return [worker.process.pid for worker in self._workers]

    def close(self) -> None:
        """End the processes and wait until they are gone; may be called again."""
        if os.getpid() != self._owner_pid:
            return  # a fork of the user's: the workers belong to its parent
        self.abandon()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def abandon(self) -> None:
        """Let the dispatcher end the processes, some time soon. Takes no lock: it may run inside any code."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_write.send(b"w")  # a full socket will wake it as well

    # -- with the lock held ------------------------------------------------------------------------------------

    def _watch(self, worker: _Worker) -> None:
        """Make a worker that was started one of those that get tasks."""
        self._workers.append(worker)
        self._selector.register(worker.process.sock, selectors.EVENT_READ, (worker, False))
        if worker.process.death is not None:
            self._selector.register(worker.process.death, selectors.EVENT_READ, (worker, True))

    def _hand_out(self) -> None:
        """Give waiting tasks to workers that have room, the least busy first."""
        while self._waiting:
            first = self._waiting[0]
            if isinstance(first, _Forget):
                self._waiting.popleft()
                self._send_forget(first.number)
                continue
            worker = min(self._workers, key=lambda w: len(w.jobs), default=None)
            if worker is None or len(worker.jobs) >= self._room:
                return
            self._waiting.popleft()
            first.begun = first.begun or first.future.begin()
            if first.begun:
                self._send(worker, first)

    def _send(self, worker: _Worker, job: _Job) -> None:
        for constant in job.constants:
            if constant.number not in worker.constants:
                worker.constants.add(constant.number)
                worker.writer.put(constant.frame(self.copies))
        worker.jobs[job.number] = job
        worker.writer.put(job.frame)
        if worker.writer.waiting:
            self._wake()

    def _reply_to(self, worker: _Worker) -> Callable[[list[Piece]], None]:
        def reply(frame: list[Piece]) -> None:
            with self._lock:
                if worker in self._workers:
                    worker.writer.put(frame)
            self._wake()

        return reply

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
                    if key.data is None:
                        self._wake_up()
                    else:
                        self._serve(*key.data)
        except BaseException as error:
            self._broken = WorkerLost(f"the pool's dispatcher failed: {error!r}")
            self._broken.__cause__ = error
            raise
        finally:
            self._fail_all()
            self._release()

    def _watch_writers(self) -> None:
        with self._lock:
            for worker in self._workers:
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.writer.waiting else 0)
                if self._selector.get_key(worker.process.sock).events != events:
                    self._selector.modify(worker.process.sock, events, (worker, False))

    def _wake_up(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_read.recv(4096)
        self.copies.sweep()
        with self._lock:
            self._hand_out()

    def _serve(self, worker: _Worker, died: bool) -> None:
        """Write and read what can be written and read without waiting; see to a worker that is gone."""
        if worker not in self._workers:
            return  # lost a moment ago, by its other descriptor
        with self._lock:
            worker.writer.write()
        while frames := worker.reader.read():
            for job, frame in self._take_in(worker, frames):
                job.future.set_result(frame)
            if not died:
                break
        if died or frames is None:
            self._lost(worker)

    def _take_in(self, worker: _Worker, frames: list[Frame]) -> list[tuple[_Job, Frame]]:
        """Return the jobs that are done, with their results, and give the worker new ones."""
        finished = []
        with self._lock:
            for frame in frames:
                if frame.kind is Kind.READY:
                    worker.ready = True
                    self._failed_starts = 0
                elif frame.kind is Kind.ASK:
                    self._server.submit(frame, self._reply_to(worker))
                elif (job := worker.jobs.pop(frame.number, None)) is not None:
                    finished.append((job, frame))
            self._hand_out()
        return finished

    def _lost(self, worker: _Worker) -> None:
        """Fail what a worker had, put another in its place."""
        with self._lock:
            self._workers.remove(worker)
            self._selector.unregister(worker.process.sock)
            if worker.process.death is not None:
                self._selector.unregister(worker.process.death)
            jobs = list(worker.jobs.values())
            if not worker.ready:
                self._waiting.extendleft(reversed(jobs))  # it never saw them
                self._failed_starts += 1
        code: int | None = None
        try:
            code = worker.process.end()
        finally:
            if worker.ready:
                error = WorkerLost(f"a worker process (pid {worker.process.pid}) {describe_exit(code)}")
                for job in jobs:
                    job.future.set_error(error)
        if self._failed_starts >= START_TRIES:
            self._broken = WorkerLost(
                f"worker processes cannot be started: {START_TRIES} ended before they were ready, the last of which "
                f"{describe_exit(code)}; their own messages tell more"
            )
            self._closed = True
            return
        started = _Worker(self._starter.start(), self.memory)
        with self._lock:
            self._watch(started)
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
        """End the processes, close the descriptors."""
        with self._lock:
            workers, self._workers = self._workers, []
        for worker in workers:
            worker.process.hang_up()
        for worker in workers:
            worker.process.end()
        self._starter.close()
        self._server.close()
        self.copies.close()
        self._arena.close()
        self._selector.close()
        self._wake_read.close()
        self._wake_write.close()
        self.memory.clear()


def describe_exit(code: int | None) -> str:
    """Return how a process ended, in words."""
    if code is None:
        return "hung up and could not be ended"
    if code == EXIT_UNKNOWN:
        return "ended, nobody knows how, for something else in this program has waited for it"
    if code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            hint = "; perhaps the system ran out of memory" if name == "SIGKILL" else ""
            return f"was ended by {name}{hint}"
    return f"ended with exit code {code} while it had work to do"
