"""Markdown tables of variants: one row each, columns by choice."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.outcome import Epoch, Outcome
from benchmarks.report.readings import Reading, measured, middle, ratio, spread

HOW_RATIOS = "(median over the rounds of the ratio within a round)"


@dataclass(frozen=True)
class Column:
    """A heading with what stands below it.

    Attributes:
        title: The heading.
        cell: The text of one variant's cell.
    """

    title: str
    cell: Callable[[Outcome], str]


def median_column(title: str, reading: Reading) -> Column:
    """The median over the rounds."""
    return Column(title, lambda outcome: number(middle(reading, outcome)))


def median_and_range(title: str, reading: Reading) -> tuple[Column, Column]:
    """The median over the rounds, then the least and the most of them."""
    return median_column(title, reading), Column("range", lambda outcome: _range(reading, outcome))


def _range(reading: Reading, outcome: Outcome) -> str:
    values = spread([reading(epoch) for epoch in outcome.rounds])
    if math.isnan(values["median"]):
        return number(math.nan)
    return f"{number(values['min'])} to {number(values['max'])}"


def first_column(title: str, reading: Reading) -> Column:
    """The first epoch's."""
    return Column(title, lambda outcome: number(reading(_first(outcome))))


def _first(outcome: Outcome) -> Epoch:
    return outcome.first or outcome.rounds[0]


def times_columns(reading: Reading, outcomes: Iterable[Outcome]) -> list[Column]:
    """How many times as much as each of the baselines that were measured."""
    return [_times_column(reading, outcome) for outcome in outcomes if outcome.baseline and measured(outcome)]


def _times_column(reading: Reading, baseline: Outcome) -> Column:
    return Column(f"times {baseline.name}", lambda outcome: times(ratio(reading, outcome, baseline)))


def table_of(outcomes: Iterable[Outcome], columns: Sequence[Column]) -> str:
    """The table of the variants that were measured; empty where none was."""
    rows = [[outcome.name, *(column.cell(outcome) for column in columns)] for outcome in outcomes if measured(outcome)]
    return table(["variant", *(column.title for column in columns)], rows) if rows else ""


def against(reading: Reading, outcomes: Sequence[Outcome], words: str = "How many times as fast ours are") -> str:
    """A table of how many times as much ours read as each other variant; empty where there is nothing to compare.

    Args:
        reading: What is compared.
        outcomes: All variants.
        words: What the table tells, to stand above it.
    """
    ours = [outcome for outcome in outcomes if outcome.family == "ours" and measured(outcome)]
    others = [outcome for outcome in outcomes if outcome.family != "ours" and measured(outcome)]
    if not ours or not others:
        return ""
    rows = [[other.name, *(times(ratio(reading, our, other)) for our in ours)] for other in others]
    return f"{words} {HOW_RATIOS}:\n\n" + table(["against", *(our.name for our in ours)], rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, all columns but the first set to the right."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


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
