"""Descriptions of studies: their comparisons, before any data are made, and the columns of their tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.peers import choose, known
from benchmarks.peers.base import OURS, Variant
from benchmarks.records import Outcome, Reading
from benchmarks.report.columns import Column
from benchmarks.workloads import class_of
from benchmarks.workloads.base import Workload

REST = 30.0
"""Most seconds that a variant may take to come to rest after its first epoch."""

QUICK = {"epochs": 2, "loops": 20, "steps": 2, "warm": 1, "width": 4}
"""Settings of a quick run, which replace the settings of a part."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One comparison of a study."""

    name: str  # unique in its study
    title: str  # on the page
    kind: str  # name of the workload
    unit: str  # of the main figure
    reading: Reading  # the main figure
    columns: Sequence[Column]
    less_is_better: bool = False
    usual: tuple[str, ...] = ()  # variants that take part if none are named; empty for all usual ones
    changes: Mapping[str, Any] = field(default_factory=dict)  # fields of the workload with other values in this part
    needs: tuple[str, ...] = ()  # modules; if one is missing, all variants are absent
    trial: str = "epochs"  # what a peer runs in its turn
    settings: Mapping[str, float] = field(default_factory=dict)  # of the trial
    fresh: bool = False  # whether each round starts a new process, to measure events that happen once in a program

    def variants(self, names: Sequence[str] | None, against: str = "") -> tuple[Variant, ...]:
        """Return the variants in `names`, or the usual ones; after each of ours, its counterpart from `against`."""
        able = [replace(variant, needs=(*variant.needs, *self.needs)) for variant in known(self.kind)]
        chosen = choose(able, self.usual, names)
        pairs = [(v, v.taken_from(against)) if against and v.family == OURS else (v,) for v in chosen]
        return tuple(variant for pair in pairs for variant in pair)

    def adapt(self, workload: Workload) -> Workload:
        """Return the workload as this part needs it."""
        return class_of(self.kind).prepare(replace(workload, **self.changes))

    def sized(self, *, quick: bool) -> Part:
        """Return the part with the settings of a quick or a full run."""
        settings = {name: QUICK.get(name, value) if quick else value for name, value in self.settings.items()}
        return replace(self, settings={**settings, "rest": 0.0 if quick else REST})


@dataclass(frozen=True, kw_only=True)
class Study:
    """The measurements of one command."""

    name: str  # on the command line, and of the files
    title: str  # of the page
    parts: tuple[Part, ...]
    rounds: int = 5
    across: bool = False  # whether one table has a column for each part, drawn as curves, instead of a table for each
    tables: Callable[[Sequence[Result]], list[str]] | None = None  # makes the tables, instead of one for each part
    lack: Callable[[], str] = str  # says why the machine cannot run the study, unless quickly; empty if it can


@dataclass(frozen=True, kw_only=True)
class Result:
    """A part with its outcomes, one per variant."""

    part: Part
    workload: Workload
    outcomes: tuple[Outcome, ...]

    @property
    def told(self) -> dict[str, Outcome]:
        """The measured variants, by name."""
        return {outcome.name: outcome for outcome in self.outcomes if outcome.told}
