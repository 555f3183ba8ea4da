"""The table of ``python -m benchmarks tuning``: ``workers="auto"`` compared with fixed numbers of workers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.arguments import count
from benchmarks.own import OwnStudy
from benchmarks.report.pages import table
from benchmarks.tuning.program import MEASURED, TUNED, WORKLOADS

AUTO = "auto"
HEAD = (
    "loader", "best number", "its ms a batch", "auto, ms a batch", "rate, auto / best", "step, auto / best",
    "workers of auto",
)  # fmt: skip

Runs = Mapping[str, Sequence[Mapping[str, Any]]]
"""The runs of a workload by the number of workers: one a round."""


def main(arguments: Sequence[str]) -> int:
    """Run each number of each workload in a fresh process, in rounds that interleave them, and print the table."""
    study = OwnStudy("tuning", __doc__)
    study.add_parts()
    study.add("--rounds", type=count, default=5, metavar="N", help="default: %(default)s")
    choice = study.parse(arguments)
    found: dict[str, Runs] = {}
    for name in study.chosen(WORKLOADS):
        runs: dict[str, list[Any]] = {str(n): [] for n in (*WORKLOADS[name].numbers, AUTO)}
        for number in [*runs] * choice.rounds:
            study.say(name, number)
            command = [sys.executable, "-m", "benchmarks.tuning.program", name, number]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            runs[number].append(json.loads(done.stdout.splitlines()[-1]))
        found[name] = runs
    study.publish(page(study.line, found), found)
    return 0


def page(told: str, found: Mapping[str, Runs]) -> str:
    """Return the page of some runs, below the line of their conditions."""
    rows = [row(name, runs) for name, runs in found.items()]
    summary = (
        f'A loader with `workers="auto"` beside the best of several fixed numbers of workers: the median time of a '
        f"batch, over batches {TUNED} to {TUNED + MEASURED} of the first epoch."
    )
    title = '## tuning: workers="auto" and fixed numbers'
    return f"{title}\n\n{told}\n\n{summary}\n\n<!-- table -->\n\n{table(HEAD, rows)}\n"


def row(name: str, runs: Runs) -> list[str]:
    """Return the row of one workload: the rate of auto as a share of the best fixed rate, and their steps."""
    seconds = {number: median(run["seconds"] for run in each) for number, each in runs.items()}
    best = min((number for number in runs if number != AUTO), key=lambda number: seconds[number])
    steps = {number: median(run["step"] for run in runs[number]) for number in (best, AUTO)}
    workers = sorted({run["workers"] for run in runs[AUTO]})
    return [
        name, best, f"{1e3 * seconds[best]:.3g}", f"{1e3 * seconds[AUTO]:.3g}", f"{seconds[best] / seconds[AUTO]:.2f}",
        f"{steps[AUTO] / steps[best]:.2f}", " or ".join(map(str, workers)),
    ]  # fmt: skip
