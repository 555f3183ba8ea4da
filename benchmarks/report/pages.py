"""The page of a study, with all conditions of its figures; the same as JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import quantiles
from typing import Any

from tabulate import tabulate

from benchmarks.peers.base import BEFORE, OURS
from benchmarks.plan import Result, Study
from benchmarks.records import Outcome
from benchmarks.report.columns import middle, number, ratio, ratios, times

HOW_RATIOS = "(median over the rounds of the ratio within a round)"
_PATH = re.compile(r"(?<![\w/.:])(?:/[\w.+@-]+){2,}/?|[A-Za-z]:\\\S+")


def without_paths(text: str) -> str:
    """Return the text without file names.

    >>> without_paths("FileNotFoundError: '/some/where/a.jpg' at 3/4")
    "FileNotFoundError: '<path>' at 3/4"
    """
    return _PATH.sub("<path>", text)


def page(study: Study, setting: Mapping[str, Any], results: Sequence[Result]) -> str:
    """Return the report as a page of Markdown."""
    tables_of_all = study.tables or (_across if study.across else None)
    parts = [_heading(study, setting, results), *(tables_of_all(results) if tables_of_all else [])]
    for result in results:
        tables = [] if tables_of_all else [_table(result), _against(result)]
        body = [part for part in (_waves(result), *tables, _missing(result)) if part]
        several = len(results) > 1 and body
        parts += [f"### {result.part.title}\n\n{_amount(result)}." if several else "", *body]
    return "\n\n".join(part for part in [*parts, changes(results)] if part) + "\n"


def _heading(study: Study, setting: Mapping[str, Any], results: Sequence[Result]) -> str:
    libraries = ", ".join(f"{name} {version}" for name, version in setting["libraries"].items())
    data = f"{_amount(results[0])}, " if len(results) == 1 else ""
    told = (
        "`{command}`, {date}: " + data + "{rounds} rounds, {workers} workers, {cpus} CPUs, {system}, Python {python}; "
    ).format(**setting)
    quick = "\n\nTiny sizes (`--quick`): the figures mean nothing." if setting["quick"] else ""
    return f"## {study.title}\n\n{told}{libraries}.{quick}"


def _amount(result: Result) -> str:
    return f"{result.workload.samples:,} samples, batch {result.workload.batch_size:,}"


def _waves(result: Result) -> str:
    count = max((outcome.wave for outcome in result.outcomes), default=0) + 1
    lack = f"Measured in {count} waves, as memory does not hold all at once"
    return "" if count == 1 else f"{lack}; ratios across waves compare different minutes."


def _missing(result: Result) -> str:
    missing = [outcome for outcome in result.outcomes if outcome.status != "measured"]
    return "\n".join(f"- {outcome.name}: {outcome.status}, {without_paths(outcome.detail)}" for outcome in missing)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, with all columns but the first right-aligned; empty if there are no rows."""
    sides = ("left", *["right"] * (len(head) - 1))
    return tabulate(rows, head, tablefmt="pipe", disable_numparse=True, colalign=sides) if rows else ""


def _table(result: Result) -> str:
    """Return a table with a row for each measured variant."""
    columns = result.part.columns
    rows = [[name, *(column.cell(one, column.reading) for column in columns)] for name, one in result.told.items()]
    return table(["variant", *(column.title for column in columns)], rows)


def _against(result: Result) -> str:
    """Return the ratios of our variants to each other variant; empty if there is nothing to compare."""
    part, told = result.part, result.told.values()
    ours = [outcome for outcome in told if outcome.family == OURS]
    others = [outcome for outcome in told if outcome.family not in (OURS, BEFORE)]
    if not ours or not others:
        return ""
    rows = [[other.name, *(times(ratio(part.reading, our, other)) for our in ours)] for other in others]
    what = f"{part.unit} of ours, as a multiple of that of the others {HOW_RATIOS}:"
    return f"{what}\n\n" + table(["against", *(our.name for our in ours)], rows)


def _across(results: Sequence[Result]) -> list[str]:
    """Return a table of medians, then a table of ratios for each variant of ours, with a column for each part."""
    families = {name: outcome.family for result in results for name, outcome in result.told.items()}

    def matrix(names: Iterable[str], cell: Callable[[Result, Outcome], str]) -> str:
        rows = [[n, *(cell(each, each.told[n]) if n in each.told else "–" for each in results)] for n in names]
        return table(["variant", *(each.part.title for each in results)], rows)

    medians = matrix(families, lambda each, outcome: number(middle(outcome, each.part.reading)))
    parts = [f"{results[0].part.unit}, median over the rounds:", medians]
    for ours in [name for name, family in families.items() if family == OURS]:
        others = [name for name in families if name != ours]

        def multiple(each: Result, outcome: Outcome, ours: str = ours) -> str:
            return times(ratio(each.part.reading, each.told[ours], outcome) if ours in each.told else math.nan)

        parts += [f"How many times as much `{ours}` has {HOW_RATIOS}:", matrix(others, multiple)]
    return parts


def changes(results: Sequence[Result]) -> str:
    """Return how many times as good each variant of ours is as its counterpart of the other checkout, if there is any.

    Above 1 is better, also for figures where less is better. Next to the median is the middle half of the ratios within
    a round.
    """
    rows = []
    for result in results:
        part, told = result.part, result.told
        for name in [each for each in told if f"{each}@{BEFORE}" in told]:
            pair = told[f"{name}@{BEFORE}"], told[name]
            found = ratios(part.reading, *(pair if part.less_is_better else pair[::-1]))
            low, half, high = quantiles(found, n=4, method="inclusive") if len(found) > 1 else found * 3
            medians = [number(middle(one, part.reading)) for one in pair]
            rows.append([part.title, name, part.unit, *medians, f"{half:.3f}", f"{low:.3f} to {high:.3f}"])
    head = ["part", "variant", "unit", "before", "now", "times as good", "middle half of the rounds"]
    return f"Against the other checkout, within each round:\n\n{table(head, rows)}" if rows else ""


def case(result: Result) -> dict[str, Any]:
    """Return all measurements of a part for JSON, and as ``values`` the main figure of each round."""
    part, workload = result.part, result.workload
    variants = [
        {**asdict(one), "detail": without_paths(one.detail), "values": list(map(part.reading, one.rounds))}
        for one in result.outcomes
    ]
    names = ("name", "title", "trial", "unit", "less_is_better", "settings")
    sizes = {"samples": workload.samples, "batch_size": workload.batch_size}
    return {**{name: getattr(part, name) for name in names}, **sizes, "variants": variants}
