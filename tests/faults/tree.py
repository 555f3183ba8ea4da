"""What a program and all processes that it started hold, as the system tells it.

Memory is counted as the system divides it: a page that several processes map counts in each for its part, so that over
the whole tree each counts once. Pages of files (libraries) are left out: how many others map them, which is for the
other programs of the machine to say, would change the figure.
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
    memory = shared = descriptors = threads = count = 0
    for pid in [os.getpid(), *[child.pid for child in psutil.Process().children(recursive=True)]]:
        with contextlib.suppress(OSError):  # it has ended since
            found = _kilobytes(Path(f"/proc/{pid}/smaps_rollup").read_text())
            in_it = len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))
            shared += found["Pss_Shmem"]
            memory += found["Pss_Shmem"] + found["Pss_Anon"]
            descriptors, threads, count = descriptors + in_it[0], threads + in_it[1], count + 1
    return Held(memory * 1024, shared * 1024, descriptors, threads, count)


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
