"""Plans that can only be listed from the front, batch after batch."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ...errors import PoolClosed
from .rows import RowPlan

REMEMBERED_BATCHES = 4096
"""Latest batches of an endless listed epoch that can be given again."""


class ListedPlan(RowPlan):
    """Batches with rows from an iterator, which is asked for them as needed. Safe to use from several threads.

    All batches are remembered if the epoch ends, else the latest :data:`REMEMBERED_BATCHES`. `n_expected` is the number
    of batches that the iterator should have, if that is known. Before the end, `count` counts them, or all batches are
    listed.
    """

    def __init__(
        self, drawn: Iterator[Any], n_expected: float | None = None, count: Callable[[], float] | None = None
    ) -> None:
        self._drawn = drawn
        self._n_expected = n_expected
        self.n_known = n_expected if n_expected == math.inf else None
        self._count = count
        self._memory: dict[int, Any] = {}
        self._next = 0
        self._broken_off = ""  # by which exception
        self._lock = threading.Lock()

    @property
    def n_in_any_order(self) -> float | None:
        return self._n_expected

    @property
    def n_batches(self) -> float:  # type: ignore[override]  # read on first use, because counting may be needed
        if self.n_known is None and self._count is not None:
            self.n_known = self._count()
        while self.n_known is None:
            self.has(self._next)
        return self.n_known

    def walk(self) -> Iterator[Any]:
        return self._drawn

    def has(self, number: int) -> bool:
        """Return whether there is a batch `number`. The iterator is asked for the batches up to it."""
        with self._lock:
            return self._drawn_to(number)

    def rows(self, number: int) -> Any:
        with self._lock:
            if self._drawn_to(number) and number in self._memory:
                return self._memory[number]
        raise IndexError(
            f"batch {number} of this endless epoch was drawn too long ago; only the latest {REMEMBERED_BATCHES} are "
            f"remembered of an order that is drawn batch after batch: pass an int seed as shuffle= to enter anywhere"
        )

    def _drawn_to(self, number: int) -> bool:
        if self._broken_off and self._next <= number:
            raise PoolClosed(f"{self._broken_off} broke off the listing of this epoch's rows; make its plan again")
        try:
            while self._next <= number:
                self._memory[self._next] = next(self._drawn)
                if self.n_known == math.inf:
                    self._memory.pop(self._next - REMEMBERED_BATCHES, None)
                self._next += 1
        except StopIteration:
            self.n_known = self._next
            return False
        except BaseException as error:  # a generator that has raised would pass for one at its end
            self._broken_off = type(error).__name__
            raise
        return True
