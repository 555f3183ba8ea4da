"""How many modules of the package a batch visits, once an epoch is under way: so few that a reader can follow it."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.interpreter import FREE_THREADED
from batchup_ng.memory.budget import BUDGET, Living
from batchup_ng.meters import batch_times, stopwatch
from benchmarks import journeys

pytestmark = pytest.mark.skipif(FREE_THREADED, reason="without its lock, an interpreter takes others instead")

ROOT = os.path.dirname(bu.__file__) + os.sep
SOURCE = bu.ArrayDataSource([np.arange(40_000).reshape(-1, 2)])
WARM = 60
"""Batches after which all memory was made."""


def noted(seen: set[str], root: str = ROOT) -> Callable[[Any, str, Any], None]:
    """Return a function for ``sys.setprofile`` that notes the modules of the package that run."""

    def profile(frame: Any, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(root):
            seen.add(name[len(root) : -3].replace("/", "."))

    return profile


@pytest.fixture
def seen() -> Iterator[set[str]]:
    """The modules that run on threads that are started from now on, and on this one while it is profiled."""
    found: set[str] = set()
    threading.setprofile(noted(found))
    yield found
    threading.setprofile(None)  # type: ignore[arg-type]  # which ends it


def visited(batches: Any, seen: set[str]) -> set[str]:
    """Return the modules that run while a few batches are made and handed out."""
    with batches:
        for _ in range(WARM):
            next(batches)
        seen.clear()
        sys.setprofile(noted(seen))
        try:
            for _ in range(8):
                next(batches)
        finally:
            sys.setprofile(None)
        return set(seen)


@pytest.fixture(autouse=True)
def nothing_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a slow batch, which a busy machine makes of any, more is measured. Now and then `top` is looked for."""
    monkeypatch.setattr(batch_times, "look", None)
    monkeypatch.setattr(batch_times, "SLOW", math.inf)
    monkeypatch.setattr(stopwatch, "SLOW", math.inf)


CONSUMER = {
    "data_source.epoch.accounting", "data_source.epoch.iterator", "sampling.plans.epoch", "sampling.plans.rows",
    "work_pool.epoch_runner", "work_pool.prefetch_buffer",
}  # fmt: skip
"""What makes the order of a batch, keeps it ahead and hands it out, with any pool."""

METERS = {"meters.batch_times", "meters.stopwatch"}
"""What measures how a pool makes a batch."""

READING = {
    "accessors.base", "memory.paging", "batch_layout", "graph.arrays", "data_source.epoch.reading"
}  # fmt: skip
"""What reads the rows of arrays."""

if sys.version_info < (3, 11):  # in which a profiler refers to what a function holds, so that arrays are copied
    READING |= {"batch", "memory.leases"}


def test_the_modules_of_a_batch_of_the_direct_loop(seen: set[str]) -> None:
    own = {"data_source.epoch.direct", "data_source.epoch.runner"}
    assert visited(SOURCE.batch_iterator(64, shuffle=7, epoch=0), seen) <= CONSUMER | READING | own


def test_the_modules_of_a_batch_of_a_serial_pool(seen: set[str]) -> None:
    with bu.SerialPool() as pool:
        batches = pool.parallel_data_source(SOURCE).batch_iterator(64, shuffle=7, epoch=0)
        assert visited(batches, seen) <= CONSUMER | READING | METERS | {"work_pool.serial", "work_pool.task"}


def test_the_modules_of_a_batch_of_threads(seen: set[str]) -> None:
    own = {"memory.leases", "work_pool.fair_queue", "work_pool.task", "work_pool.threads"}
    with bu.WorkerThreadPool(1) as pool:
        batches = pool.parallel_data_source(SOURCE).batch_iterator(64, shuffle=7, epoch=0)
        assert visited(batches, seen) <= CONSUMER | READING | METERS | own


IN_PROCESSES = 17
"""Modules that a batch of worker processes visits in the consumer's process, on all its threads."""


def test_the_modules_of_a_batch_of_processes(seen: set[str]) -> None:
    with bu.WorkerProcessPool(1) as pool:
        batches = pool.parallel_data_source(SOURCE).batch_iterator(64, shuffle=7, epoch=0)
        found = visited(batches, seen)
    others = {name for name in found if not name.startswith("work_pool.processes.")}
    assert others <= CONSUMER | METERS | {"memory.leases", "signals", "work_pool.fair_queue", "work_pool.task"}
    assert len(found) <= IN_PROCESSES, sorted(found)


IN_A_WORKER = 21
"""Modules that a batch visits in a worker process."""


def tell(x: np.ndarray) -> Any:
    """A map that hands out the modules that ran since it was called before."""
    if not hasattr(sys, "_seen"):
        sys._seen = set()  # type: ignore[attr-defined]
        sys.setprofile(noted(sys._seen))  # type: ignore[attr-defined]
    names = ",".join(sorted(sys._seen))  # type: ignore[attr-defined]
    sys._seen.clear()  # type: ignore[attr-defined]
    return x, np.array([names] * len(x))


def test_the_modules_of_a_batch_in_a_worker() -> None:
    with bu.WorkerProcessPool(1) as pool:
        batches = pool.parallel_data_source(SOURCE.map(tell), 2).batch_iterator(64, shuffle=7, epoch=0)
        with batches:
            said = [next(batches)[1][0] for _ in range(WARM)]
    found = set(said[-1].split(",")) - {"meters.cpu"}  # after a slow batch alone
    assert "work_pool.processes.worker" in found
    assert len(found) <= IN_A_WORKER, sorted(found)


JOURNEYS = {"iter": (38, 99), "a later next": (12, 26), "the first next after": (41, 130)}
"""Modules that run in a journey, and how often the module changes, at most. Python 3.10 copies arrays under a
profiler."""


def test_journeys_do_not_get_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BUDGET, "_holders", Living())  # ``iter`` would ask the accessors of other tests, too
    source = journeys.images(tmp_path)
    begun, later = journeys.begun(source, 7)
    for walk, most in zip((begun, later, journeys.resumed(SOURCE)), JOURNEYS.values(), strict=True):
        assert len(walk.modules) <= most[0], walk
        assert walk.changes <= most[1], walk
