"""The result of a task, some time.

A future has two locks. ``claim`` is taken, once and for all, by whoever comes first: the worker that begins the task,
or the consumer that cancels it. ``done`` is held from the start and let go when there is a result; those who wait for
the result take it and let it go again. Both are bare locks, for a batch waits for one future a time and a
:class:`concurrent.futures.Future`, with a condition and a list of callbacks, costs ten times as much to make.

A future is settled once, by the side that runs the task. Where that may be one of two (a thread that ends its task
just as its time is up), it is theirs to agree on who does.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from ..errors import PoolClosed

STOPPED = "a task raised StopIteration, which would end the loop over results"
"""What is said instead of raising it."""

FOREVER = threading.TIMEOUT_MAX
"""Seconds to wait where there is no limit."""


class TaskFuture:
    """The future of one task; safe to use from several threads."""

    __slots__ = ("__weakref__", "_began", "_claim", "_done", "_ended", "_error", "_result", "transport")

    def __init__(self) -> None:
        self._claim = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()
        self._result: Any = None
        self._error: BaseException | None = None
        self._began: float | None = None
        self._ended: float | None = None
        self.transport = ""

    # -- the worker's side -------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Return whether the task is to be run: False if it was cancelled. Called once, before the task is run."""
        if not self._claim.acquire(blocking=False):
            return False
        self._began = time.monotonic()
        return True

    def set_result(self, result: Any) -> None:
        """Hand over the result."""
        self._result = result
        self._settle()

    def set_exception(self, error: BaseException) -> None:
        """Hand over an exception instead of a result."""
        self._error = error
        self._settle()

    def _settle(self) -> None:
        self._ended = time.monotonic()
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

    @property
    def error(self) -> BaseException | None:
        """What the task raised in this process, once it is done."""
        return self._error

    def wait(self, seconds: float) -> bool:
        """Wait until there is a result, that long at most; return whether there is one."""
        if not self._done.acquire(timeout=seconds):
            return False
        self._done.release()
        return True

    def running_for(self) -> float | None:
        """Return for how many seconds the task has run, or ran; None if no worker has begun it."""
        if self._began is None:
            return None
        return (self._ended or time.monotonic()) - self._began

    def done(self) -> bool:
        """Return whether the result is there, or the task was cancelled."""
        return not self._done.locked()

    def cancel(self) -> bool:
        """Keep the task from running if it has not begun; return whether that worked."""
        if not self._claim.acquire(blocking=False):
            return False
        self.set_exception(PoolClosed("the stream was closed while a result was waited for"))
        return True
