"""The work of one batch, spread over idle threads of its pool.

Ownership. While a thread of a pool runs a task, its ``lender`` holds the function that borrows other threads. The
thread that spreads its work takes part in it. It returns when all of the work is done: no borrowed thread works on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Protocol

from ..display import rows_in_words
from ..meters import stopwatch

lender = threading.local()
"""Its ``lend`` is the method of the pool whose task this thread runs: a function of (work, most threads)."""


class Borrowed(Protocol):
    """A thread that was asked to help."""

    def cancel(self) -> bool:
        """Release it; return False if it has begun."""

    def result(self) -> Any:
        """Wait until it is done; raise an error if it was given up."""


def spread_rows(work: Callable[[int], None], rows: Sequence[int], name: Callable[[int], str | None]) -> None:
    """Call `work` with the place of each of the rows of an accessor, as :func:`spread` does. Time each call.

    `name` returns the name of a row. The slowest of them gets it among the measurements.
    """
    if not stopwatch.is_running():
        spread(work, len(rows))
        return
    seconds = [0.0] * len(rows)

    def timed(place: int) -> None:
        began = monotonic()
        work(place)
        seconds[place] = monotonic() - began

    spread(timed, len(rows))
    stopwatch.note_slowest(stopwatch.READ, seconds, len(rows))
    stopwatch.name_slowest(lambda first, end, _: rows_in_words(rows[first:end], map(name, rows[first:end])))


def spread(work: Callable[[int], None], n: int) -> None:
    """Call ``work(0)`` to ``work(n - 1)``, on this thread and on idle threads of its pool.

    Raises:
        Exception: the exception of the first call that failed. All calls before it are done, later ones may be.
    """
    lend = getattr(lender, "lend", None)
    if lend is None or n < 2:
        for place in range(n):
            work(place)
        return
    places = iter(range(n))
    errors: dict[int, BaseException] = {}

    def some() -> None:
        for place in places:  # each step of `places` runs in one thread at a time
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
