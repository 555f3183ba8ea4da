"""Threads that are switched all the time: nothing is lost, nobody sleeps too long (M4)."""

from __future__ import annotations

import contextlib
import itertools
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import batchup_ng as bu
from batchup_ng.memory.leases import BufferPool
from batchup_ng.work_pool.task import TaskFuture

from ...threads import in_threads


@contextlib.contextmanager
def switching() -> Iterator[None]:
    """Let the interpreter change threads as often as it can within."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


MARKED: list[tuple[type, tuple[str, ...]]] = [
    (TaskFuture, ("begin", "set_result", "set_exception", "result", "wait", "done", "cancel")),
    (BufferPool, ("empty",)),
]
"""Steps before which a thread may be kept up: of a future, of a pool of buffers."""

SHARE, LONGEST = 0.01, 0.001
"""At how many of these steps a thread sleeps, up to how many seconds."""


class KeptUp:
    """Lets threads sleep at random before the marked steps; to be used by ``with``.

    Args:
        seed: Of the random choices.
    """

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        pauses = [rng.random() * LONGEST if rng.random() < SHARE else 0.0 for _ in range(99_991)]
        self._pauses = itertools.cycle(pauses)
        self._steps = itertools.count()
        self._sleeps = itertools.count()
        self._found: list[tuple[type, str, Any]] = []

    def counts(self) -> dict[str, int]:
        """Return how many steps there were, and before how many of them a thread slept; to be called once."""
        return {"steps": next(self._steps), "sleeps": next(self._sleeps)}

    def _before(self, step: Callable[..., Any]) -> Callable[..., Any]:
        pauses, steps, sleeps = self._pauses, self._steps, self._sleeps

        def kept_up(*args: Any) -> Any:
            next(steps)
            pause = next(pauses)
            if pause:
                next(sleeps)
                time.sleep(pause)
            return step(*args)

        return kept_up

    def __enter__(self) -> KeptUp:
        for kind, names in MARKED:
            for name in names:
                step = vars(kind)[name]
                self._found.append((kind, name, step))
                setattr(kind, name, self._before(step))
        return self

    def __exit__(self, *exc: object) -> None:
        for kind, name, step in self._found:
            setattr(kind, name, step)


def stamp(i: int) -> tuple[int, float]:
    return i, time.perf_counter()


def handed_through(consumers: int, each: int, seed: int) -> dict[str, Any]:
    """M4: tasks go through the windows of several consumers of one pool of threads; how late was any result seen?

    A wakeup that was missed is noticed: by the wait that never ends, or by one that ends at a deadline, far too late.
    """
    late: list[float] = []

    def consume(first: int, pool: Any) -> None:
        stream = pool.work_stream(((stamp, (i,)) for i in range(first, first + each)), 20)
        for i in range(first, first + each):
            asked = time.perf_counter()
            got, made = next(stream)
            late.append(time.perf_counter() - max(asked, made))
            assert got == i, f"{got} came in the place of {i}"
        assert stream.retrieve() is None

    with switching(), KeptUp(seed) as kept_up, bu.WorkerThreadPool(3) as pool:
        in_threads([lambda f=k * each: consume(f, pool) for k in range(consumers)], 300.0)  # type: ignore[misc]
    late.sort()
    return {"handed": len(late), "longest": late[-1], "p99.9": late[int(len(late) * 0.999)], **kept_up.counts()}


def broken_off_all_the_time(times: int, seed: int) -> dict[str, int]:
    """M4: loops are broken off at random while threads are switched; each loop that goes on is right."""
    rng = random.Random(seed)
    with switching(), KeptUp(seed) as kept_up, bu.WorkerThreadPool(3) as pool:
        rows = bu.ArrayDataSource([np.arange(400), np.zeros((400, 20_000))])
        parallel = pool.parallel_data_source(rows, 6)
        for _ in range(times):
            stop, position = rng.randrange(60), 0
            for n, (x, _) in enumerate(parallel.batch_iterator(7)):
                assert x.tolist() == list(range(position, min(position + 7, 400)))
                position += 7
                if n == stop:
                    break
    return {"times": times, **kept_up.counts()}


def leased_by_many(times: int, threads: int, seed: int) -> dict[str, int]:
    """M4: threads take memory from one pool of buffers and let go of it; none ever has what another still holds."""
    pool = BufferPool()
    passed: list[Any] = []
    lock = threading.Lock()

    def use(number: int) -> None:
        rng = random.Random(f"{seed} {number}")
        held: list[tuple[np.ndarray, int]] = []
        for i in range(times):
            array = pool.empty((rng.choice([70_000, 100_000]),), np.dtype(np.uint8))
            mark = (number * 50 + i) % 251
            array[::4096] = mark
            held.append((array, mark))
            with lock:
                if passed and rng.random() < 0.5:
                    held.append(passed.pop())
                elif rng.random() < 0.5:
                    passed.append(held.pop())
            del array
            while len(held) > 6:
                array, mark = held.pop(rng.randrange(len(held)))
                assert (array[::4096] == mark).all(), "memory was lent to two at once"
                del array

    with switching(), KeptUp(seed) as kept_up:
        in_threads([lambda n=n: use(n) for n in range(threads)])  # type: ignore[misc]
    return {"times": times * threads, **kept_up.counts()}
