"""The threads of a thread pool: who runs which task, who takes the place of a thread that is stuck.

Who owns what. A :class:`Crew` owns the threads and the tasks that wait, which any thread may add to; a token in a
queue, which the threads wait on, stands for each of them. The crew knows nothing of the pool, so that a pool that was
forgotten can be collected while its threads wait.

Who settles a future. A thread enters its task in ``running`` before it runs it and takes it out afterwards; whoever
takes it out, by one atomic ``dict.pop``, settles the future. Besides the thread that is the one who finds that its
time is up (a consumer that waits for some result looks after the times of all tasks), or ``close``, for threads that
do not end. A thread that finds its task taken out has been replaced: it drops its result and ends. What it had on
lease it gives back then, so nothing is overwritten meanwhile.

Nothing can stop a thread. One whose task holds the GIL in C keeps all others from running, the consumer among them; no
time limit can be kept then.
"""

from __future__ import annotations

import contextvars
import itertools
import queue
import threading
import time
from typing import NamedTuple

from ..errors import PoolClosed, SampleTimeout
from .fair_queue import TurnQueue
from .future import FOREVER, TaskFuture
from .task import Submission, Task

CLOSE_TIMEOUT = 5.0
"""Seconds that ``close`` waits for the tasks that threads are in; a thread that takes longer is left behind."""

current = threading.local()
"""Holds, as ``future``, the future of the task that this thread is in."""


class CrewFuture(TaskFuture):
    """The future of a task in a thread, which ends the waiting when the time of the task is up."""

    __slots__ = ("_crew",)

    def __init__(self, crew: Crew) -> None:
        super().__init__()
        self._crew = crew
        self.road = "memory"

    def wait(self, seconds: float) -> bool:
        if not self._crew.limited:
            return super().wait(seconds)
        deadline = time.monotonic() + min(seconds, FOREVER / 2)
        while True:
            due = self._crew.give_up_overdue()
            now = time.monotonic()
            if super().wait(max(0.0, min(due, deadline) - now)):
                return True
            if now >= deadline:
                return False


class _Job(NamedTuple):
    """A task that waits or runs."""

    future: CrewFuture
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


class Crew:
    """Runs tasks in a number of threads."""

    def __init__(self, n_threads: int) -> None:
        self.limited = False
        self._tokens: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._waiting: TurnQueue[_Job] = TurnQueue()
        self._running: dict[CrewFuture, _Running] = {}
        # Guards what waits, the lists of threads, whether there is an end. The collector may end the crew in the midst
        # of any of it.
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

    def submit(self, task: Task, how: Submission) -> CrewFuture:
        """Queue a task.

        Raises:
            PoolClosed: the crew has ended.
        """
        # Each has a copy of its own, for two threads cannot be in one context at once.
        context = contextvars.copy_context() if how.context is None else how.context.copy()
        job = _Job(CrewFuture(self), task, how.timeout, context)
        with self._lock:  # so that no task is queued behind the end mark
            if self._ended:
                raise PoolClosed("this pool was closed; make a new one")
            self.limited = self.limited or how.timeout is not None
            if how.urgent:
                self._waiting.put_urgent(job)
            else:
                self._waiting.put(job, how.lane)
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
        """Note that this thread begins a job."""
        due = FOREVER if job.timeout is None else time.monotonic() + job.timeout
        self._running[job.future] = _Running(threading.current_thread(), job.timeout, due)

    def leave(self, future: CrewFuture) -> bool:
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
                error = SampleTimeout(f"a task ran for more than timeout={running.timeout:g} s and was given up")
                future.set_error(error)
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
        with self._lock:
            waiting = self._waiting.clear()
        for job in waiting:
            if job.future.begin():
                job.future.set_error(PoolClosed("the pool was closed before this task was begun"))
        self._tokens.put(False)
        deadline = time.monotonic() + CLOSE_TIMEOUT
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        for future, running in list(self._running.items()):
            if running.thread is not threading.current_thread() and self.leave(future):
                future.set_error(PoolClosed("the pool was closed while this task was under way"))


def _work(crew: Crew) -> None:
    """Run jobs until the end: what each thread does."""
    while (job := crew.next_job()) is not None:
        future = job.future
        if not future.begin():
            del job, future
            continue
        crew.enter(job)
        current.future = future
        fn, args, kwargs = job.task
        result, error = None, None
        try:
            result = job.context.run(fn, *args, **kwargs)
        except BaseException as raised:
            error = raised
        current.future = None
        if not crew.leave(future):
            return  # given up: another thread has this one's place
        if error is None:
            future.set_result(result)
        else:
            future.set_error(error)
        del job, future, fn, args, kwargs, result, error
