"""Forks a process for each scene, so that the package and the scenes are imported once for all of them.

    python -m tests.faults.host

Reads a request a line, as JSON: what the scene is called with, its environment, its folder. Answers with the pid of the
process that plays it, then with the status in which that ended. This process has no other thread and no pool, so each
fork of it is as good as an interpreter of its own; it becomes the leader of a session, as that would be.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

from . import actor
from .scenes import (  # noqa: F401
    breaks,
    crashes,
    exceptions,
    hangs,
    interrupts,
    leases,
    limits,
    machines,
    memory,
    shared_memory,
    stalls,
    streams,
    threads,
    travel,
    writes,
)  # fmt: skip


def main() -> int:
    answer("ready")
    while line := sys.stdin.readline():
        pid = os.fork()
        if pid == 0:
            return play(json.loads(line))
        answer(pid)
        answer(os.waitpid(pid, 0)[1])
    return 0


def answer(value: object) -> None:
    os.write(1, f"{value}\n".encode())


def play(request: dict[str, Any]) -> int:
    """Become the program of a scene; return its exit code."""
    os.setsid()
    folder = request["folder"]
    os.chdir(folder)
    for fd, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, f"{folder}/out", os.O_WRONLY | os.O_APPEND),
        (2, f"{folder}/err", os.O_WRONLY | os.O_APPEND),
    ):
        opened = os.open(path, flags)
        os.dup2(opened, fd)
        os.close(opened)
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # TMPDIR is another now
    return actor.main(*request["arguments"])


if __name__ == "__main__":
    sys.exit(main())
