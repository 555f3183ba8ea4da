"""How long a thread ran on a CPU, and how long it was ready to run without one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

from ..error_context import unless_of_signal_handler


class Timed(NamedTuple):
    """Seconds that a thread spent on a call: in all, ready to run but without a CPU, and running."""

    seconds: float
    queued: float
    ran: float


def timed(run: Callable[[], object]) -> Timed:
    """Measure a call on this thread. The clocks differ by some microseconds; it never runs for longer than it takes."""
    queued, start, ran = queued_seconds(), time.perf_counter(), time.thread_time()
    run()
    ran = time.thread_time() - ran
    seconds = time.perf_counter() - start
    return Timed(seconds, queued_seconds() - queued, min(ran, seconds))


def queued_seconds() -> float:
    """Return the seconds that this thread was ready to run without a CPU; 0.0 if the system does not report them.

    Only Linux reports them. The call takes some 8 µs.
    """
    with unless_of_signal_handler():
        fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(fd, 100).split()[1]) / 1e9
        finally:
            os.close(fd)
    return 0.0
