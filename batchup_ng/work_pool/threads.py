"""The pool of threads.

Who owns what. The pool is the user's handle; a :class:`ThreadWorkers` behind it owns the threads and the tasks that
wait, which any thread may add to; a token in a queue, which the threads wait on, stands for each of them. It knows
nothing of the pool, so that a pool that was forgotten can be collected while its threads wait. Nothing is copied:
batches are gathered into the pool's reused buffers, which the consumer's arrays hold on lease. Threads work at once as
far as the task releases the GIL, as NumPy's gathers and Pillow's decoders do.

Who settles a future. A thread enters its task in ``running`` before it runs it. Whichever thread takes the task out, by
one atomic ``dict.pop``, settles the future: the one that ran it, a consumer that finds that its time is up (one that
waits for a result checks the times of all tasks), or ``close``. A thread that finds its task taken out has been
replaced: it drops its result, returns what it had on lease, and ends.

A thread cannot be stopped. One whose task holds the GIL in C keeps all others from running, the consumer among them; no
time limit can be kept then.

At ``close`` each thread ends after the task it is in; what is queued fails. The threads are daemons and closed at exit,
so that a pool that was forgotten does not keep the program from ending.
"""

from __future__ import annotations

import atexit
import contextvars
import itertools
import os
import queue
import threading
import time
import weakref
from typing import NamedTuple

from .. import validation
from ..data_source.base import AbstractDataSource
from ..errors import PoolClosed, SampleTimeout
from ..memory_pool import BufferPool
from .base import ELSEWHERE, AbstractWorkerPool, worker_count
from .fair_queue import FairQueue
from .prefetch_buffer import check_process
from .task import FOREVER, ONCE, Submission, Task, TaskFuture, current

CLOSE_TIMEOUT = 5.0
"""Seconds that ``close`` waits for the tasks that threads are in; a thread that takes longer is left behind."""


class ThreadFuture(TaskFuture):
    """The future of a task in a thread, which ends the waiting when the time of the task is up."""

    __slots__ = ("_workers",)

    def __init__(self, workers: ThreadWorkers) -> None:
        super().__init__()
        self._workers = workers
        self.transport = "memory"

    def wait(self, seconds: float) -> bool:
        if not self._workers.limited:
            return super().wait(seconds)
        deadline = time.monotonic() + min(seconds, FOREVER / 2)
        while True:
            due = self._workers.give_up_overdue()
            now = time.monotonic()
            if super().wait(max(0.0, min(due, deadline) - now)):
                return True
            if now >= deadline:
                return False


class _Job(NamedTuple):
    """A task that waits or runs."""

    future: ThreadFuture
    task: Task
    timeout: float | None
    context: contextvars.Context


class _Running(NamedTuple):
    """A thread in a task."""

    thread: threading.Thread
    timeout: float | None
    due: float


LOOK_AGAIN = 0.2
"""Seconds after which a consumer looks whether tasks with a time limit have been begun."""


class ThreadWorkers:
    """Runs tasks in a number of threads."""

    def __init__(self, n_threads: int) -> None:
        self.limited = False
        self._tokens: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._waiting: FairQueue[_Job] = FairQueue()
        self._running: dict[ThreadFuture, _Running] = {}
        # Guards what waits, the lists of threads, whether there is an end. The collector may end the workers in the
        # midst of any of it.
        self._lock = threading.RLock()
        self._ended = False
        self._names = itertools.count()
        self._threads: list[threading.Thread] = []
        self._abandoned: list[threading.Thread] = []
        for _ in range(n_threads):
            self._start()

    def _start(self) -> None:
        name = f"batchup_ng-{next(self._names)}"
        thread = threading.Thread(target=_work, args=(self,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def submit(self, task: Task, how: Submission) -> ThreadFuture:
        """Queue a task, unless the workers have ended."""
        # Each has a copy of its own, for two threads cannot be in one context at once.
        context = contextvars.copy_context() if how.context is None else how.context.copy()
        job = _Job(ThreadFuture(self), task, how.timeout, context)
        with self._lock:  # so that no task is queued behind the end mark
            if self._ended:
                raise PoolClosed("this pool was closed; make a new one")
            self.limited = self.limited or how.timeout is not None
            if how.urgent:
                self._waiting.put_urgent(job)
            else:
                self._waiting.put(job, how.stream_id)
            self._tokens.put(True)
        return job.future

    def next_job(self) -> _Job | None:
        """Return the job that comes next, waiting for it; None at the end."""
        while self._tokens.get():
            with self._lock:
                if self._waiting:
                    return self._waiting.take()
        self._tokens.put(False)  # for the next thread
        return None

    def enter(self, job: _Job) -> None:
        due = FOREVER if job.timeout is None else time.monotonic() + job.timeout
        self._running[job.future] = _Running(threading.current_thread(), job.timeout, due)

    def leave(self, future: ThreadFuture) -> bool:
        """Note that this thread has done a job; return whether it is still its own to settle."""
        return self._running.pop(future, None) is not None

    def give_up_overdue(self) -> float:
        """Fail tasks whose time is up and replace their threads; return when to look again."""
        now = time.monotonic()
        again = now + LOOK_AGAIN
        for future, running in list(self._running.items()):
            if running.due > now:
                again = min(again, running.due)
            elif self.leave(future):
                self._replace(running.thread)
                told = f"a task ran for more than timeout={running.timeout:g} s and was given up"
                future.set_exception(SampleTimeout(told))
        return again

    def _replace(self, thread: threading.Thread) -> None:
        with self._lock:
            self._threads.remove(thread)
            self._abandoned.append(thread)
            if not self._ended:
                self._start()

    def abandoned(self) -> int:
        """Return how many threads are stuck in tasks that were given up."""
        with self._lock:
            self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
            return len(self._abandoned)

    def end(self) -> None:
        """Fail what is queued, then end the threads; those in tasks that were given up are not waited for."""
        with self._lock:
            self._ended = True
            threads = list(self._threads)
            waiting = self._waiting.clear()
        for job in waiting:
            if job.future.begin():
                job.future.set_exception(PoolClosed("the pool was closed before this task was begun"))
        self._tokens.put(False)
        deadline = time.monotonic() + CLOSE_TIMEOUT
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        for future, running in list(self._running.items()):
            if running.thread is not threading.current_thread() and self.leave(future):
                future.set_exception(PoolClosed("the pool was closed while this task was under way"))


def _work(workers: ThreadWorkers) -> None:
    """Run jobs until the end: what each thread does."""
    while (job := workers.next_job()) is not None:
        future = job.future
        if not future.begin():
            del job, future
            continue
        workers.enter(job)
        current.future = future
        fn, args, kwargs = job.task
        result, error = None, None
        try:
            result = job.context.run(fn, *args, **kwargs)
        except BaseException as raised:
            error = raised
        current.future = None
        if not workers.leave(future):
            return  # given up: another thread has this one's place
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
        del job, future, fn, args, kwargs, result, error


class WorkerThreadPool(AbstractWorkerPool):
    """Threads of this process that run tasks.

    Args:
        processes: How many threads; None for every CPU that this process may use. (The name is BatchUp's.)

    Raises:
        ArgumentError: `processes` is below 1.
    """

    @validation.known_names(ELSEWHERE)
    def __init__(self, processes: int | None = None) -> None:
        super().__init__()
        self.processes = worker_count(processes)
        self.buffers = BufferPool(max_free=64)
        self._pid = os.getpid()
        self._workers = ThreadWorkers(self.processes)
        self._finalizer = weakref.finalize(self, self._workers.end)
        self._finalizer.atexit = False
        _open_pools.add(self)

    @property
    def abandoned_threads(self) -> int:
        """How many threads are stuck in tasks that ran over their time limit; others have taken their places."""
        return self._workers.abandoned()

    def submit(self, task: Task, how: Submission = ONCE) -> ThreadFuture:
        check_process(self._pid)
        return self._workers.submit(task, how)

    def _own_pool(self, source: AbstractDataSource, stays: bool) -> WorkerThreadPool:
        return WorkerThreadPool(1)

    def abandon(self) -> None:
        self._workers.end()

    def close(self) -> None:
        if os.getpid() != self._pid:
            return  # a fork of the user's, which has no such threads
        super().close()
        _open_pools.discard(self)
        self._finalizer()
        self.buffers.clear()


_open_pools: weakref.WeakSet[WorkerThreadPool] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for pool in list(_open_pools):
        pool.close()
