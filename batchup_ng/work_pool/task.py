"""Tasks, the options for running them, the futures of their results, and the pool as its callers see it.

A :class:`Task` is one batch to be made. A pool gets its call and its options, and returns its future, which is what the
consumer waits for.

A :class:`TaskFuture` has two locks. The worker that begins the task, or the consumer that cancels it, takes ``_claim``
once and for all; the first of them gets it. ``_done`` is held from the start and released when there is a result. A
thread that waits for the result takes it and releases it again. An interrupt may come between these two steps, so the
lock does not show whether there is a result. A :class:`concurrent.futures.Future` costs ten times as much.

The side that runs the task settles the future, once. If two may do so (a thread ends its task just as its time is up),
they have to agree on one of them.
"""

from __future__ import annotations

import contextvars
import dataclasses
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from ..error_context import of_signal_handler
from ..errors import PoolClosed, RemoteTraceback
from ..graph.node import Node
from ..interpreter import numbers
from ..memory.budget import Living
from ..memory.leases import FRESH

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""A function with its arguments and keywords."""


@dataclasses.dataclass(frozen=True, slots=True)
class Submission:
    """Options for running a task."""

    retryable: bool = False  # whether it may be run again if its worker dies: yes for batches, no for user tasks
    urgent: bool = False  # whether it goes ahead of queued tasks
    # Whether it runs on a worker without other tasks. If this worker dies, and then another, the task is to blame.
    exclusive: bool = False
    timeout: float | None = None  # seconds that it may run; after them it fails with SampleTimeout
    flow_id: int = 0  # number of its flow; the flows of a pool take turns
    # Context variables (numpy.errstate, decimal). Threads run the task in a copy. None takes those at submission.
    context: contextvars.Context | None = dataclasses.field(default=None, repr=False, compare=False)


new_flow_id = numbers(1)
"""Returns the number of a new flow: of the tasks of one iterator or work stream."""


ONCE = Submission()
"""Options for a user's task."""


current = threading.local()
"""Holds the future of the task that this thread runs, as ``future``, and the threads of its pool, as ``workers``."""

TASK_RAISED_STOP = "a task raised StopIteration, which would end the loop over results"
"""Message of the RuntimeError that replaces it."""

POOL_CLOSED = "this pool was closed; make a new one"
"""Message of the error that refuses a closed pool."""

FOREVER = threading.TIMEOUT_MAX
"""Seconds to wait if there is no limit."""


STUCK_SECONDS = 5.0
"""Seconds at one task after which a worker counts as stuck: no more loaders share a pool of only such workers."""


class TaskFuture:
    """The future of one task; safe to use from several threads.

    Attributes:
        began: When a worker began the task, by the monotonic clock; None before that.
        transport: How the result arrived, once it is there: ``"slots"``, ``"socket"``, ``"store"``, ``"message"``,
            ``"memory"`` or ``""``.
        made: How long a worker took to make a batch: a ``Made``, packed if it comes from another process; None if
            that was not measured.
        settled: When the result arrived, by the monotonic clock.
    """

    __slots__ = (
        "__weakref__", "_claim", "_done", "_error", "_result", "_settled", "began", "made", "settled", "transport"
    )  # fmt: skip

    def __init__(self) -> None:
        self._claim = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()
        self._settled = False
        self._result: Any = None
        self._error: BaseException | None = None
        self.began: float | None = None
        self.transport = ""
        self.made: Any = None
        self.settled = 0.0

    @classmethod
    def of(cls, result: Any, transport: str) -> TaskFuture:
        """Return the future of a task that is done already."""
        future = cls()
        future.begin()
        future.transport = transport
        future.set_result(result)
        return future

    # -- the worker's side -------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Return whether to run the task: False if it was cancelled. Called once, before the task runs."""
        if not self._claim.acquire(blocking=False):
            return False
        self.began = time.monotonic()
        return True

    def set_result(self, result: Any) -> None:
        """Hand over the result."""
        self._result = result
        self.settled = time.monotonic()
        self._settled = True
        self._done.release()

    def set_exception(self, error: BaseException) -> None:
        """Hand over an exception instead of a result."""
        self._error = error
        self._settled = True
        self._done.release()

    # -- the consumer's side -----------------------------------------------------------------------------------

    def result(self) -> Any:
        """Wait for the result and return it, or raise the task's exception. For one caller, once.

        Raises:
            PoolClosed: the task was cancelled.
        """
        if not self._settled:
            self.wait(FOREVER)
        if self._error is not None:
            if isinstance(self._error, StopIteration):
                raise RuntimeError(TASK_RAISED_STOP) from self._error
            try:
                raise self._error
            finally:
                del self  # otherwise the exception's traceback and the future would refer to each other
        result, self._result = self._result, None
        return result

    def raised(self, error: BaseException) -> bool:
        """Return whether `error` came out of :meth:`result` because the task raised it, not a signal handler."""
        if isinstance(error.__cause__, RemoteTraceback):
            return True
        mine = self._error is not None and (self._error is error or self._error is error.__cause__)
        return mine and of_signal_handler(error) is None

    def wait(self, seconds: float) -> bool:
        """Wait for the result, at most `seconds`. Return whether there is one."""
        if not self._settled and self._done.acquire(timeout=seconds):
            self._done.release()
        return self._settled

    def done(self) -> bool:
        """Return whether the task has a result or was cancelled."""
        return self._settled

    def cancel(self) -> bool:
        """Cancel the task if it has not begun. Return whether it was cancelled."""
        # If signals made a task of this thread fail before it began, it is settled but not claimed.
        if self._settled or not self._claim.acquire(blocking=False):
            return False
        self.set_exception(PoolClosed("the stream was closed while a result was waited for"))
        return True


class Task(NamedTuple):
    """One batch to be made, or one result of the user's: the call that makes it, and why."""

    call: Call
    how: Submission
    about: Any  # its purpose, such as the planned batch
    ready_made: TaskFuture | None = None  # its result, if it was made before it is submitted


class Pool:
    """A pool for streams and sources: :class:`~.base.AbstractWorkerPool` without the methods that make them."""

    buffers: Any = FRESH
    """The memory for results. Threads use it directly. For other processes it is a stand-in, and they use their own."""
    own_thread: bool = False
    """Whether tasks run on the consumer's own thread."""
    lends_threads: bool = False
    """Whether idle threads help to read a batch."""

    def __init__(self) -> None:
        self._producers: weakref.WeakSet[Pool] = weakref.WeakSet()
        self.served: Living[Any] = Living()  # the buffers of its iterators and streams
        self._closed = False

    @property
    def at_once(self) -> int:
        """Number of tasks that it runs at once."""
        return getattr(self, "processes", 1) * getattr(self, "threads", 1)

    def submit(self, call: Call, how: Submission = ONCE) -> TaskFuture:
        """Queue a task and return its future.

        Args:
            call: A function with its arguments and keywords.
            how: Whether it may be run again, goes before others, needs a worker of its own, has a time limit.

        Raises:
            PoolClosed: the pool was closed, or belongs to another process and this one is its fork.
        """
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def works_here(self) -> bool:
        """Return whether the calling thread is one of its workers. If it waited for another task, all might wait."""
        return False

    def takes_loaders(self) -> bool:
        """Return whether one more loader may share the workers: they have no old code, and one of them is not stuck."""
        return True

    def shared_constant(self, x: Any) -> Any:
        """Return a stand-in for `x` in the arguments of tasks. `x` reaches each worker once.

        `x` must not change afterwards. Workers in this process share the object itself.

        Raises:
            PoolClosed: as for :meth:`submit`.
        """
        self.check_open()
        return x

    def producer(self, source: Node, stays: bool = False) -> Pool:
        """Return a pool of one worker that can iterate over `source`. If it `stays`, the worker is in this process.

        It is closed with this pool at the latest.
        """
        self.check_open()
        producer = self._own_pool(source, stays)
        self._producers.add(producer)
        return producer

    def _own_pool(self, source: Node, stays: bool) -> Pool:
        """Return a new pool of one worker that can iterate over `source`."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def check_open(self) -> None:
        """Raise :class:`~batchup_ng.errors.PoolClosed` if the pool was closed."""
        if self._closed:
            raise PoolClosed(POOL_CLOSED)

    def close(self) -> None:
        """End the workers, and drop all results that were not handed out. May be called again.

        A request for one of these results raises ``PoolClosed``.
        """
        for producer in list(self._producers):
            producer.close()
        self._closed = True
        for buffer in self.served.all():
            buffer.drop()

    def abandon(self) -> None:
        """Let the workers end, without waiting or locking: the garbage collector may call it inside any code."""
        self.close()
