"""One comparison: several variants that do the same on the same data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.outcome import Outcome
from benchmarks.peers.base import Variant
from benchmarks.report.readings import Reading, samples_per_second
from benchmarks.workloads import Workload


@dataclass(frozen=True, kw_only=True)
class Case:
    """What to measure, with the data made.

    Attributes:
        variants: Who takes part, in the order of the tables.
        workload: The data.
        name: Short; unique in its study.
        title: For the page.
        trial: What a peer does when it is its turn: a name in ``trials``.
        settings: Numbers that the trial wants.
        fresh: Whether each round starts a process of its own, for what happens once in a program's life.
        unit: Of the figure that matters most.
        reading: Takes that figure from an epoch.
    """

    variants: tuple[Variant, ...]
    workload: Workload
    name: str = ""
    title: str = ""
    trial: str = "epochs"
    settings: Mapping[str, float] = field(default_factory=dict)
    fresh: bool = False
    unit: str = "samples/s"
    reading: Reading = samples_per_second


@dataclass(frozen=True, kw_only=True)
class Result:
    """A case with what was measured.

    Attributes:
        case: What was to be measured.
        outcomes: One a variant.
    """

    case: Case
    outcomes: tuple[Outcome, ...]
