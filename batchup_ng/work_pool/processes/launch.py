"""Starts worker processes.

There are two ways, as in :mod:`multiprocessing`. ``spawn`` starts a new interpreter for each worker. ``forkserver``
starts one, the server, which imports this package, stays single-threaded, forks a worker when asked. None of them runs
the user's main module again, so scripts need no ``__main__`` guard: functions travel by value. (``fork``, the third
way, would copy this process with threads cut short and locks that stay locked.)

Who owns what. A launcher belongs to one pool; any thread may use it. It has the server, if there is one, to itself
until its workers have ended; a :class:`WorkerProcess` owns the pool's end of one socket. The shared memory is the
pool's; a worker gets a descriptor.

What happens on a crash. A worker's death is seen by its end of the socket being closed; how it died is asked of the
server, which is its parent, or of the system. If the server died, the next worker is started by a new one; how its
workers end is then not known. Where the system refuses a process or a descriptor, or nothing answers in time, the
error is a :class:`~batchup_ng.errors.WorkerDied` that names the limit, and nothing is left of the attempt.
"""

from __future__ import annotations

import subprocess
import threading
from typing import Protocol

from ... import validation
from ...errors import WorkerDied
from . import fork_server, server, worker
from .fork_server import ForkServer
from .parent_death import ParentDeath
from .process import Given, WorkerProcess, new_pair, run

START_METHODS = ("forkserver", "spawn")


class Launcher(Protocol):
    """Starts workers in one way."""

    def start(self) -> WorkerProcess:
        """Return a new worker process, which may not be ready yet.

        Raises:
            WorkerDied: none can be had; a later call may have better luck.
        """
        ...

    def rest(self) -> None:
        """End what the launcher itself started; the workers have ended before. It may start others later."""
        ...

    def interrupt(self) -> None:
        """Start no more: a start that another thread waits for fails soon."""
        ...

    def close(self) -> None:
        """End what the launcher itself started, for good."""
        ...


class _Launcher:
    """What the launchers have in common: what workers are given, the pipe that they hang on."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._life: ParentDeath | None = None
        self._closed = False

    def _check_open(self) -> None:
        if self._closed:
            raise WorkerDied("a worker process cannot be started: the pool was closed")

    def _lifeline(self) -> ParentDeath:
        """Return the pipe, made when it is first needed; an ``OSError`` if that cannot be."""
        if self._life is None:
            self._life = ParentDeath()
        return self._life

    def rest(self) -> None:
        life, self._life = self._life, None
        if life is not None:
            life.close()

    def interrupt(self) -> None:
        self._closed = True

    def close(self) -> None:
        self.interrupt()
        self.rest()


def launcher(start_method: str | None, given: Given) -> Launcher:
    """Return a launcher of that method; None is ``forkserver``.

    Raises:
        ArgumentError: there is no such method.
    """
    method = validation.one_of("start_method", start_method or START_METHODS[0], START_METHODS)
    return SpawnLauncher(given) if method == "spawn" else ServerLauncher(given)


class SpawnLauncher(_Launcher):
    """A new interpreter for each worker."""

    def start(self) -> WorkerProcess:
        given = self._given
        self._check_open()
        with new_pair() as (ours, theirs):
            life = self._lifeline()
            numbers = theirs.fileno(), life.fd, given.arena_fd, given.threads
            process = run("worker", given.fds(theirs, life), given.blas_threads, *numbers)

        def exit_code(timeout: float) -> int | None:
            try:
                return process.wait(timeout)
            except subprocess.TimeoutExpired:
                return None

        return WorkerProcess(process.pid, ours, exit_code)


class ServerLauncher(_Launcher):
    """Workers forked by one server process, which starts with the first of them."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self._server: ForkServer | None = None
        self._lock = threading.Lock()

    def start(self) -> WorkerProcess:
        with self._lock, new_pair() as (ours, theirs):
            self._check_open()
            fds = self._given.fds(theirs, self._lifeline())
            server_of_it = self._running()
            pid = server_of_it.fork(self._given, fds)
            if pid is None and server_of_it.has_forked and not self._closed:
                # It died some time ago, which shows only now.
                server_of_it = self._running()
                pid = server_of_it.fork(self._given, fds)
            if pid is None:
                raise WorkerDied("the server of worker processes has ended; see its messages above")
        return WorkerProcess(pid, ours, lambda timeout: server_of_it.exit_code(pid, timeout))

    def _running(self) -> ForkServer:
        """Return a server that has not ended, as far as is known."""
        if self._server is None or self._server.ended:
            if self._server is not None:
                self._server.close()
            self._server = fork_server.take(self._given.blas_threads)
        return self._server

    def rest(self) -> None:
        with self._lock:
            if self._server is not None:
                fork_server.give_back(self._server)
                self._server = None
            super().rest()

    def interrupt(self) -> None:
        super().interrupt()
        if self._lock.acquire(blocking=False):
            self._lock.release()
        elif self._server is not None:
            self._server.kill()  # another thread waits for its answer


# The names under which the started interpreters find their modules; imported here so that a mistake shows at once.
MODULES = {"server": server, "worker": worker}
