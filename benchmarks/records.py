"""Records of measurements: the harness fills them in, the report reads them.

Times are seconds on the peer's own monotonic clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """The result of one turn of a peer: one run over all samples, unless the trial defines a turn otherwise."""

    seconds: float  # from asking for the iterator to its end
    first_batch_seconds: float  # from asking for the iterator to its first batch
    batches: int
    samples: int
    bytes: int  # of the delivered arrays
    figures: dict[str, float] = field(default_factory=dict)  # of the trial, by name, in seconds and bytes
    notes: dict[str, str] = field(default_factory=dict)  # of the trial, in words


@dataclass(frozen=True)
class Reading:
    """A figure of an epoch: a field or one of the trial's figures, over another one, times a factor.

    It is NaN for an epoch without the figure.

    >>> epoch = Epoch(seconds=4.0, first_batch_seconds=0.5, batches=2, samples=128, bytes=6_000_000)
    >>> Reading("bytes", per="seconds", times=1e-6)(epoch), Reading("first_batch_seconds", times=1e3)(epoch)
    (1.5, 500.0)
    """

    name: str
    per: str = ""
    times: float = 1.0

    def __call__(self, epoch: Epoch) -> float:
        values = {**vars(epoch), **epoch.figures, "": 1.0}
        value: float = values.get(self.name, math.nan) * self.times / values[self.per]
        return value


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """All results of one variant."""

    name: str
    family: str
    status: str = "measured"  # or "absent", "failed"
    detail: str = ""  # the missing module, or the last line of the error
    wave: int = 0  # the variants of a wave share the machine's memory (see the harness)
    first: Epoch | None = None  # with start-up and the first touch of memory; None if each round has its own process
    rounds: tuple[Epoch, ...] = ()  # the later epochs

    def add(self, epoch: Epoch, *, fresh: bool) -> Outcome:
        """Return a copy with one more epoch. The first is the start-up, unless each round has a `fresh` process."""
        if self.first is None and not fresh:
            return replace(self, first=epoch)
        return replace(self, rounds=(*self.rounds, epoch))

    def failed(self, detail: str) -> Outcome:
        """Return a copy that is marked as failed and keeps the earlier epochs."""
        return replace(self, status="failed", detail=detail)

    @property
    def told(self) -> bool:
        """Whether there are rounds to read figures from."""
        return self.status == "measured" and bool(self.rounds)
