"""The pool without workers: each task runs on the consumer's thread when its result is asked for.

It is the reference for the other pools, so it is the place to debug a map. A task on the consumer's thread cannot be
ended, so time limits do not apply. Ctrl-C interrupts a task.
"""

from __future__ import annotations

from .. import validation
from ..graph.node import Node
from ..memory.leases import BufferPool
from ..meters import stopwatch
from .base import ADVICE_ON_POOL_OPTIONS, AbstractWorkerPool
from .task import ONCE, Call, Submission, TaskFuture


class SerialPool(AbstractWorkerPool):
    """A pool that runs each task when its result is asked for, in order. ``timeout=`` cannot end a task here."""

    own_thread = True

    @validation.known_names(
        dict.fromkeys([*ADVICE_ON_POOL_OPTIONS, "processes"], "a SerialPool has no workers: WorkerProcessPool(n)")
    )
    def __init__(self) -> None:
        super().__init__()
        self.buffers = BufferPool(max_free=4)

    def submit(self, call: Call, how: Submission = ONCE) -> _SerialFuture:
        if self._closed:
            self.check_open()  # raises
        return _SerialFuture(self, call)

    def _own_pool(self, source: Node, stays: bool) -> SerialPool:
        return SerialPool()

    def close(self) -> None:
        super().close()
        self.buffers.clear()


class _SerialFuture(TaskFuture):
    """A task that runs when its result is waited for, on the thread that waits."""

    __slots__ = ("_call", "_pool")

    def __init__(self, pool: SerialPool, call: Call) -> None:
        super().__init__()
        self.transport = "memory"
        self._pool = pool
        self._call = call

    def wait(self, seconds: float) -> bool:
        """Run the task on this thread, for as long as it takes."""
        if self._pool._closed:
            self._pool.check_open()
        try:
            mine = self.begin()
        except BaseException as error:  # of a signal handler; nothing would run the task after it
            self._claim.acquire(blocking=False)  # otherwise cancel() would settle it again
            self.set_exception(error)
            return True
        if not mine:
            return super().wait(seconds)  # another thread runs it
        fn, args, kwargs = self._call
        try:
            result = fn(*args, **kwargs)
            self.made = stopwatch.taken()
        except BaseException as error:
            self.set_exception(error)
        else:
            self.set_result(result)
        return True
