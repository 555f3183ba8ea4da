"""What was measured.

Plain records that the harness fills in and the report reads; times are seconds on the peer's own monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


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


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """All of one variant.

    Attributes:
        name: The variant.
        family: The library that it belongs to; ``ours`` for this one.
        baseline: Whether it is a hand-written loop that others are compared with.
        status: ``measured``, ``absent`` or ``failed``.
        detail: What is absent, or the last line of the error.
        first: The first epoch: with start-up, pool creation and the first touch of memory. None where each round has
            a process of its own.
        wave: Which variants shared the machine's memory with it; see the harness.
        rounds: The epochs that followed, one a round.
    """

    name: str
    family: str
    baseline: bool = False
    status: str = "measured"
    detail: str = ""
    wave: int = 0
    first: Epoch | None = None
    rounds: tuple[Epoch, ...] = field(default=())

    def add(self, epoch: Epoch) -> Outcome:
        """The same with one epoch more; the first one counts as the start-up."""
        if self.first is None:
            return replace(self, first=epoch)
        return replace(self, rounds=(*self.rounds, epoch))

    def repeat(self, epoch: Epoch) -> Outcome:
        """The same with one round more, in a process of its own, in which it was the first."""
        return replace(self, rounds=(*self.rounds, epoch))

    def failed(self, detail: str) -> Outcome:
        """The same, marked as failed; what was measured before stays for the record."""
        return replace(self, status="failed", detail=detail)
