"""The pool without workers: each task runs when its result is asked for, on the consumer's thread.

It is the reference that the others must equal, which makes it the place to debug a map. Nobody can end a task that
runs on one's own thread, so a time limit is only looked at when the task is done: the result is handed out, with a
:class:`~batchup_ng.errors.StallWarning`. Ctrl-C, and the ``SystemExit`` that a signal handler may raise, arrive in
the midst of a task here, so these two leave it as they are.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from .. import validation
from ..data_source.base import AbstractDataSource
from ..errors import PoolClosed, StallWarning
from ..memory_pool import BufferPool
from ..warn import warn_consumer
from .base import ELSEWHERE, AbstractWorkerPool
from .parallel import Producer
from .task import ONCE, STOPPED, Submission, Task


class SerialPool(AbstractWorkerPool):
    """Runs tasks in order, each when its result is asked for.

    ``timeout=`` cannot end a task here; a batch that took longer is delivered with a warning.
    """

    own_thread = True

    @validation.known_names(
        dict.fromkeys([*ELSEWHERE, "processes"], "a SerialPool has no workers: WorkerProcessPool(n)")
    )
    def __init__(self) -> None:
        super().__init__()
        self.buffers = BufferPool(max_free=4)
        self._closed = False

    def submit(self, task: Task, how: Submission = ONCE) -> _Deferred:
        self.check_open()
        return _Deferred(self, task, how.timeout)

    def shared_constant(self, x: Any) -> Any:
        return x

    def producer(self, source: AbstractDataSource, stays: bool = False) -> Producer:
        return Producer(self, _nothing, _nothing)

    def close(self) -> None:
        self._closed = True
        self.buffers.clear()

    def check_open(self) -> None:
        if self._closed:
            raise PoolClosed("this pool was closed; make a new one")


def _nothing() -> None:
    """The end of a producer that needs none."""


class _Deferred:
    """A task that runs when its result is waited for."""

    transport = "memory"

    def __init__(self, pool: SerialPool, task: Task, timeout: float | None) -> None:
        self._pool = pool
        self._task = task
        self._timeout = timeout
        self._ran = False
        self._running = threading.Lock()
        self._seconds: float | None = None
        self._result: Any = None
        self._error: Exception | GeneratorExit | None = None

    def wait(self, seconds: float) -> bool:
        """Run the task on this thread, for as long as it takes."""
        self._pool.check_open()
        with self._running:
            if not self._ran:
                self._run()
        return True

    def _run(self) -> None:
        began = time.monotonic()
        fn, args, kwargs = self._task
        try:
            self._result = fn(*args, **kwargs)
        except (Exception, GeneratorExit) as error:
            self._error = error
        self._ran = True
        self._seconds = time.monotonic() - began
        if self._timeout is not None and self._seconds > self._timeout:
            warn_consumer(
                f"a task took {self._seconds:.1f} s, longer than timeout={self._timeout:g}; a SerialPool cannot end "
                f"what runs on its own thread: use another pool for that",
                StallWarning,
            )

    def result(self) -> Any:
        self.wait(0)
        if self._error is not None:
            if isinstance(self._error, StopIteration):
                raise RuntimeError(STOPPED) from self._error
            try:
                raise self._error
            finally:
                del self  # or the exception's traceback and the task would hold each other
        result, self._result = self._result, None
        return result

    def running_for(self) -> float | None:
        return self._seconds

    def done(self) -> bool:
        return self._ran

    def cancel(self) -> bool:
        return True
