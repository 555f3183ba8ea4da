"""The ``arrays`` workload in batches of 49 kB to 67 MB.

What varies is the number of rows of a batch, on the same data: a sample stays at 49,152 bytes, as it does for
somebody who tries out batch sizes. Varying the bytes of a sample instead would give every batch 64 samples, hence, for
loaders that fetch a sample at a time, a cost that no small batch could escape. So 64 kB is bracketed by one row and
two; 1, 10 and 64 MB are the nearest numbers of rows above, in binary megabytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.case import Result
from benchmarks.outcome import Outcome
from benchmarks.peers import loaders
from benchmarks.report.readings import gigabytes_per_second, measured, middle, ratio
from benchmarks.report.tables import HOW_RATIOS, number, table, times
from benchmarks.studies.base import Part, Study, epochs_a_turn, with_rows
from benchmarks.studies.sizes_plot import Curve, human_bytes, plot

ROWS = (1, 2, 21, 64, 213, 1365)
MANY = 21
"""Rows of a batch from which on an epoch is so short that a turn has several."""
USUAL = ("plain", "ours-serial", "ours-threads", "ours-processes", "torch-workers", "torch-getitems")


def _told_in_summary(result: Result) -> list[str]:
    return []


def _part(rows: int) -> Part:
    return Part(
        name=f"{rows} rows",
        title=f"{rows:,} row{'s' if rows > 1 else ''}",
        kind="arrays",
        known=loaders("arrays"),
        usual=USUAL,
        adapt=partial(with_rows, rows=rows),
        settings=partial(epochs_a_turn, count=1 if rows < MANY else 3),
        unit="GB/s",
        reading=gigabytes_per_second,
        tell=_told_in_summary,
    )


def batch_bytes(result: Result) -> float:
    """Bytes of a full batch, labels included, by what was delivered; not a number where nothing was."""
    batch_size = result.case.workload.batch_size
    for outcome in filter(measured, result.outcomes):
        epoch = outcome.rounds[0]
        return epoch.bytes / epoch.samples * min(batch_size, epoch.samples)
    return math.nan


def summary(results: Sequence[Result]) -> str:
    """The rates by size, then how ours compare."""
    parts = [
        "GB/s delivered, median over the rounds, by what a batch holds:",
        _matrix(results, lambda result, outcome: number(middle(gigabytes_per_second, outcome))),
    ]
    for name in ("ours-processes", "ours-threads"):
        if any(_find(result, name) for result in results):
            parts += [
                f"How many times as fast `{name}` is {HOW_RATIOS}:",
                _matrix(results, partial(_ratio_cell, name), skip=name),
            ]
    return "\n\n".join(parts)


def _matrix(results: Sequence[Result], cell: Callable[[Result, Outcome], str], skip: str = "") -> str:
    """A row for each variant, a column for each size."""
    names = dict.fromkeys(outcome.name for result in results for outcome in result.outcomes)
    rows = []
    for name in names:
        found = [(result, _find(result, name)) for result in results]
        cells = [cell(result, outcome) if outcome else "–" for result, outcome in found]
        rows.append([name, *cells])
    return table(["variant", *map(_size, results)], [row for row in rows if row[0] != skip])


def _find(result: Result, name: str) -> Outcome | None:
    """The outcome of that variant, where it was measured."""
    return next((outcome for outcome in result.outcomes if outcome.name == name and measured(outcome)), None)


def _ratio_cell(name: str, result: Result, outcome: Outcome) -> str:
    found = _find(result, name)
    return times(ratio(gigabytes_per_second, found, outcome) if found else None)


def _size(result: Result) -> str:
    size = batch_bytes(result)
    return result.case.title if math.isnan(size) else f"{result.case.title}, {human_bytes(size)}"


def draw(results: Sequence[Result]) -> dict[str, str]:
    """The plot of the rates by size."""
    names = dict.fromkeys(outcome.name for result in results for outcome in result.outcomes)
    curves = []
    for name in names:
        found = [(batch_bytes(result), outcome) for result in results if (outcome := _find(result, name))]
        if found:
            curves.append(Curve(name, tuple((size, middle(gigabytes_per_second, one)) for size, one in found)))
    return {"sizes.svg": plot(curves)} if curves else {}


STUDY = Study(
    name="sizes",
    title="sizes: the arrays workload by the bytes of a batch",
    parts=tuple(map(_part, ROWS)),
    summary=summary,
    draw=draw,
)
