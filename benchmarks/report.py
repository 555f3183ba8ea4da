"""Medians, ratios, tables: pure functions of what was measured.

A rate is an epoch's amount over its seconds. A ratio of two variants is the *median over the rounds of the ratio
within a round*: rounds are interleaved, so that a slow minute of the machine meets both sides of it and cancels.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.outcome import Epoch, Outcome

UNITS = {"arrays": "GB/s", "images": "images/s", "python": "samples/s"}
TITLES = {
    "arrays": "arrays: shuffled batches of uint8 images in RAM",
    "images": "images: JPEG files decoded to 224x224 RGB",
    "python": "python: pure-Python work on each sample",
}
_PATH = re.compile(r"(?<![\w/.:])(?:/[\w.+@-]+){2,}/?|[A-Za-z]:\\\S+")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Under what the figures were taken; names no host and no folder.

    Attributes:
        kind: The workload.
        command: The command line.
        date: Day of the run, ISO.
        cpus: CPUs that the process may use.
        system: Operating system and machine type.
        python: Python's version.
        libraries: Version of each library that took part.
        samples: Samples of an epoch.
        batch_size: Samples of a batch.
        workers: Threads or processes of the variants that have any.
        quick: Whether the sizes were tiny, so that figures mean nothing.
    """

    kind: str
    command: str
    date: str
    cpus: int
    system: str
    python: str
    libraries: dict[str, str]
    samples: int
    batch_size: int
    workers: int
    quick: bool


def rate(kind: str, epoch: Epoch) -> float:
    """The epoch's rate in the workload's unit."""
    return (epoch.bytes / 1e9 if kind == "arrays" else epoch.samples) / epoch.seconds


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and range.

    >>> spread([3.0, 1.0, 2.0])
    {'median': 2.0, 'min': 1.0, 'max': 3.0}
    """
    return {"median": median(values), "min": min(values), "max": max(values)}


def ratio(kind: str, of: Outcome, to: Outcome) -> float | None:
    """How many times as fast ``of`` is as ``to``, or None where either has no steady state."""
    if not (_measured(of) and _measured(to)):
        return None
    return median(rate(kind, a) / rate(kind, b) for a, b in zip(of.rounds, to.rounds, strict=False))


def without_paths(text: str) -> str:
    """The text with file names cut out.

    >>> without_paths("FileNotFoundError: '/some/where/a.jpg' at 3/4")
    "FileNotFoundError: '<path>' at 3/4"
    """
    return _PATH.sub("<path>", text)


def to_json(setting: Setting, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Everything that was measured, with what follows from it."""
    kind = setting.kind
    return {
        "setting": asdict(setting),
        "unit": UNITS[kind],
        "variants": [_variant_json(kind, outcome, outcomes) for outcome in outcomes],
    }


def _variant_json(kind: str, outcome: Outcome, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    fields = asdict(outcome)
    fields["detail"] = without_paths(outcome.detail)
    if _measured(outcome):
        fields["rate"] = spread([rate(kind, epoch) for epoch in outcome.rounds])
        fields["batches_per_second"] = spread([epoch.batches / epoch.seconds for epoch in outcome.rounds])
        fields["first_batch_seconds"] = spread([epoch.first_batch_seconds for epoch in outcome.rounds])
        fields["times_as_fast_as"] = {
            other.name: value
            for other in outcomes
            if other is not outcome and (value := ratio(kind, outcome, other)) is not None
        }
    return fields


def to_markdown(setting: Setting, outcomes: Sequence[Outcome]) -> str:
    """The report as a page: setting, figures, ratios of ours, what is missing."""
    kind = setting.kind
    parts = [
        _heading(setting),
        _waves(outcomes),
        _figures(kind, outcomes),
        _ours(kind, outcomes),
        _missing(outcomes),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _heading(setting: Setting) -> str:
    libraries = ", ".join(f"{name} {version}" for name, version in setting.libraries.items())
    lines = [
        f"## {TITLES[setting.kind]}",
        "",
        f"`{setting.command}`, {setting.date}: {setting.samples:,} samples, batch {setting.batch_size}, "
        f"{setting.workers} workers, {setting.cpus} CPUs, {setting.system}, Python {setting.python}; {libraries}.",
    ]
    if setting.quick:
        lines += ["", "Tiny sizes (`--quick`): the figures mean nothing."]
    return "\n".join(lines)


def _waves(outcomes: Sequence[Outcome]) -> str:
    count = max((outcome.wave for outcome in outcomes), default=0) + 1
    if count == 1:
        return ""
    return f"For want of memory measured in {count} waves; ratios across waves compare different minutes."


def _figures(kind: str, outcomes: Sequence[Outcome]) -> str:
    measured = [outcome for outcome in outcomes if _measured(outcome)]
    if not measured:
        return ""
    baselines = [outcome for outcome in measured if outcome.baseline]
    unit = UNITS[kind]
    head = ["variant", f"{unit}, median", "range", "batches/s", "first epoch, s", "first batch, ms", "steady, s"]
    rows = [_figure_row(kind, outcome, baselines) for outcome in measured]
    return _table(head + [f"times {baseline.name}" for baseline in baselines], rows)


def _figure_row(kind: str, outcome: Outcome, baselines: Sequence[Outcome]) -> list[str]:
    assert outcome.first is not None
    rates = spread([rate(kind, epoch) for epoch in outcome.rounds])
    return [
        outcome.name,
        number(rates["median"]),
        f"{number(rates['min'])} to {number(rates['max'])}",
        number(median(epoch.batches / epoch.seconds for epoch in outcome.rounds)),
        number(outcome.first.seconds),
        number(outcome.first.first_batch_seconds * 1000),
        number(median(epoch.seconds for epoch in outcome.rounds)),
        *(_times(ratio(kind, outcome, baseline)) for baseline in baselines),
    ]


def _ours(kind: str, outcomes: Sequence[Outcome]) -> str:
    ours = [outcome for outcome in outcomes if outcome.family == "ours" and _measured(outcome)]
    others = [outcome for outcome in outcomes if outcome.family != "ours" and _measured(outcome)]
    if not ours or not others:
        return ""
    rows = [[other.name, *(_times(ratio(kind, our, other)) for our in ours)] for other in others]
    title = "How many times as fast ours are (median over the rounds of the ratio within a round):"
    return f"{title}\n\n" + _table(["against", *(our.name for our in ours)], rows)


def _missing(outcomes: Sequence[Outcome]) -> str:
    lines = [
        f"- {outcome.name}: {outcome.status}, {without_paths(outcome.detail)}"
        for outcome in outcomes
        if outcome.status != "measured"
    ]
    return "\n".join(lines)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


def number(value: float) -> str:
    """Three significant digits, without exponent.

    >>> number(1234.5), number(12.345), number(0.012345)
    ('1,234', '12.3', '0.0123')
    """
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:#.3g}"


def _times(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f}"


def _measured(outcome: Outcome) -> bool:
    return outcome.status == "measured" and bool(outcome.rounds)
