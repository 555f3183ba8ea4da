"""How many threads the libraries for linear algebra may use in a worker.

Each of them starts as many as there are CPUs, so that eight workers on 64 CPUs would run 512. Interpreters that are
started get environment variables, which the libraries read when they are loaded. A forked worker has them loaded
already: there threadpoolctl does it, if it is installed. What the user has set in the environment stays as it is.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

from ... import cgroup

_GENERAL = "OMP_NUM_THREADS"
"""Read by the others too, where their own is not set."""

VARIABLES = (_GENERAL, "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def threads_for(processes: int, cpus: float | None = None) -> int:
    """Return how many threads a worker's libraries may use, so that all workers together use each CPU once.

    >>> threads_for(3, cpus=8), threads_for(8, cpus=2)
    (2, 1)
    """
    return max(1, int((allowed_cpus() if cpus is None else cpus) // processes))


def allowed_cpus() -> float:
    """Return how many CPUs this process may use; the limits of containers and of CPU affinity count."""
    try:
        found = float(len(os.sched_getaffinity(0)))
    except AttributeError:
        found = float(os.cpu_count() or 1)
    return min([found, *[quota_of(folder) for folder in cgroup.folders("cpu")]])


def quota_of(folder: Path) -> float:
    """Return how many CPUs a control group may use; infinity where it has no limit."""
    try:
        quota, _, period = (folder / "cpu.max").read_text(encoding="utf-8").partition(" ")
    except OSError:
        quota = str(cgroup.number_in(folder / "cpu.cfs_quota_us") or "")
        period = str(cgroup.number_in(folder / "cpu.cfs_period_us") or "")
    if quota.strip().isdigit() and period.strip().isdigit() and int(period):
        return int(quota) / int(period)
    return math.inf


def environment(threads: int, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to add for a worker to those that are `given`; none of these is changed.

    >>> environment(2, {"OMP_NUM_THREADS": "4"})
    {}
    """
    if threads < 1 or _GENERAL in given:
        return {}
    return {name: str(threads) for name in VARIABLES if name not in given}


def limit(threads: int) -> None:
    """Limit the libraries that are loaded to so many threads, but for those that the environment limits."""
    wanted = environment(threads, os.environ)
    if _GENERAL not in wanted:
        return
    try:
        import threadpoolctl
    except ImportError:
        return
    kinds = {"OPENBLAS_NUM_THREADS": "openblas", "MKL_NUM_THREADS": "mkl"}
    theirs = [kind for name, kind in kinds.items() if name not in wanted]
    for library in threadpoolctl.ThreadpoolController().lib_controllers:
        if library.internal_api not in theirs:
            library.set_num_threads(threads)
