"""The pool of threads.

Who owns what. The pool owns its threads and one queue, which any thread may fill; each thread takes a task, runs it,
sets its future. Nothing is copied: batches are gathered into the pool's reused buffers, which the consumer's arrays
hold on lease. Threads work at once as far as the task lets go of the GIL, as NumPy's gathers and Pillow's decoders do.

At ``close`` each thread ends after the task it is in; what is queued is failed. The threads are daemons and closed
at exit, so that a pool that was forgotten does not keep the program from ending.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from ..buffers import BufferPool
from ..data_source.base import AbstractDataSource
from ..errors import PoolClosed
from .base import AbstractWorkerPool, worker_count
from .future import TaskFuture
from .parallel import Pool
from .stream import Task, check_process

CLOSE_TIMEOUT = 5.0
"""Seconds that ``close`` waits for the tasks that threads are in; a thread that takes longer is left behind."""

_Job = tuple[TaskFuture, Task]


class WorkerThreadPool(AbstractWorkerPool):
    """Threads of this process that run tasks.

    Args:
        processes: How many threads; None for every CPU that this process may use. (The name is BatchUp's.)

    Raises:
        ArgumentError: `processes` is below 1.
    """

    def __init__(self, processes: int | None = None) -> None:
        super().__init__()
        self.processes = worker_count(processes)
        self.buffers = BufferPool(most_free=64)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # so that no task is queued behind the end marks that close puts
        self._closed = False
        self._pid = os.getpid()
        self._threads = [
            threading.Thread(target=_work, args=(self._jobs,), name=f"batchup_ng-{i}", daemon=True)
            for i in range(self.processes)
        ]
        self._finalizer = weakref.finalize(self, _end, self._jobs, self._threads)
        self._finalizer.atexit = False
        for thread in self._threads:
            thread.start()
        _open_pools.add(self)

    def submit(self, task: Task) -> TaskFuture:
        check_process(self._pid)
        future = TaskFuture()
        with self._lock:
            self.check_open()
            self._jobs.put((future, task))
        return future

    def shared_constant(self, x: Any) -> Any:
        """Return `x` itself, which threads share as it is."""
        return x

    def check_open(self) -> None:
        if self._closed:
            raise PoolClosed("this pool was closed; make a new one")

    def producer(self, source: AbstractDataSource, stays: bool = False) -> tuple[Pool, Callable[[], None]]:
        self.check_open()
        pool = WorkerThreadPool(1)
        return self._own(pool), pool.close

    def close(self) -> None:
        if os.getpid() != self._pid:
            return  # a fork of the user's, which has no such threads
        self._close_producers()
        with self._lock:
            self._closed = True
        _open_pools.discard(self)
        self._finalizer()
        self.buffers.clear()


_open_pools: weakref.WeakSet[WorkerThreadPool] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for pool in list(_open_pools):
        pool.close()


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    """Run tasks until an end mark comes: what each thread does."""
    while True:
        job = jobs.get()
        if job is None:
            return
        future, (fn, args, kwargs) = job
        if future.begin():
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_error(error)
            else:
                future.set_result(result)
                del result
        del job, future, fn, args, kwargs


def _end(jobs: queue.SimpleQueue[_Job | None], threads: list[threading.Thread]) -> None:
    """Fail what is queued, then end the threads."""
    while True:
        try:
            job = jobs.get_nowait()
        except queue.Empty:
            break
        if job is not None and job[0].begin():
            job[0].set_error(PoolClosed("the pool was closed before this task was begun"))
    for _ in threads:
        jobs.put(None)
    deadline = time.monotonic() + CLOSE_TIMEOUT
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))
