"""What is to be measured, and what was: plain records that the harness fills in and the report reads.

Times are seconds on the peer's own monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """What a peer did in one turn: one run over all samples, or what its trial makes of a turn.

    Attributes:
        seconds: From asking for the iterator to its end.
        first_batch_seconds: From asking for the iterator to its first batch.
        batches: Batches delivered.
        samples: Samples delivered.
        bytes: Bytes of the delivered arrays.
        figures: What the trial measured besides, by name; in seconds and bytes.
    """

    seconds: float
    first_batch_seconds: float
    batches: int
    samples: int
    bytes: int
    figures: dict[str, float] = field(default_factory=dict)


Reading: TypeAlias = Callable[[Epoch], float]
"""Takes a figure from an epoch."""


def rate(what: str, scale: float = 1.0) -> Reading:
    """The reading of what was delivered a second: ``bytes``, ``samples`` or ``batches``, times a factor."""
    return lambda epoch: getattr(epoch, what) * scale / epoch.seconds


def first_batch(scale: float = 1.0) -> Reading:
    """The reading of the time to the first batch."""
    return lambda epoch: epoch.first_batch_seconds * scale


def figure(name: str, scale: float = 1.0) -> Reading:
    """The reading of what a trial measured under that name, times a factor; not a number where it is missing."""
    return lambda epoch: epoch.figures.get(name, math.nan) * scale


def per_batch(name: str, scale: float = 1.0) -> Reading:
    """The same, divided by the batches."""
    return lambda epoch: epoch.figures.get(name, math.nan) * scale / epoch.batches


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """All of one variant.

    Attributes:
        name: The variant.
        family: The library that it belongs to.
        status: ``measured``, ``absent`` or ``failed``.
        detail: What is absent, or the last line of the error.
        wave: Which variants shared the machine's memory with it; see the harness.
        first: The first epoch: with start-up, pool creation and the first touch of memory. None where each round has
            a process of its own.
        rounds: The epochs that followed, one a round.
    """

    name: str
    family: str
    status: str = "measured"
    detail: str = ""
    wave: int = 0
    first: Epoch | None = None
    rounds: tuple[Epoch, ...] = ()

    def add(self, epoch: Epoch, *, fresh: bool) -> Outcome:
        """The same with one epoch more; in a process that is not `fresh` the first one counts as the start-up."""
        if self.first is None and not fresh:
            return replace(self, first=epoch)
        return replace(self, rounds=(*self.rounds, epoch))

    def failed(self, detail: str) -> Outcome:
        """The same, marked as failed; what was measured before stays for the record."""
        return replace(self, status="failed", detail=detail)

    @property
    def told(self) -> bool:
        """Whether there are rounds to read from."""
        return self.status == "measured" and bool(self.rounds)
