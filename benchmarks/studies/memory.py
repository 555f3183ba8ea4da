"""Whether memory and descriptors stay where they are, epoch after epoch."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.case import Result
from benchmarks.outcome import Outcome
from benchmarks.peers import loaders
from benchmarks.report.readings import Reading, figure
from benchmarks.report.tables import Column, number, table_of
from benchmarks.studies.base import Part, Study

ROUNDS = 49
"""Epochs after the first: fifty in all."""
USUAL = ("ours-serial", "ours-threads", "ours-one-process", "ours-processes", "torch-workers", "torch-getitems")
MEGABYTES = 1e-6


def deviation(reading: Reading, outcome: Outcome) -> float:
    """The furthest that a later epoch is from the second, up or down."""
    second, *later = map(reading, outcome.rounds)
    return max((value - second for value in later), key=abs, default=0.0)


def drift(reading: Reading, outcome: Outcome) -> float:
    """The last epoch's less the second's."""
    return reading(outcome.rounds[-1]) - reading(outcome.rounds[0])


def tell(result: Result) -> list[str]:
    """What all processes held after the second epoch, and how far later epochs were from it."""
    columns = [_column("processes", figure("processes"), _second)]
    for title, name in (("RSS", "rss"), ("PSS", "pss"), ("USS", "uss")):
        reading = figure(name, MEGABYTES)
        columns += [_column(f"{title}, MB", reading, _second), _column("furthest from it", reading, deviation)]
    columns += [_column("last less second, PSS, MB", figure("pss", MEGABYTES), drift)]
    descriptors = figure("descriptors")
    columns += [_column("descriptors", descriptors, _second), _column("furthest from it", descriptors, deviation)]
    return [table_of(result.outcomes, columns)]


def _second(reading: Reading, outcome: Outcome) -> float:
    return reading(outcome.rounds[0])


def _column(title: str, reading: Reading, of: Callable[[Reading, Outcome], float]) -> Column:
    return Column(title, lambda outcome: number(of(reading, outcome)))


STUDY = Study(
    name="memory",
    title="memory: all processes, epoch after epoch",
    rounds=ROUNDS,
    parts=(
        Part(
            name="arrays",
            title="2,000 images in memory",
            kind="few-arrays",
            known=loaders("arrays"),
            usual=USUAL,
            trial="footprint",
            unit="MB (PSS)",
            reading=figure("pss", MEGABYTES),
            tell=tell,
        ),
    ),
)
