"""The base class of all that makes the batches of an epoch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

Give = Callable[[list[Any], Any, Any], Any]
"""Takes the result of a user's function out of a list, and returns what is handed out. The other arguments are batches
that may have some of the columns, as for :func:`~batchup_ng.batch_layout.unkept`.
"""

CLOSED_WHILE_WAITING = "this iterator was closed while a batch was waited for"
"""Text of the error of a runner that is closed before the end of its epoch."""


class Runner:
    """Makes the batches of one epoch in order. The defaults suit a runner without read-ahead.

    ``StopIteration`` from ``next`` means that the epoch is at its end. After ``close``, ``next`` raises ``PoolClosed``.
    """

    closed = False
    at_end = False
    flow_id = 0
    """Number of the flow that its tasks belong to, if it has tasks."""
    meter: Any = None
    """Takes the times of the batches; None if nothing is measured."""
    latest: Any = None
    """State of a stream after the last batch handed out; None if it has no state."""

    @property
    def torn(self) -> bool:
        """Whether an exception from a signal handler may have lost a batch before its submission."""
        return False

    @property
    def used_up(self) -> bool:
        """Whether all batches were submitted. The next epoch may then begin."""
        return False

    def __next__(self) -> Any:
        """Record the next batch in the accounting and return it, or raise the error of making it."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def check_caller(self) -> None:
        """Raise :class:`~batchup_ng.errors.ReentrantIteration` if code that is making one of the batches calls this."""

    def planning(self) -> Any:
        """Return a context in which no batch is planned."""
        return contextlib.nullcontext()

    def ready(self) -> int:
        """Return the number of finished batches that wait."""
        return 0

    def ahead(self) -> int:
        """Return the number of batches that are under way, or done and not yet handed out."""
        return 0

    def fill(self) -> None:
        """Submit batches while there is room for them."""

    def results_by(self, give: Give | None) -> None:
        """Hand out what `give` returns for each result of a map after the pool; None: the result itself."""

    def close(self) -> None:
        """End the work. May be called again, from any thread."""

    def abandon(self) -> None:
        """End the work without waiting. The garbage collector calls this when nothing refers to the iterator."""
        self.close()
