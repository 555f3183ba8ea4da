"""The accounting of an epoch: what became of each sample that was planned."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any, NamedTuple

import numpy as np

from ... import batch as batches
from ...errors import AccountingError

MAX_LISTED = 1000
"""How many batches that were retried are listed: those of storage that fails at times may be endless."""

COUNTS = ("planned", "delivered", "failed", "replaced")
"""The counts that a saved state has, beside the batches."""


class Counts(NamedTuple):
    """How far an epoch is. One object replaces another, so any thread sees the counts of one moment."""

    batches: int = 0  # that are settled: handed out, or lost as a whole
    planned: int = 0  # samples of these
    delivered: int = 0
    failed: int = 0  # samples that were left out because they could not be made
    replaced: int = 0  # samples among those handed out that stand in the place of others


TRANSPORTS = ("slots", "socket", "store", "message", "memory")
"""How a batch may come to the consumer."""


@dataclasses.dataclass(slots=True)
class Accounting:
    """Counts that must balance at the end of an epoch; kept by its runner.

    Samples are counted as planned, whatever the maps make of them.
    """

    counts: Counts = dataclasses.field(default_factory=Counts)
    errors: list[Any] = dataclasses.field(default_factory=list)  # of each sample that failed or was replaced
    retried: int = 0  # batches that failed at first and could be made at a later try
    retries: list[Any] = dataclasses.field(default_factory=list)  # the errors of the first of them
    transports: dict[str, int] = dataclasses.field(default_factory=lambda: dict.fromkeys(TRANSPORTS, 0))
    arrays: str = ""  # how the arrays of the source reached the workers
    failed_before: int = 0  # samples that failed or were replaced before the epoch was resumed: not in `errors`
    gap: bool = False  # whether a batch was lost that is not the last one
    _latest: dict[int, tuple[Counts, Counts]] = dataclasses.field(default_factory=dict)  # by thread: before, after

    @property
    def batches(self) -> int:
        return self.counts.batches

    @property
    def planned(self) -> int:
        return self.counts.planned

    @property
    def delivered(self) -> int:
        return self.counts.delivered

    @property
    def failed(self) -> int:
        return self.counts.failed

    @property
    def replaced(self) -> int:
        return self.counts.replaced

    def counted(self) -> tuple[int, dict[str, int]]:
        """Return what a saved state says of the accounting: the batches, the counts; from any thread."""
        batches, *counts = self.counts
        return batches, dict(zip(COUNTS, counts, strict=True))

    def carry(self, batches: int, counts: dict[str, int]) -> None:
        """Begin with the number of batches and the counts of an earlier run."""
        self.counts = Counts(batches, **{name: counts[name] for name in COUNTS})
        self.failed_before = counts["failed"] + counts["replaced"]

    def settle(self, number: int, planned: int, delivered: int, failed: int, transport: str, replaced: int = 0) -> None:
        """Enter what became of one batch."""
        before = self.counts
        if number != before.batches or delivered + failed != planned:
            raise AccountingError(
                f"batch {before.batches} of {planned} samples was to be handed out, but it is batch {number}, with "
                f"{delivered} samples and {failed} reported as failed; this is a bug of the library"
            )
        if transport:
            self.transports[transport] += 1
        after = Counts(
            number + 1,
            before.planned + planned,
            before.delivered + delivered,
            before.failed + failed,
            before.replaced + replaced,
        )
        self._latest[threading.get_ident()] = before, after
        self.counts = after

    def take_back(self, since: Counts) -> None:
        """Undo what this thread settled after `since`: a batch that did not reach the loop.

        If another thread has settled the next batch, there is a gap, and no state can say so.
        """
        before, after = self._latest.get(threading.get_ident(), (since, since))
        if after.batches > since.batches:
            if self.counts is after:
                self.counts = before
            elif self.counts.batches > after.batches:
                self.gap = True

    def note_retried(self, error: Any) -> None:
        """Enter that a batch could be made at a later try, at first with `error`."""
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
    """The accounting of batches of an epoch that were asked for by their numbers."""

    def settle(self, number: int, *counts: Any, **more: Any) -> None:
        super().settle(self.batches, *counts, **more)


def count_of(batch: Any) -> int:
    """Return how many samples a batch has; 0 where that cannot be told."""
    if type(batch) is tuple and batch and type(batch[0]) is np.ndarray and batch[0].shape:
        return len(batch[0])  # nearly all batches, and in less time
    try:
        return batches.length(tuple(batch) if type(batch) is list else batch)
    except TypeError:
        return 0
