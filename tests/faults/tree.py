"""What a program and all processes that it started hold, as the system tells it.

Memory is counted as the system divides it: a page that several processes map counts in each for its part, so that over
the whole tree each counts once. Pages of files (libraries) are left out: how many others map them, which is for the
other programs of the machine to say, would change the figure.

Shared memory is what the system has allocated for it, mapped or not: while the pool moves a copy to huge pages, each
two megabytes of it are for a moment mapped by nobody, and are held all the same.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

import psutil


class Held(NamedTuple):
    """What a program holds.

    Attributes:
        memory: Bytes of memory of all its processes, shared memory included, each byte once.
        shared: Bytes of that which are shared memory.
        descriptors: Of all its processes.
        threads: Of all its processes.
        processes: How many it has, itself included.
    """

    memory: float
    shared: float
    descriptors: int
    threads: int
    processes: int


def held() -> Held:
    """Return what this program holds now."""
    anonymous = mapped = descriptors = threads = count = 0
    allocated: dict[tuple[int, int], int] = {}
    for pid in [os.getpid(), *[child.pid for child in psutil.Process().children(recursive=True)]]:
        with contextlib.suppress(OSError):  # it has ended since
            found = _kilobytes(Path(f"/proc/{pid}/smaps_rollup").read_text())
            in_it = len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))
            allocated.update(_shared_files(pid))
            mapped, anonymous = mapped + found["Pss_Shmem"], anonymous + found["Pss_Anon"]
            descriptors, threads, count = descriptors + in_it[0], threads + in_it[1], count + 1
    shared = max(mapped * 1024, sum(allocated.values()))
    return Held(anonymous * 1024 + shared, shared, descriptors, threads, count)


def _shared_files(pid: int) -> dict[tuple[int, int], int]:
    """Return the bytes allocated for each file without a name in memory that a process has open."""
    found = {}
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed since
            if os.readlink(descriptor).startswith("/memfd:"):
                status = descriptor.stat()
                found[status.st_dev, status.st_ino] = status.st_blocks * 512  # the unit of st_blocks, whatever the file
    return found


def _kilobytes(text: str) -> dict[str, int]:
    entries = [line.split() for line in text.splitlines()[1:]]
    return {entry[0].rstrip(":"): int(entry[1]) for entry in entries}


def state_of(pid: int) -> str:
    """Return the letter that the system has for the state of a process, ``Z`` for a zombie; empty if it is gone."""
    return _state_and_parent(pid)[0]


def orphaned(pid: int) -> bool:
    """Return whether a process has ended and its parent too: process 1 inherits what is left, and when it reaps that is
    its affair (in some containers it never does)."""
    state, parent = _state_and_parent(pid)
    return state == "Z" and parent == 1


def _state_and_parent(pid: int) -> tuple[str, int]:
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
        return state, int(parent)
    except (OSError, ValueError):
        return "", 0
