"""How the system shares the CPUs between the workers and the training loop."""

from __future__ import annotations

import contextlib
import os
import sys


def give_way() -> None:
    """Have the system leave the CPU of the loop to the loop when it wakes this thread, a worker, by sending a task.

    By default, Linux wakes the reader of a socket on the CPU of its writer, in the writer's place. Measured: ``next``
    took 1.8 ms instead of 0.4 ms with processes and maps of 2 ms. Threads of the policy SCHED_BATCH wait for the next
    tick, or run on another CPU (``sched(7)``). What a map starts inherits the policy.
    """
    if sys.platform == "linux" and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with contextlib.suppress(OSError):  # the system refuses it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
