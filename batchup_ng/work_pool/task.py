"""Tasks, how a pool is to run them, the futures of their results, and the pool as those see it who submit.

A :class:`TaskFuture` has two locks. ``_claim`` is taken, once and for all, by the worker that begins the task or by the
consumer that cancels it, whichever is first. ``_done`` is held from the start and released when there is a result;
those who wait for it take it and release it again. An interrupt may come between the two, so that whether there is a
result is not told by the lock. A :class:`concurrent.futures.Future` costs ten times as much.

A future is settled once, by the side that runs the task. Where that may be one of two (a thread that ends its task
just as its time is up), it is theirs to agree on who does.
"""

from __future__ import annotations

import contextvars
import dataclasses
import itertools
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from ..data_source.base import AbstractDataSource
from ..error_context import of_signal_handler
from ..errors import PoolClosed, RemoteTraceback
from ..memory_pool import FRESH

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
        transport: How the result came, once it is there: ``"slots"``, ``"socket"``, ``"store"``, ``"message"``,
            ``"memory"`` or ``""``.
    """

    __slots__ = ("__weakref__", "_claim", "_done", "_error", "_result", "_settled", "began", "transport")

    def __init__(self) -> None:
        self._claim = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()
        self._settled = False
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

    def set_result(self, result: Any) -> None:
        """Hand over the result."""
        self._result = result
        self._settled = True
        self._done.release()

    def set_exception(self, error: BaseException) -> None:
        """Hand over an exception instead of a result."""
        self._error = error
        self._settled = True
        self._done.release()

    # -- the consumer's side -----------------------------------------------------------------------------------

    def result(self) -> Any:
        """Return the result, waiting for it, or raise what the task raised; for one caller, once.

        Raises:
            PoolClosed: the task was cancelled.
        """
        if not self._settled:
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

    def raised(self, error: BaseException) -> bool:
        """Return whether `error` came out of :meth:`result` because the task raised it, not a signal handler."""
        if isinstance(error.__cause__, RemoteTraceback):
            return True
        mine = self._error is not None and (self._error is error or self._error is error.__cause__)
        return mine and of_signal_handler(error) is None

    def wait(self, seconds: float) -> bool:
        """Wait until there is a result, that long at most; return whether there is one."""
        if not self._settled and self._done.acquire(timeout=seconds):
            self._done.release()
        return self._settled

    def done(self) -> bool:
        """Return whether the result is there, or the task was cancelled."""
        return self._settled

    def cancel(self) -> bool:
        """Keep the task from running if it has not begun; return whether that worked."""
        # One that failed before it was begun is settled and not claimed: signals struck a task of this thread's.
        if self._settled or not self._claim.acquire(blocking=False):
            return False
        self.set_exception(PoolClosed("the stream was closed while a result was waited for"))
        return True


class Pool:
    """What streams and sources use of a pool: :class:`~.base.AbstractWorkerPool` without the methods that make them."""

    buffers: Any = FRESH
    """Where workers take memory from; travels to them as an argument."""
    own_thread: bool = False
    """Whether tasks run on the consumer's own thread."""
    lends_threads: bool = False
    """Whether idle threads take part in the reading of a batch."""

    def __init__(self) -> None:
        self._producers: weakref.WeakSet[Pool] = weakref.WeakSet()
        self._closed = False

    @property
    def at_once(self) -> int:
        """How many tasks it runs at once."""
        return getattr(self, "processes", 1) * getattr(self, "threads", 1)

    def submit(self, task: Task, how: Submission = ONCE) -> TaskFuture:
        """Queue a task and return its future.

        Args:
            task: A function with its arguments and keywords.
            how: Whether it may be run again, goes before others, needs a worker of its own, has a time limit.

        Raises:
            PoolClosed: the pool was closed, or belongs to the process of which this one is a fork.
        """
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def shared_constant(self, x: Any) -> Any:
        """Return a stand-in for `x`, which tasks may have among their arguments and which reaches each worker once.

        `x` must not change afterwards. Workers in this process share it as it is.
        """
        return x

    def producer(self, source: AbstractDataSource, stays: bool = False) -> Pool:
        """Return a pool of one worker that can iterate over `source`, in this process if it must be one that `stays`.

        It ends with this one at the latest.
        """
        self.check_open()
        producer = self._own_pool(source, stays)
        self._producers.add(producer)
        return producer

    def _own_pool(self, source: AbstractDataSource, stays: bool) -> Pool:
        """Return a new pool of one worker that can iterate over `source`."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def check_open(self) -> None:
        """Raise :class:`~batchup_ng.errors.PoolClosed` if the pool was closed."""
        if self._closed:
            raise PoolClosed("this pool was closed; make a new one")

    def close(self) -> None:
        """End the workers; may be called again. Results that are still waited for raise ``PoolClosed``."""
        for producer in list(self._producers):
            producer.close()
        self._closed = True

    def abandon(self) -> None:
        """Tell the workers to end, without waiting or locking: the garbage collector may call it inside any code."""
        self.close()
