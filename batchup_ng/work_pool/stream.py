"""The work stream: results of tasks, in the order of the tasks, a bounded number of them ahead.

Who owns what. A :class:`WorkStream` is the user's handle; its window holds the futures of the tasks that are under
way or done, at most ``task_buffer_size`` of them, and takes the next task from the generator each time a result is
handed out. Only the consumer's thread (one at a time, by a lock) touches the generator. The window knows nothing of
the handle, so that the handle's end, when the last reference to it goes, cancels what is queued.
"""

from __future__ import annotations

import collections
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from .. import checks
from ..errors import ArgumentError, ArgumentTypeError, PoolClosed

Task = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""A function with its arguments and keywords."""


class Future(Protocol):
    """The result of a task, some time."""

    def result(self) -> Any:
        """Return the result once it is there, or raise what the task raised; for one caller, once."""
        ...

    def done(self) -> bool: ...

    def cancel(self) -> bool:
        """Keep the task from running if it has not begun; what it gives otherwise is dropped."""
        ...


class Submits(Protocol):
    """The part of a pool that a stream needs."""

    def submit(self, task: Task) -> Future: ...


class _Failed:
    """The future of a task that the generator could not give."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def result(self) -> Any:
        raise self._error

    def done(self) -> bool:
        return True

    def cancel(self) -> bool:
        return True


class _Window:
    """The futures that are ahead of the consumer."""

    def __init__(self, pool: Submits, tasks: Iterator[Any], size: int) -> None:
        self._pool = pool
        self._tasks = tasks
        self._size = size
        self._futures: collections.deque[Future] = collections.deque()
        self._lock = threading.Lock()
        self._ended = False
        self._pid = os.getpid()
        self.most_ahead = 0

    def fill(self) -> None:
        """Submit tasks until the window is full or there are no more; what goes wrong waits for its turn."""
        while len(self._futures) < self._size and not self._ended:
            try:
                self._futures.append(self._pool.submit(as_task(next(self._tasks))))
            except StopIteration:
                self._ended = True
            except Exception as error:
                self._ended = True
                self._futures.append(_Failed(error))
        self.most_ahead = max(self.most_ahead, len(self._futures))

    def begin(self) -> None:
        """Fill the window for the first time; raises if not even one task could be had."""
        self.fill()
        if self._futures and isinstance(self._futures[0], _Failed):
            self._futures.popleft().result()

    def next(self) -> Any:
        """Return the next result; raises ``StopIteration`` at the end."""
        check_process(self._pid)
        with self._lock:
            if not self._futures:
                raise StopIteration
            head = self._futures[0]
            try:
                return head.result()
            finally:
                # An interrupt (Ctrl-C) that comes while waiting leaves the task where it is.
                if head.done() and self._futures and self._futures[0] is head:
                    self._futures.popleft()
                    self.fill()

    def ready(self) -> int:
        return sum(future.done() for future in tuple(self._futures))

    def cancel(self) -> None:
        self._ended = True
        close = getattr(self._tasks, "close", None)
        if close is not None:
            with contextlib.suppress(ValueError):  # it is running just now, on another thread
                close()
        while self._futures:
            try:
                self._futures.pop().cancel()
            except IndexError:
                return


class WorkStream:
    """Results of tasks in order, made ahead of the consumer.

    The buffer begins to fill when the stream is made. Made by ``pool.work_stream``.

    Args:
        worker_pool: Runs the tasks.
        task_generator: Iterator of ``(fn,)``, ``(fn, args)`` or ``(fn, args, kwargs)``.
        task_buffer_size: How many tasks to keep under way or done, ahead of the consumer.
    """

    def __init__(self, worker_pool: Submits, task_generator: Iterator[Any], task_buffer_size: int = 20) -> None:
        size = checks.positive_int("task_buffer_size", task_buffer_size)
        if not hasattr(task_generator, "__next__"):
            if not hasattr(task_generator, "__iter__"):
                raise ArgumentTypeError(
                    f"task_generator must be an iterator of tasks, not a {type(task_generator).__name__}; call the "
                    f"generator function"
                )
            task_generator = iter(task_generator)
        self._window = _Window(worker_pool, task_generator, size)
        self._finalizer = weakref.finalize(self, self._window.cancel)
        self._window.begin()

    def retrieve(self) -> Any:
        """Return the next result, waiting for it if need be; None when there are no more.

        Raises:
            Exception: what the task raised, or what the generator raised when asked for the task.
        """
        try:
            return self._window.next()
        except StopIteration:
            return None

    def retrieve_iter(self) -> Iterator[Any]:
        """Yield the results until there are no more."""
        while True:
            try:
                result = self._window.next()
            except StopIteration:
                return
            yield result

    def __next__(self) -> Any:
        """Return the next result; raises ``StopIteration`` when there are no more."""
        return self._window.next()

    def ready(self) -> int:
        """Return how many results are there and wait."""
        return self._window.ready()

    @property
    def most_ahead(self) -> int:
        """The most tasks that were ever under way or done at once."""
        return self._window.most_ahead

    def close(self) -> None:
        """Cancel what is queued and drop what is done; may be called again."""
        self._finalizer()

    def __enter__(self) -> WorkStream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def check_process(pid: int) -> None:
    """Raise :class:`PoolClosed` in a fork of the process `pid`, whose workers it does not have."""
    if os.getpid() != pid:
        raise PoolClosed(f"this pool belongs to process {pid}, of which this is a fork; make a pool in this process")


def as_task(given: Any) -> Task:
    """Return the task that ``(fn,)``, ``(fn, args)`` or ``(fn, args, kwargs)`` stands for.

    Raises:
        ArgumentTypeError: it is none of these.
        ArgumentError: it has another number of parts.
    """
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
