"""The parts that every page has: heading, cases, what is missing; the same as JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.case import Case, Result
from benchmarks.outcome import Outcome
from benchmarks.report.readings import measured, ratio, spread

_PATH = re.compile(r"(?<![\w/.:])(?:/[\w.+@-]+){2,}/?|[A-Za-z]:\\\S+")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Under what the figures were taken; names no host and no folder.

    Attributes:
        study: What was run.
        title: Its page's.
        command: The command line.
        date: Day of the run, ISO.
        cpus: CPUs that the process may use.
        system: Operating system and machine type.
        python: Python's version.
        libraries: Version of each library that took part.
        workers: Threads or processes of the variants that have any.
        rounds: Turns of each variant.
        quick: Whether the sizes were tiny, so that figures mean nothing.
    """

    study: str
    title: str
    command: str
    date: str
    cpus: int
    system: str
    python: str
    libraries: dict[str, str]
    workers: int
    rounds: int
    quick: bool


def without_paths(text: str) -> str:
    """The text with file names cut out.

    >>> without_paths("FileNotFoundError: '/some/where/a.jpg' at 3/4")
    "FileNotFoundError: '<path>' at 3/4"
    """
    return _PATH.sub("<path>", text)


def page(setting: Setting, results: Sequence[Result], tell: Callable[[Result], list[str]], summary: str = "") -> str:
    """The report as a page.

    Args:
        setting: For the heading.
        results: One a case.
        tell: The tables of one case.
        summary: What is said of all cases together, above them.
    """
    parts = [heading(setting, results), summary]
    for result in results:
        body = [part for part in (_waves(result.outcomes), *tell(result), _missing(result.outcomes)) if part]
        parts += [_subheading(result.case) if body and len(results) > 1 else "", *body]
    return "\n\n".join(part for part in parts if part) + "\n"


def heading(setting: Setting, results: Sequence[Result]) -> str:
    """The title, with everything that the figures depend on."""
    libraries = ", ".join(f"{name} {version}" for name, version in setting.libraries.items())
    data = f"{_amount(results[0].case)}, " if len(results) == 1 and results[0].case.workload.samples else ""
    rounds, workers = _counted(setting.rounds, "round"), _counted(setting.workers, "worker")
    lines = [
        f"## {setting.title}",
        "",
        f"`{setting.command}`, {setting.date}: {data}{rounds}, {workers}, {setting.cpus} CPUs, "
        f"{setting.system}, Python {setting.python}; {libraries}.",
    ]
    if setting.quick:
        lines += ["", "Tiny sizes (`--quick`): the figures mean nothing."]
    return "\n".join(lines)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _subheading(case: Case) -> str:
    return f"### {case.title}" + (f"\n\n{_amount(case)}." if case.workload.samples else "")


def _amount(case: Case) -> str:
    return f"{case.workload.samples:,} samples, batch {case.workload.batch_size:,}"


def _waves(outcomes: Sequence[Outcome]) -> str:
    count = max((outcome.wave for outcome in outcomes), default=0) + 1
    if count == 1:
        return ""
    return f"For want of memory measured in {count} waves; ratios across waves compare different minutes."


def _missing(outcomes: Sequence[Outcome]) -> str:
    lines = [
        f"- {outcome.name}: {outcome.status}, {without_paths(outcome.detail)}"
        for outcome in outcomes
        if outcome.status != "measured"
    ]
    return "\n".join(lines)


def to_json(setting: Setting, results: Sequence[Result]) -> dict[str, Any]:
    """Everything that was measured, with the figure that matters most and its ratios."""
    return {"setting": asdict(setting), "cases": [_case_json(result) for result in results]}


def _case_json(result: Result) -> dict[str, Any]:
    case = result.case
    return {
        "name": case.name,
        "trial": case.trial,
        "settings": dict(case.settings),
        "samples": case.workload.samples,
        "batch_size": case.workload.batch_size,
        "unit": case.unit,
        "variants": [_outcome_json(outcome, result) for outcome in result.outcomes],
    }


def _outcome_json(outcome: Outcome, result: Result) -> dict[str, Any]:
    fields = {**asdict(outcome), "detail": without_paths(outcome.detail)}
    reading = result.case.reading
    if measured(outcome):
        fields["value"] = spread([reading(epoch) for epoch in outcome.rounds])
        fields["times_as_much_as"] = {
            other.name: value
            for other in result.outcomes
            if other is not outcome and (value := ratio(reading, outcome, other)) is not None
        }
    return fields
