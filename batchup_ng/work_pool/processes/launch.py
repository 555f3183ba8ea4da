"""Starts worker processes.

There are three ways, as in :mod:`multiprocessing`. ``spawn`` starts a new interpreter for each worker. ``forkserver``
starts one, the server, which imports this package, stays single-threaded, forks a worker when asked. ``fork`` forks
the calling process, half-copied threads and locks and all, and is only for those who ask for it. None of them runs
the user's main module again, so scripts need no ``__main__`` guard: functions travel by value.

Who owns what. A launcher belongs to one pool; any thread may use it. It owns the server, if there is one; a
:class:`WorkerProcess` owns the pool's end of one socket. The shared memory is the pool's; a worker gets a descriptor.

What happens on a crash. A worker's death is seen by its end of the socket being closed; how it died is asked of the
server, which is its parent, or of the system. If the server died, the next worker is started by a new one; how its
workers end is then not known. Where the system refuses a process or a descriptor, or nothing answers in time, the
error is a :class:`~batchup_ng.errors.WorkerLost` that names the limit, and nothing is left of the attempt.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from ... import checks
from ...errors import WorkerLost
from . import blas, server, worker

START_METHODS = ("forkserver", "spawn", "fork")

EXIT_UNKNOWN = 1 << 16
"""Stands for the exit code of a process that somebody else has waited for."""

CLOSE_TIMEOUT = 5.0
"""Seconds that a worker has to end by itself after its socket is closed, before it is killed."""

START_TIMEOUT = 60.0
"""Seconds that the server has to start and to fork a worker."""

_BOOT = (
    # Nothing but sys is imported before the path is that of the pool's process.
    "import sys; sys.path[:] = sys.argv[1].split(chr(10)); from batchup_ng.work_pool.processes import {module}; "
    "{module}.main(*map(int, sys.argv[2:]))"
)
_HOME = str(Path(__file__).resolve().parents[3])
"""The folder that this package lies in."""

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


class Given(NamedTuple):
    """What each worker is given beside its socket.

    Attributes:
        threads: How many tasks it runs at once.
        blas_threads: How many threads libraries for linear algebra may use in it; 0 is as many as they like.
        arena_fd: The shared memory; -1 if there is none.
        start_timeout: Seconds that the start of one may take.
    """

    threads: int
    blas_threads: int = 0
    arena_fd: int = -1
    start_timeout: float = START_TIMEOUT

    def fds(self, end: socket.socket) -> list[int]:
        """Return the descriptors that go along with the worker's end of a socket."""
        return [end.fileno()] if self.arena_fd < 0 else [end.fileno(), self.arena_fd]


class Launcher(Protocol):
    """Starts workers in one way."""

    def start(self) -> WorkerProcess:
        """Return a new worker process, which may not be ready yet.

        Raises:
            WorkerLost: none can be had; a later call may have better luck.
        """
        ...

    def close(self) -> None:
        """End what the launcher itself started; the workers have ended before."""
        ...


def launcher(start_method: str | None, given: Given) -> Launcher:
    """Return a launcher of that method; None is ``forkserver``.

    Raises:
        ArgumentError: there is no such method.
    """
    method = checks.one_of("start_method", start_method or START_METHODS[0], START_METHODS)
    kinds: dict[str, Callable[[Given], Launcher]] = {
        "forkserver": ServerLauncher,
        "spawn": SpawnLauncher,
        "fork": ForkLauncher,
    }
    return kinds[method](given)


_LIMITS = {
    errno.EMFILE: (
        "RLIMIT_NOFILE", resource.RLIMIT_NOFILE,
        "descriptors; raise it by ulimit -n, or use fewer processes",
    ),
    errno.EAGAIN: (
        "RLIMIT_NPROC", resource.RLIMIT_NPROC,
        "processes and threads of this user; raise it by ulimit -u, or that of the container (pids.max), or use fewer "
        "processes",
    ),
}  # fmt: skip
"""What each error number means that a start can end with: the limit, its number, what it counts with the remedy."""


def _refused(error: OSError) -> WorkerLost:
    """Return the error for a worker that the system did not let start."""
    code = error.errno or 0
    if code not in _LIMITS:
        hint = "; there is not enough memory" if code == errno.ENOMEM else ""
        return WorkerLost(f"a worker process cannot be started: {error}{hint}")
    name, kind, what = _LIMITS[code]
    soft, _ = resource.getrlimit(kind)
    many = "no limit of its own on" if soft == resource.RLIM_INFINITY else f"a limit of {soft}"
    return WorkerLost(f"a worker process cannot be started: {os.strerror(code)}; {name} sets {many} {what}")


@contextlib.contextmanager
def _new_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the two ends of a new socket: theirs is closed after it, ours if what was to be started was not."""
    try:
        ours, theirs = _pair()
    except OSError as error:
        raise _refused(error) from error
    with theirs:
        try:
            yield ours, theirs
        except OSError as error:
            _close(ours)
            raise _refused(error) from error
        except BaseException:
            _close(ours)
            raise


def _command(module: str, *numbers: int) -> list[str]:
    flags = ["-I"] if sys.flags.isolated else []
    path = [os.path.abspath(entry) for entry in sys.path]
    path += [_HOME] if _HOME not in path else []
    return [sys.executable, *flags, "-c", _BOOT.format(module=module), "\n".join(path), *map(str, numbers)]


def _run(module: str, fds: list[int], blas_threads: int, *numbers: int) -> subprocess.Popen[bytes]:
    """Start an interpreter that calls ``main`` of a module with numbers, and that has some of our descriptors."""
    environment = {**os.environ, **blas.environment(blas_threads, os.environ)}
    with _interrupts_held():
        return subprocess.Popen(_command(module, *numbers), pass_fds=fds, stdin=subprocess.DEVNULL, env=environment)


class SpawnLauncher:
    """A new interpreter for each worker."""

    def __init__(self, given: Given) -> None:
        self._given = given

    def start(self) -> WorkerProcess:
        given = self._given
        with _new_pair() as (ours, theirs):
            numbers = theirs.fileno(), given.arena_fd, given.threads, given.blas_threads
            process = _run("worker", given.fds(theirs), given.blas_threads, *numbers)

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

    def __init__(self, given: Given) -> None:
        self._given = given
        self._server: _Server | None = None
        self._lock = threading.Lock()
        self._closed = False

    def start(self) -> WorkerProcess:
        with self._lock, _new_pair() as (ours, theirs):
            if self._closed:
                raise WorkerLost("a worker process cannot be started: the pool was closed")
            old, server_of_it = self._server, self._running()
            pid = server_of_it.fork(self._given, theirs)
            if pid is None and old is not None:
                # It died some time ago, which shows only now.
                server_of_it = self._running()
                pid = server_of_it.fork(self._given, theirs)
            if pid is None:
                raise WorkerLost("the server of worker processes has ended; see its messages above")
        return WorkerProcess(pid, ours, lambda timeout: server_of_it.exit_code(pid, timeout))

    def _running(self) -> _Server:
        """Return a server that has not ended, as far as is known."""
        if self._server is None or self._server.ended:
            if self._server is not None:
                self._server.close()
            self._server = _Server(self._given.blas_threads)
        return self._server

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._server is not None:
                self._server.close()
                self._server = None


class _Server:
    """One server process; it ends when the socket to it is closed.

    Attributes:
        ended: Whether it was found dead.
    """

    def __init__(self, blas_threads: int) -> None:
        with _new_pair() as (ours, theirs):
            self._process = _run("server", [theirs.fileno()], blas_threads, theirs.fileno())
        self._sock = ours
        self._codes: dict[int, int] = {}
        self._lock = threading.Lock()
        self.ended = False

    def fork(self, given: Given, end: socket.socket) -> int | None:
        """Return the number of a new worker with that end of a socket; None if the server is dead.

        Raises:
            WorkerLost: the server cannot fork, or does not answer.
        """
        fds = given.fds(end)
        request = server.REQUEST.pack(len(fds), given.threads, given.blas_threads)
        deadline = time.monotonic() + given.start_timeout
        with self._lock:
            try:
                socket.send_fds(self._sock, [request], fds)
            except OSError:
                self.ended = True
                return None
            answer = self._await_message((server.STARTED, server.FAILED), None, deadline)
        if answer is not None and answer[0] == server.FAILED:
            raise _refused(OSError(answer[2], os.strerror(answer[2])))
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
        with self._lock:
            if pid not in self._codes:
                self._await_message((server.ENDED,), pid, deadline)
            if pid in self._codes or not self.ended:
                return self._codes.get(pid)
        while _is_running(pid):
            if time.monotonic() > deadline:
                return None
            time.sleep(0.002)
        return EXIT_UNKNOWN

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
        _close(self._sock)
        try:
            self._process.wait(CLOSE_TIMEOUT)
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


class ForkLauncher:
    """Workers forked from the calling process."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._ended: dict[int, int] = {}

    def start(self) -> WorkerProcess:
        given = self._given
        with _new_pair() as (ours, theirs), _interrupts_held():
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(AttributeError, ValueError, OSError):
                    stream.flush()  # or the child would write what is buffered once more
            pid = os.fork()
            if pid == 0:
                fd = theirs.detach()
                server.run_forked(fd, given.arena_fd, given.threads, given.blas_threads, close=sorted(_ours))
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
