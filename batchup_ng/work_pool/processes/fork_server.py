"""The process that forks workers: imports the package once, stays single-threaded, does nothing else.

    pool's process: ForkServer                          server: main
      fork ── threads, descriptors of a worker ───────►   os.fork, worker.main in the child
           ◄── STARTED pid, or FAILED with the error ──
           ◄── ENDED pid, exit code ──────────────────    when a worker ends

Who owns what. A pool has a server to itself from its first worker until its workers have ended; then the program keeps
one server for the next pool, which need not wait until NumPy and this package are imported once more. A server that was
started in other surroundings (environment, folder, ``sys.path``, standard output, user, limits, CPUs) is not used.

What happens on a crash. The server ends when its socket is closed; if the pool's process is gone the system kills it,
as it does the workers. If it dies by itself the workers live on, and their exit codes are not known.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from numpy import random as numpy_random  # here, for another thread may hold the import lock in a forked child

from ...errors import WorkerDied
from . import parent_death, worker
from .parent_death import ParentDeath
from .process import EXIT_UNKNOWN, Given, command, environment, hang_up, new_pair, refused, run

STARTED, ENDED, FAILED = b"S", b"E", b"F"
MESSAGE = struct.Struct("<cii")
"""What the server sends: the kind, a worker's number, its exit code or (FAILED) the number of an error."""
REQUEST = struct.Struct("<II")
"""What it reads: how many descriptors come along, how many tasks the worker runs at once."""

ANSWER_TIMEOUT = 0.1
"""Seconds that the server may take to report the exit of a worker."""

SERVER_TIMEOUT = 1.0
"""Seconds that the server, whose workers have ended, has to end by itself before it is killed."""

_SAME = ("Uid:", "Gid:", "Groups:", "Umask:", "CapEff:", "NoNewPrivs:", "Seccomp:", "Cpus_allowed:", "SigIgn:")
"""The lines of ``/proc/self/status`` with what a process has from its parent."""


# -- the server ------------------------------------------------------------------------------------------------------


def main(fd: int, life_fd: int) -> None:
    """Serve on the socket `fd` until its other end is closed; the system kills this process at the end of `life_fd`."""
    worker.ignore_interrupts()
    parent_death.hang_on(life_fd)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    os.set_blocking(wake_read, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with socket.socket(fileno=fd) as sock, contextlib.suppress(ConnectionError):
        while True:
            ready = select.select([fd, wake_read], [], [])[0]
            if wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    while os.read(wake_read, 512):
                        pass
                _report_ended(sock)
            if fd in ready:
                request, fds, _, _ = socket.recv_fds(sock, REQUEST.size, 3)
                if not request:
                    return
                sent, threads = REQUEST.unpack(request)
                _start(sock, fds, sent, threads, own=[wake_read, wake_write, sock.fileno()])


def _report_ended(sock: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            sock.sendall(MESSAGE.pack(ENDED, ended[0], os.waitstatus_to_exitcode(ended[1])))


def _start(sock: socket.socket, fds: list[int], sent: int, threads: int, own: list[int]) -> None:
    """Fork a worker, or answer why that cannot be."""
    try:
        if len(fds) < sent:
            raise OSError(errno.EMFILE, "there was no room for the descriptors that came along")
        pid = os.fork()
        answer = MESSAGE.pack(STARTED, pid, 0)
    except OSError as error:
        pid, answer = -1, MESSAGE.pack(FAILED, 0, error.errno or 0)
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _work(fds[0], fds[1], fds[2] if sent > 2 else -1, threads, close=own)
    for fd in fds:
        os.close(fd)
    sock.sendall(answer)


def _work(fd: int, life_fd: int, arena_fd: int, threads: int, close: list[int]) -> NoReturn:
    """Be a worker in a process that was just forked, without the descriptors `close` of its parent; never returns."""
    code = 1
    try:
        for other in close:
            os.close(other)
        random.seed()  # or all workers would go on from the one state that they were forked with
        numpy_random.seed()
        worker.main(fd, life_fd, arena_fd, threads)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


# -- the pool's side -------------------------------------------------------------------------------------------------


class ForkServer:
    """One server process, from the pool's side; it ends when the socket to it is closed.

    Attributes:
        surroundings: What its workers have from it; None where that is not known.
        ended: Whether it was found dead.
        was_silent: Whether it did not report how a worker ended: it may have been stopped.
    """

    def __init__(self, blas_threads: int | None) -> None:
        self.surroundings = _surroundings(blas_threads)
        self._life = ParentDeath()
        try:
            with new_pair() as (ours, theirs):
                fds = [theirs.fileno(), self._life.fd]
                self._process = run("fork_server", fds, blas_threads, *fds)
        except BaseException:
            self._life.close()
            raise
        self._sock = ours
        self._codes: dict[int, int] = {}
        self._lock = threading.Lock()
        self.ended = self.was_silent = False

    def kill(self) -> None:
        """Kill the server; a thread that waits for its answer learns that it is dead."""
        self._process.kill()

    def fork(self, given: Given, fds: list[int]) -> int | None:
        """Return the number of a new worker that has these descriptors; None if the server is dead.

        Raises:
            WorkerDied: the server cannot fork, or does not answer.
        """
        deadline = time.monotonic() + given.start_timeout
        with self._lock:
            try:
                socket.send_fds(self._sock, [REQUEST.pack(len(fds), given.threads)], fds)
            except OSError:
                self.ended = True
                return None
            answer = self._await_message((STARTED, FAILED), None, deadline)
        if answer is None and not self.ended:
            self._process.kill()  # or it would start a worker that the pool does not know
            self.ended = True
            raise WorkerDied(
                f"the server of worker processes (pid {self._process.pid}) started no worker within "
                f"{given.start_timeout:g} s; it was still starting, which is importing batchup_ng and NumPy by the "
                f"sys.path of this program, or was stopped; it was killed"
            )
        if answer is None:
            return None
        kind, pid, number = answer
        if kind == FAILED:
            raise refused(OSError(number, os.strerror(number)))
        self._codes.pop(pid, None)  # of an earlier process that had the number
        return pid

    def exit_code(self, pid: int, timeout: float) -> int | None:
        """Return how a worker ended, waiting so long for it; None if it has not."""
        deadline = time.monotonic() + timeout
        if self._lock.acquire(timeout=timeout):  # it may be asked for a new worker just now, and take long
            try:
                gone = False
                while pid not in self._codes and not self.ended and not gone and (now := time.monotonic()) < deadline:
                    gone = not _is_running(pid)
                    self._await_message((ENDED,), pid, min(deadline, now + ANSWER_TIMEOUT))
                if pid in self._codes:
                    return self._codes[pid]
            finally:
                self._lock.release()
        while _is_running(pid):
            if time.monotonic() > deadline:
                return None
            time.sleep(0.002)
        self.was_silent = True  # or dead
        return EXIT_UNKNOWN

    def _await_message(
        self, kinds: tuple[bytes, ...], pid: int | None, deadline: float
    ) -> tuple[bytes, int, int] | None:
        """Return the next message of one of `kinds`, about `pid`; None if none comes in time, or the server is dead."""
        while not self.ended and (left := deadline - time.monotonic()) > 0:
            self._sock.settimeout(left)
            try:
                data = self._sock.recv(MESSAGE.size, socket.MSG_WAITALL)
            except TimeoutError:
                break
            except OSError:
                data = b""
            if len(data) < MESSAGE.size:
                self.ended = True
                break
            kind, about, code = MESSAGE.unpack(data)
            if kind == ENDED:
                self._codes[about] = code
            if kind in kinds and pid in (None, about):
                return kind, about, code
        return None

    def is_waiting(self) -> bool:
        """Return whether it has neither ended nor been stopped."""
        return _state(self._process.pid) not in "ZXTt"

    def leave_to_parent(self) -> None:
        """Drop it, in a fork of the process that has started it."""
        self._process.returncode = 0  # or a warning would say that it still runs
        self._sock.close()
        self._life.close()

    def close(self) -> None:
        """End the server; its workers see the ends of their own sockets."""
        self.ended = True
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
    """Return the letter that the system has for the state of a process; Z where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "Z"
    return text.rpartition(")")[2].split()[0]


def _surroundings(blas_threads: int | None) -> tuple[Any, ...] | None:
    """Return what a worker has from the server that it is forked from; None where that cannot be known."""
    try:
        status = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(_SAME)]
        limits = Path("/proc/self/limits").read_text()
        files = [(file.st_dev, file.st_ino) for file in (os.stat("."), os.fstat(1), os.fstat(2))]
        priority = os.getpriority(os.PRIO_PROCESS, 0)
        return command("fork_server"), environment(blas_threads), status, limits, files, priority
    except OSError:  # no /proc, or no standard output
        return None


# -- the server that no pool has just now ----------------------------------------------------------------------------

_spare: list[ForkServer] = []
"""One at most."""

_is_ending = False


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


@atexit.register
def close_spare(at_exit: bool = True) -> None:
    """End the spare server; when the program ends none is kept any more."""
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
