"""The table of ``python -m benchmarks tuning``: ``workers="auto"`` beside fixed numbers of workers."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report.pages import table, without_paths
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
    parser = argparse.ArgumentParser(prog="python -m benchmarks tuning", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="of the names of loaders (default: all)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="default: %(default)s")
    parser.add_argument("--output", type=Path, help="folder for tuning.md and .json")
    choice = parser.parse_args(arguments)
    names = [name for name in WORKLOADS if not choice.parts or any(part in name for part in choice.parts)]
    if not names:
        parser.error(f"no name has {' or '.join(choice.parts)}; the names are: {'; '.join(WORKLOADS)}")
    found: dict[str, Runs] = {}
    for name in names:
        runs: dict[str, list[Any]] = {str(n): [] for n in (*WORKLOADS[name].numbers, AUTO)}
        for number in [*runs] * choice.rounds:
            print(f"tuning: {name}, {number}", file=sys.stderr, flush=True)
            command = [sys.executable, "-m", "benchmarks.tuning.program", name, number]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            runs[number].append(json.loads(done.stdout.splitlines()[-1]))
        found[name] = runs
    words = [word for word in arguments if word not in ("--output", str(choice.output))]
    text = page(without_paths(shlex.join(["python", "-m", "benchmarks", "tuning", *words])), found)
    print(text)
    if choice.output is not None:
        choice.output.mkdir(parents=True, exist_ok=True)
        (choice.output / "tuning.md").write_text(text, encoding="utf-8")
        (choice.output / "tuning.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


def page(command: str, found: Mapping[str, Runs]) -> str:
    """Return the page of some runs."""
    system = f"{len(os.sched_getaffinity(0))} CPUs, {platform.system()} {platform.machine()}"
    told = f"`{command}`, {date.today().isoformat()}: {system}, Python {platform.python_version()}."
    rows = [row(name, runs) for name, runs in found.items()]
    summary = (
        f'A loader with `workers="auto"` beside the best of several fixed numbers of workers: the median time of a '
        f"batch, over batches {TUNED} to {TUNED + MEASURED} of the first epoch."
    )
    title = '## tuning: workers="auto" and fixed numbers'
    return f"{title}\n\n{told}\n\n{summary}\n\n<!-- table -->\n\n{table(HEAD, rows)}\n"


def row(name: str, runs: Runs) -> list[str]:
    """Return the row of one workload: the rate of auto as a share of that of the best fixed number, and their steps."""
    seconds = {number: median(run["seconds"] for run in each) for number, each in runs.items()}
    best = min((number for number in runs if number != AUTO), key=lambda number: seconds[number])
    steps = {number: median(run["step"] for run in runs[number]) for number in (best, AUTO)}
    workers = sorted({run["workers"] for run in runs[AUTO]})
    return [
        name, best, f"{1e3 * seconds[best]:.3g}", f"{1e3 * seconds[AUTO]:.3g}", f"{seconds[best] / seconds[AUTO]:.2f}",
        f"{steps[AUTO] / steps[best]:.2f}", " or ".join(map(str, workers)),
    ]  # fmt: skip
