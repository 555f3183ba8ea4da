"""Tasks, how a pool is to run them, and the futures of their results.

A :class:`TaskFuture` has two locks. ``_claim`` is taken, once and for all, by the worker that begins the task or by the
consumer that cancels it, whichever is first. ``_done`` is held from the start and released when there is a result;
those who wait for it take it and release it again. A :class:`concurrent.futures.Future` costs ten times as much.

A future is settled once, by the side that runs the task. Where that may be one of two (a thread that ends its task
just as its time is up), it is theirs to agree on who does.
"""

from __future__ import annotations

import contextvars
import dataclasses
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from ..errors import PoolClosed

Task = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""A function with its arguments and keywords."""


@dataclasses.dataclass(frozen=True, slots=True)
class Submission:
    """How a task is to be run."""

    retryable: bool = False  # whether it may be run again if its worker dies: batches may, tasks of the user's may not
    urgent: bool = False  # whether it goes before what is queued
    # Whether it is run on a worker that has nothing else: if that dies, and so does another, it is this task's fault.
    exclusive: bool = False
    timeout: float | None = None  # seconds that it may run, beyond which it fails with SampleTimeout
    stream_id: int = 0  # number of its stream; the streams of a pool take turns
    # That of the caller (numpy.errstate, decimal), in a copy of which threads run it; None is that of submitting.
    context: contextvars.Context | None = dataclasses.field(default=None, repr=False, compare=False)


new_stream_id = itertools.count(1).__next__
"""Returns the number of a stream that was not there before."""


ONCE = Submission()
"""How a task of the user's is run."""


current = threading.local()
"""Holds, as ``future``, the future of the task that this thread is in."""

STOPPED = "a task raised StopIteration, which would end the loop over results"
"""What is said instead of raising it."""

FOREVER = threading.TIMEOUT_MAX
"""Seconds to wait where there is no limit."""


class TaskFuture:
    """The future of one task; safe to use from several threads.

    Attributes:
        began: When a worker began the task, by the monotonic clock; None if none has.
        transport: How the result came, once it is there: ``"slots"``, ``"socket"``, ``"message"``, ``"memory"``
            or ``""``.
    """

    __slots__ = ("__weakref__", "_claim", "_done", "_error", "_result", "began", "transport")

    def __init__(self) -> None:
        self._claim = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()
        self._result: Any = None
        self._error: BaseException | None = None
        self.began: float | None = None
        self.transport = ""

    # -- the worker's side -------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Return whether the task is to be run: False if it was cancelled. Called once, before the task is run."""
        if not self._claim.acquire(blocking=False):
            return False
        self.began = time.monotonic()
        return True

    def put_back(self) -> None:
        """Let the task be as if it had not begun: it was interrupted."""
        self.began = None
        self._claim.release()

    def set_result(self, result: Any) -> None:
        """Hand over the result."""
        self._result = result
        self._done.release()

    def set_exception(self, error: BaseException) -> None:
        """Hand over an exception instead of a result."""
        self._error = error
        self._done.release()

    # -- the consumer's side -----------------------------------------------------------------------------------

    def result(self) -> Any:
        """Return the result, waiting for it, or raise what the task raised; for one caller, once.

        Raises:
            PoolClosed: the task was cancelled.
        """
        if self._done.locked():
            self.wait(FOREVER)
        if self._error is not None:
            if isinstance(self._error, StopIteration):
                raise RuntimeError(STOPPED) from self._error
            try:
                raise self._error
            finally:
                del self  # or the exception's traceback and the future would hold each other
        result, self._result = self._result, None
        return result

    def wait(self, seconds: float) -> bool:
        """Wait until there is a result, that long at most; return whether there is one."""
        if not self._done.acquire(timeout=seconds):
            return False
        self._done.release()
        return True

    def done(self) -> bool:
        """Return whether the result is there, or the task was cancelled."""
        return not self._done.locked()

    def cancel(self) -> bool:
        """Keep the task from running if it has not begun; return whether that worked."""
        if not self._claim.acquire(blocking=False):
            return False
        self.set_exception(PoolClosed("the stream was closed while a result was waited for"))
        return True


class Pool(Protocol):
    """What streams and sources use of a pool: see :class:`~.base.AbstractWorkerPool`."""

    @property
    def buffers(self) -> Any: ...

    @property
    def own_thread(self) -> bool: ...

    @property
    def at_once(self) -> int: ...

    def submit(self, task: Task, how: Submission = ONCE) -> TaskFuture: ...

    def shared_constant(self, x: Any) -> Any: ...

    def producer(self, source: Any, stays: bool = False) -> Pool: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...
