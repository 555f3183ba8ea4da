"""The cluster that the tests of this folder share, and what they may not leave behind on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

import batchup_ng as bu
from batchup_ng.work_pool.ray import dispatcher

from .local_cluster import cluster, started

PATIENCE = 240.0
"""Seconds in which what a test used must be gone, on a machine that may be busy."""

# A busy machine is no fault, and no lack of room; the tests of these limits set their own.
dispatcher.ROOM_TIMEOUT = dispatcher.START_TIMEOUT = 600.0
dispatcher.LET_GO = 3600.0


@pytest.fixture(scope="package")
def nodes() -> Iterator[Any]:
    """A cluster of two nodes with CPUs for several pools, and a head without."""
    pytest.importorskip("ray", reason="Ray is not installed")
    with cluster() as made:
        yield made


@pytest.fixture(scope="package")
def lone(nodes: Any) -> Iterator[bu.WorkerRayPool]:
    """A pool of one actor, for tests that do not end it."""
    with bu.WorkerRayPool(actors=1, num_cpus=0.5) as made:
        yield started(made)


@pytest.fixture(scope="package")
def four(nodes: Any) -> Iterator[bu.WorkerRayPool]:
    """A pool of actors on both nodes, for tests that end none of them. They leave room for others."""
    with bu.WorkerRayPool(actors=4, num_cpus=0.25) as made:
        yield started(made)


def actors() -> set[int]:
    """Return the processes of actors on this machine."""
    own = psutil.Process().children(recursive=True)
    return {process.pid for process in own if process.is_running() and "ray::Actor" in " ".join(_command(process))}


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def dispatchers() -> set[threading.Thread]:
    """Return the threads of pools."""
    return {thread for thread in threading.enumerate() if thread.name == "batchup_ng-ray"}


@pytest.fixture(autouse=True)
def leaves_nothing_behind(nodes: Any) -> Iterator[None]:
    """Fail a test after which an actor or a thread of a pool is left; Ray's own processes come and go as they like."""
    before, others = len(actors()), dispatchers()  # a pool that tests share may have others by then, and as many
    yield
    deadline = time.monotonic() + PATIENCE
    while len(left := actors()) > before or dispatchers() - others:
        assert time.monotonic() < deadline, f"left behind: {left}, {dispatchers() - others}"
        time.sleep(0.05)
