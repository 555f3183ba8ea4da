"""Cells of a variant's row, and ratios: pure functions of what was measured.

A ratio of two variants is the *median over the rounds of the ratio within a round*: rounds are interleaved, so that a
slow minute of the machine meets both sides of it and cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from benchmarks.records import Outcome, Reading


def number(value: float) -> str:
    """Three significant digits, without exponent; a dash for what is not a number.

    >>> number(1234.5), number(12.345), number(0.012345), number(0), number(math.nan)
    ('1,234', '12.3', '0.0123', '0', '–')
    """
    if math.isnan(value):
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    text = f"{value:#.3g}"
    return text if value and "e" not in text else f"{round(value, 6) + 0.0:.6f}".rstrip("0").rstrip(".")


def times(value: float | None) -> str:
    """A ratio; ``n/a`` where there is none."""
    return "n/a" if value is None or math.isnan(value) else f"{value:.2f}"


def middle(outcome: Outcome, reading: Reading) -> float:
    """The median over the rounds."""
    return median(map(reading, outcome.rounds))


def ratios(reading: Reading, of: Outcome, to: Outcome) -> list[float]:
    """How many times as much `of` reads as `to`, round by round; empty where either has no rounds."""
    if not (of.told and to.told):
        return []
    return [a / b if b else math.nan for a, b in zip(map(reading, of.rounds), map(reading, to.rounds), strict=False)]


def ratio(reading: Reading, of: Outcome, to: Outcome) -> float | None:
    """The median of the ratios, or None where there are none."""
    return median(found) if (found := ratios(reading, of, to)) else None


def median_cell(outcome: Outcome, reading: Reading) -> str:
    """The median over the rounds."""
    return number(middle(outcome, reading))


def range_cell(outcome: Outcome, reading: Reading) -> str:
    """The least and the most of the rounds."""
    values = list(map(reading, outcome.rounds))
    return number(math.nan) if any(map(math.isnan, values)) else f"{number(min(values))} to {number(max(values))}"


def first_cell(outcome: Outcome, reading: Reading) -> str:
    """The first epoch's."""
    return number(math.nan if outcome.first is None else reading(outcome.first))


@dataclass(frozen=True)
class Column:
    """A heading, what is read from an epoch, and how a variant's epochs become its cell."""

    title: str
    reading: Reading
    cell: Callable[[Outcome, Reading], str] = median_cell


def with_range(title: str, reading: Reading) -> tuple[Column, Column]:
    """The median over the rounds, then the least and the most of them."""
    return Column(title, reading), Column("range", reading, range_cell)
