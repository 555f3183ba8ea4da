"""What this process and those that it started use of the machine, by psutil and Linux's ``/proc``."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable

import psutil


def tree() -> list[int]:
    """Ids of this process and of all that it started.

    Those are its descendants, and what began after it in its session: a process may leave either, hardly both.
    """
    this, session = psutil.Process(), os.getsid(0)
    ids = {this.pid, *(child.pid for child in this.children(recursive=True))}
    for pid in set(psutil.pids()) - ids:
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if os.getsid(pid) == session and psutil.Process(pid).create_time() > this.create_time():
                ids.add(pid)
    return sorted(ids)


def footprint() -> dict[str, float]:
    """How many processes :func:`tree` has, their descriptors, their bytes (PSS, which counts a shared page once)."""
    found = []
    for pid in tree():
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            found.append((process.memory_full_info().pss, process.num_fds()))
    return {"processes": len(found), "pss": sum(one[0] for one in found), "descriptors": sum(one[1] for one in found)}


def private_bytes(pid: int) -> int:
    """Resident bytes in private mappings that no other process has mapped: what this process alone is the cause of.

    USS counts pages of shared mappings too, in the process that happens to be the only one to have touched them. A
    process that has ended has none.
    """
    try:
        maps = psutil.Process(pid).memory_maps(grouped=False)
    except psutil.NoSuchProcess:
        return 0
    return sum(one.private_clean + one.private_dirty for one in maps if one.perms.endswith("p"))


class CpuMeter:
    """Counts the user and system time of all processes of :func:`tree`, ended threads included, from now on.

    By each process's CPU clock, which counts nanoseconds; ``/proc`` has hundredths of a second, too coarse for an epoch
    of fifty milliseconds. What a process uses that ends before the reading is lost, so that pools must stay.
    """

    def __init__(self) -> None:
        self._before = _cpu_clocks(tree())

    def seconds(self) -> float:
        """The time since this was made."""
        own = _cpu_clocks([os.getpid()])  # before this process spends some on looking for the others
        now = {**_cpu_clocks(tree()), **own}
        return sum(clock - self._before.get(pid, 0.0) for pid, clock in now.items())


def _cpu_clocks(ids: Iterable[int]) -> dict[int, float]:
    """The CPU clock of each process that lives."""
    clocks = {}
    for pid in ids:
        with contextlib.suppress(OSError):
            clocks[pid] = time.clock_gettime(~pid << 3 | 2)  # clock_getcpuclockid(3) makes ids in this way on Linux
    return clocks


QUIET_SECONDS = 1.5
"""How long all processes of a variant must be quiet to be at rest."""

QUIET_SHARE = 0.05
"""The share of a CPU that they may use meanwhile."""


def come_to_rest(most: float) -> None:
    """Wait, so many seconds at most, until what the first epoch began in the background is done, in all processes."""
    deadline = time.perf_counter() + most
    quiet_since = time.perf_counter()
    while (now := time.perf_counter()) < min(deadline, quiet_since + QUIET_SECONDS):
        meter = CpuMeter()
        time.sleep(0.1)
        if meter.seconds() > QUIET_SHARE * (time.perf_counter() - now):
            quiet_since = time.perf_counter()
