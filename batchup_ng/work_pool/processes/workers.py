"""The worker processes of a pool: their starts, replacements and ends.

Ownership. :class:`Workers` own each process from its start until it has ended, and the launcher that starts them. The
dispatcher's thread starts the first workers and ends them all. A second, short-lived thread, the starter, starts
replacements and the workers by which a pool grows, because a stopped fork server does not answer for a minute. Each of
them is added to the schedule and the wire as soon as it has a process, so it is served while the starter starts others.

Lock. The pool's lock guards the schedule and all fields here. No thread holds it while it starts or ends a process.
`degraded_reason` may be read without it.

On a crash: :meth:`Workers.bury` ends a worker that is gone, and records how it ended. A start that fails leaves
nothing, and is tried again after :data:`START_PAUSE`. A process that is not ready in time is killed like a worker whose
task takes too long: `start_timeout` is a deadline of the schedule.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ... import log
from ...memory.leases import BufferPool
from ...signals import leave_interrupts_to_others
from .future import ProcessFuture
from .process import CLOSE_TIMEOUT, EXIT_UNKNOWN, GRACE_IN_A_TASK, Launcher, WorkerProcess, refused
from .schedule import Action, Schedule
from .shared_memory import SlotPool
from .wire import Wire, WorkerHandle

START_PAUSE = 1.0
"""Seconds between two attempts to start a worker."""

LOST_TIMEOUT = 0.2
"""Seconds that a worker that has hung up may take to end."""

NO_OTHER = ", and no other could be started: "
OTHERS_ENDED_TOO = "; others ended before they had done anything, too"

Actions = Sequence[Action[WorkerHandle, ProcessFuture]]
"""What the schedule wants to be done."""


class Workers:
    """Starts, replaces and ends the worker processes that `schedule` asks for.

    Args:
        schedule: Says how many workers are missing, and gets each worker that was started.
        launcher: Starts the processes.
        wire: Waits for the workers, from their start until they are lost.
        lock: The pool's lock.
        slots: Gives workers their slots; None if there is no shared memory.
        do: Carries out actions of the schedule, with the lock held.
        is_closed: Returns whether the pool was closed. Takes no lock.

    Attributes:
        last_exit: How the latest worker ended, in words.
        degraded_reason: Why there are fewer workers than asked for; empty if there never were fewer.
    """

    def __init__(
        self,
        schedule: Schedule[WorkerHandle, ProcessFuture],
        launcher: Launcher,
        wire: Wire,
        lock: AbstractContextManager[Any],
        slots: SlotPool | None,
        do: Callable[[Actions], None],
        is_closed: Callable[[], bool],
    ) -> None:
        self.launcher = launcher
        self.memory = BufferPool(max_free=8)
        self.last_exit = ""
        self.degraded_reason = ""
        self._schedule = schedule
        self._wire = wire
        self._lock = lock
        self._slots = slots
        self._do = do
        self._is_closed = is_closed
        self._starter: threading.Thread | None = None
        self._starting = False  # whether the starter is at work
        self._start_again = 0.0
        self._lost = 0  # workers that ended by themselves and are not replaced yet

    # -- the thread of the dispatcher --------------------------------------------------------------------------

    def start(self) -> None:
        """Start the first workers. Return when each has a process, which may not be ready yet."""
        while self._schedule.missing() > 0:
            process = self.launcher.start()
            with self._lock:
                self._add(process)

    def end_all(self) -> None:
        """End all workers. They share one period to end without a kill. The launcher may start others later."""
        with self._lock:
            workers = self._schedule.take_all()
        for worker in workers:
            if not worker.ready:
                worker.process.kill()  # it has done nothing yet, and may notice the end late
            worker.process.hang_up()
        began = time.monotonic()
        for worker in workers:
            deadline = began + (GRACE_IN_A_TASK if worker.sent else CLOSE_TIMEOUT)
            worker.process.end(max(0.0, deadline - time.monotonic()))
        if self._starter is not None:
            self._starter.join()  # it ends the worker that it has just started
        self.launcher.rest()
        with self._lock:
            self.last_exit = self.degraded_reason = ""
            self._start_again = 0.0
            self._lost = 0

    # -- the thread that has the turn --------------------------------------------------------------------------

    def bury(self, worker: WorkerHandle) -> None:
        """End a worker that is gone, and take back its slots."""
        with self._lock:
            self._wire.remove(worker)
        code = worker.process.end(LOST_TIMEOUT)
        had_tasks = bool(worker.sent)
        worker.sent.clear()  # and free its slots, because the process writes no more
        with self._lock:
            self._lost += not worker.leaving
            if had_tasks or not worker.leaving:
                self.last_exit = self._describe_exit(worker, code)

    def replace(self, now: float) -> float:
        """Have the starter start the workers that are missing. With the lock held.

        Returns:
            The time of the next attempt; infinity if the starter is at work or the pool was closed.
        """
        if self._starting or self._is_closed():
            return math.inf
        if self._start_again <= now:
            thread = threading.Thread(target=self._start_missing, name="batchup_ng-start", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                self._not_started(refused(error))
            else:
                self._starter, self._starting = thread, True
                return math.inf
        return self._start_again

    def give_up(self) -> None:
        """Record that a worker will not be replaced. With the lock held."""
        self.degraded_reason = self.degraded_reason or f"{self.last_exit}{OTHERS_ENDED_TOO}"

    # -- the starter -------------------------------------------------------------------------------------------

    def _start_missing(self) -> None:
        leave_interrupts_to_others()
        process: WorkerProcess | None = None
        while True:
            with self._lock:
                if process is not None and not self._is_closed() and not self._schedule.broken:
                    self._add(process)
                    process = None
                self._starting = process is None and self._schedule.missing() > 0 and not self._is_closed()
                if not self._starting:
                    break
            try:
                process = self.launcher.start()
                with self._lock:
                    replaces, self._lost = self._lost > 0, max(0, self._lost - 1)
                if replaces:
                    pid = process.pid
                    log.note("a worker process (pid %d) was started in place of another: %s", pid, self.last_exit)
            except Exception as error:
                if not self._is_closed():
                    log.note("no worker process can be started: %s", error)
                with self._lock:
                    self._not_started(error)
                    self._starting = False
                break
        if process is not None:
            process.end(0.0)  # the pool was closed or broke during the start
        self._wire.wake()

    # -- with the lock held ------------------------------------------------------------------------------------

    def _add(self, process: WorkerProcess) -> None:
        """Hand over a started worker to the schedule and the wire."""
        taken = {worker.number for worker in self._schedule.workers}
        number = next(number for number in itertools.count() if number not in taken)
        worker = WorkerHandle(number, process, time.monotonic(), self.memory, self._slots)
        self._schedule.add(worker)
        self._wire.add(worker)

    def _not_started(self, error: Exception) -> None:
        """Schedule another attempt for a worker that could not be started."""
        before = self.last_exit.partition(NO_OTHER)[0]  # only the last attempt
        self.last_exit = f"{before}{NO_OTHER}{error}" if before else str(error)
        self.degraded_reason = self.degraded_reason or f"{self.last_exit}; that is tried again every {START_PAUSE:g} s"
        self._do(self._schedule.not_started())
        self._start_again = time.monotonic() + START_PAUSE

    def _describe_exit(self, worker: WorkerHandle, code: int | None) -> str:
        """Return how a worker ended, in words, from its exit code."""
        who = f"a worker process (pid {worker.process.pid})"
        if not worker.ready and worker.killed:
            seconds = self._schedule.start_timeout
            return f"{who} was not ready within start_timeout={seconds:g} s of its start, for which it was ended"
        if worker.start_error:
            return f"{who} could not start: {worker.start_error}"
        return f"{who} {describe_exit(code)}"


def describe_exit(code: int | None) -> str:
    """Return how a process ended, in words."""
    if code is None:
        return "hung up and could not be ended"
    if code == EXIT_UNKNOWN:
        return "exited with unknown status"
    if code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            hint = "; perhaps the system ran out of memory" if name == "SIGKILL" else ""
            return f"was ended by {name}{hint}"
    return f"exited with code {code}"
