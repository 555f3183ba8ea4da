"""The pools that a loader makes by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import log, validation
from ..errors import ArgumentError, ArgumentTypeError
from ..memory.budget import BUDGET
from .base import AbstractWorkerPool, worker_count
from .processes import WorkerProcessPool
from .processes.fork_server import surroundings_of_workers
from .serial import SerialPool
from .shared_pool import share_of
from .task import current
from .threads import WorkerThreadPool

POOLS: dict[str, Callable[[int | None], AbstractWorkerPool]] = {
    "serial": lambda workers: SerialPool(),
    "threads": WorkerThreadPool,
    "processes": WorkerProcessPool,
}
"""The pools by name: each is made with a number of workers."""


def pool_of_loader(kind: str, workers: int | None, why: str = "") -> AbstractWorkerPool:
    """Return the pool of a loader of this kind. Log the reason `why` it was chosen, if it was.

    Without a number of workers, loaders share a pool.

    A loader that starts on a thread of a pool gets a pool of its own. The task of that thread waits for the loader's
    batches, so it must not keep their workers.
    """
    if why:
        log.note("pool='auto' chose %r: %s", kind, why)
    surroundings: Any = None
    if kind != "serial" and workers is None and getattr(current, "workers", None) is None:
        surroundings = worker_count(None) if kind == "threads" else _surroundings_of_processes()
    if surroundings is None:
        return POOLS[kind](workers)
    return share_of(kind, surroundings, lambda: POOLS[kind](None))


def _surroundings_of_processes() -> Any:
    """Return what worker processes take over when they start; None if it is not known."""
    n = worker_count(None)  # first: the import of joblib changes the environment
    inherited = surroundings_of_workers(blas_threads=1)
    return None if inherited is None else (n, BUDGET.limit, inherited)


def checked_kind(pool: Any, workers: Any, lent: bool | None) -> str:
    """Return the name of the pool that a loader makes, or "" if it makes none.

    Args:
        pool: The user's pool, or the name of one. None for the workers of another loader.
        workers: Number of workers, or None.
        lent: Whether the other loader has random access. None without another loader.
    """
    kind = pool if isinstance(pool, str) else ""
    if kind:
        validation.one_of("pool", pool, ("auto", *POOLS))
    elif lent is None and not isinstance(pool, AbstractWorkerPool):
        raise ArgumentTypeError(
            f"pool must be 'auto', 'serial', 'threads', 'processes', a pool or a loader, not {pool!r}"
        )
    if lent is False:
        raise ArgumentError(
            "pool must be a loader with more than one worker, and the source of that one only streams; leave pool= out"
        )
    if workers is not None and kind in ("", "serial"):
        why = "whose batches your own thread makes" if kind else "that has its own"
        remedy = "pass pool='threads' or 'processes' for workers" if kind else "pass it when you make that pool"
        which = f"pool={kind!r}," if kind else "a pool"
        raise ArgumentError(f"workers must be left out with {which} {why}, not be {workers!r}; {remedy}")
    if type(workers) is int and workers == 0:
        raise ArgumentError("workers must be at least 1, not 0; pass pool='serial' for batches that your thread makes")
    return kind
