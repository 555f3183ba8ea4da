"""The start of a worker process, and the process as the pool sees it.

There are two ways to start a worker, as in :mod:`multiprocessing`. ``spawn`` starts a new interpreter for each worker
(:class:`Launcher`). ``forkserver`` starts one interpreter, the server (:mod:`.fork_server`), which forks a worker on
request. Neither runs the user's main module again, because functions are pickled by value.

Ownership. A :class:`Launcher` belongs to one pool, and any thread may use it. A :class:`WorkerProcess` owns the pool's
end of one socket. The end of the stream on this socket means that the worker died. A start that fails leaves nothing.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ...errors import PoolBroken, PoolClosed
from ...memory.limits import entries
from ...platforms import system
from .parent_death import ParentDeath
from .schedule import START_TIMEOUT

EXIT_UNKNOWN = 1 << 16
"""Stand-in for an unknown exit code."""

CLOSE_TIMEOUT = 5.0
"""Seconds from the close of the sockets until workers that have not ended are killed."""

GRACE_IN_A_TASK = 0.5
"""The same for workers in a task."""

KILL_TIMEOUT = 5.0
"""Seconds that a killed process may take to be gone."""

_BOOT = (
    # Before the import path of the pool's process is set, only sys is imported. The library is imported without the
    # current folder in the path, because the program may have changed to a folder that contains a json.py.
    "import sys; sys.path[:] = sys.argv[1].split(chr(10)); from batchup_ng.work_pool.processes import {module}; "
    "[*map(__import__, sys.argv[3].split())]; "
    "sys.path[:] = sys.argv[2].split(chr(10)); {module}.main(*map(int, sys.argv[4:]))"
)
_ROOMS_OF_WORKERS = ("accessors", "augment", "data_statistics", "datasets", "formats", "targets")
"""The parts of this package that load on first use, and whose objects workers may get."""

_HOME = str(Path(__file__).resolve().parents[3])
"""The folder that contains this package."""


def hang_up(sock: socket.socket) -> None:
    """Hang up, even if a fork by the user holds a copy of the socket."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):  # the program has closed all descriptors that it did not open
        sock.close()


class WorkerProcess:
    """A worker process, from the pool's side.

    `exit_code` waits up to the given seconds. It returns the exit code, the negative number of a signal, or None if the
    worker still runs. `death` is a descriptor that becomes readable when the worker ends, because the socket stays open
    if the worker has forked. It is None if the system has no such descriptor.
    """

    def __init__(self, pid: int, sock: socket.socket, exit_code: Callable[[float], int | None]) -> None:
        self.pid = pid
        self.sock = sock
        self.exit_code = exit_code
        self.death: int | None = None
        with contextlib.suppress(AttributeError, OSError):  # not Linux, or it has ended, as its socket will show
            self.death = os.pidfd_open(pid)
        sock.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, option, 1 << 20)

    def hang_up(self) -> None:
        """Close the pool's end of the socket. The worker then ends."""
        hang_up(self.sock)

    def kill(self) -> bool:
        """Kill the worker. Return False if it is already gone. Another process may have its pid by then."""
        with contextlib.suppress(ProcessLookupError):
            if self.death is None:
                os.kill(self.pid, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(self.death, signal.SIGKILL)
            return True
        return False

    def end(self, timeout: float = CLOSE_TIMEOUT) -> int | None:
        """Hang up and wait for the worker to end. If it does not, kill it. Return its exit code."""
        self.hang_up()
        code = self.exit_code(timeout)
        if code is None:
            code = self.exit_code(KILL_TIMEOUT) if self.kill() else EXIT_UNKNOWN
        death, self.death = self.death, None
        if death is not None:
            with contextlib.suppress(OSError):  # the program has closed all descriptors that it did not open
                os.close(death)
        return code


_LIMITS = {
    errno.EMFILE: ("RLIMIT_NOFILE", "descriptors; raise it by ulimit -n, or use fewer processes"),
    errno.EAGAIN: (
        "RLIMIT_NPROC",
        "processes and threads of this user; raise it by ulimit -u, or that of the container (pids.max), or use fewer "
        "processes",
    ),
}
"""For each error number of a failed start: the limit, and the objects that it counts with the remedy."""


_LIMITS_ON_MEMORY = (("RLIMIT_DATA", "VmData", "-d"), ("RLIMIT_AS", "VmSize", "-v"))
"""The limits on a process's memory: name, entry in ``/proc/self/status`` for the memory that counts, ulimit option."""


def refused(error: OSError | RuntimeError) -> PoolBroken:
    """Return the error for a worker, or its thread, that the system refused to start."""
    if isinstance(error, RuntimeError) and "shutdown" in str(error):
        return PoolBroken(
            f"a worker process cannot be started: {error}; use the pool before the program ends (Python 3.12.0 to "
            f"3.12.2 start no thread for what atexit calls)"
        )
    code = error.errno or 0 if isinstance(error, OSError) else errno.EAGAIN
    # Python does not say why a thread cannot start: no memory for its stack has the same number as too many threads.
    hint = _limit_on_memory() if isinstance(error, RuntimeError) or code == errno.ENOMEM else ""
    if hint:
        return PoolBroken(f"a worker process cannot be started: {os.strerror(errno.ENOMEM)}; {hint}")
    if code not in _LIMITS:
        hint = "; there is not enough memory" if code == errno.ENOMEM else ""
        return PoolBroken(f"a worker process cannot be started: {error}{hint}")
    name, what = _LIMITS[code]
    soft = system.limit_on(name)
    many = "no limit of its own on" if soft == math.inf else f"a limit of {soft}"
    return PoolBroken(f"a worker process cannot be started: {os.strerror(code)}; {name} sets {many} {what}")


def _limit_on_memory() -> str:
    """Return the limit, in words, that leaves less memory than a thread's stack; empty if there is none."""
    stack = threading.stack_size() or system.limit_on("RLIMIT_STACK")
    if stack == math.inf:
        stack = 2 << 20  # the default of glibc in this case
    used = entries(Path("/proc/self/status"))
    for name, counted, option in _LIMITS_ON_MEMORY:
        soft = system.limit_on(name)
        if soft < math.inf and soft - used.get(counted, 0) < stack:
            return f"{name} sets a limit of {soft} bytes on the memory of this process; raise it by ulimit {option}"
    return ""


@contextlib.contextmanager
def new_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the two ends of a new socket. Close theirs at the end of the block. If the block raises, close ours too."""
    try:
        ours, theirs = socket.socketpair()
    except OSError as error:
        raise refused(error) from error
    with theirs:
        try:
            yield ours, theirs
        except OSError as error:
            hang_up(ours)
            raise refused(error) from error
        except BaseException:
            hang_up(ours)
            raise


def loaded_rooms() -> list[str]:
    """Return the modules of :data:`_ROOMS_OF_WORKERS` that this program has imported.

    A server imports them too, or each of its workers would import them again, into memory of its own.
    """
    prefixes = tuple(f"batchup_ng.{room}" for room in _ROOMS_OF_WORKERS)
    return [name for name in list(sys.modules) if name.startswith(prefixes)]


def command(module: str, *numbers: int, imports: Sequence[str] = ()) -> list[str]:
    """Return the command to call ``main`` of a module with `numbers` in another interpreter like the present one.

    That interpreter first imports the modules `imports` of this package.
    """
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # multiprocessing uses it as well
    paths = [os.path.abspath(entry) for entry in sys.path if entry], [os.path.abspath(entry) for entry in sys.path]
    texts = ["\n".join(path if _HOME in path else [*path, _HOME]) for path in paths]
    return [sys.executable, *flags, "-c", _BOOT.format(module=module), *texts, " ".join(imports), *map(str, numbers)]


def run(module: str, fds: list[int], blas_threads: int | None, *numbers: int) -> subprocess.Popen[bytes]:
    """Start an interpreter with the descriptors `fds` that calls ``main`` of a module with `numbers`."""
    arguments, variables = command(module, *numbers, imports=loaded_rooms()), {**os.environ, **same_bits(blas_threads)}
    # Ctrl-C is blocked during the start. The new process keeps it blocked until it ignores Ctrl-C.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(arguments, pass_fds=fds, stdin=subprocess.DEVNULL, env=variables)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Launcher:
    """Starts workers, each in a new interpreter.

    `arena_fd` is the shared memory, -1 if there is none. `start_timeout` is the seconds for a worker to become ready.
    `memory` is the limit on a worker's own memory in bytes, 0 for none.
    """

    def __init__(
        self, threads: int, blas_threads: int | None = 1, arena_fd: int = -1, start_timeout: float = START_TIMEOUT,
        memory: int = 0,
    ) -> None:  # fmt: skip
        self.start_timeout = start_timeout
        self._memory = memory
        self._threads = threads
        self._blas_threads = blas_threads
        self._arena_fd = arena_fd
        self._life: ParentDeath | None = None
        self._closed = False

    def start(self) -> WorkerProcess:
        """Start a worker process and return it; it may not be ready yet. Raise :class:`PoolBroken` if that fails."""
        with new_pair() as (ours, theirs):
            fds = self._fds(theirs)
            process = run("worker", fds, self._blas_threads, *fds[:2], self._arena_fd, self._threads, self._memory)

        def exit_code(timeout: float) -> int | None:
            try:
                return process.wait(timeout)
            except subprocess.TimeoutExpired:
                return None

        return WorkerProcess(process.pid, ours, exit_code)

    def _fds(self, end: socket.socket) -> list[int]:
        """Return the descriptors for a worker: its end of a socket, the pipe of its parent, the shared memory."""
        self._check_open()
        if self._life is None:
            self._life = ParentDeath()
        return [end.fileno(), self._life.fd, *([] if self._arena_fd < 0 else [self._arena_fd])]

    def _check_open(self) -> None:
        if self._closed:
            raise PoolClosed("a worker process cannot be started: the pool was closed")

    def rest(self) -> None:
        """Release the launcher's resources. The workers have ended before. It may start others later."""
        life, self._life = self._life, None
        if life is not None:
            life.close()

    def interrupt(self) -> None:
        """Start no more workers. A start that another thread waits for fails soon."""
        self._closed = True


THREAD_LIMITS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS", "OPENCV_FOR_THREADS_NUM",
)  # fmt: skip
"""The variables that OpenCV, torch and libraries for linear algebra read when they are loaded."""


def same_bits(blas_threads: int | None) -> dict[str, str]:
    """Return the environment variables that make all workers produce the same batches.

    If workers had different hash seeds, their sets of strings would differ in order. With another number of threads,
    products of matrices differ in the last bits, because the threads add up their sums in another order.
    """
    seed = os.environ.get("PYTHONHASHSEED", "")
    limits = {} if blas_threads is None else dict.fromkeys(THREAD_LIMITS, str(blas_threads))
    return {"PYTHONHASHSEED": seed if seed.isdigit() else "0", **limits}
