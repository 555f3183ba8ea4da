"""Forks a process for each scene or program, so that the package and the scenes are imported once for all of them.

    python -m tests.faults.host

Reads a request a line, as JSON: what the scene is called with, or the program's file and options, the environment, the
folder. Answers with the pid of the
process that plays it, then with the status in which that ended. This process has no other thread and no pool, so each
fork of it is as good as an interpreter of its own; it becomes the leader of a session, as that would be.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import math
import os
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, NoReturn

from batchup_ng.work_pool.processes import fork_server, process

from . import accounting, actor
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
    strikes,
    threads,
    travel,
    writes,
)  # fmt: skip


def main() -> int:
    accounting.planned_rows()  # NumPy imports some of itself at the first use
    gc.collect()
    gc.freeze()  # or each collection in a fork makes a copy of all that was imported
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
    """Become a program, or that of a scene; return its exit code."""
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
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    start_server()
    if request["arguments"][0].endswith(".py"):
        sys.argv = request["arguments"]
        runpy.run_path(sys.argv[0], run_name="__main__")
        return 0
    end(actor.main(*request["arguments"]))


def end(code: int) -> NoReturn:
    """End as an interpreter does, but leave it to the system to take down all that was imported: it is faster."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def start_server() -> None:
    """Start the fork server of the program, which has it until it ends, as if a pool were open all the time.

    It is forked from here, for an interpreter that imports all that it needs takes a third of a second; how those are
    started is tried in ``tests/work_pool``.
    """
    started, fork_server.run = fork_server.run, fork
    fork_server.take(1)
    fork_server.run = started


def fork(module: str, fds: list[int], blas_threads: int, *numbers: int) -> Forked:
    """Do with a fork of this process what ``starting.run`` does with a new interpreter."""
    pid = os.fork()
    if pid == 0:
        for fd in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):  # the one that listed the folder
                if fd > 2 and fd not in fds:
                    os.close(fd)
        os.environ.update(process.same_bits(blas_threads))
        try:
            fork_server.main(*numbers)
        finally:
            os._exit(0)
    return Forked(pid)


class Forked:
    """A forked child, with those methods of ``Popen`` that a fork server's owner uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def kill(self) -> None:
        """Kill it."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float = math.inf) -> None:
        """Wait until it has ended."""
        deadline = time.monotonic() + timeout
        while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("server", timeout)
            time.sleep(0.001)


if __name__ == "__main__":
    sys.exit(main())
