"""Runs a loader with a number of workers or with ``auto``: ``python -m benchmarks.tuning.program NAME WORKERS``.

It prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import batchup_ng as bu
from benchmarks.bottlenecks.planted import BATCH, Computes, Jpegs, Sorts, Storage, Waits

TUNED, MEASURED = 50, 150
"""Batches after which the number is to be right; batches that are measured then."""


class Workload(NamedTuple):
    """A loader and its loop.

    Attributes:
        kind: The pool.
        source: Makes the source, of enough rows for all batches.
        loop: Makes the function that the loop calls with each batch.
        numbers: The fixed numbers of workers.
    """

    kind: str
    source: Callable[[int], Any]
    loop: Callable[[], Callable[[Any], Any]]
    numbers: tuple[int, ...] = (1, 2, 3, 4, 8)


def _mapped(make: Callable[[], Any]) -> Callable[[int], Any]:
    return lambda n: bu.ArrayDataSource([np.zeros((n, 10), np.float32)]).map(make(), on=0)


WORKLOADS = {
    "a map in NumPy, threads": Workload("threads", _mapped(lambda: Sorts(8)), lambda: Waits(2)),
    "a map in Python, processes": Workload("processes", _mapped(lambda: Computes(8)), lambda: Waits(4)),
    "storage that waits for 40 ms, threads": Workload(
        "threads", lambda n: bu.ArrayDataSource([Storage(n, 40.0)]), lambda: Waits(4), (1, 2, 4, 8, 12, 16)
    ),
    "a loop that waits for 12 ms, processes": Workload("processes", _mapped(lambda: Computes(2)), lambda: Waits(12)),
    "a loop that computes for 6 ms, processes": Workload(
        "processes", _mapped(lambda: Computes(5)), lambda: Computes(6)
    ),
    "JPEG files, threads": Workload("threads", lambda n: bu.ArrayDataSource([Jpegs(n)]), lambda: Waits(5)),
}


def main(name: str, workers: str) -> None:
    """Run a workload, and print the times of its batches after the first ones."""
    workload = WORKLOADS[name]
    loop, steps = workload.loop(), []
    source = workload.source(BATCH * (TUNED + MEASURED))
    number: Any = workers if workers == "auto" else int(workers)
    with bu.Loader(source, BATCH, shuffle=1, pool=workload.kind, workers=number) as loader:
        for count, batch in enumerate(loader):
            if count == TUNED:
                began = time.perf_counter()
            before = time.perf_counter()
            loop(batch)
            steps.append(time.perf_counter() - before)
        seconds = (time.perf_counter() - began) / MEASURED
        at_end = loader.settings()["workers"]
    print(json.dumps({"seconds": seconds, "step": float(np.mean(steps[TUNED:])), "workers": at_end}))


if __name__ == "__main__":
    main(*sys.argv[1:])
