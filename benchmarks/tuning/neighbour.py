"""How ``workers="auto"`` follows another program that comes and goes: ``python -m benchmarks neighbour``.

The loop waits for 12 ms on each batch, and a batch takes 16 ms of Python, by worker processes. So two workers are
enough while the machine is theirs. Then another program runs Python on each CPU for a while, and workers get a part of
the CPUs only. Each number of workers runs in a process of its own.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

import batchup_ng as bu
from batchup_ng.work_pool.base import worker_count
from benchmarks.arguments import count, positive
from benchmarks.bottlenecks.planted import BATCH, Computes, Waits
from benchmarks.own import OwnStudy
from benchmarks.report.pages import table

AUTO, NUMBERS = "auto", ("1", "2", "4", "8")
PHASES = ("alone", "beside another program", "alone again")
MAP_MS, STEP_MS, SECONDS = 16.0, 12.0, 12.0

REACTS = 5 / 12
"""Share of a phase, 5 s of 12, after which the number is to be right."""

HEAD = (
    "phase", "best number", "its ms a batch", "auto, ms a batch", "rate, auto / best", "workers of auto",
    "s to the first change",
)  # fmt: skip

Runs = Mapping[str, Sequence[Sequence[Mapping[str, Any]]]]
"""The phases of each round, by the number of workers."""


def main(arguments: Sequence[str]) -> int:
    """Run each number in a fresh process, in rounds that interleave them, and print the table."""
    study = OwnStudy("neighbour", __doc__)
    study.add("--rounds", type=count, default=3, metavar="N", help="default: %(default)s")
    study.add("--seconds", type=positive, default=SECONDS, metavar="S", help="of a phase (default: %(default)s)")
    choice = study.parse(arguments)
    runs: dict[str, list[Any]] = {number: [] for number in (*NUMBERS, AUTO)}
    for number in [*runs] * choice.rounds:
        study.say(number)
        command = [sys.executable, "-m", __name__, number, str(choice.seconds)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        runs[number].append(json.loads(done.stdout.splitlines()[-1]))
    study.publish(page(study.line, runs), runs)
    return 0


def page(told: str, runs: Runs) -> str:
    """Return the page of some runs, below the line of their conditions."""
    rows = [row(place, runs) for place in range(len(PHASES))]
    summary = (
        f'A loader with `workers="auto"` beside the best of several fixed numbers of workers, while a program on each '
        f"CPU comes and goes. The time of a batch is the mean of a phase without its first {REACTS:.0%}, which are "
        f"{REACTS * SECONDS:g} s of {SECONDS:g}, and of these means the median over the rounds. The last column has "
        "the rounds in which the number changed in the phase."
    )
    title = '## neighbour: workers="auto" and another program'
    return f"{title}\n\n{told}\n\n{summary}\n\n<!-- table -->\n\n{table(HEAD, rows)}\n"


def row(place: int, runs: Runs) -> list[str]:
    """Return the row of a phase."""
    seconds = {number: median(phases[place]["seconds"] for phases in each) for number, each in runs.items()}
    best = min((number for number in runs if number != AUTO), key=lambda number: seconds[number])
    auto = [phases[place] for phases in runs[AUTO]]
    changes = [each["changed"] for each in auto if each["changed"] is not None]
    workers = sorted({each["workers"] for each in auto})
    return [
        PHASES[place], best, f"{1e3 * seconds[best]:.3g}", f"{1e3 * seconds[AUTO]:.3g}",
        f"{seconds[best] / seconds[AUTO]:.2f}", " or ".join(map(str, workers)),
        f"{min(changes):.1f} to {max(changes):.1f}" if changes else "",
    ]  # fmt: skip


@contextlib.contextmanager
def another_program(most: float) -> Iterator[None]:
    """Run Python on each CPU until the end of the block, but at most so many seconds if this program is killed."""
    code = f"import time\nend = time.monotonic() + {most}\nwhile time.monotonic() < end: pass"
    others = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(worker_count(None))]
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()


def program(number: str, seconds: float) -> None:
    """Run a loader through all phases, and print what each showed."""
    source = bu.ArrayDataSource([np.zeros((100 * BATCH, 10), np.float32)]).map(Computes(MAP_MS), on=0)
    step, workers = Waits(STEP_MS), AUTO if number == AUTO else int(number)
    with bu.Loader(source, BATCH, shuffle=1, pool="processes", workers=workers) as loader:
        batches = iter(loader.epochs(None))
        next(batches)  # starts the workers
        found = []
        for place in range(len(PHASES)):
            with another_program(2 * seconds + 60) if place == 1 else contextlib.nullcontext():
                found.append(phase(loader, batches, step, seconds))
    print(json.dumps(found))


def phase(loader: bu.Loader, batches: Iterator[Any], step: Waits, seconds: float) -> dict[str, Any]:
    """Take batches for so many seconds, and return what they showed."""
    began = before = time.perf_counter()
    times, changed, workers = [], None, loader.settings()["workers"]
    while before < began + seconds:
        step(next(batches))
        now = time.perf_counter()
        if now >= began + REACTS * seconds:
            times.append(now - before)
        if changed is None and loader.settings()["workers"] != workers:
            changed = now - began
        before = now
    return {"seconds": float(np.mean(times)), "workers": loader.settings()["workers"], "changed": changed}


if __name__ == "__main__":
    program(sys.argv[1], float(sys.argv[2]))
