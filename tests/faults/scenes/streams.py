"""Several epochs at once, iterators used in every order, forks, pools in odd places (F22, F28)."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import batchup_ng as bu
from batchup_ng.work_pool.processes.parent_death import ParentDeath

from ...threads import in_threads
from ..accounting import BATCH, BATCHES, SHUFFLE, SIZES, balance, differences, make_pool, reference, source

WIDTH = SIZES["64 kB"]


def three_at_once(kind: str, workers: int, size: str) -> list[int]:
    """F22: three iterators of one source in turn; each is whole and right."""
    with make_pool(kind, workers) as pool:
        parallel = pool.parallel_data_source(source(SIZES[size]), 5)
        iterators = [parallel.batch_iterator(BATCH, shuffle=SHUFFLE, epoch=epoch) for epoch in range(3)]
        expected = [reference(SIZES[size], epoch=epoch) for epoch in range(3)]
        counts = [0, 0, 0]
        for _ in range(BATCHES):
            for k in range(3):
                assert not (wrong := differences(next(iterators[k]), next(expected[k]))), f"iterator {k}: {wrong}"
                counts[k] += 1
        assert all(next(iterator, None) is None for iterator in iterators)
        return counts


def three_threads(kind: str, workers: int, size: str) -> bool:
    """F22: three consumers on threads of their own share the pool."""
    with make_pool(kind, workers) as pool:
        parallel = pool.parallel_data_source(source(SIZES[size]), 5)

        def consume(epoch: int) -> None:
            iterator = parallel.batch_iterator(BATCH, shuffle=SHUFFLE, epoch=epoch)
            balance(iterator, width=SIZES[size], epoch=epoch)

        in_threads([lambda e=e: consume(e) for e in range(3)])  # type: ignore[misc]
    return True


def after_the_end(kind: str) -> bool:
    """F22: ``next()`` after the end and after close is the end, after an error an error; the pool goes on."""
    with make_pool(kind) as pool:
        failing = bu.ArrayDataSource([np.arange(50)]).map(fails_at_20)
        iterator = pool.parallel_data_source(failing, 3).batch_iterator(BATCH)
        try:
            for _ in iterator:
                pass
        except LookupError:
            pass
        closed = 0
        for _ in range(3):
            try:
                next(iterator, "end")
            except bu.PoolClosed:
                closed += 1
        assert closed == 3, "an error was followed by the end, or by more"
        whole = pool.parallel_data_source(source(), 3).batch_iterator(BATCH, shuffle=SHUFFLE)
        balance(whole)
        assert next(whole, "end") == "end"
        closed = pool.parallel_data_source(source(), 3).batch_iterator(BATCH, shuffle=SHUFFLE)
        next(closed)
        closed.close()
        closed.close()
        assert next(closed, "end") == "end"
    after_pool = pool.parallel_data_source  # the pool is closed now
    try:
        after_pool(source())
    except bu.PoolClosed:
        return True
    raise AssertionError("a closed pool took a source")


def fails_at_20(rows: np.ndarray) -> Any:
    if 20 in rows:
        raise LookupError("row 20")
    return (rows,)


def fairness(kind: str) -> list[int]:
    """F22: three streams share two workers; return how many batches of each are made when one has taken thirty-five.

    Not how many each has taken: a thread that a busy machine does not let run takes none, though they are made.
    """
    taken = [0, 0, 0]
    iterators: list[Any] = [None, None, None]
    first: list[list[int]] = []
    with make_pool(kind, 2) as pool:
        parallel = pool.parallel_data_source(source(pause=0.002), 20)
        start = threading.Barrier(3)

        def consume(epoch: int) -> None:
            iterator = iterators[epoch] = parallel.batch_iterator(BATCH, shuffle=SHUFFLE, epoch=epoch)
            next(iterator)
            start.wait(120)
            for _ in iterator:
                taken[epoch] += 1
                if taken[epoch] == 35:
                    first.append([taken[k] + iterators[k].stats()["buffered"] for k in range(3)])

        in_threads([lambda e=e: consume(e) for e in range(3)])  # type: ignore[misc]
    return first[0]


# -- F28 ---------------------------------------------------------------------------------------------------------


def fork_with_pool_open(kind: str) -> dict[str, Any]:
    """F28: the user forks while a pool is open; the child gets a clear error, or may close it; the parent goes on."""
    said: dict[str, Any] = {}
    with make_pool(kind) as pool:
        parallel = pool.parallel_data_source(source(WIDTH), 4)
        iterator = parallel.batch_iterator(BATCH, shuffle=SHUFFLE)
        first = next(iterator)
        uses: dict[str, Callable[[], Any]] = {
            "next": lambda: next(iterator),
            "iterate": lambda: next(parallel.batch_iterator(BATCH)),
            "source": lambda: pool.parallel_data_source(source()),
            "stream": lambda: pool.work_stream(iter([(len, ("abc",))])).retrieve(),
            "close": pool.close,
        }
        for name, use in uses.items():
            said[name] = in_a_fork(use)
        rest = [first, *iterator]
        for batch, should in zip(rest, reference(WIDTH), strict=True):
            assert not differences(batch, should)
        balance(parallel.batch_iterator(BATCH, shuffle=SHUFFLE, epoch=1), width=WIDTH, epoch=1)
    return said


def in_a_fork(use: Callable[[], Any]) -> str:
    """Return what `use` raises in a fork of this process, or ``nothing``; ``hangs`` if it takes above 120 s."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            use()
            os.write(write, b"nothing")
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}".encode()[:4000])
        finally:
            os._exit(0)
    os.close(write)
    deadline = time.monotonic() + 120
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(read)
            return "hangs"
        time.sleep(0.005)
    said = os.read(read, 4096).decode()
    os.close(read)
    return said


def fork_lets_go() -> str:
    """F15: return what is wrong with a fork of the user's, or ``nothing``: it must not keep workers alive."""
    lifeline = ParentDeath()

    def look() -> None:
        assert lifeline.held == -1, "the fork has the pipe's end that keeps workers alive"

    said = in_a_fork(look)
    lifeline.close()
    return said


def fork_child_exits(kind: str) -> bool:
    """F28: a fork of the user's that ends in the ordinary way, atexit and all, harms nobody."""
    with make_pool(kind) as pool:
        iterator = pool.parallel_data_source(source(WIDTH), 4).batch_iterator(BATCH, shuffle=SHUFFLE)
        first = next(iterator)
        pid = os.fork()
        if pid == 0:
            try:
                del iterator, pool, first  # finalizers run in the fork
                gc.collect()
                atexit._run_exitfuncs()
            finally:
                os._exit(0)
        deadline = time.monotonic() + 120
        while (done := os.waitpid(pid, os.WNOHANG)) == (0, 0):
            assert time.monotonic() < deadline or os.kill(pid, signal.SIGKILL), "the fork hangs at its end"
            time.sleep(0.005)
        assert os.waitstatus_to_exitcode(done[1]) == 0
        assert sum(1 for _ in iterator) == BATCHES - 1
    return True
