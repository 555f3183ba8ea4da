"""The work of one batch, spread over threads of its pool that have nothing else to do.

Who owns what. A pool's thread has in ``lender`` what lends it others while it runs a task. The thread that spreads its
work takes part in it, and returns when all of it is done: none that it borrowed works on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

lender = threading.local()
"""Has, as ``lend``, the method of the pool whose task this thread is in: a function of (work, the most of threads)."""


class Borrowed(Protocol):
    """A thread that was asked to help."""

    def cancel(self) -> bool:
        """Let it be; return False if it has begun."""

    def result(self) -> Any:
        """Wait until it is done; raise an error if it was given up."""


def spread(work: Callable[[int], None], n: int) -> None:
    """Call ``work(0)`` to ``work(n - 1)``, on this thread and on idle ones of its pool.

    Raises:
        Exception: what the first of those that failed raised. All before it were done, some behind it may be.
    """
    lend = getattr(lender, "lend", None)
    if lend is None or n < 2:
        for place in range(n):
            work(place)
        return
    places = iter(range(n))
    errors: dict[int, BaseException] = {}

    def some() -> None:
        for place in places:  # one step of which is never in two threads at once
            try:
                work(place)
            except BaseException as error:
                errors[place] = error
                for _ in places:
                    pass

    borrowed: list[Borrowed] = lend(some, n - 1)
    some()
    for thread in borrowed:
        if not thread.cancel():
            thread.result()
    if errors:
        try:
            raise errors[min(errors)]
        finally:
            errors.clear()  # their tracebacks hold this frame
