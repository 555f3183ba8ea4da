"""The process that forks workers, from the pool's side: asks it for workers and for how they ended."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from pathlib import Path

from ...errors import WorkerLost
from . import server
from .lifeline import Lifeline
from .starting import EXIT_UNKNOWN, Given, hang_up, new_pair, refused, run

ANSWER_TIMEOUT = 0.1
"""Seconds that the server may take to tell how a worker ended which has."""

SERVER_TIMEOUT = 1.0
"""Seconds that the server, whose workers have ended, has to end by itself before it is killed."""


class ForkServer:
    """One server process; it ends when the socket to it is closed.

    Attributes:
        ended: Whether it was found dead.
    """

    def __init__(self, blas_threads: int | None, life: Lifeline) -> None:
        with new_pair() as (ours, theirs):
            fds = [theirs.fileno(), life.fd]
            self._process = run("server", fds, blas_threads, *fds)
        self._sock = ours
        self._codes: dict[int, int] = {}
        self._lock = threading.Lock()
        self.ended = False

    def kill(self) -> None:
        """Kill the server; whoever waits for its answer learns that it is dead."""
        self._process.kill()

    def fork(self, given: Given, fds: list[int]) -> int | None:
        """Return the number of a new worker that has these descriptors; None if the server is dead.

        Raises:
            WorkerLost: the server cannot fork, or does not answer.
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
            raise WorkerLost(
                f"the server of worker processes (pid {self._process.pid}) started no worker within "
                f"{given.start_timeout:g} s; it was still starting, which is importing batchup_ng and NumPy by the "
                f"sys.path of this program, or was stopped; it was killed"
            )
        return None if answer is None else answer[1]

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
        return EXIT_UNKNOWN  # the server is dead, or does not answer

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

    def close(self) -> None:
        """End the server; its workers see the ends of their own sockets."""
        hang_up(self._sock)
        try:
            self._process.wait(SERVER_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _is_running(pid: int) -> bool:
    """Return whether a process that is no child of ours has not ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"
