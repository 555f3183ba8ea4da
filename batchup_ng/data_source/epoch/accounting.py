"""The accounting of an epoch: the outcome of each planned sample."""

from __future__ import annotations

import dataclasses
import threading
from operator import itemgetter
from time import monotonic
from typing import Any

import numpy as np

from ... import batch as nests
from ...errors import AccountingError, StallWarning
from ...interpreter import alone
from ...warn import warn_consumer

MAX_LISTED = 1000
"""Maximum number of retried batches listed. Unreliable storage may cause any number of them."""

COUNTS = ("planned", "delivered", "failed", "replaced")
"""The counts in a saved state, apart from the number of batches."""

Counts = tuple[int, int, int, int, int]
"""The progress of an epoch: the number of recorded batches (handed out, or lost as a whole), then the numbers of their
samples that were planned, delivered, left out because they could not be made, and delivered in place of others."""

NOTHING_LEFT_SECONDS = 30.0
"""Seconds after which a warning says that batches are made, and none has a sample left."""

NO_TRANSPORTS = dict.fromkeys(("slots", "socket", "store", "message", "memory"), 0)
"""The number of batches by each way to the consumer, before the first."""


@dataclasses.dataclass(slots=True)
class Accounting:
    """Counts that must balance at the end of an epoch. The runner keeps them.

    Samples are counted as planned, even if maps return more or fewer.
    """

    counts: Counts = (0, 0, 0, 0, 0)  # replaced as a whole, so any thread sees the counts of one moment
    errors: list[Any] = dataclasses.field(default_factory=list)  # one for each sample that failed or was replaced
    retried: int = 0  # batches that failed at first and succeeded at a later attempt
    retries: list[Any] = dataclasses.field(default_factory=list)  # the errors of the first MAX_LISTED of them
    transports: dict[str, int] = dataclasses.field(default_factory=NO_TRANSPORTS.copy)
    arrays: str = ""  # transport of the source's arrays to the workers: see BatchIterator.stats
    failed_before: int = 0  # samples that failed or were replaced before the state was saved: not in `errors`
    gap: bool = False  # whether a batch before the last may be lost
    _by: int = 0  # the thread that recorded the last batch,
    _before: Counts = (0, 0, 0, 0, 0)  # and the counts before the batches that it recorded without another thread's
    _lock: Any = dataclasses.field(default_factory=threading.RLock, repr=False, compare=False)  # held to change counts
    _empty_since: tuple[float, int] | None = None  # time and number of the first of the latest batches with no samples
    _warned_of_nothing: bool = False

    @property
    def batches(self) -> int:
        return self.counts[0]

    @property
    def planned(self) -> int:
        return self.counts[1]

    @property
    def delivered(self) -> int:
        return self.counts[2]

    @property
    def failed(self) -> int:
        return self.counts[3]

    @property
    def replaced(self) -> int:
        return self.counts[4]

    def counted(self) -> tuple[int, dict[str, int]]:
        """Return the entries of a saved state: the number of batches and the counts. Any thread may call this."""
        batches, *counts = self.counts
        return batches, dict(zip(COUNTS, counts, strict=True))

    def carry(self, batches: int, counts: dict[str, int]) -> None:
        """Start from the number of batches and the counts of an earlier run."""
        planned, delivered, failed, replaced = (counts[name] for name in COUNTS)
        self.counts = batches, planned, delivered, failed, replaced
        self.failed_before = counts["failed"] + counts["replaced"]

    @alone("_lock")
    def record(self, number: int, planned: int, delivered: int, failed: int, transport: str, replaced: int = 0) -> None:
        """Record the outcome of one batch."""
        before = self.counts
        batches, of_planned, of_delivered, of_failed, of_replaced = before
        if number != batches or delivered + failed != planned:
            raise AccountingError(
                f"batch {batches} of {planned} samples was to be handed out, but it is batch {number}, with "
                f"{delivered} samples and {failed} reported as failed; this is a bug of the library"
            )
        if transport:
            self.transports[transport] += 1
            self._empty_since = None
        else:
            self._warn_of_nothing_left(batches)
        thread = threading.get_ident()
        if thread != self._by:
            self._before, self._by = before, thread
        self.counts = (
            batches + 1, of_planned + planned, of_delivered + delivered, of_failed + failed, of_replaced + replaced
        )  # fmt: skip

    def _warn_of_nothing_left(self, number: int) -> None:
        """Warn, once an epoch, if none of the batches of the last half minute was handed out."""
        if self._empty_since is None:
            self._empty_since = monotonic(), number
            return
        since, first = self._empty_since
        if monotonic() - since > NOTHING_LEFT_SECONDS and not self._warned_of_nothing:
            self._warned_of_nothing = True
            warn_consumer(
                f"no sample was left of the {number + 1 - first} batches from batch {first} on, for "
                f"{NOTHING_LEFT_SECONDS:.0f} s; a lazy filter keeps none of them: look at its predicate, and whether "
                f"the source ever ends",
                StallWarning,
            )

    @alone("_lock")
    def take_back(self, since: Counts) -> None:
        """Undo what this thread recorded after `since`: it did not reach the loop.

        One request may record several batches: those that a lazy filter leaves empty, then the one that is handed out.
        If another thread was the last to record a batch, this thread's batch may be a gap before it. No state can
        express such a gap.
        """
        if self.counts[0] > since[0]:
            if self._by == threading.get_ident():
                self.counts = max(since, self._before, key=itemgetter(0))
            else:
                self.gap = True

    def note_retried(self, error: Any) -> None:
        """Record that a batch failed with `error` and succeeded at a later attempt."""
        self.retried += 1
        if len(self.retries) < MAX_LISTED:
            self.retries.append(error)

    def balance(self, n_batches: float) -> None:
        """Check the accounting at the end of an epoch of `n_batches` batches."""
        if n_batches != self.batches:
            raise AccountingError(
                f"{n_batches} batches were planned for this epoch and {self.batches} were accounted for; this is a "
                f"bug of the library"
            )
        if self.planned != self.delivered + self.failed:
            raise AccountingError(
                f"{self.planned} samples were planned for this epoch, {self.delivered} delivered and {self.failed} "
                f"reported as failed; this is a bug of the library"
            )


class OutOfOrder(Accounting):
    """The accounting of batches that are requested by number."""

    def record(self, number: int, *counts: Any, **more: Any) -> None:
        super().record(self.batches, *counts, **more)


def count_of(batch: Any) -> int:
    """Return the number of samples in a batch, or 0 if it is not known."""
    if type(batch) is tuple and batch and type(batch[0]) is np.ndarray and batch[0].shape:
        return len(batch[0])  # a shortcut for nearly all batches
    try:
        return nests.length(tuple(batch) if type(batch) is list else batch)
    except TypeError:
        return 0
