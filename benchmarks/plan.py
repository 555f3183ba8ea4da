"""What a study compares, before any data are made, and what its tables show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.peers import check_names, choose, known
from benchmarks.peers.base import OURS, Variant
from benchmarks.records import Outcome, Reading
from benchmarks.report.columns import Column
from benchmarks.workloads.base import Workload

REST = 30.0
"""Seconds that a variant may take at most to come to rest after its first epoch."""

QUICK = {"epochs": 2, "early": 50, "batches": 60, "loops": 20, "steps": 2, "warm": 1, "width": 4}
"""Settings of a quick run, instead of those that a part has."""


def unchanged(workload: Workload) -> Workload:
    """The workload as it was made."""
    return workload


@dataclass(frozen=True, kw_only=True)
class Part:
    """One comparison of a study.

    Attributes:
        name: Short; unique in its study.
        title: For the page.
        kind: The workload.
        unit: Of the figure that matters most.
        reading: Takes that figure from an epoch.
        less_is_better: Of that figure.
        columns: What the table shows.
        usual: Variants that take part where none are named; empty for all usual ones.
        adapt: Changes the workload for this part.
        needs: Modules without which all variants are absent.
        trial: What a peer does when it is its turn.
        settings: Numbers that the trial wants.
        fresh: Whether each round starts a process of its own, for what happens once in a program's life.
    """

    name: str
    title: str
    kind: str
    unit: str
    reading: Reading
    columns: Sequence[Column]
    less_is_better: bool = False
    usual: tuple[str, ...] = ()
    adapt: Callable[[Workload], Workload] = unchanged
    needs: tuple[str, ...] = ()
    trial: str = "epochs"
    settings: Mapping[str, float] = field(default_factory=dict)
    fresh: bool = False

    def variants(self, names: Sequence[str] | None, against: str = "") -> tuple[Variant, ...]:
        """Who takes part where these are named, or none; ours once more, each right after, from another checkout."""
        able = [replace(variant, needs=(*variant.needs, *self.needs)) for variant in known(self.kind)]
        chosen = choose(able, self.usual, names)
        pairs = [(v, v.taken_from(against)) if against and v.family == OURS else (v,) for v in chosen]
        return tuple(variant for pair in pairs for variant in pair)

    def sized(self, *, quick: bool) -> Part:
        """The part with what a run of that length gives the trial."""
        settings = {name: QUICK.get(name, value) if quick else value for name, value in self.settings.items()}
        return replace(self, settings={**settings, "rest": 0.0 if quick else REST})


@dataclass(frozen=True, kw_only=True)
class Study:
    """What one command measures.

    Attributes:
        name: What the command calls it, and its files.
        title: Its page's.
        parts: Its comparisons, one after the other.
        rounds: How many there are where the command does not say.
        across: Whether one table has a column for each part, drawn as curves, instead of a table for each part.
        tables: Makes the tables, instead of one for each part.
        lack: Says what the machine lacks for it; empty if nothing. A quick run does without.
    """

    name: str
    title: str
    parts: tuple[Part, ...]
    rounds: int = 5
    across: bool = False
    tables: Callable[[Sequence[Result]], list[str]] | None = None
    lack: Callable[[], str] = str


@dataclass(frozen=True, kw_only=True)
class Result:
    """A part with what was measured, one outcome a variant."""

    part: Part
    workload: Workload
    outcomes: tuple[Outcome, ...]


def part_names(studies: Sequence[Study], text: str | None) -> list[str] | None:
    """The names in what ``--parts`` gave; ValueError if one is that of no part."""
    choices = [part.name for study in studies for part in study.parts]
    return None if text is None else check_names("parts", choices, text)


def peer_names(studies: Sequence[Study], text: str | None) -> list[str] | None:
    """The names in what ``--peers`` gave; ValueError if one may take part in nothing."""
    variants = [variant for study in studies for part in study.parts for variant in known(part.kind)]
    choices = [*(variant.family for variant in variants), *(variant.name for variant in variants)]
    return None if text is None else check_names("peers", choices, text)
