"""The pool of threads.

Ownership. The pool is the user's handle. Its :class:`ThreadWorkers` owns the threads and the waiting tasks. Any thread
may add a task. For each waiting task there is a token in a queue, and the threads wait on this queue. The
:class:`ThreadWorkers` has no reference to the pool, so the collector can free a dropped pool while its threads wait.
Nothing is copied: batches are gathered into the pool's reused buffers, and the consumer's arrays hold these on lease.
Threads run in parallel while the task releases the GIL, as NumPy's gathers and Pillow's decoders do.

Settling a future. Before a thread runs a task, it enters the task in ``running``. The thread that takes the task out,
by one atomic ``dict.pop``, settles the future. This is the thread that ran the task, a consumer that finds its time
over, or ``close``. A consumer that waits for a result checks the times of all tasks. If a thread finds that its task
was taken out, another thread has replaced it. It drops its result, returns its leases, and ends.

A thread cannot be stopped. If a task holds the GIL in C, no other thread runs, not even the consumer, and no time limit
can be kept.

After ``resize`` to fewer threads, a thread that is one too many ends when it next takes a token. It puts the token
back, for the task that the token stands for.

At ``close`` each thread ends after its current task, and queued tasks fail. A dropped pool only sets a flag and wakes a
thread, which does the same, because the collector may run inside any code. The threads are daemons and are ended at
exit. A dropped pool therefore does not keep the program from ending.
"""

from __future__ import annotations

import contextvars
import dataclasses
import itertools
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable

from .. import log, validation
from ..accessors.spreading import lender
from ..at_exit import at_exit
from ..errors import PoolClosed, SampleTimeout
from ..graph.node import Node
from ..interpreter import taken
from ..memory.leases import BufferPool
from ..meters import stopwatch
from ..signals import InterruptsHeld
from .base import ADVICE_ON_POOL_OPTIONS, AbstractWorkerPool, worker_count
from .fair_queue import FairQueue
from .prefetch_buffer import check_process
from .scheduling import give_way
from .task import FOREVER, ONCE, POOL_CLOSED, STUCK_SECONDS, Call, Submission, TaskFuture, current

CLOSE_TIMEOUT = 5.0
"""Seconds that ``close`` waits for running tasks. A thread that takes longer is left running."""


class ThreadFuture(TaskFuture):
    """A task for a thread, and the future of its result. It ends the wait when the time of the task is up."""

    __slots__ = ("_workers", "call", "context", "due", "timeout")

    def __init__(self, workers: ThreadWorkers, call: Call, how: Submission) -> None:
        super().__init__()
        self.transport = "memory"
        self._workers = workers
        self.call = call
        self.timeout = how.timeout
        self.due = FOREVER
        # A copy for each task, because two threads cannot be in one context at once.
        self.context = contextvars.copy_context() if how.context is None else how.context.copy()

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


MOST_MORE = 1000
"""How many threads more there may be: memory does not matter."""

LOOK_AGAIN = 0.2
"""Seconds after which a consumer checks whether tasks with a time limit have begun."""

_ALL: set[ThreadWorkers] = set()
"""The workers of all pools, until the last of their threads ends.

The program waits for them at its exit, otherwise Python may crash in compiled code. This is no ``WeakSet``, because its
callbacks are written in Python, and an exception of a signal handler would be lost in them.
"""


class ThreadWorkers:
    """Threads that run tasks."""

    def __init__(self, n_threads: int) -> None:
        self.limited = False
        self._pid = os.getpid()
        self._tokens: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._waiting: FairQueue[ThreadFuture] = FairQueue()
        self._running: dict[ThreadFuture, threading.Thread] = {}
        # Guards the waiting tasks and the lists of threads.
        self._lock = threading.RLock()
        self._ended = False
        self._numbers = itertools.count()
        self._threads: list[threading.Thread] = []
        self._abandoned: list[threading.Thread] = []
        self._left: list[threading.Thread] = []  # they were one too many
        self._wanted = n_threads
        try:
            for _ in range(n_threads):
                self._start()
        except BaseException:  # the system has no more threads
            self.abandon()
            raise

    def _start(self) -> None:
        number = next(self._numbers)
        thread = threading.Thread(target=_work, args=(self, number), name=f"batchup_ng-{number}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def resize(self, n_threads: int) -> int:
        """Start or end threads. Return how many there will be: fewer than asked for if the system refuses more."""
        check_process(self._pid)
        refused: RuntimeError | None = None
        with InterruptsHeld(), self._lock:
            if self._ended:
                raise PoolClosed(POOL_CLOSED)
            self._left = [thread for thread in self._left if thread.is_alive()]
            self._wanted = n_threads
            while len(self._threads) < self._wanted:
                try:
                    self._start()
                except RuntimeError as error:
                    refused = error
                    del self._threads[-1]
                    self._wanted = max(1, len(self._threads))
            for _ in range(len(self._threads) - self._wanted):
                self._tokens.put(True)  # wakes an idle thread
            n_threads = self._wanted
        if refused is not None:
            log.note("a pool goes on with %d threads, because no other can be started: %s", n_threads, refused)
        return n_threads

    def submit(self, call: Call, how: Submission) -> ThreadFuture:
        """Queue a task, unless the workers have ended."""
        check_process(self._pid)
        future = ThreadFuture(self, call, how)
        with self._lock:  # otherwise a task could be queued after the end mark
            if self._ended:
                raise PoolClosed(POOL_CLOSED)
            self.limited = self.limited or how.timeout is not None
            self._tokens.put(True)  # before the task: an interrupt may come between the two; a spare token is harmless
            if how.urgent:
                self._waiting.put_urgent(future)
            else:
                self._waiting.put(future, how.flow_id)
        return future

    def lend(self, work: Callable[[], None], most: int) -> list[ThreadFuture]:
        """Have idle threads do `work` together with the calling thread, within the time of its task."""
        with self._lock:  # because the waiting tasks are counted one by one
            idle = len(self._threads) - len(self._running) - len(list(self._waiting))
        how = dataclasses.replace(ONCE, urgent=True, timeout=current.future.timeout)
        return [self.submit((work, (), {}), how) for _ in range(min(idle, most))]

    def next_task(self) -> ThreadFuture | None:
        """Wait for the next task and return it; None at the end."""
        while taken(self._tokens):
            with self._lock:
                if len(self._threads) > self._wanted and not self._ended:
                    self._threads.remove(threading.current_thread())
                    self._left.append(threading.current_thread())
                    self._tokens.put(True)
                    return None
                if self._waiting and not self._ended:
                    return self._waiting.take()
        self._tokens.put(False)  # for the next thread
        self._fail_waiting()
        if not any(thread.is_alive() for thread in self._threads if thread is not threading.current_thread()):
            _ALL.discard(self)
        return None

    def enter(self, future: ThreadFuture) -> None:
        if future.timeout is not None:
            future.due = time.monotonic() + future.timeout
        self._running[future] = threading.current_thread()

    def leave(self, future: ThreadFuture) -> bool:
        """Record that this thread has done a task. Return whether this thread is to settle it."""
        return self._running.pop(future, None) is not None

    def give_up_overdue(self) -> float:
        """Fail tasks whose time is up and replace their threads. Return when to look again."""
        now = time.monotonic()
        again = now + LOOK_AGAIN
        for future, thread in list(self._running.items()):
            if future.due > now:
                again = min(again, future.due)
            elif self.leave(future):
                self._replace(thread)
                log.note("a thread was replaced, whose task ran for more than timeout=%g s", future.timeout)
                text = f"a task ran for more than timeout={future.timeout:g} s and was given up"
                future.set_exception(SampleTimeout(text))
        return again

    def _replace(self, thread: threading.Thread) -> None:
        with self._lock:
            self._threads.remove(thread)
            self._abandoned.append(thread)
            if not self._ended and len(self._threads) < self._wanted:
                self._start()

    def at_work_for(self) -> float:
        """Return the seconds that all threads have been at their present tasks; 0.0 if one of them has none."""
        running = list(self._running)
        if len(running) < len(self._threads):
            return 0.0
        now = time.monotonic()
        return min(now - (future.began or now) for future in running)

    def abandoned(self) -> int:
        """Return the number of threads that are stuck in tasks that were given up."""
        with self._lock:
            self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
            return len(self._abandoned)

    def abandon(self) -> None:
        """Let the threads end after their current tasks. For finalizers: it takes no lock and waits for nothing."""
        if os.getpid() == self._pid:  # otherwise this is a fork by the user, without these threads
            self._ended = True
            self._tokens.put(False)

    def end(self) -> None:
        """Fail queued tasks and end the threads. May be called again.

        It does not wait for threads in tasks that were given up.
        """
        if os.getpid() != self._pid:
            return
        self.abandon()
        self._fail_waiting()
        deadline = time.monotonic() + CLOSE_TIMEOUT
        with self._lock:
            threads = [*self._threads, *self._left]
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        for future, thread in list(self._running.items()):
            if thread is not threading.current_thread() and self.leave(future):
                future.set_exception(PoolClosed("the pool was closed while this task was under way"))

    def _fail_waiting(self) -> None:
        with self._lock:
            waiting = self._waiting.clear()
        for future in waiting:
            if future.begin():
                future.set_exception(PoolClosed("the pool was closed before this task was begun"))


def _end_all() -> None:
    for workers in list(_ALL):
        workers.end()


at_exit(_end_all)


def _work(workers: ThreadWorkers, number: int) -> None:
    """Run tasks until the end, on the thread of the worker `number`."""
    give_way()
    stopwatch.name_this_thread(number)
    lender.lend = workers.lend
    current.workers = workers
    while (future := workers.next_task()) is not None:
        if not future.begin():
            del future
            continue
        workers.enter(future)
        current.future = future
        fn, args, kwargs = future.call
        result, error = None, None
        try:
            result = future.context.run(fn, *args, **kwargs)
            future.made = stopwatch.taken()
        except BaseException as raised:
            error = raised
        current.future = None
        if not workers.leave(future):
            return  # the task was given up: another thread has replaced this one
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
        del future, fn, args, kwargs, result, error


class WorkerThreadPool(AbstractWorkerPool):
    """Threads of this process that run tasks.

    Args:
        processes: Number of threads. None: the number of CPUs available to this process. (The name is BatchUp's.)

    Raises:
        ArgumentError: `processes` is below 1.
    """

    lends_threads = True

    @validation.known_names(ADVICE_ON_POOL_OPTIONS)
    def __init__(self, processes: int | None = None) -> None:
        super().__init__()
        self.processes = worker_count(processes)
        self.buffers = BufferPool(max_free=64)
        with InterruptsHeld():  # otherwise threads could be left that nobody ends
            self._workers = ThreadWorkers(self.processes)
            self._finalizer = weakref.finalize(self, self._workers.abandon)
            _ALL.add(self._workers)

    @property
    def abandoned_threads(self) -> int:
        """Number of threads stuck in tasks that exceeded their time limit. Other threads have replaced them."""
        return self._workers.abandoned()

    def submit(self, call: Call, how: Submission = ONCE) -> ThreadFuture:
        return self._workers.submit(call, how)

    @validation.known_names({})
    def resize(self, processes: int) -> None:
        """Change the number of threads, also while they work. The batches do not change."""
        self.processes = self._workers.resize(validation.positive_int("processes", processes))

    def room_for_more(self) -> int:
        return MOST_MORE

    def works_here(self) -> bool:
        return getattr(current, "workers", None) is self._workers

    def takes_loaders(self) -> bool:
        return self._workers.at_work_for() < STUCK_SECONDS

    def _own_pool(self, source: Node, stays: bool) -> WorkerThreadPool:
        return WorkerThreadPool(1)

    def abandon(self) -> None:
        self._workers.abandon()

    def close(self) -> None:
        super().close()
        self._workers.end()
        self._finalizer.detach()
        self.buffers.clear()
