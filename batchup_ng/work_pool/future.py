"""The result of a task, some time.

A future has two locks. ``claim`` is taken, once and for all, by whoever comes first: the worker that begins the task,
or the consumer that cancels it. ``done`` is held from the start and let go when there is a result; those who wait for
the result take it and let it go again. Both are bare locks, for a batch waits for one future a time and a
:class:`concurrent.futures.Future`, with a condition and a list of callbacks, costs ten times as much to make.
"""

from __future__ import annotations

import threading
from typing import Any

from ..errors import PoolClosed

STOPPED = "a task raised StopIteration, which would end the loop over results"
"""What is said instead of raising it."""


class TaskFuture:
    """The future of one task; safe to use from several threads."""

    __slots__ = ("_claim", "_done", "_error", "_result")

    def __init__(self) -> None:
        self._claim = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()
        self._result: Any = None
        self._error: BaseException | None = None

    # -- the worker's side -------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Return whether the task is to be run: False if it was cancelled. Called once, before the task is run."""
        return self._claim.acquire(blocking=False)

    def set_result(self, result: Any) -> None:
        """Hand over the result."""
        self._result = result
        self._done.release()

    def set_error(self, error: BaseException) -> None:
        """Hand over an exception instead of a result."""
        self._error = error
        self._done.release()

    # -- the consumer's side -----------------------------------------------------------------------------------

    def result(self) -> Any:
        """Return the result, waiting for it, or raise what the task raised; for one caller, once.

        Raises:
            PoolClosed: the task was cancelled.
        """
        with self._done:
            pass
        if self._error is not None:
            if isinstance(self._error, StopIteration):
                raise RuntimeError(STOPPED) from self._error
            try:
                raise self._error
            finally:
                del self  # or the exception's traceback and the future would hold each other
        result, self._result = self._result, None
        return result

    def done(self) -> bool:
        """Return whether the result is there, or the task was cancelled."""
        return not self._done.locked()

    def cancel(self) -> bool:
        """Keep the task from running if it has not begun; return whether that worked."""
        if not self._claim.acquire(blocking=False):
            return False
        self.set_error(PoolClosed("the stream was closed while a result was waited for"))
        return True
