"""The work stream: results of tasks, in the order of the tasks, a bounded number of them ahead.

Ownership. A :class:`Stream` is the user's handle. Its buffer owns the futures and takes tasks from the generator, one
for each result that it hands out.
"""

from __future__ import annotations

import contextvars
import itertools
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

from .. import validation
from ..error_context import function_name, of_signal_handler, unless_of_signal_handler
from ..errors import ArgumentError, ArgumentTypeError, PoolClosed
from .prefetch_buffer import Entry, PrefetchBuffer
from .task import Call, Pool, Submission, Task, new_flow_id

StreamType = TypeVar("StreamType", bound="Stream")


class CountBound(NamedTuple):
    """The number of tasks that are kept ahead."""

    limit: int


class Stream:
    """Hands out the results of a buffer. The buffer begins to fill when the stream is made."""

    def __init__(self, buffer: PrefetchBuffer) -> None:
        self._buffer = buffer
        self._interrupted = False
        self._finalizer = weakref.finalize(self, buffer.close)
        buffer.begin()

    def __iter__(self: StreamType) -> StreamType:
        return self

    def __next__(self) -> Any:
        """Return the next result. Raise ``StopIteration`` at the end.

        Raises:
            PoolClosed: an exception of a signal handler (Ctrl-C, SIGALRM), or a task that raised
                ``KeyboardInterrupt`` or ``SystemExit``, closed the stream. A result may have been lost.
        """
        if self._interrupted:
            raise PoolClosed("this stream was broken off by an interrupt, so that it is closed; make a new one")
        if self._buffer.closed:
            raise StopIteration
        self._buffer.check_caller()
        try:
            return self._next()
        except BaseException as error:
            try:
                self._close_if_broken_off(error)
            except BaseException as another:  # of a second signal, which may arrive at any line of the call
                self._close_if_broken_off(another)
                raise
            raise

    def _next(self) -> Any:
        """Return the next result and submit the next task."""
        with self._buffer.lock:
            try:
                return self._received(self._buffer.take())
            finally:
                self._buffer.top_up()

    def _received(self, entry: Entry) -> Any:
        """Return the result of a task that is done, or raise its exception."""
        try:
            return entry.future.result()
        finally:
            del entry  # otherwise an exception's traceback and the future would refer to each other

    def _close_if_broken_off(self, error: BaseException) -> None:
        """Close the stream if a result may have been lost with `error`."""
        if isinstance(error, (KeyboardInterrupt, SystemExit)) or of_signal_handler(error):
            self._interrupted = True
            with unless_of_signal_handler():  # the end of the user's generator may raise
                self.close()

    def close(self) -> None:
        """Cancel queued tasks and drop finished ones. May be called again."""
        self._buffer.close()
        self._finalizer.detach()

    def __enter__(self: StreamType) -> StreamType:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class WorkStream(Stream):
    """Results of tasks in order, made ahead of the consumer.

    The buffer begins to fill when the stream is made. ``pool.work_stream`` returns one.

    Args:
        worker_pool: Runs the tasks.
        task_generator: Iterator of ``(fn,)``, ``(fn, args)`` or ``(fn, args, kwargs)``.
        task_buffer_size: Number of tasks to keep under way or done, ahead of the consumer.
    """

    def __init__(self, worker_pool: Pool, task_generator: Iterator[Any], task_buffer_size: int = 20) -> None:
        size = validation.positive_int("task_buffer_size", task_buffer_size)
        if not hasattr(task_generator, "__next__"):
            if not hasattr(task_generator, "__iter__"):
                raise ArgumentTypeError(
                    f"task_generator must be an iterator of tasks, not a {type(task_generator).__name__}; call the "
                    f"generator function"
                )
            task_generator = iter(task_generator)
        super().__init__(PrefetchBuffer(worker_pool, _tasks_of(task_generator), CountBound(size), _in_words))

    def retrieve(self) -> Any:
        """Wait for the next result and return it; None at the end.

        Raises:
            Exception: raised by the task, or by the generator when asked for the task.
            PoolClosed: an interrupt closed the stream.
        """
        for result in self:  # not next(), a call after which KeyboardInterrupt could lose the result
            return result
        return None

    def retrieve_iter(self) -> Iterator[Any]:
        """Return an iterator of the results. A task's exception does not end it: the next result follows."""
        return itertools.chain(self)  # not a generator, which would end at an exception


def _tasks_of(tasks: Iterator[Any]) -> Iterator[Task]:
    """Yield a task for each call of the user's. Closing this generator closes the user's."""
    how = Submission(flow_id=new_flow_id(), context=contextvars.copy_context())
    try:
        for given in tasks:
            yield Task(as_call(given), how, None)
    finally:
        close = getattr(tasks, "close", None)
        if close is not None:
            close()


def _in_words(task: Task) -> str:
    return f"the result of task {function_name(task.call[0])}"


def as_call(given: Any) -> Call:
    """Check ``(fn,)``, ``(fn, args)`` or ``(fn, args, kwargs)`` and return the call."""
    if not isinstance(given, tuple) or not given or not callable(given[0]):
        raise ArgumentTypeError(f"a task must be (fn,), (fn, args) or (fn, args, kwargs), not {given!r:.200}")
    if len(given) > 3:
        raise ArgumentError(f"a task has at most three parts, (fn, args, kwargs), not {len(given)}")
    args = given[1] if len(given) > 1 else ()
    kwargs = given[2] if len(given) > 2 else {}
    if not isinstance(args, (tuple, list)) or not isinstance(kwargs, dict):
        raise ArgumentTypeError(
            f"a task's args must be a tuple and its kwargs a dict, not {type(args).__name__} and "
            f"{type(kwargs).__name__}; for one argument write (fn, (argument,))"
        )
    return given[0], tuple(args), kwargs
