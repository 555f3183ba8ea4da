"""Starts worker processes, replaces those that are gone, and ends them all.

There are two ways to start one, as in :mod:`multiprocessing`. ``spawn`` starts a new interpreter for each worker.
``forkserver`` starts one, the server (:mod:`.fork_server`), which forks a worker when asked. None of them runs the
user's main module again, so scripts need no ``__main__`` guard: functions travel by value.

Who owns what. A :class:`Launcher` belongs to one pool; any thread may use it. It has the server, if there is one, to
itself until its workers have ended; a :class:`~.process.WorkerProcess` owns the pool's end of one socket. The shared
memory is the pool's; a worker gets a descriptor. Starting a worker may take long: a fork server that is stopped answers
nothing for a minute. So the :class:`Supervisor` replaces workers on a thread of its own, and the lock of the pool is
not held meanwhile.

What happens on a crash. A worker's death is seen by its end of the socket being closed; the server, which is its
parent, or the system reports how it died. If the server died, a new one starts the next worker; how its workers end is
then not known. Where the system refuses a process or a descriptor, or nothing answers in time, the error is a
:class:`~batchup_ng.errors.WorkerDied` that names the limit, and nothing is left of the attempt.
"""

from __future__ import annotations

import errno
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from ... import validation
from ...errors import WorkerDied
from . import fork_server
from .fork_server import ForkServer
from .parent_death import ParentDeath
from .process import Given, WorkerProcess, new_pair, refused, run
from .signals import leave_interrupts_to_others

START_METHODS = ("forkserver", "spawn")

CLOSE_SECONDS = 5.0
"""Seconds that all workers together have to end by themselves, before they are killed."""


def launcher_for(start_method: str | None, given: Given) -> Launcher:
    """Return a launcher of that method; None is ``forkserver``.

    Raises:
        ArgumentError: there is no such method.
    """
    method = validation.one_of("start_method", start_method or START_METHODS[0], START_METHODS)
    return Launcher(given) if method == "spawn" else ServerLauncher(given)


class Launcher:
    """Starts workers: a new interpreter for each."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._life: ParentDeath | None = None
        self._closed = False

    def start(self) -> WorkerProcess:
        """Return a new worker process, which may not be ready yet.

        Raises:
            WorkerDied: none can be had; a later call may have better luck.
        """
        given = self._given
        self._check_open()
        with new_pair() as (ours, theirs):
            life = self._pipe()
            numbers = theirs.fileno(), life.fd, given.arena_fd, given.threads
            process = run("worker", given.fds(theirs, life), given.blas_threads, *numbers)

        def exit_code(timeout: float) -> int | None:
            try:
                return process.wait(timeout)
            except subprocess.TimeoutExpired:
                return None

        return WorkerProcess(process.pid, ours, exit_code)

    def _check_open(self) -> None:
        if self._closed:
            raise WorkerDied("a worker process cannot be started: the pool was closed")

    def _pipe(self) -> ParentDeath:
        """Return the pipe that workers hang on, made when it is first needed; an ``OSError`` if that cannot be."""
        if self._life is None:
            self._life = ParentDeath()
        return self._life

    def rest(self) -> None:
        """End what the launcher itself started; the workers have ended before. It may start others later."""
        life, self._life = self._life, None
        if life is not None:
            life.close()

    def interrupt(self) -> None:
        """Start no more: a start that another thread waits for fails soon."""
        self._closed = True


class ServerLauncher(Launcher):
    """Workers forked by one server process, which starts with the first of them."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self._server: ForkServer | None = None
        self._lock = threading.Lock()

    def start(self) -> WorkerProcess:
        with self._lock, new_pair() as (ours, theirs):
            self._check_open()
            fds = self._given.fds(theirs, self._pipe())
            for _ in range(2):  # a server may have died some time ago, which shows only now
                server = self._running()
                pid = server.fork(self._given, fds)
                if pid is not None or self._closed:
                    break
            if pid is None:
                raise WorkerDied("the server of worker processes has ended; see its messages above")
        return WorkerProcess(pid, ours, lambda timeout: server.exit_code(pid, timeout))

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


def no_thread(error: BaseException) -> WorkerDied:
    """Return the error for a thread that the system did not let start."""
    return refused(OSError(errno.EAGAIN, str(error)))


class Supervised(Protocol):
    """What has the workers; all but ``wake`` is called with the lock held."""

    def is_missing(self) -> bool: ...

    def accept(self, process: WorkerProcess) -> bool: ...

    def not_replaced(self, error: Exception) -> None: ...

    def wake(self) -> None: ...


class Supervisor:
    """Replaces and ends the workers of `owner`, whose state `lock` guards.

    Attributes:
        replacing: Whether a thread is just starting some.
    """

    def __init__(self, launcher: Launcher, lock: threading.Lock, owner: Supervised) -> None:
        self._launcher = launcher
        self._lock = lock
        self._owner = owner
        self._thread: threading.Thread | None = None
        self.replacing = False

    def start_replacements(self) -> None:
        """Have workers started as long as some are missing. Called with the lock held."""
        if self.replacing:
            return
        thread = threading.Thread(target=self._replace, name="batchup_ng-start", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._owner.not_replaced(error)
        else:
            self._thread, self.replacing = thread, True

    def _replace(self) -> None:
        leave_interrupts_to_others()
        while self._is_missing():
            try:
                process = self._launcher.start()
            except Exception as error:
                with self._lock:
                    self._owner.not_replaced(error)
                    self.replacing = False
                break
            with self._lock:
                accepted = self._owner.accept(process)
            if not accepted:
                process.end(0.0)
        self._owner.wake()

    def _is_missing(self) -> bool:
        with self._lock:
            self.replacing = self._owner.is_missing()
            return self.replacing

    def end(self, processes: Sequence[WorkerProcess]) -> None:
        """End workers: all together have some time to do so by themselves."""
        for process in processes:
            process.hang_up()
        deadline = time.monotonic() + CLOSE_SECONDS
        for process in processes:
            process.end(max(0.0, deadline - time.monotonic()))

    def settle(self) -> None:
        """Wait until no thread starts workers any more; end what it took to start those that there were."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()  # it ends what it has just started
        self._launcher.rest()
