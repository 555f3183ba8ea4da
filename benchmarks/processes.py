"""Memory, descriptors and CPU time of this process and its descendants, by psutil and Linux's ``/proc``."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable

import psutil


def tree() -> list[int]:
    """Return the ids of this process and of all processes that it started.

    These are its descendants, and processes that began after it in its session. A process may leave one of the two
    groups, but hardly both.
    """
    this, session = psutil.Process(), os.getsid(0)
    ids = {this.pid, *(child.pid for child in this.children(recursive=True))}
    for pid in set(psutil.pids()) - ids:
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if os.getsid(pid) == session and psutil.Process(pid).create_time() > this.create_time():
                ids.add(pid)
    return sorted(ids)


def footprint() -> dict[str, float]:
    """Return the number of processes of :func:`tree`, their descriptors and bytes (PSS: a shared page counts once)."""
    found = []
    for pid in tree():
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            found.append((process.memory_full_info().pss, process.num_fds()))
    return {"processes": len(found), "pss": sum(one[0] for one in found), "descriptors": sum(one[1] for one in found)}


def private_bytes(pid: int) -> int:
    """Return the resident bytes of a process that no other process maps, in private mappings only.

    USS would also count a page of a shared mapping if only one process has touched it. A process that has ended has 0
    bytes.
    """
    try:
        maps = psutil.Process(pid).memory_maps(grouped=False)
    except psutil.NoSuchProcess:
        return 0
    return sum(one.private_clean + one.private_dirty for one in maps if one.perms.endswith("p"))


class CpuMeter:
    """A meter of user and system time of all processes of :func:`tree`, including ended threads, from its creation on.

    It reads the CPU clock of each process, in nanoseconds. ``/proc`` has hundredths of a second, too coarse for an
    epoch of fifty milliseconds. The time of a process that ends before the reading is lost, so pools must stay.
    """

    def __init__(self) -> None:
        self._before = _cpu_clocks(tree())

    def seconds(self) -> float:
        """Return the CPU seconds since the meter was created."""
        own = _cpu_clocks([os.getpid()])  # before this process spends time on finding the others
        now = {**_cpu_clocks(tree()), **own}
        return sum(clock - self._before.get(pid, 0.0) for pid, clock in now.items())


def _cpu_clocks(ids: Iterable[int]) -> dict[int, float]:
    """Return the CPU clock of each living process."""
    clocks = {}
    for pid in ids:
        with contextlib.suppress(OSError):
            clocks[pid] = time.clock_gettime(~pid << 3 | 2)  # how clock_getcpuclockid(3) makes ids on Linux
    return clocks


QUIET_SECONDS = 1.5
"""Seconds for which all processes of a variant must be quiet to be at rest."""

QUIET_SHARE = 0.05
"""Share of a CPU that quiet processes may use."""


def come_to_rest(most: float) -> None:
    """Wait until the background work of the first epoch has ended in all processes, at most `most` seconds."""
    deadline = time.perf_counter() + most
    quiet_since = time.perf_counter()
    while (now := time.perf_counter()) < min(deadline, quiet_since + QUIET_SECONDS):
        meter = CpuMeter()
        time.sleep(0.1)
        if meter.seconds() > QUIET_SHARE * (time.perf_counter() - now):
            quiet_since = time.perf_counter()
