"""The epoch that every fault strikes: what is planned, what each batch must hold, whether the accounting balance.

Batches of seven rows, the last of fewer, shuffled. A batch is (row numbers, a payload that tells its row by each of its
bytes, one draw a sample): a batch that was lost, doubled, moved, made again with other randomness, or overwritten while
somebody had it, differs from that of the serial iterator, which is the reference.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import numpy as np

import batchup_ng as bu

from ..extent import THOROUGH

N = 1000 if THOROUGH else 347
BATCH = 7
BATCHES = math.ceil(N / BATCH)
SHUFFLE = 11
"""Seed of the order of every epoch."""

SIZES = {"0 B": 0, "64 kB": (64 << 10) // BATCH, "2 MB": (2 << 20) // BATCH}
"""Bytes of payload that a row has, by the size of a batch's result."""

PROCESSES = ("forkserver", "spawn")
POOLS = ("serial", "threads", *PROCESSES)


def make_pool(kind: str, workers: int = 2, **options: Any) -> Any:
    """Return a pool: ``serial``, ``threads``, or of processes that are started by the method `kind`."""
    if kind == "serial":
        return bu.SerialPool()
    if kind == "threads":
        return bu.WorkerThreadPool(workers)
    return bu.WorkerProcessPool(workers, start_method=kind, **options)


@functools.lru_cache(maxsize=4)
def _pattern(width: int) -> np.ndarray:
    return (np.arange(width) * 7 % 253).astype(np.uint8)


def payload_of(rows: np.ndarray, width: int) -> np.ndarray:
    """Return the payload of `rows`: ``(n, width) uint8``."""
    return _pattern(width)[None, :] ^ (rows % 251).astype(np.uint8)[:, None]


class Payload:
    """A map that adds the payload; as a list of bytes where it must not go by a slot.

    Args:
        width: Bytes a row.
        as_objects: Whether to give an array of objects, which cannot lie in shared memory.
        pause: Seconds to sleep in each batch.
    """

    def __init__(self, width: int, as_objects: bool = False, pause: float = 0.0) -> None:
        self.width = width
        self.as_objects = as_objects
        self.pause = pause

    def __call__(self, rows: np.ndarray) -> Any:
        if self.pause:
            time.sleep(self.pause)
        payload = payload_of(rows, self.width)
        if not self.as_objects:
            return rows, payload
        objects = np.empty(len(rows), object)
        objects[:] = [row.tobytes() for row in payload]
        return rows, objects


def add_draw(rows: np.ndarray, payload: Any, rng: Any) -> Any:
    """Add one draw a sample, which is a function of the seed, the epoch and the position."""
    return rows, payload, rng.normal()


def source(
    width: int = 0, *, fault: Callable[[np.ndarray], Any] | None = None, as_objects: bool = False,
    pause: float = 0.0, n: int = N,
) -> Any:  # fmt: skip
    """Return the source; `fault` is a map of the row numbers that may go wrong."""
    rows = bu.ArrayDataSource([np.arange(n)])
    if fault is not None:
        rows = rows.map(fault)
    return rows.map(Payload(width, as_objects, pause)).map(add_draw, rng="sample")


def stored(width: int, n: int) -> Any:
    """Return a source of arrays alone, no map between: (row numbers, payload, a third of zeros)."""
    rows = np.arange(n)
    return bu.ArrayDataSource([rows, payload_of(rows, width), np.zeros(n)])


def reference(width: int = 0, *, epoch: int = 0, as_objects: bool = False, n: int = N) -> Iterator[Any]:
    """Return the batches of the serial iterator."""
    return iter(source(width, as_objects=as_objects, n=n).batch_iterator(BATCH, shuffle=SHUFFLE, epoch=epoch))


def planned_rows(epoch: int = 0, n: int = N) -> np.ndarray:
    """Return the rows of an epoch in their order."""
    order = bu.ArrayDataSource([np.arange(n)]).batch_iterator(BATCH, shuffle=SHUFFLE, epoch=epoch)
    return np.concatenate([rows for (rows,) in order])


def differences(got: Any, expected: Any) -> str:
    """Return in which way two batches differ; an empty text if they are the same to the byte."""
    if len(got) != len(expected):
        return f"{len(got)} parts instead of {len(expected)}"
    for part, (x, y) in enumerate(zip(got, expected, strict=True)):
        if x.dtype != y.dtype or x.shape != y.shape:
            return f"part {part} is {x.dtype}{x.shape} instead of {y.dtype}{y.shape}"
        if not np.array_equal(x, y):
            rows, should = got[0].tolist(), expected[0].tolist()
            return f"part {part} has other contents; the rows are {rows}, they should be {should}"
    return ""


def balance(
    iterator: Any, *, width: int = 0, epoch: int = 0, bad: Collection[int] = (), as_objects: bool = False,
    n: int = N, at: Callable[[int], object] | None = None,
) -> int:  # fmt: skip
    """Walk to the end of an epoch and assert that its accounting balance.

    Delivered + reported as failed = planned, each position once, in the order and with the bytes of the serial
    iterator, with the rows of `bad` left out and those rows alone reported.

    Args:
        iterator: The epoch, from its start.
        width: Bytes of payload a row.
        epoch: Number of the epoch.
        bad: Rows that fail and are to be skipped.
        as_objects: Whether the payload is one of objects.
        n: Number of rows.
        at: Called with the number of each batch after it was delivered.

    Returns:
        The number of batches.
    """
    expected = _without(reference(width, epoch=epoch, as_objects=as_objects, n=n), bad)
    count = 0
    for batch in iterator:
        should = next(expected, None)
        assert should is not None, f"batch {count} came after the end: rows {batch[0].tolist()}"
        if difference := differences(batch, should):
            raise AssertionError(f"batch {count} of epoch {epoch}: {difference}")
        if at is not None:
            at(count)
        count += 1
    missing = next(expected, None)
    assert missing is None, f"the epoch ended after {count} batches, before that of rows {missing[0].tolist()}"
    assert_reported(iterator, bad, epoch, n)
    return count


def whole(
    pool: Any, width: int = 0, *, epoch: int = 0, n: int = N, pause: float = 0.0, buffer: int = 8,
    at: Callable[[int], object] | None = None,
) -> int:  # fmt: skip
    """Take a whole epoch, none of whose samples fails, of a pool; return the number of its batches."""
    parallel = pool.parallel_data_source(source(width, pause=pause, n=n), buffer)
    with parallel.batch_iterator(BATCH, shuffle=SHUFFLE, epoch=epoch) as iterator:
        return balance(iterator, width=width, epoch=epoch, n=n, at=at)


def _without(batches: Iterable[Any], bad: Collection[int]) -> Iterator[Any]:
    """Yield the batches without their samples of the rows `bad`; one with nothing left is not delivered."""
    for batch in batches:
        keep = ~np.isin(batch[0], list(bad))
        if keep.any():
            yield batch if keep.all() else tuple([part[keep] for part in batch])


def assert_reported(iterator: Any, bad: Collection[int], epoch: int = 0, n: int = N) -> None:
    """Assert that the iterator reports exactly the rows `bad`, each at its position, in order."""
    order = planned_rows(epoch, n).tolist()
    expected = [(position, row) for position, row in enumerate(order) if row in bad]
    # Without a row: a batch that was made at a later try, as one is whose workers were killed three times.
    listed = [error for error in getattr(iterator, "errors", []) if error.row is not None]
    reported = [(int(error.position), int(error.row)) for error in listed]
    assert reported == expected, f"reported {reported}, should have reported {expected}"
    for error in listed:
        assert error.epoch == epoch, f"row {error.row} was reported for epoch {error.epoch}, not {epoch}"
        assert error.batch == error.position // BATCH, f"row {error.row} was reported for batch {error.batch}"
