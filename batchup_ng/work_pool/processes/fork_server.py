"""The process that forks workers, from the pool's side: asks it for workers and for how they ended.

Who owns what. A pool has a server to itself from its first worker until its workers have ended; then the program keeps
one server for the next pool, which need not wait until NumPy and this package are imported once more. A server that was
started in other surroundings (environment, folder, ``sys.path``, standard output, user, limits, CPUs) is not used.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from ...errors import WorkerDied
from . import server
from .parent_death import ParentDeath
from .process import EXIT_UNKNOWN, Given, command, environment, hang_up, new_pair, refused, run

ANSWER_TIMEOUT = 0.1
"""Seconds that the server may take to tell how a worker ended which has."""

SERVER_TIMEOUT = 1.0
"""Seconds that the server, whose workers have ended, has to end by itself before it is killed."""


_spare: list[ForkServer] = []
"""The server that no pool has just now, one at most."""

_SAME = ("Uid:", "Gid:", "Groups:", "Umask:", "CapEff:", "NoNewPrivs:", "Seccomp:", "Cpus_allowed:", "SigIgn:")
"""The lines of ``/proc/self/status`` that tell what a process has from its parent."""


def take(blas_threads: int | None) -> ForkServer:
    """Return a server for workers that may use so many threads for linear algebra: the spare one or a new one.

    Raises:
        OSError, WorkerDied: none can be started.
    """
    with contextlib.suppress(IndexError):
        server = _spare.pop()
        if server.is_waiting() and server.surroundings == _surroundings(blas_threads):
            return server
        server.close()
    return ForkServer(blas_threads)


def give_back(server: ForkServer) -> None:
    """Keep a server, whose workers have ended, for the next pool; end it if something is wrong or there is one."""
    if server.ended or server.was_silent or server.surroundings is None or _spare or _is_ending:
        server.close()
    else:
        _spare.append(server)


_is_ending = False


@atexit.register
def close_spare(at_exit: bool = True) -> None:
    """End the spare server; with the program none is kept any more."""
    global _is_ending
    _is_ending = at_exit
    with contextlib.suppress(KeyboardInterrupt):  # the program is ending, and the server with it
        while _spare:
            _spare.pop().close()


def _leave_to_parent() -> None:
    while _spare:
        _spare.pop().leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def _surroundings(blas_threads: int | None) -> tuple[Any, ...] | None:
    """Return what a worker has from the server that it is forked from; None where that cannot be known."""
    try:
        status = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(_SAME)]
        limits = Path("/proc/self/limits").read_text()
        files = [(file.st_dev, file.st_ino) for file in (os.stat("."), os.fstat(1), os.fstat(2))]
        priority = os.getpriority(os.PRIO_PROCESS, 0)
        return command("server"), environment(blas_threads), status, limits, files, priority
    except OSError:  # no /proc, or no standard output
        return None


class ForkServer:
    """One server process; it ends when the socket to it is closed.

    Attributes:
        surroundings: What its workers have from it; None where that is not known.
        ended: Whether it was found dead.
        has_forked: Whether it has started a worker, of any pool.
        was_silent: Whether it did not tell how a worker ended: it may have been stopped.
    """

    def __init__(self, blas_threads: int | None) -> None:
        self.surroundings = _surroundings(blas_threads)
        self._life = ParentDeath()
        try:
            with new_pair() as (ours, theirs):
                fds = [theirs.fileno(), self._life.fd]
                self._process = run("server", fds, blas_threads, *fds)
        except BaseException:
            self._life.close()
            raise
        self._sock = ours
        self._codes: dict[int, int] = {}
        self._lock = threading.Lock()
        self.ended = self.has_forked = self.was_silent = False

    def kill(self) -> None:
        """Kill the server; whoever waits for its answer learns that it is dead."""
        self._process.kill()

    def fork(self, given: Given, fds: list[int]) -> int | None:
        """Return the number of a new worker that has these descriptors; None if the server is dead.

        Raises:
            WorkerDied: the server cannot fork, or does not answer.
        """
        request = server.REQUEST.pack(len(fds), given.threads)
        deadline = time.monotonic() + given.start_timeout
        with self._lock:
            try:
                socket.send_fds(self._sock, [request], fds)
            except OSError:
                self.ended = True
                return None
            answer = self._await_message((server.STARTED, server.FAILED), None, deadline)
        if answer is not None and answer[0] == server.FAILED:
            raise refused(OSError(answer[2], os.strerror(answer[2])))
        if answer is None and not self.ended:
            self._process.kill()  # or it would start a worker that nobody waits for
            self.ended = True
            raise WorkerDied(
                f"the server of worker processes (pid {self._process.pid}) started no worker within "
                f"{given.start_timeout:g} s; it was still starting, which is importing batchup_ng and NumPy by the "
                f"sys.path of this program, or was stopped; it was killed"
            )
        if answer is None:
            return None
        self.has_forked = True
        self._codes.pop(answer[1], None)  # of an earlier process that had the number
        return answer[1]

    def exit_code(self, pid: int, timeout: float) -> int | None:
        """Return how a worker ended, waiting so long for it; None if it has not."""
        deadline = time.monotonic() + timeout
        if self._lock.acquire(timeout=timeout):  # it may be asked for a new worker just now, and be long about it
            try:
                if (code := self._told(pid, deadline)) is not None:
                    return code
            finally:
                self._lock.release()
        while _is_running(pid):
            if time.monotonic() > deadline:
                return None
            time.sleep(0.002)
        self.was_silent = True  # or dead
        return EXIT_UNKNOWN

    def _told(self, pid: int, deadline: float) -> int | None:
        """Return how a worker ended, as the server tells; None if it has not, or the server does not answer."""
        gone = False
        while pid not in self._codes and not self.ended and not gone and (now := time.monotonic()) < deadline:
            gone = not _is_running(pid)
            self._await_message((server.ENDED,), pid, min(deadline, now + ANSWER_TIMEOUT))
        return self._codes.get(pid)

    def _await_message(
        self, kinds: tuple[bytes, ...], pid: int | None, deadline: float
    ) -> tuple[bytes, int, int] | None:
        """Return the next message of one of `kinds`, about `pid`; None if none comes in time, or the server is dead."""
        while not self.ended and (left := deadline - time.monotonic()) > 0:
            self._sock.settimeout(left)
            try:
                data = self._sock.recv(server.MESSAGE.size, socket.MSG_WAITALL)
            except TimeoutError:
                break
            except OSError:
                data = b""
            if len(data) < server.MESSAGE.size:
                self.ended = True
                break
            kind, about, code = server.MESSAGE.unpack(data)
            if kind == server.ENDED:
                self._codes[about] = code
            if kind in kinds and pid in (None, about):
                return kind, about, code
        return None

    def is_waiting(self) -> bool:
        """Return whether it has neither ended nor been stopped."""
        return _state(self._process.pid) not in "ZXTt"

    def leave_to_parent(self) -> None:
        """Let go of it, in a fork of the process that has started it."""
        self._process.returncode = 0  # or a warning would say that it still runs
        self._sock.close()
        self._life.close()

    def close(self) -> None:
        """End the server; its workers see the ends of their own sockets."""
        hang_up(self._sock)
        try:
            self._process.wait(SERVER_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._life.close()


def _is_running(pid: int) -> bool:
    """Return whether a process that is no child of ours has not ended."""
    return _state(pid) not in "ZX"


def _state(pid: int) -> str:
    """Return the letter by which the system tells what a process does; Z where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "Z"
    return text.rpartition(")")[2].split()[0]
