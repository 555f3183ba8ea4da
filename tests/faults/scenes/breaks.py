"""Loops are broken off, in every way, five hundred times; nothing of it stays (F12)."""

from __future__ import annotations

import ctypes
import gc
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import batchup_ng as bu

from ..accounting import BATCH, SHUFFLE, SIZES, balance, make_pool, source
from ..hunting import wait_for

WIDTH = 3000
AHEAD = 8
"""Batches that a loop has under way."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def by_break(parallel: Any) -> None:
    for _ in parallel.batch_iterator(BATCH, shuffle=SHUFFLE):
        break


def by_close(parallel: Any) -> None:
    iterator = parallel.batch_iterator(BATCH, shuffle=SHUFFLE)
    next(iterator)
    iterator.close()
    assert next(iterator, None) is None


def by_del(parallel: Any) -> None:
    iterator = parallel.batch_iterator(BATCH, shuffle=SHUFFLE)
    next(iterator)
    del iterator


def by_exception(parallel: Any) -> None:
    try:
        for _ in parallel.batch_iterator(BATCH, shuffle=SHUFFLE):
            raise LookupError
    except LookupError:
        pass


def in_a_cycle(parallel: Any) -> None:
    iterator = parallel.batch_iterator(BATCH, shuffle=SHUFFLE)
    cycle: list[Any] = [iterator, next(iterator)]
    cycle.append(cycle)


WAYS: list[Callable[[Any], None]] = [by_break, by_close, by_del, by_exception, in_a_cycle]


class Notes:
    """A map that leaves a file for each batch, and does not finish any but the first before there is a file ``go``.

    Args:
        folder: Where.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, rows: np.ndarray) -> Any:
        Path(self.folder, str(rows[0])).touch()
        while rows[0] and not Path(self.folder, "go").exists():
            time.sleep(0.002)
        return (rows,)


def made_after_a_break(kind: str) -> int:
    """F12: return how many batches are made of fifty that were queued when the loop was left at its first."""
    with tempfile.TemporaryDirectory() as folder, make_pool(kind, 1) as pool:
        parallel = pool.parallel_data_source(bu.ArrayDataSource([np.arange(1000)]).map(Notes(folder)), 50)
        with parallel.batch_iterator(BATCH) as iterator:
            next(iterator)
        Path(folder, "go").touch()
        # Streams take turns, so that these would have let all of them be made.
        assert list(pool.work_stream((abs, (-i,)) for i in range(60)).retrieve_iter()) == list(range(60))
        return len(os.listdir(folder)) - 1


def held() -> dict[str, int]:
    """Return what this program holds, by kind."""
    me = psutil.Process()
    return {"processes": len(me.children(recursive=True)), "threads": threading.active_count(), "fds": me.num_fds()}


def give_memory_back() -> None:
    """Let the C library keep nothing that is freed, which would count as grown: up to 48 MB with 2 MB batches."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)  # that of GNU
    for option in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
        set_option(option, 1 << 16)


def broken_off(kind: str, workers: int, size: str, times: int) -> int:
    """F12: loops over one pool are broken off; afterwards all is as before, the next epoch is whole.

    Nothing is started for a loop: the workers are the same processes before and after.

    Returns:
        The bytes by which this process has grown.
    """
    give_memory_back()
    with make_pool(kind, workers) as pool:
        parallel = pool.parallel_data_source(source(SIZES[size]), AHEAD)
        for i in range(50):
            WAYS[i % len(WAYS)](parallel)
        before, workers_before, memory = settled(), children(), resident()
        for i in range(times):
            WAYS[i % len(WAYS)](parallel)
        wait_for(lambda: held_no_more_than(before), f"no more than {before}, as before; now {held()}")
        grown = resident() - memory
        assert children() == workers_before
        with parallel.batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
            balance(iterator, width=SIZES[size])
    return grown


def held_no_more_than(before: dict[str, int]) -> bool:
    """Return whether this program holds no more of any kind than before."""
    gc.collect()
    return all(count <= before[kind] for kind, count in held().items())


def children() -> list[int]:
    """Return the processes that this program has started."""
    return sorted(process.pid for process in psutil.Process().children(recursive=True))


def settled() -> dict[str, int]:
    """Return what is held once it no longer changes, after at most a second."""
    gc.collect()
    last, deadline = held(), time.monotonic() + 1
    while time.monotonic() < deadline:
        time.sleep(0.05)
        now = held()
        if now == last:
            break
        last = now
    return last


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def pools_forgotten(kind: str, times: int) -> dict[str, int]:
    """F12: pools are made, used, and forgotten in the middle of an epoch, without close."""
    first: dict[str, int] = {}
    at_rest = {"processes": len(children()), "threads": 1, "fds": 999}  # the spare fork server
    for i in range(times):
        pool = make_pool(kind)
        iterator = pool.parallel_data_source(source(WIDTH), 8).batch_iterator(BATCH)
        next(iterator)
        cycle: list[Any] = [pool, iterator]
        if i % 2:
            cycle.append(cycle)
        del pool, iterator, cycle
        wait_for(lambda: held_no_more_than(at_rest), f"the end of pool {i}")
        first = first or settled()
        wait_for(lambda: held_no_more_than(first), f"pool {i} to leave no more than {first}")  # noqa: B023
    return first
