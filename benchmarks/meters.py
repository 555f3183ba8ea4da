"""The cost of the measurements of a loader: ``python -m benchmarks meters``.

Two loaders over the same source and pool, with ``measure=True`` and ``measure=False``, take turns by whole epochs in
one process: both see the same machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import batchup_ng as bu
from benchmarks.arguments import count
from benchmarks.bottlenecks.planted import Computes, Jpegs, Sorts
from benchmarks.own import OwnStudy
from benchmarks.report.pages import table

HEAD = ("loader", "pool", "a batch without, µs", "measured, µs more", "share", "median, µs more", "quartiles")


class Workload(NamedTuple):
    """A source and the number of its rows in a batch.

    Attributes:
        source: Makes the source.
        batch_size: Samples of a batch.
    """

    source: Callable[[], Any]
    batch_size: int


def _array(rows: int, columns: int) -> Any:
    return bu.ArrayDataSource([np.zeros((rows, columns), np.float32)])


def _mapped(batches: int, *maps: Any) -> Any:
    source = _array(4 * batches, 2)
    for each in maps:
        source = source.map(each, on=0)
    return source


def plus_1(x: np.ndarray) -> np.ndarray:
    """Return `x` plus one."""
    return x + 1


WORKLOADS = {
    "arrays, 32 bytes a batch": Workload(lambda: _array(8000, 2), 4),
    "arrays, 1 MB a batch": Workload(lambda: _array(12_800, 4096), 64),
    "a quick map": Workload(lambda: _mapped(2000, plus_1), 4),
    "three quick maps": Workload(lambda: _mapped(1000, plus_1, plus_1, plus_1), 4),
    "a map in Python, 2 ms": Workload(lambda: _mapped(100, Computes(2)), 4),
    "a map in NumPy, 2 ms": Workload(lambda: _mapped(100, Sorts(2)), 4),
    "JPEG files": Workload(lambda: bu.ArrayDataSource([Jpegs(800)]), 16),
}
POOLS: Mapping[str, Callable[[], Any]] = {
    "serial": bu.SerialPool,
    "threads": lambda: bu.WorkerThreadPool(2),
    "processes": lambda: bu.WorkerProcessPool(2),
}

Turns = Sequence[tuple[float, float]]
"""Seconds of a batch in each turn, with and without measurements."""


def main(arguments: Sequence[str]) -> int:
    """Run each workload by each pool, and print the table."""
    study = OwnStudy("meters", __doc__)
    study.add_parts()
    study.add("--rounds", type=count, default=41, metavar="N", help="default: %(default)s")
    choice = study.parse(arguments)
    found: dict[str, dict[str, Turns]] = {}
    for name in study.chosen(WORKLOADS):
        for kind in POOLS:
            study.say(name, kind)
            found.setdefault(name, {})[kind] = turns(WORKLOADS[name], kind, choice.rounds)
    study.publish(page(study.line, found), found)
    return 0


def turns(workload: Workload, kind: str, rounds: int) -> Turns:
    """Return the times of both loaders in each of so many rounds, after one epoch that is not counted."""
    source = workload.source()
    with POOLS[kind]() as pool:
        loaders = [bu.Loader(source, workload.batch_size, pool=pool, measure=measure) for measure in (True, False)]
        found = []
        for number in range(rounds + 1):
            order = loaders if number % 2 else loaders[::-1]
            seconds = {id(loader): _epoch(loader) for loader in order}
            found.append((seconds[id(loaders[0])], seconds[id(loaders[1])]))
        return found[1:]


def _epoch(loader: bu.Loader) -> float:
    began, batches = time.perf_counter(), 0
    for _ in loader:
        batches += 1
    return (time.perf_counter() - began) / batches


def page(told: str, found: Mapping[str, Mapping[str, Turns]]) -> str:
    """Return the page of some turns, below the line of their conditions."""
    rows = [row(name, kind, each) for name, of_pools in found.items() for kind, each in of_pools.items()]
    summary = (
        "The time of a batch with `measure=False`, and how much more it takes with measurements: the difference of the "
        "quickest turns with and without, and that as a share of the batch. The quickest turns are those that other "
        "programs, and the system's choice of a thread to run next, disturbed least. Beside them: the median of the "
        "differences of turns that followed each other, and its quartiles."
    )
    return f"## meters: the cost of measurements\n\n{told}\n\n{summary}\n\n<!-- table -->\n\n{table(HEAD, rows)}\n"


def row(name: str, kind: str, turns: Turns) -> list[str]:
    """Return the row of a workload by a pool."""
    without = statistics.median(off for _, off in turns)
    least = min(on for on, _ in turns) - min(off for _, off in turns)
    low, middle, high = (1e6 * value for value in statistics.quantiles([on - off for on, off in turns], n=4))
    microseconds = [f"{1e6 * without:.3g}", f"{1e6 * least:.1f}", f"{least / without:.1%}"]
    return [name, kind, *microseconds, f"{middle:.1f}", f"{low:.1f} to {high:.1f}"]
