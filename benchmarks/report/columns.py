"""Cells of a variant's row, and ratios: pure functions of the measurements.

A ratio of two variants is the *median over the rounds of the ratio within a round*. Rounds are interleaved: a slow
minute of the machine affects both sides and cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from benchmarks.records import Outcome, Reading


def number(value: float) -> str:
    """Return a value with three significant digits, without exponent; a dash for NaN.

    >>> number(1234.5), number(12.345), number(0.012345), number(0), number(math.nan)
    ('1,234', '12.3', '0.0123', '0', '–')
    """
    if math.isnan(value):
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    text = f"{value:#.3g}"
    return text if value and "e" not in text else f"{round(value, 6) + 0.0:.6f}".rstrip("0").rstrip(".")


def times(value: float) -> str:
    """Return a ratio as text; ``n/a`` for NaN."""
    return "n/a" if math.isnan(value) else f"{value:.2f}"


def middle(outcome: Outcome, reading: Reading) -> float:
    """Return the median over the rounds."""
    return median(map(reading, outcome.rounds))


def ratios(reading: Reading, of: Outcome, to: Outcome) -> list[float]:
    """Return the ratio of `of` to `to` for each round; empty if one of them has no rounds."""
    if not (of.told and to.told):
        return []
    return [a / b if b else math.nan for a, b in zip(map(reading, of.rounds), map(reading, to.rounds), strict=False)]


def ratio(reading: Reading, of: Outcome, to: Outcome | None) -> float:
    """Return the median of the ratios; NaN if there are none."""
    found = ratios(reading, of, to) if to else []
    return median(found) if found else math.nan


def median_cell(outcome: Outcome, reading: Reading) -> str:
    """Return the median over the rounds."""
    return number(middle(outcome, reading))


def range_cell(outcome: Outcome, reading: Reading) -> str:
    """Return the range over the rounds."""
    values = list(map(reading, outcome.rounds))
    return number(math.nan) if any(map(math.isnan, values)) else f"{number(min(values))} to {number(max(values))}"


def first_cell(outcome: Outcome, reading: Reading) -> str:
    """Return the reading of the first epoch."""
    return number(math.nan if outcome.first is None else reading(outcome.first))


def half_way_cell(outcome: Outcome, reading: Reading) -> str:
    """Return the reading after half of the epochs, when buffers have reached their full size."""
    return number(reading(outcome.rounds[len(outcome.rounds) // 2]))


def furthest_cell(outcome: Outcome, reading: Reading) -> str:
    """Return the largest difference of a later epoch from the middle one, up or down."""
    half_way, *later = map(reading, outcome.rounds[len(outcome.rounds) // 2 :])
    return number(max((value - half_way for value in later), key=abs, default=0.0))


def most_cell(outcome: Outcome, reading: Reading) -> str:
    """Return the largest reading of a round."""
    return number(max(map(reading, outcome.rounds)))


def note_cell(outcome: Outcome, reading: Reading) -> str:
    """Return the notes of that name, each once."""
    found = dict.fromkeys(epoch.notes.get(reading.name, "") for epoch in outcome.rounds)
    return "; or ".join(note.replace("|", "/") for note in found)


@dataclass(frozen=True)
class Column:
    """A heading, a figure of an epoch, and a function from a variant's epochs to its cell."""

    title: str
    reading: Reading
    cell: Callable[[Outcome, Reading], str] = median_cell


def with_range(title: str, reading: Reading) -> tuple[Column, Column]:
    """Return two columns: the median over the rounds, and their range."""
    return Column(title, reading), Column("range", reading, range_cell)
