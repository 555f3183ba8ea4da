"""Medians, ratios: pure functions of what was measured.

A reading takes a figure from an epoch. A ratio of two variants is the *median over the rounds of the ratio within a
round*: rounds are interleaved, so that a slow minute of the machine meets both sides of it and cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import TypeAlias

from benchmarks.outcome import Epoch, Outcome

Reading: TypeAlias = Callable[[Epoch], float]


def gigabytes_per_second(epoch: Epoch) -> float:
    """Delivered, over the epoch."""
    return epoch.bytes / 1e9 / epoch.seconds


def samples_per_second(epoch: Epoch) -> float:
    """Delivered, over the epoch."""
    return epoch.samples / epoch.seconds


def batches_per_second(epoch: Epoch) -> float:
    """Delivered, over the epoch."""
    return epoch.batches / epoch.seconds


def seconds(epoch: Epoch) -> float:
    """Of the whole epoch."""
    return epoch.seconds


def first_batch_seconds(epoch: Epoch) -> float:
    """Until the first batch."""
    return epoch.first_batch_seconds


def figure(name: str, scale: float = 1.0) -> Reading:
    """The reading of what a trial measured under that name, times a factor; not a number where it is missing."""
    return lambda epoch: epoch.figures.get(name, math.nan) * scale


def measured(outcome: Outcome) -> bool:
    """Whether there are rounds to read from."""
    return outcome.status == "measured" and bool(outcome.rounds)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and range.

    >>> spread([3.0, 1.0, 2.0])
    {'median': 2.0, 'min': 1.0, 'max': 3.0}
    """
    return {"median": median(values), "min": min(values), "max": max(values)}


def middle(reading: Reading, outcome: Outcome) -> float:
    """The median over the rounds."""
    return median(map(reading, outcome.rounds))


def ratio(reading: Reading, of: Outcome, to: Outcome) -> float | None:
    """How many times as much ``of`` reads as ``to``, or None where either has no rounds."""
    if not (measured(of) and measured(to)):
        return None
    pairs = zip(map(reading, of.rounds), map(reading, to.rounds), strict=False)
    return median(a / b if b else math.nan for a, b in pairs)
