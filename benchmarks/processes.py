"""What this process and those that it started use of the machine.

Read from Linux's ``/proc``, through psutil where it reads the same. psutil is imported on use, since only some
benchmarks need it.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_MAPPING = re.compile(r"[0-9a-f]+-[0-9a-f]+ (\S{4}) ")
_KILOBYTES = re.compile(r"(\w+): +(\d+) kB")


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Memory and descriptors of several processes together.

    Attributes:
        rss: Bytes resident, a page that two of them share counted twice.
        pss: Bytes resident, a shared page counted once.
        uss: Bytes that no other process has mapped.
        descriptors: Open file descriptors.
        processes: How many processes there are.
    """

    rss: int
    pss: int
    uss: int
    descriptors: int
    processes: int


def tree() -> list[int]:
    """Ids of this process and of all that it started.

    Those are its descendants, and what began after it in its session: a process may leave either, hardly both.
    """
    import psutil

    this, session = psutil.Process(), os.getsid(0)
    ids = {this.pid, *(child.pid for child in this.children(recursive=True))}
    for pid in set(psutil.pids()) - ids:
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if os.getsid(pid) == session and psutil.Process(pid).create_time() > this.create_time():
                ids.add(pid)
    return sorted(ids)


def footprint() -> Footprint:
    """The footprint of :func:`tree`."""
    import psutil

    rss = pss = uss = descriptors = processes = 0
    for pid in tree():
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            memory = process.memory_full_info()
            descriptors += process.num_fds()
            rss, pss, uss = rss + memory.rss, pss + memory.pss, uss + memory.uss
            processes += 1
    return Footprint(rss=rss, pss=pss, uss=uss, descriptors=descriptors, processes=processes)


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


QUIET_SECONDS = 1.5
"""How long all processes of a variant must be quiet to be at rest."""

QUIET_SHARE = 0.05
"""The share of a CPU that they may use meanwhile."""


def come_to_rest(most: float = 30.0) -> None:
    """Wait, so many seconds at most, until what the first epoch began in the background is done, in all processes."""
    deadline = time.perf_counter() + most
    quiet_since = time.perf_counter()
    while (now := time.perf_counter()) < min(deadline, quiet_since + QUIET_SECONDS):
        meter = CpuMeter()
        time.sleep(0.1)
        if meter.seconds() > QUIET_SHARE * (time.perf_counter() - now):
            quiet_since = time.perf_counter()


def resident_bytes() -> int:
    """Resident bytes of this process."""
    return _status("VmRSS")


def peak_bytes() -> int:
    """The most that were ever resident at once, since :func:`forget_peak` if that was called."""
    return _status("VmHWM")


def forget_peak() -> None:
    """Let the peak of this process begin anew from what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


def _status(name: str) -> int:
    """An entry of ``/proc/self/status``, which counts in kB, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def _cpu_clocks(ids: Iterable[int]) -> dict[int, float]:
    """The CPU clock of each process that lives."""
    clocks = {}
    for pid in ids:
        with contextlib.suppress(OSError):
            clocks[pid] = time.clock_gettime(~pid << 3 | 2)  # clock_getcpuclockid(3) makes ids in this way on Linux
    return clocks


def unique_bytes(pid: int) -> int:
    """Resident bytes that no other process has mapped (USS), of shared mappings too."""
    import psutil

    unique: int = psutil.Process(pid).memory_full_info().uss
    return unique


def private_bytes(pid: int) -> int:
    """Resident bytes in private mappings that no other process has mapped: what this process alone is the cause of.

    Pages of a shared mapping (a file's, or of memory that was shared on purpose) exist once however many have them
    mapped, but count towards USS in whoever happens to be the only one that has touched them.
    """
    return _private_bytes(Path(f"/proc/{pid}/smaps").read_text())


def _private_bytes(smaps: str) -> int:
    """The sum of the private pages of private mappings in the text of ``/proc/PID/smaps``.

    >>> _private_bytes('''7f00-7f10 rw-p 0 00:00 0
    ... Private_Dirty:         4 kB
    ... 7f10-7f20 r--s 0 00:01 7 data.npy
    ... Private_Clean:       100 kB
    ... ''')
    4096
    """
    total = 0
    counted = False
    for line in smaps.splitlines():
        if mapping := _MAPPING.match(line):
            counted = mapping[1].endswith("p")
        elif counted and (size := _KILOBYTES.match(line)) and size[1] in ("Private_Clean", "Private_Dirty"):
            total += int(size[2]) * 1024
    return total
