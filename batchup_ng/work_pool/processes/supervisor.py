"""Starts worker processes in the place of those that are gone, and ends them all.

Starting one may take long: a fork server that is stopped answers nothing for a minute. So a thread of its own does that
for a pool that is at work, and the lock of the pool is not held meanwhile.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from ...errors import WorkerDied
from .launch import Launcher
from .process import WorkerProcess, refused
from .signals import leave_interrupts_to_others

CLOSE_SECONDS = 5.0
"""Seconds that all workers together have to end by themselves, before they are killed."""


class Start:
    """A start of the workers.

    Attributes:
        done: Set when it has succeeded or failed.
        error: Why it failed.
    """

    def __init__(self) -> None:
        self.done = threading.Event()
        self.error: BaseException | None = None


def no_thread(error: BaseException) -> WorkerDied:
    """Return the error for a thread that the system did not let start."""
    return refused(OSError(errno.EAGAIN, str(error)))


class Employer(Protocol):
    """Who has the workers; all but ``wake`` is called with the lock held."""

    def is_missing(self) -> bool:
        """Return whether a worker is to be started."""
        ...

    def took_on(self, process: WorkerProcess) -> bool:
        """Take on a worker; return False if it is not wanted any more."""
        ...

    def not_replaced(self, error: Exception) -> None:
        """Hear that a worker could not be started."""
        ...

    def wake(self) -> None:
        """Hear that something has changed."""
        ...


class Supervisor:
    """The processes of one pool, as far as starting and ending them goes.

    Args:
        starter: Starts one.
        lock: Guards what the employer knows.
        employer: Who has the workers.

    Attributes:
        hiring: Whether a thread is just starting some.
    """

    def __init__(self, starter: Launcher, lock: threading.Lock, employer: Employer) -> None:
        self._starter = starter
        self._lock = lock
        self._employer = employer
        self._thread: threading.Thread | None = None
        self.hiring = False

    def start(self) -> WorkerProcess:
        """Return a new worker process, however long that takes."""
        return self._starter.start()

    def start_replacements(self) -> None:
        """Have workers started as long as some are missing. Called with the lock held."""
        if self.hiring:
            return
        thread = threading.Thread(target=self._hire, name="batchup_ng-start", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._employer.not_replaced(error)
        else:
            self._thread, self.hiring = thread, True

    def _hire(self) -> None:
        leave_interrupts_to_others()
        while self._is_missing():
            try:
                process = self._starter.start()
            except Exception as error:
                with self._lock:
                    self._employer.not_replaced(error)
                    self.hiring = False
                break
            with self._lock:
                taken = self._employer.took_on(process)
            if not taken:
                process.end(0.0)
        self._employer.wake()

    def _is_missing(self) -> bool:
        with self._lock:
            missing = self._employer.is_missing()
            self.hiring = missing
            return missing

    def end(self, processes: Sequence[WorkerProcess]) -> None:
        """End workers: all together have some time to do so by themselves."""
        for process in processes:
            process.hang_up()
        deadline = time.monotonic() + CLOSE_SECONDS
        for process in processes:
            process.end(max(0.0, deadline - time.monotonic()))

    def interrupt(self) -> None:
        """Start no more: a start that is waited for fails soon."""
        self._starter.interrupt()

    def rest(self) -> None:
        """End what it took to start workers, all of which have ended; more may be started later."""
        self._starter.rest()

    def close(self) -> None:
        """The same for good."""
        self._starter.close()
        self.settle()

    def settle(self) -> None:
        """Wait until nobody starts workers any more; end what it took to start those that there were."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()  # it ends what it has just started
        self._starter.rest()
