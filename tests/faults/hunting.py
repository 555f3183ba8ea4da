"""Finds the worker processes of a pool and does things to them.

It asks the system, not the pool: what a pool believes is what is under test.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import psutil

from batchup_ng.work_pool.processes import fork_server


def worker_pids(kind: str) -> list[int]:
    """Return the pids of all workers of this program: children of the fork server, or of this process itself."""
    found = psutil.Process().children()
    if kind == "forkserver":
        found = [worker for server in found for worker in _children(server)]
    others = [server._process.pid for server in fork_server._servers]  # children of this process, but no workers
    return sorted(process.pid for process in found if process.pid not in others and _lives(process))


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.Error:
        return []


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return _lives(psutil.Process(pid))
    except psutil.Error:
        return False


def wait_for(condition: Callable[[], Any], what: str, seconds: float = 120.0) -> Any:
    """Return what `condition` returns once it is true; an AssertionError naming `what` if it is not in time."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {seconds:.1f} s in vain for {what}"
        time.sleep(0.002)
    return value


def all_workers(kind: str, n: int) -> list[int]:
    """Return the pids of the workers once there are `n`."""
    return wait_for(lambda: len(pids := worker_pids(kind)) == n and pids, f"{n} workers")


def send(pid: int, number: int = signal.SIGKILL) -> bool:
    """Send a signal to a process; return whether it was still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def kill_one(kind: str, rng: random.Random) -> int | None:
    """Kill a random worker; return its pid, None if there was none."""
    pids = worker_pids(kind)
    if not pids:
        return None
    pid = rng.choice(pids)
    return pid if send(pid) else None


def stop(pid: int) -> bool:
    """Stop a process and wait until it stands; return whether it does."""
    if not send(pid, signal.SIGSTOP):
        return False
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if is_stopped(pid):
            return True
        if not is_alive(pid):
            break
    return False


def is_stopped(pid: int) -> bool:
    """Return whether a process stands still."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False
