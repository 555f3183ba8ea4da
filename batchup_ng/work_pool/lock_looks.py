"""How much of the time of a batch holds the interpreter's lock, found by a thread that looks at the lock now and then.

One thread makes batches. This one sleeps for some 0.1 ms at a time. To go on after a sleep, it needs the lock. If the
other thread holds it, this one waits, which the system counts as a second voluntary context switch. So each look shows
whether the lock was held at the end of a sleep, and each wait for how long.

The looks are weighted with the CPU time of the making thread since the look before. So the result is the share of its
CPU time with the lock held, however long the two threads queue for a CPU. On a busy machine there are fewer looks, and
the result is less certain. Settings of the interpreter, such as its switch interval, stay as they are.

Where the system has no CPU clock of another thread, or does not count switches (macOS), elapsed time stands for both.
"""

from __future__ import annotations

import contextlib
import contextvars
import math
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from ..platforms import system

TOGETHER_SECONDS = 0.005
"""Least number of seconds for which the two threads run together."""

ASLEEP_SECONDS = 50e-6
"""Seconds that a sleep is asked to last, on average. It takes about twice as long."""

UNSEEN_SECONDS = 200e-6
"""Of a look that waited for the lock, the state of the lock is inferred for so many seconds only, its sleep."""

LATE_SECONDS = 250e-6
"""Seconds from which a look has waited for the lock, where the system does not count that."""

LEAST_VARIANCE = 0.09
"""Variance of one look that is assumed at least: a few looks that agree do not prove a share of 0 or 1."""

HAS_CLOCKS = hasattr(time, "pthread_getcpuclockid")
"""Whether the system has a CPU clock of each thread that other threads can read."""

SPREAD = (math.sqrt(5) - 1) / 2
"""Step of the sequence of sleeps, from 0 to 1. Its multiples keep in step with no period of the work."""


class Looks(NamedTuple):
    """Looks at the lock.

    Attributes:
        held: CPU seconds with the lock held.
        cpu: CPU seconds in all.
        squares: Sum of the squares of the CPU seconds of each look whose state is inferred.
    """

    held: float = 0.0
    cpu: float = 0.0
    squares: float = 0.0

    def and_more(self, others: Looks) -> Looks:
        """Return these looks and others."""
        return Looks(*[one + other for one, other in zip(self, others, strict=True)])

    @property
    def share(self) -> float:
        """The share of the CPU time with the lock held; NaN if there was no look."""
        return self.held / self.cpu if self.cpu > 0 else math.nan

    @property
    def error(self) -> float:
        """The standard error of the share; 1.0 if there was no look."""
        if not self.cpu > 0:
            return 1.0
        return min(1.0, math.sqrt(max(LEAST_VARIANCE, self.share * (1 - self.share)) * self.squares) / self.cpu)


def looks_at(run: Callable[[], object], alone: float) -> Looks:
    """Make batches on another thread, and look at the lock. Made alone, a batch takes `alone` seconds.

    Raises:
        Exception: the exception of `run`.
    """
    errors: list[BaseException] = []
    ended: list[float] = []  # the time of the thread's clock at its end
    begin = threading.Event()
    n = math.ceil(TOGETHER_SECONDS / alone)

    def make() -> None:
        begin.wait()
        try:
            for _ in range(n):
                run()
        except BaseException as error:
            errors.append(error)
        ended.append(time.thread_time() if HAS_CLOCKS else time.perf_counter())

    # In a copy of the caller's context, such as the precision of decimals: these batches are handed out.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(make,), daemon=True)
    try:
        thread.start()
        assert thread.ident is not None
        number = time.pthread_getcpuclockid(thread.ident) if HAS_CLOCKS else 0
        begin.set()
        found = _looks(number, ended)
    finally:
        begin.set()
        with contextlib.suppress(RuntimeError):  # an interrupt came before the thread was started
            thread.join()
    if errors:
        raise errors[0]
    return found


def _looks(clock: int, ended: list[float]) -> Looks:
    """Look at the lock until the thread with this CPU clock has `ended`, which then holds the time of its end."""

    def ran_by_now() -> float:
        try:
            return time.clock_gettime(clock) if HAS_CLOCKS else time.perf_counter()
        except OSError:  # its clock ended with the thread
            return ended[0]

    held = cpu = squares = place = 0.0
    since, ran, switches = time.perf_counter(), ran_by_now(), system.voluntary_switches()
    while not ended:
        place = (place + SPREAD) % 1.0
        time.sleep((0.5 + place) * ASLEEP_SECONDS)
        before, switches = switches, system.voluntary_switches()
        began, since = since, time.perf_counter()
        waited = since - began > LATE_SECONDS if math.isnan(switches) else switches - before > 1
        ran_before, ran = ran, ran_by_now()
        seconds = ran - ran_before
        cpu += seconds
        held += seconds * waited
        squares += (min(seconds, UNSEEN_SECONDS) if waited else seconds) ** 2
    return Looks(held, cpu, squares)
