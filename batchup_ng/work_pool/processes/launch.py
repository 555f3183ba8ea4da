"""Starts worker processes.

There are three ways, as in :mod:`multiprocessing`. ``spawn`` starts a new interpreter for each worker. ``forkserver``
starts one, the server, which imports this package, stays single-threaded, forks a worker when asked. ``fork`` forks
the calling process, half-copied threads and locks and all, and is only for those who ask for it. None of them runs
the user's main module again, so scripts need no ``__main__`` guard: functions travel by value.

Who owns what. A launcher belongs to one pool. It owns the server, if there is one; a :class:`WorkerProcess` owns
the pool's end of one socket. A worker's death is seen by its end of the socket being closed; how it died is asked of
the server, which is its parent, or of the system.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from ... import checks
from ...errors import WorkerLost
from . import server, worker

START_METHODS = ("forkserver", "spawn", "fork")

EXIT_UNKNOWN = 1 << 16
"""Stands for the exit code of a process that somebody else has waited for."""

CLOSE_TIMEOUT = 5.0
"""Seconds that a worker has to end by itself after its socket is closed, before it is killed."""

_BOOT = (
    # Nothing but sys is imported before the path is that of the pool's process.
    "import sys; sys.path[:] = sys.argv[1].split(chr(10)); from batchup_ng.work_pool.processes import {module}; "
    "{module}.main(*map(int, sys.argv[2:]))"
)
_HOME = str(Path(__file__).resolve().parents[3])
"""The folder that this package lies in."""

_STARTED = struct.Struct("<cii")


_ours: set[int] = set()
"""Descriptors of this process at whose end something else ends; a forked worker must not keep them open."""


def _pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a new socket, ours to be closed by :func:`_close`."""
    ours, theirs = socket.socketpair()
    _ours.add(ours.fileno())
    return ours, theirs


def _close(sock: socket.socket) -> None:
    """Hang up, even where a fork of the user's holds a copy of the socket."""
    _ours.discard(sock.fileno())
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold back Ctrl-C while a process is started, which keeps it held until it has chosen to ignore it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class WorkerProcess:
    """A worker process, from the pool's side.

    Args:
        pid: Number of the process.
        sock: The pool's end of its socket, non-blocking.
        exit_code: Returns how it ended, waiting up to so many seconds: an exit code, the negative number of a signal,
            None if it has not.

    Attributes:
        death: A descriptor that becomes readable when the process ends, where the system has such; its socket stays
            open if the worker has forked.
    """

    def __init__(self, pid: int, sock: socket.socket, exit_code: Callable[[float], int | None]) -> None:
        self.pid = pid
        self.sock = sock
        self.exit_code = exit_code
        self.death = _death_of(pid)
        sock.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, option, 1 << 20)

    def hang_up(self) -> None:
        """Close the pool's end of the socket, at which the worker ends."""
        _close(self.sock)
        if self.death is not None:
            os.close(self.death)
            self.death = None

    def end(self, timeout: float = CLOSE_TIMEOUT) -> int | None:
        """Hang up, wait for the worker to end, kill it if it does not; return its exit code."""
        self.hang_up()
        code = self.exit_code(timeout)
        if code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            code = self.exit_code(timeout)
        return code


def _death_of(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None  # not Linux, or it has ended already: the end of its socket tells


class Launcher(Protocol):
    """Starts workers in one way."""

    def start(self, arena_fd: int) -> WorkerProcess:
        """Return a new worker process, which may not be ready yet.

        Args:
            arena_fd: The shared memory; -1 where there is none.
        """
        ...

    def close(self) -> None:
        """End what the launcher itself started; the workers have ended before."""
        ...


def launcher(start_method: str | None, threads: int) -> Launcher:
    """Return a launcher of that method; None is ``forkserver``.

    Raises:
        ArgumentError: there is no such method.
    """
    method = checks.one_of("start_method", start_method or START_METHODS[0], START_METHODS)
    kinds: dict[str, Callable[[int], Launcher]] = {
        "forkserver": ServerLauncher,
        "spawn": SpawnLauncher,
        "fork": ForkLauncher,
    }
    return kinds[method](threads)


def _command(module: str, *numbers: int) -> list[str]:
    flags = ["-I"] if sys.flags.isolated else []
    path = [os.path.abspath(entry) for entry in sys.path]
    path += [_HOME] if _HOME not in path else []
    return [sys.executable, *flags, "-c", _BOOT.format(module=module), "\n".join(path), *map(str, numbers)]


def _run(module: str, fds: list[int], *numbers: int) -> subprocess.Popen[bytes]:
    """Start an interpreter that calls ``main`` of a module with those descriptors and numbers."""
    command = _command(module, *fds, *numbers)
    with _interrupts_held():
        return subprocess.Popen(command, pass_fds=[fd for fd in fds if fd >= 0], stdin=subprocess.DEVNULL)


class SpawnLauncher:
    """A new interpreter for each worker."""

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def start(self, arena_fd: int) -> WorkerProcess:
        ours, theirs = _pair()
        with theirs:
            process = _run("worker", [theirs.fileno(), arena_fd], self._threads)

        def exit_code(timeout: float) -> int | None:
            try:
                return process.wait(timeout)
            except subprocess.TimeoutExpired:
                return None

        return WorkerProcess(process.pid, ours, exit_code)

    def close(self) -> None:
        pass


class ServerLauncher:
    """Workers forked by one server process, which starts with the first of them."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._server: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None
        self._ended: dict[int, int] = {}

    def start(self, arena_fd: int) -> WorkerProcess:
        sock = self._sock or self._start_server()
        ours, theirs = _pair()
        with theirs:
            try:
                fds = [theirs.fileno()] if arena_fd < 0 else [theirs.fileno(), arena_fd]
                socket.send_fds(sock, [server.REQUEST.pack(self._threads)], fds)
            except OSError as error:
                raise WorkerLost(f"the server of worker processes has ended: {error}") from error
        pid = self._await_message(server.STARTED, None, 60.0)
        if pid is None:
            _close(ours)
            raise WorkerLost("the server of worker processes did not start a worker; see its messages above")
        return WorkerProcess(pid, ours, lambda timeout: self._exit_code(pid, timeout))

    def _start_server(self) -> socket.socket:
        ours, theirs = _pair()
        with theirs:
            self._server = _run("server", [theirs.fileno()])
        self._sock = ours
        return ours

    def _exit_code(self, pid: int, timeout: float) -> int | None:
        if pid not in self._ended:
            self._await_message(server.ENDED, pid, timeout)
        return self._ended.get(pid)

    def _await_message(self, kind: bytes, pid: int | None, timeout: float) -> int | None:
        """Read the server's messages until one of `kind`, about `pid`, comes; return its process, None if none does."""
        deadline = time.monotonic() + timeout
        while self._sock is not None and (left := deadline - time.monotonic()) > 0:
            self._sock.settimeout(left)
            try:
                data = self._sock.recv(_STARTED.size, socket.MSG_WAITALL)
            except OSError:
                return None
            if len(data) < _STARTED.size:
                return None
            got, about, code = _STARTED.unpack(data)
            if got == server.ENDED:
                self._ended[about] = code
            if got == kind and pid in (None, about):
                return int(about)
        return None

    def close(self) -> None:
        if self._sock is not None:
            _close(self._sock)
            self._sock = None
        if self._server is not None:
            try:
                self._server.wait(CLOSE_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
            self._server = None


class ForkLauncher:
    """Workers forked from the calling process."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._ended: dict[int, int] = {}

    def start(self, arena_fd: int) -> WorkerProcess:
        ours, theirs = _pair()
        with _interrupts_held():
            pid = os.fork()
            if pid == 0:
                server.run_forked(theirs.detach(), arena_fd, self._threads, close=sorted(_ours))
        theirs.close()
        return WorkerProcess(pid, ours, lambda timeout: self._exit_code(pid, timeout))

    def _exit_code(self, pid: int, timeout: float) -> int | None:
        deadline = time.monotonic() + timeout
        while pid not in self._ended:
            try:
                done, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                return EXIT_UNKNOWN  # somebody else has waited for it
            if done:
                self._ended[pid] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                return None
            else:
                time.sleep(0.002)
        return self._ended[pid]

    def close(self) -> None:
        pass


# The names under which the started interpreters find their modules; imported here so that a mistake shows at once.
MODULES = {"server": server, "worker": worker}
