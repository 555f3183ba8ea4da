"""What is compared, before any data are made, with how it is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.case import Case, Result
from benchmarks.peers import check_names, choose
from benchmarks.peers.base import Variant
from benchmarks.report.readings import Reading, samples_per_second
from benchmarks.workloads import Workload

REST = 30.0
"""Seconds that a variant may take at most to come to rest after its first epoch."""


def _as_made(workload: Workload) -> Workload:
    return workload


def _no_settings(quick: bool) -> Mapping[str, float]:
    return {}


def epochs_a_turn(quick: bool, *, count: int) -> Mapping[str, float]:
    """Settings of a trial whose turns have `count` epochs."""
    return {"epochs": min(count, 2) if quick else count}


def with_rows(workload: Workload, rows: int) -> Workload:
    """The same data in batches of that many rows."""
    return replace(workload, batch_size=rows)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One comparison of a study.

    Attributes:
        name: Short; unique in its study.
        title: For the page.
        kind: The workload, as ``data`` calls it.
        known: Who may take part.
        usual: Families or variants that take part where none are named; empty for all.
        adapt: Changes the workload for this part.
        settings: Gives the numbers that the trial wants, for tiny sizes or real ones; called just before it runs.
        trial: What a peer does when it is its turn.
        fresh: Whether each round starts a process of its own.
        unit: Of the figure that matters most.
        reading: Takes that figure from an epoch.
        tell: The tables.
    """

    name: str
    title: str
    kind: str
    known: tuple[Variant, ...]
    tell: Callable[[Result], list[str]]
    usual: tuple[str, ...] = ()
    adapt: Callable[[Workload], Workload] = _as_made
    settings: Callable[[bool], Mapping[str, float]] = _no_settings
    trial: str = "epochs"
    fresh: bool = False
    unit: str = "samples/s"
    reading: Reading = samples_per_second

    def variants(self, names: Sequence[str] | None) -> tuple[Variant, ...]:
        """Who takes part where these are named, or none."""
        wanted = self.usual if names is None else names
        return choose(self.known, wanted) if wanted else self.known

    def case(self, workload: Workload, names: Sequence[str] | None, *, quick: bool) -> Case:
        """The part with its data."""
        return Case(
            variants=self.variants(names),
            workload=self.adapt(workload),
            name=self.name,
            title=self.title,
            trial=self.trial,
            settings={**self.settings(quick), "rest": 0.0 if quick else REST},
            fresh=self.fresh,
            unit=self.unit,
            reading=self.reading,
        )


def _no_summary(results: Sequence[Result]) -> str:
    return ""


def _no_drawing(results: Sequence[Result]) -> dict[str, str]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Study:
    """What one command measures.

    Attributes:
        name: What the command calls it, and its files.
        title: Its page's.
        parts: Its comparisons, one after the other.
        rounds: How many there are where the command does not say.
        summary: What is said of all parts together.
        draw: Further files beside the page, by name.
    """

    name: str
    title: str
    parts: tuple[Part, ...]
    rounds: int = 5
    summary: Callable[[Sequence[Result]], str] = _no_summary
    draw: Callable[[Sequence[Result]], dict[str, str]] = _no_drawing

    def only(self, text: str | None) -> Study:
        """The study with those parts alone that a comma-separated list names; with all where there is none.

        Raises:
            ValueError: There is no name, or one is that of no part.
        """
        if text is None:
            return self
        names = [name.strip() for name in text.split(",") if name.strip()]
        choices = [part.name for part in self.parts]
        if not names or not set(choices) >= set(names):
            raise ValueError(f"parts must be among {', '.join(choices)}; got {text!r}")
        return replace(self, parts=tuple(part for part in self.parts if part.name in names))

    def names(self, text: str | None) -> list[str] | None:
        """The names in what ``--peers`` gave.

        Raises:
            ValueError: One of them may take part in nothing here.
        """
        known = [variant for part in self.parts for variant in part.known]
        return None if text is None else check_names(known, text)

    def variants(self, names: Sequence[str] | None) -> list[Variant]:
        """Who takes part in anything."""
        return list({variant.name: variant for part in self.parts for variant in part.variants(names)}.values())

    def tell(self, result: Result) -> list[str]:
        """The tables of one part."""
        return {part.name: part.tell for part in self.parts}[result.case.name](result)
