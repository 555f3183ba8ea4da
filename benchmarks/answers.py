"""Who the workers of a pool are, found out by asking them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

NAP_SECONDS = 0.001
PATIENCE = 120.0


class NoAnswer(RuntimeError):
    """Not all workers answered."""


def nap() -> int:
    """A trivial task, which keeps a worker just long enough for the next task to go to another; its process id."""
    time.sleep(NAP_SECONDS)
    return os.getpid()


def answering(answers: Iterator[int], workers: int) -> list[int]:
    """The process ids of that many workers, each of which has answered.

    Args:
        answers: Results of :func:`nap`, without end.
        workers: How many different ones to wait for.

    Raises:
        NoAnswer: Some had not after :data:`PATIENCE` seconds.

    >>> answering(iter([7, 7, 5, 9]), 2)
    [5, 7]
    """
    deadline = time.monotonic() + PATIENCE
    seen: set[int] = set()
    while len(seen) < workers:
        seen.add(next(answers))
        if time.monotonic() > deadline:
            raise NoAnswer(f"{workers} workers were to answer; after {PATIENCE:g} s {len(seen)} had")
    return sorted(seen)
