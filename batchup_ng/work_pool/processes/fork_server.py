"""The process that forks workers: imports the package once, stays single-threaded, does nothing else.

    pool's process: ForkServer                               server: main
      fork ───── threads, descriptors of a worker ───────►     os.fork, worker.main in the child
           ◄──── STARTED pid, or FAILED with the error ──
      exit_code ─ pid of a worker that has ended ────────►     os.waitpid
           ◄──── ENDED pid, exit code ───────────────────

Ownership. All pools that are open at once share one server. A launcher uses it from its first worker until its workers
have ended. The server ends with its last launcher. A worker inherits its surroundings from the server: environment,
folder, ``sys.path``, standard output, user, limits, CPUs. If these have changed, a pool starts another server.

The server ends when its socket is closed. If the pool's process is gone, the system kills the server and the workers.
If the server dies for another reason, the workers live on, and their exit codes are unknown.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import random
import socket
import struct
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from numpy import random as numpy_random  # here, because another thread may hold the import lock in a forked child

from ...errors import PoolBroken
from ...memory.shared_file import identity
from ...platforms import system
from . import parent_death, worker
from .parent_death import ParentDeath
from .process import EXIT_UNKNOWN, Launcher, WorkerProcess, command, hang_up, new_pair, refused, run, same_bits
from .schedule import START_TIMEOUT

STARTED, ENDED, FAILED = b"S", b"E", b"F"
MESSAGE = struct.Struct("<cii")
"""Answer of the server: the kind, a worker's pid, its exit code or (FAILED) the number of an error."""
REQUEST = struct.Struct("<IIQ")
"""Request to it: the number of descriptors sent along, of tasks that the worker runs at once, and of bytes that it may
hold, 0 for any; or 0 and its pid."""

ANSWER_TIMEOUT = 2.0
"""Seconds that the server may take to report the exit of a worker. Where memory has run out, the machine is busy."""

SERVER_TIMEOUT = 1.0
"""Seconds that a closing pool gives the server to answer another thread, if other pools use the server."""

_SAME = ("Uid:", "Gid:", "Groups:", "Umask:", "CapEff:", "NoNewPrivs:", "Seccomp:", "Cpus_allowed:", "SigIgn:")
"""The lines of ``/proc/self/status`` that a process inherits from its parent."""


# -- the server ------------------------------------------------------------------------------------------------------


def main(fd: int, life_fd: int) -> None:
    """Serve on the socket `fd` until its other end is closed. The system kills this process when `life_fd` ends."""
    worker.ignore_interrupts()
    parent_death.hang_on(life_fd)
    gc.freeze()  # else a full collection in a worker writes to all that it shares with this process: 10 MB a worker
    with socket.socket(fileno=fd) as sock, contextlib.suppress(ConnectionError):
        while True:
            request, fds, _, _ = socket.recv_fds(sock, REQUEST.size, 3)
            if not request:
                return
            sent, number, memory = REQUEST.unpack(request)
            sock.sendall(_start(sock, fds, sent, number, memory) if sent else _how_it_ended(number))


def _how_it_ended(pid: int) -> bytes:
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        code = EXIT_UNKNOWN
    return MESSAGE.pack(ENDED, pid, code)


def _start(sock: socket.socket, fds: list[int], sent: int, threads: int, memory: int) -> bytes:
    """Fork a worker. Return the answer, with the error number if the fork failed."""
    try:
        if len(fds) < sent:
            raise OSError(errno.EMFILE, "there was no room for the descriptors that came along")
        pid = os.fork()
        if pid == 0:
            sock.close()
            _work(fds[0], fds[1], fds[2] if sent > 2 else -1, threads, memory)
        answer = MESSAGE.pack(STARTED, pid, 0)
    except OSError as error:
        answer = MESSAGE.pack(FAILED, 0, error.errno or 0)
    for fd in fds:
        os.close(fd)
    return answer


def _work(fd: int, life_fd: int, arena_fd: int, threads: int, memory: int) -> NoReturn:
    """Run the worker in a process that was just forked. Never return."""
    code = 1
    try:
        random.seed()  # otherwise all workers would continue from the server's state
        numpy_random.seed()
        worker.main(fd, life_fd, arena_fd, threads, memory)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


# -- the pool's side -------------------------------------------------------------------------------------------------


class ForkServer:
    """One server process, from the pools' side. It ends when the socket to it is closed. Any thread may use it.

    Workers inherit its `surroundings`. `users` is the number of launchers that use it. `ended` says whether it was
    found dead, `was_silent` whether it failed to report how a worker ended: it may have been stopped.
    """

    def __init__(self, blas_threads: int | None) -> None:
        self.surroundings = surroundings_of_workers(blas_threads)
        self._life = ParentDeath()
        try:
            with new_pair() as (ours, theirs):
                fds = [theirs.fileno(), self._life.fd]
                self._process = run("fork_server", fds, blas_threads, *fds)
        except BaseException:
            self._life.close()
            raise
        self._sock = ours
        self._file = identity(ours.fileno())
        self._lock = threading.Lock()
        self.users = 1
        self.ended = self.was_silent = False

    def fork(self, threads: int, fds: list[int], timeout: float = START_TIMEOUT, memory: int = 0) -> int | None:
        """Fork a worker with these descriptors. Return its pid; None if the server is dead.

        Raises :class:`PoolBroken` if the server cannot fork or does not answer.
        """
        with self._lock:
            answer = self._answer(fds, threads, timeout, memory)
        if answer is None and not self.ended:
            self._process.kill()  # otherwise it would start a worker that the pool does not know
            self.ended = True
            raise PoolBroken(
                f"the server of worker processes (pid {self._process.pid}) started no worker within "
                f"start_timeout={timeout:g} s; it was still starting, which is importing batchup_ng and NumPy by the "
                f"sys.path of this program, or was stopped; it was killed"
            )
        if answer is None:
            return None
        kind, pid, number = answer
        if kind == FAILED:
            raise refused(OSError(number, os.strerror(number)))
        return pid

    def exit_code(self, pid: int, timeout: float) -> int | None:
        """Wait up to `timeout` seconds for the end of a worker. Return its exit code; None if it still runs."""
        deadline = time.monotonic() + timeout
        while _state(pid) not in "ZX":
            if time.monotonic() > deadline:
                return None
            time.sleep(0.001)
        answer = None
        seconds = ANSWER_TIMEOUT / 20 if self.was_silent else ANSWER_TIMEOUT  # one long wait, not one for each worker
        if self._lock.acquire(timeout=seconds):  # the server may be forking another worker, and take long
            answer = self._answer([], pid, seconds)
            self._lock.release()
        self.was_silent = self.was_silent or answer is None  # it is silent or dead
        return EXIT_UNKNOWN if answer is None else answer[2]

    def _answer(
        self, fds: list[int], number: int, timeout: float, memory: int = 0
    ) -> tuple[bytes, int, int] | None:  # fmt: skip
        """Return the answer to a request; None if no answer arrives in time, or the server is dead."""
        deadline = time.monotonic() + timeout
        try:
            socket.send_fds(self._sock, [REQUEST.pack(len(fds), number, memory)], fds)
            while not self.ended and (left := deadline - time.monotonic()) > 0:
                self._sock.settimeout(left)
                data = self._sock.recv(MESSAGE.size, socket.MSG_WAITALL)
                self.ended = len(data) < MESSAGE.size
                if not self.ended:
                    kind, pid, code = MESSAGE.unpack(data)
                    if pid == number if not fds else kind != ENDED:  # otherwise the answer to an earlier request
                        return kind, pid, code
        except TimeoutError:
            pass
        except OSError:
            self.ended = True
        return None

    def is_reachable(self) -> bool:
        """Return whether the server runs, and the program has not closed the socket to it."""
        runs = _state(self._process.pid) not in "ZXTt"  # neither ended nor stopped
        return runs and identity(self._sock.fileno()) == self._file

    def close(self) -> None:
        """End the server. Its workers notice the ends of their own sockets."""
        self.ended = True
        if identity(self._sock.fileno()) == self._file:
            hang_up(self._sock)
        else:
            self._sock.detach()  # another file may have its number by now
        self._process.kill()  # an interpreter would take a while to end, and the server leaves nothing to clean up
        self._process.wait()
        self._life.close()


def _state(pid: int) -> str:
    """Return the system's letter for the state of a process; Z if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "Z"
    return text.rpartition(")")[2].split()[0]


def surroundings_of_workers(blas_threads: int | None) -> tuple[Any, ...] | None:
    """Return the surroundings that a worker would inherit from a server started now; None if they are unknown."""
    try:
        status = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(_SAME)]
        limits = Path("/proc/self/limits").read_text()
        files = [(file.st_dev, file.st_ino) for file in (os.stat("."), os.fstat(1), os.fstat(2))]
        priority = os.getpriority(os.PRIO_PROCESS, 0)
        return command("fork_server"), {**os.environ, **same_bits(blas_threads)}, status, limits, files, priority
    except OSError:  # no /proc, or no standard output
        return None


# -- the servers of this program -------------------------------------------------------------------------------------

_servers: list[ForkServer] = []
"""The servers that pools use, one for each kind of surroundings."""

_guard = threading.Lock()


def take(blas_threads: int | None) -> ForkServer:
    """Return a running server for workers with `blas_threads`, or start one."""
    surroundings = surroundings_of_workers(blas_threads)
    with _guard:
        for server in _servers:
            usable = server.is_reachable() and not (server.ended or server.was_silent)
            if usable and surroundings is not None and server.surroundings == surroundings:
                server.users += 1
                return server
        _servers.append(ForkServer(blas_threads))
        return _servers[-1]


def give_back(server: ForkServer) -> None:
    """Stop using a server. It ends with its last user."""
    with _guard:
        server.users -= 1
        if not server.users:
            _servers.remove(server)
            server.close()


def _leave_to_parent() -> None:
    """Drop the servers, in a fork of the process that started them."""
    global _guard
    _guard = threading.Lock()  # another thread may have held it
    while _servers:
        server = _servers.pop()
        server._process.returncode = 0  # otherwise a warning would say that it still runs
        server._sock.close()
        server._life.close()


system.after_fork_in_child(_leave_to_parent)


class ServerLauncher(Launcher):
    """Starts workers by one server process, which starts with the first worker."""

    def __init__(
        self, threads: int, blas_threads: int | None = 1, arena_fd: int = -1, start_timeout: float = START_TIMEOUT,
        memory: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(threads, blas_threads, arena_fd, start_timeout, memory)
        self._server: ForkServer | None = None
        self._lock = threading.Lock()

    def start(self) -> WorkerProcess:
        with self._lock:
            self._check_open()
            for _ in range(2):  # a server may have died some time ago, which shows only now
                if self._server is None or self._server.ended:
                    self._give_back()
                    self._server = take(self._blas_threads)
                worker = self._forked(self._server)
                if worker is not None:
                    return worker
                if self._closed:
                    break
            raise PoolBroken("the server of worker processes has ended; see its messages above")

    def _forked(self, server: ForkServer) -> WorkerProcess | None:
        """Return a worker that a server has forked; None if the server is dead.

        Its socket is never used again: a server may die after it has forked a worker and before it answers.
        """
        with new_pair() as (ours, theirs):
            pid = server.fork(self._threads, self._fds(theirs), self.start_timeout, self._memory)
            if pid is None:
                hang_up(ours)
                return None
        return WorkerProcess(pid, ours, lambda timeout: server.exit_code(pid, timeout))

    def _give_back(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            give_back(server)

    def rest(self) -> None:
        with self._lock:
            self._give_back()
            super().rest()

    def interrupt(self) -> None:
        super().interrupt()
        server = self._server
        if server is None:
            return
        # Another thread may wait for an answer. It arrives at once, unless the server was stopped or hangs. If other
        # launchers use the server, it gets time to answer. After a kill, they have to start another, and the exit codes
        # of their workers are unknown.
        if self._lock.acquire(timeout=SERVER_TIMEOUT if server.users > 1 else 0):
            self._lock.release()
        else:
            server._process.kill()
