"""Loops are broken off, in every way, five hundred times; nothing of it stays (F12)."""

from __future__ import annotations

import gc
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import batchup_ng as bu

from ..books import BATCH, SHUFFLE, SIZES, balance, make_pool, source

WIDTH = 3000
AHEAD = 8
"""Batches that a loop has under way."""


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
    """A slow map that leaves a file for each batch.

    Args:
        folder: Where.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, rows: np.ndarray) -> Any:
        Path(self.folder, str(rows[0])).touch()
        time.sleep(0.02)
        return (rows,)


def made_after_a_break(kind: str) -> int:
    """F12: return how many batches are made of fifty that were queued when the loop was left at its first."""
    with tempfile.TemporaryDirectory() as folder, make_pool(kind, 1) as pool:
        parallel = pool.parallel_data_source(bu.ArrayDataSource([np.arange(1000)]).map(Notes(folder)), 50)
        with parallel.batch_iterator(BATCH) as iterator:
            next(iterator)
        time.sleep(1.5)  # in which all of them could be made
        return len(os.listdir(folder))


def held() -> dict[str, int]:
    """Return what this program holds, by kind."""
    me = psutil.Process()
    return {"processes": len(me.children(recursive=True)), "threads": threading.active_count(), "fds": me.num_fds()}


def broken_off(kind: str, workers: int, size: str, times: int) -> dict[str, Any]:
    """F12: loops over one pool are broken off; afterwards all is as before, the next epoch is whole."""
    taken = []
    with make_pool(kind, workers) as pool:
        parallel = pool.parallel_data_source(source(SIZES[size]), AHEAD)
        for i in range(50):
            WAYS[i % len(WAYS)](parallel)
        before, memory = settled(), resident()
        for i in range(times):
            began = time.perf_counter()
            WAYS[i % len(WAYS)](parallel)
            taken.append(time.perf_counter() - began)
        after = settled()
        grown = resident() - memory
        assert after == before, f"{before} before, {after} after"
        with parallel.batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
            balance(iterator, width=SIZES[size])
    return {"grown": grown, "p50": statistics.median(taken), "max": max(taken)}


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
    for i in range(times):
        pool = make_pool(kind)
        iterator = pool.parallel_data_source(source(WIDTH), 8).batch_iterator(BATCH)
        next(iterator)
        cycle: list[Any] = [pool, iterator]
        if i % 2:
            cycle.append(cycle)
        del pool, iterator, cycle
        gone = time.monotonic() + 1
        while (now := held()) and first and now != first and time.monotonic() < gone:
            gc.collect()
            time.sleep(0.01)
        if not first:
            first = settled_at_rest()
        else:
            assert now == first, f"pool {i} left something: {first} before, {now} after"
    return first


def settled_at_rest() -> dict[str, int]:
    """Return what is held once no worker is left."""
    deadline = time.monotonic() + 1
    while (now := held())["processes"] and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert not now["processes"], now
    return settled()
