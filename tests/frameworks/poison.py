"""Memory that is overwritten as soon as its lease ends, so that whatever still looks at it shows."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from unittest import mock

import numpy as np

from batchup_ng.memory import leases
from batchup_ng.memory.leases import SMALLEST_LEASE, Lease, Returned

POISON = 0xFF
"""What a block is overwritten with: NaN as a float, -1 as a signed integer."""

ROWS, BATCH_SIZE = 1000, 4
WIDTH = SMALLEST_LEASE // BATCH_SIZE // 4
"""Of :func:`numbered_rows`: 250 batches an epoch, whose first array is just large enough for a lease."""


@contextlib.contextmanager
def poisoned_leases() -> Iterator[list[int]]:
    """Overwrite each block of memory that is lent from now on when its lease ends, before it can be lent again.

    That goes for the blocks of ``SerialPool``, of threads and of the plain loop, and for the slots of processes. Yields
    a list with the size of every block that was overwritten, so that a test can tell that there were any.
    """
    sizes: list[int] = []

    def returned(lease: Lease, give_back: Callable[[Returned], None]) -> Returned:
        def poison(lent: Returned) -> None:
            ctypes.memset(lent.block.address, POISON, lent.block.size)
            sizes.append(lent.block.size)
            give_back(lent)

        return Returned(lease, poison)

    with mock.patch.object(leases, "Returned", returned):
        yield sizes


def numbered_rows(rows: int = ROWS, width: int = WIDTH) -> list[np.ndarray]:
    """Return data for :func:`kept_late`: x, ``(rows, width) float32``, whose row i is i everywhere, and y, i itself."""
    y = np.arange(rows)
    return [np.repeat(y.astype(np.float32)[:, None], width, axis=1), y]


def kept_late(batches: Iterable[Any], read: Callable[[Any], np.ndarray], most: int = 12) -> tuple[int, int]:
    """Hold batches of :func:`numbered_rows` for a while, look at them on other threads, let go of them there.

    Args:
        batches: Pairs x, y of a framework's arrays, or of NumPy's.
        read: Makes a NumPy array of x or of y.
        most: How many batches are held before one of them, drawn at random, is looked at.

    Returns:
        How many batches there were; how many of them did not hold what they held when they were handed out.
    """
    draw, held, looks = random.Random(1), [], collections.deque[Future[bool]]()
    n_batches = n_changed = 0
    with ThreadPoolExecutor(2) as threads:
        for x, y in batches:
            held.append((x, np.array(read(y))))
            n_batches += 1
            if len(held) > most:
                place = draw.randrange(len(held))
                looks.append(threads.submit(_changed, [held.pop(place)], read))
            if len(looks) > most:
                n_changed += looks.popleft().result()
            del x, y
        looks.extend(threads.submit(_changed, [held.pop()], read) for _ in range(len(held)))
        return n_batches, n_changed + sum(look.result() for look in looks)


def _changed(batch: list[tuple[Any, np.ndarray]], read: Callable[[Any], np.ndarray]) -> bool:
    """Return whether x is not what y was; the list, emptied, is all that the caller still has of the batch."""
    x, y = batch.pop()
    return not bool((read(x) == y[:, None]).all())
