"""The pool of threads.

Who owns what. The pool is the user's handle; the crew behind it owns the threads and the queue. Nothing is copied:
batches are gathered into the pool's reused buffers, which the consumer's arrays hold on lease. Threads work at once as
far as the task lets go of the GIL, as NumPy's gathers and Pillow's decoders do.

At ``close`` each thread ends after the task it is in; what is queued is failed. The threads are daemons and closed
at exit, so that a pool that was forgotten does not keep the program from ending. What becomes of a thread whose task
runs over its time limit stands in ``crew``.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Any

from .. import validation
from ..data_source.base import AbstractDataSource
from ..errors import PoolClosed
from ..memory_pool import BufferPool
from .base import ELSEWHERE, AbstractWorkerPool, worker_count
from .crew import Crew, CrewFuture
from .parallel import Producer
from .stream import check_process
from .task import ONCE, Submission, Task


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
        self.buffers = BufferPool(most_free=64)
        self._closed = False
        self._pid = os.getpid()
        self._crew = Crew(self.processes)
        self._finalizer = weakref.finalize(self, self._crew.end)
        self._finalizer.atexit = False
        _open_pools.add(self)

    @property
    def abandoned_threads(self) -> int:
        """How many threads are stuck in tasks that ran over their time limit; others have taken their places."""
        return self._crew.abandoned()

    def submit(self, task: Task, how: Submission = ONCE) -> CrewFuture:
        check_process(self._pid)
        return self._crew.submit(task, how)

    def shared_constant(self, x: Any, *, arrays: str = "auto") -> Any:
        """Return `x` itself, which threads share as it is."""
        return x

    def check_open(self) -> None:
        if self._closed:
            raise PoolClosed("this pool was closed; make a new one")

    def producer(self, source: AbstractDataSource, stays: bool = False) -> Producer:
        self.check_open()
        return self._own(WorkerThreadPool(1)).as_producer()

    def as_producer(self) -> Producer:
        """Return this pool with what ends it."""
        return Producer(self, self.close, self._crew.end)

    def close(self) -> None:
        if os.getpid() != self._pid:
            return  # a fork of the user's, which has no such threads
        self._close_producers()
        self._closed = True
        _open_pools.discard(self)
        self._finalizer()
        self.buffers.clear()


_open_pools: weakref.WeakSet[WorkerThreadPool] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for pool in list(_open_pools):
        pool.close()
