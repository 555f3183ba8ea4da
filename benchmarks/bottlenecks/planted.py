"""Loaders with one planted bottleneck each, and the same loaders after the advice was followed.

Each runs in a process of its own (``program.py``). A function that "computes" runs Python and holds the interpreter's
lock. A function that "sorts" calls NumPy, without the lock. A function that "waits" sleeps. Times are in milliseconds.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import io
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

import batchup_ng as bu

BATCH = 40
SORTED_IN_MS = 60_000
"""Random float64 numbers that NumPy sorts in about a millisecond."""


def compute(ms: float) -> None:
    """Hold the interpreter's lock for some CPU time."""
    end = time.thread_time() + ms / 1e3
    while time.thread_time() < end:
        pass


class Computes:
    """A map or a step that holds the interpreter's lock."""

    def __init__(self, ms: float) -> None:
        self.ms = ms

    def __call__(self, x: Any) -> Any:
        compute(self.ms)
        return x


class Sorts:
    """A map that works in NumPy without the interpreter's lock."""

    def __init__(self, ms: float) -> None:
        self.values = np.random.default_rng(0).random(int(ms * SORTED_IN_MS))

    def __call__(self, x: Any) -> Any:
        np.sort(self.values)
        return x


class Waits:
    """A map or a step that sleeps."""

    def __init__(self, ms: float) -> None:
        self.ms = ms

    def __call__(self, x: Any) -> Any:
        time.sleep(self.ms / 1e3)
        return x


class Objects:
    """A map that returns many Python objects a batch, which are pickled; or the same numbers in an array."""

    def __init__(self, n: int, as_array: bool) -> None:
        self.n, self.as_array = n, as_array

    def __call__(self, x: Any) -> Any:
        if self.as_array:
            return np.zeros((len(x), self.n))
        return [{str(number): float(number) for number in range(self.n)}] * len(x)


class Widens:
    """A map that makes rows of so many kB."""

    def __init__(self, kilobytes: int) -> None:
        self.kilobytes = kilobytes

    def __call__(self, x: Any) -> Any:
        return np.zeros((len(x), self.kilobytes * 1000), np.uint8)


class ThreadsOfTheLoop:
    """A step of a loop that sorts on two threads."""

    def __init__(self, ms: float) -> None:
        self.executor = concurrent.futures.ThreadPoolExecutor(2)
        self.values = np.random.default_rng(0).random(int(ms * SORTED_IN_MS))

    def __call__(self, batch: Any) -> None:
        list(self.executor.map(np.sort, [self.values] * 2))


class Storage:
    """An accessor over a disk or a network that takes `ms` for each read, and `slow_ms` for one row of `slow_of`."""

    dtype = np.dtype(np.float32)

    def __init__(self, n: int, ms: float, slow_of: int = 0, slow_ms: float = 0.0) -> None:
        self.shape = (n, 3)
        self.ms, self.slow_of, self.slow_ms = ms, slow_of, slow_ms

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        rows = np.atleast_1d(rows)
        slow = self.slow_of > 0 and bool((rows % self.slow_of == 0).any())
        time.sleep((self.ms + (self.slow_ms if slow else 0.0)) / 1e3)
        return np.repeat(rows[:, None].astype(np.float32), 3, axis=1)


class ColdFiles(Storage):
    """Storage that is slow the first time that it is asked for a row, as files that are not yet in memory."""

    def __init__(self, n: int, ms: float) -> None:
        super().__init__(n, ms)
        self.seen = np.zeros(n, bool)

    def __getitem__(self, rows: Any) -> np.ndarray:
        rows = np.atleast_1d(rows)
        if not self.seen[rows].all():
            time.sleep(self.ms / 1e3)
            self.seen[rows] = True
        return np.zeros((len(rows), 3), np.float32)


class Jpegs:
    """An accessor that decodes JPEG files of 256 x 256 pixels."""

    dtype = np.dtype(np.uint8)

    def __init__(self, n: int, size: int = 256) -> None:
        noise = np.random.default_rng(0).integers(0, 256, (size // 16, size // 16, 3), np.uint8)
        Image.fromarray(noise).resize((size, size)).save(file := io.BytesIO(), "JPEG", quality=90)
        self.encoded, self.shape = file.getvalue(), (n, size, size, 3)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        return np.stack([np.asarray(Image.open(io.BytesIO(self.encoded))) for _ in np.atleast_1d(rows)])


@dataclasses.dataclass(frozen=True)
class Followed:
    """Changes of the source that follow an advice. Other changes are options of the loader."""

    half: bool = False
    cached: bool = False
    moved: bool = False  # the workers run the function of a view, or the map after the pool
    arrays: bool = False


@dataclasses.dataclass(frozen=True)
class Planted:
    """A loader with a bottleneck.

    Attributes:
        causes: The right verdicts.
        source: Makes the source.
        options: Options of the loader.
        loop: Makes the function that the loop calls with each batch.
        view: The function of a view of the loader, in the loop's thread.
        after_pool: A map of the loop's thread, after the pool.
        beside: Number of other programs that compute.
        epochs: Number of epochs before the explanation.
    """

    causes: frozenset[str]
    source: Callable[[Followed], Any]
    options: dict[str, Any]
    loop: Callable[[], Callable[[Any], Any]]
    view: Callable[[], Callable[[Any], Any]] | None = None
    after_pool: Callable[[], Callable[[Any], Any]] | None = None
    beside: int = 0
    epochs: int = 2


def _arrays(n: int = 4000) -> bu.ArrayDataSource:
    return bu.ArrayDataSource([np.zeros((n, 10), np.float32)])


def _mapped(make: Callable[[float], Any], ms: float, n: int = 4000) -> Callable[[Followed], Any]:
    return lambda followed: _arrays(n).map(make(ms / 2 if followed.half else ms), on=0)


def _stored(*arguments: Any, then: Any = None, kind: type[Storage] = Storage) -> Callable[[Followed], Any]:
    def make(followed: Followed) -> Any:
        source = bu.ArrayDataSource([kind(4000, *arguments)])
        source = source.cache() if followed.cached else source
        return source if then is None else source.map(then, on=0)

    return make


def _moved(ms: float) -> Callable[[Followed], Any]:
    return lambda followed: _arrays().map(Waits(ms), on=0) if followed.moved else _arrays()


def _objects(n: int) -> Callable[[Followed], Any]:
    return lambda followed: _arrays(1600).map(Objects(n, followed.arrays), on=0)


def _jpegs(followed: Followed) -> Any:
    source = bu.ArrayDataSource([Jpegs(1600)])
    return source.cache() if followed.cached else source


def _one_of(*causes: str) -> frozenset[str]:
    return frozenset(causes)


def _waits(ms: float) -> Callable[[], Any]:
    return lambda: Waits(ms)


def _computes(ms: float) -> Callable[[], Any]:
    return lambda: Computes(ms)


def _pool(kind: str, workers: int | None = None, **others: Any) -> dict[str, Any]:
    return {"pool": kind} | ({} if workers is None else {"workers": workers}) | others


PLANTED = {
    "a map in Python, 4 threads": Planted(
        _one_of("lock", "lock_loop"), _mapped(Computes, 8), _pool("threads", 4), _waits(1)
    ),
    "a map in Python, 1 process": Planted(
        _one_of("workers"), _mapped(Computes, 8), _pool("processes", 1), _waits(1)
    ),
    "a map in Python, processes on all CPUs": Planted(
        _one_of("cpu"), _mapped(Computes, 8), _pool("processes", 2), _waits(1)
    ),
    "a map in NumPy, 1 thread": Planted(_one_of("workers"), _mapped(Sorts, 8), _pool("threads", 1), _waits(1)),
    "a map in NumPy, threads on all CPUs": Planted(_one_of("cpu"), _mapped(Sorts, 8), _pool("threads", 2), _waits(1)),
    "a slow disk, 2 threads": Planted(_one_of("workers"), _stored(20.0), _pool("threads", 2), _waits(2)),
    "a slow disk, 2 processes": Planted(_one_of("workers"), _stored(20.0), _pool("processes", 2), _waits(2)),
    "a slow network, 8 threads": Planted(_one_of("workers"), _stored(100.0), _pool("threads", 8), _waits(2)),
    "1 sample of 2,000 takes 0.4 s, 4 threads": Planted(
        _one_of("slow_samples"), _stored(2.0, 2000, 400.0), _pool("threads", 4, buffer=6), _waits(4)
    ),
    "1 sample of 2,000 takes 0.4 s, 4 processes": Planted(
        _one_of("slow_samples"), _stored(2.0, 2000, 400.0), _pool("processes", 4, buffer=6), _waits(4)
    ),
    "1 sample of 4,000 takes 2 s, 4 threads": Planted(
        _one_of("slow_samples"), _stored(2.0, 4000, 2000.0), _pool("threads", 4), _waits(4)
    ),
    "memory cuts the buffer, 8 threads": Planted(
        _one_of("buffer"), _stored(30.0, then=Widens(100)), _pool("threads", 8, buffer_bytes=9_000_000), _waits(3)
    ),
    "memory cuts the buffer, 8 processes": Planted(
        _one_of("buffer"), _stored(60.0, then=Widens(100)), _pool("processes", 8, buffer_bytes=9_000_000), _waits(6)
    ),
    "Python objects in batches, 2 processes": Planted(
        _one_of("receive", "transfer"), _objects(1000), _pool("processes", 2), _waits(1)
    ),
    "a view that waits, 2 threads": Planted(
        _one_of("conversion"), _moved(6), _pool("threads", 2), _waits(2), view=lambda: Waits(6)
    ),
    "a view that computes, 1 process": Planted(
        _one_of("conversion"), _moved(6), _pool("processes", 1), _waits(2), view=lambda: Waits(6)
    ),
    "a map after the pool": Planted(
        _one_of("consumer_map"), _moved(6), _pool("threads", 2), _waits(2), after_pool=lambda: Waits(6)
    ),
    "the loop, 3 threads": Planted(_one_of("loop"), _mapped(Waits, 3), _pool("threads", 3), _waits(8)),
    "the loop, 1 process": Planted(_one_of("loop"), _mapped(Computes, 2), _pool("processes", 1), _waits(8)),
    "the loop, 16 threads": Planted(_one_of("loop"), _mapped(Sorts, 2), _pool("threads", 16), _waits(8)),
    "threads that slow the loop": Planted(
        _one_of("lock_loop"), _mapped(Computes, 6), _pool("threads", 2), _computes(8)
    ),
    "workers that take the loop's CPUs": Planted(
        _one_of("contention"), _mapped(Computes, 6), _pool("processes", 2, buffer=40), lambda: ThreadsOfTheLoop(6)
    ),
    "a serial pool that computes": Planted(_one_of("serial"), _mapped(Computes, 6), _pool("serial"), _waits(6)),
    "a serial pool that waits": Planted(_one_of("serial"), _mapped(Waits, 6), _pool("serial"), _waits(6)),
    "tiny batches, 2 processes": Planted(
        _one_of("tiny"), lambda followed: _arrays(40_000), _pool("processes", 2), lambda: lambda batch: None
    ),
    "tiny batches, 2 threads": Planted(
        _one_of("tiny"), lambda followed: _arrays(40_000), _pool("threads", 2), lambda: lambda batch: None
    ),
    "other programs, 1 process": Planted(
        _one_of("neighbours"), _mapped(Computes, 8), _pool("processes", 1), _waits(2), beside=4
    ),
    "other programs, 1 thread": Planted(
        _one_of("neighbours"), _mapped(Sorts, 8), _pool("threads", 1), _waits(2), beside=4
    ),
    "the first epoch reads slow files": Planted(
        _one_of("first_epoch"), _stored(20.0, kind=ColdFiles), _pool("threads", 2), _waits(3), epochs=3
    ),
    "JPEG files, 1 thread": Planted(_one_of("workers"), _jpegs, _pool("threads", 1), _waits(2)),
    "epochs of 4 batches": Planted(
        _one_of("short_epochs"), _mapped(Waits, 20, 160), _pool("threads", 2), _waits(1), epochs=12
    ),
}
"""The bottlenecks by name. Those of CPUs suit a machine with two."""
