"""How far a loader is: what it shares with its views.

Who owns what. A :class:`Progress` has the pool, the series of epochs and the epoch under way. It changes from one epoch
to the next by single assignments, so that an exception of a signal's handler between two of them leaves an epoch whole:
the one that was under way, or one that has not begun.
"""

from __future__ import annotations

import dataclasses
import threading
import weakref
from typing import Any

from ...sampling.plans.epoch import BatchPlan
from .epochs import Epochs
from .iterator import BatchIterator


@dataclasses.dataclass
class Progress:
    """What a loader and its views share."""

    source: Any
    options: dict[str, Any]  # of each epoch
    pool: Any  # None until it is made
    kind: str  # of the pool, where the loader makes it; "" where it is the user's
    workers: int | None
    next: int  # the number of the epoch under way; of the next where there is none
    behind: Any = None  # the source that the pool works for
    why: str = ""  # the pool was chosen
    plan: BatchPlan | None = None  # of the epoch that a batch was asked of last, out of turn
    pending: Any = None  # the state from which that epoch goes on, if it is in its middle
    chosen: Any = None  # the blocks of the state that was loaded
    told: tuple[dict[str, Any], list[Any]] = ({}, [])  # the stats and the errors of an epoch that close() ended
    series: Epochs | None = None
    inner: BatchIterator | None = None  # of the epoch under way, or of the last
    iterator: Any = None  # what iterating over the loader, or over a view, returned for that
    beside: Any = dataclasses.field(default_factory=weakref.WeakSet)  # iterators of batches by their numbers
    # Held while the pool is started or a batch is planned out of turn, which several threads may ask for at once.
    lock: Any = dataclasses.field(default_factory=threading.RLock)

    def upcoming(self) -> tuple[int, Any]:
        """Return the number of the epoch that the next iteration begins, and its state if it is in its middle."""
        if self.inner is not None and self.inner.asked:
            return self.inner.epoch + 1, None
        return self.next, self.pending

    def move_to(self, number: int, pending: Any, chosen: Any) -> tuple[Any, Any]:
        """Let the next iteration begin epoch `number`, by `chosen` blocks; return what is to be ended."""
        left = self.iterator, self.series
        self.next, self.pending, self.chosen = number, pending, chosen
        self.iterator = self.inner = self.series = self.plan = None
        return left

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("lock", "beside")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, lock=threading.RLock(), beside=weakref.WeakSet())


def end(left: tuple[Any, Any], by: str) -> None:
    """End an iterator and its series of epochs, for good: a loop that goes on raises ``PoolClosed``."""
    iterator, series = left
    if iterator is not None:
        iterator.break_off(f"{by} of its loader")
    if series is not None:
        series.close()
