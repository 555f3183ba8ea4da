"""Threads that contend for batches get each batch whole, once, and leave no memory behind.

With the interpreter's lock, and in earnest without it (``python3.14t``, ``PYTHON_GIL=0``).
"""

from __future__ import annotations

import gc
import itertools
import random
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.interpreter import FREE_THREADED, numbers
from batchup_ng.work_pool import AbstractWorkerPool
from tests.extent import thorough
from tests.threads import in_threads

SIZE, WIDTH, THREADS = 8, 1200, 4
"""Rows of a batch, numbers of a row (a batch has 77 kB, which is on lease), threads that take batches."""

KEPT = 5
"""Batches that each thread keeps, and looks at again before it drops them."""


def rows_of(batch: tuple[np.ndarray, np.ndarray]) -> list[int]:
    """Return the rows of a batch, each of which has its number in all places, plus one where a map wrote."""
    x, row = batch
    assert np.array_equal(x, np.repeat(row[:, None], WIDTH, axis=1) + 1), "a batch is torn or swapped"
    return [int(n) for n in row]


class AddsOne:
    """A map that writes to the memory of the batch, and sometimes lets other threads go first."""

    def __call__(self, x: np.ndarray, row: np.ndarray) -> Any:
        x += 1
        if not int(row[0]) % 17:
            time.sleep(0)
        return x, row


def source_of(n: int) -> bu.ArrayDataSource:
    return bu.ArrayDataSource([np.repeat(np.arange(n)[:, None], WIDTH, axis=1), np.arange(n)])


def held() -> int:
    table = bu.memory()
    return table["buffers"] + table["slots"]


def wait_until_given_back(before: int) -> None:
    """Wait until batches hold no more memory than before. Other threads may have to free them."""
    gc.collect()
    deadline = time.monotonic() + 60
    while held() > before and time.monotonic() < deadline:
        time.sleep(0.001)
    assert held() <= before


def take(batches: Iterator[Any], found: list[list[int]], seed: int) -> None:
    """Take batches to the end. Keep some, and look at each again before it is dropped."""
    chance, kept, rows = random.Random(seed), [], []
    for batch in batches:
        own = rows_of(batch)
        rows.append(own)
        kept.append((batch, own))
        if len(kept) > KEPT:
            batch, own = kept.pop(chance.randrange(len(kept)))
            assert rows_of(batch) == own, "a batch was overwritten while a thread held it"
    for batch, own in kept:
        assert rows_of(batch) == own, "a batch was overwritten while a thread held it"
    found += rows


@pytest.mark.parametrize("kind", ["serial", "threads", "processes"])
@pytest.mark.in_turn
def test_threads_that_share_an_iterator_get_whole_batches(
    kind: str, pools: list[AbstractWorkerPool], in_full: bool
) -> None:
    pool = bu.SerialPool() if kind == "serial" else pools[kind == "processes"]
    n_batches, epochs = 100, 100 if in_full else 2  # 10,000 batches in full
    source = source_of(SIZE * n_batches - 3).map(AddsOne())
    before = held()
    for epoch in range(epochs):
        found: list[list[int]] = []
        with bu.Loader(source, SIZE, shuffle=7, pool=pool, buffer=6) as loader:
            loader.set_epoch(epoch)
            iterator = iter(loader)
            in_threads([partial(take, iterator, found, seed) for seed in range(THREADS)])
            assert loader.stats()["batches"] == len(found) == n_batches
            assert loader.metrics()["batches"] == n_batches
            del iterator
        assert sorted(itertools.chain(*found)) == list(range(SIZE * n_batches - 3))
        order = [[int(n) for n in row] for _, row in source.batch_iterator(SIZE, shuffle=7, epoch=epoch)]
        assert sorted(found) == sorted(order)
    wait_until_given_back(before)


@pytest.mark.skipif(not FREE_THREADED, reason="threads with a lock take turns, and meet here too rarely")
def test_a_source_that_threads_share_gives_each_batch_once_or_an_error(in_full: bool) -> None:
    for epoch in range(100 if in_full else 5):
        source = source_of(SIZE * 50).map(AddsOne())
        batches, refused = source.batch_iterator(SIZE, shuffle=1, epoch=epoch), numbers()

        def taken(batches: Iterator[Any] = batches, refused: Any = refused) -> Iterator[Any]:
            while True:
                try:
                    yield next(batches)
                except bu.ReentrantIteration:
                    refused()
                    time.sleep(0)
                except StopIteration:
                    return

        found: list[list[int]] = []
        in_threads([partial(take, taken(), found, seed) for seed in range(THREADS)])
        assert sorted(itertools.chain(*found)) == list(range(SIZE * 50))


@pytest.mark.parametrize("kind", ["threads", thorough("processes")])
def test_loops_on_threads_that_break_off_close_and_resize_are_whole(kind: str, in_full: bool) -> None:
    n = SIZE * 40
    source = source_of(n).map(AddsOne())
    in_order = list(range(n))
    ended = threading.Event()
    before = held()
    with (bu.WorkerThreadPool(3) if kind == "threads" else bu.WorkerProcessPool(2)) as pool:
        list(pool.parallel_data_source(source).batch_iterator(SIZE))

        def loop(seed: int) -> None:
            chance = random.Random(seed)
            for epoch in range(60 if in_full else 4):
                with bu.Loader(source, SIZE, shuffle=seed, pool=pool, buffer=chance.randint(1, 9)) as loader:
                    loader.set_epoch(epoch)
                    stop, rows = chance.choice([chance.randrange(40), 99]), []
                    for number, batch in enumerate(loader):
                        rows += rows_of(batch)
                        if number == stop:
                            break
                    if stop == 99:
                        assert sorted(rows) == in_order
                    else:  # the rest comes in the next iteration
                        state = loader.state_dict()
                        with bu.Loader(source, SIZE, shuffle=seed, pool=pool) as other:
                            other.load_state_dict(state)
                            rest = [] if stop == 39 else [row for batch in other for row in rows_of(batch)]
                        assert sorted(rows + rest) == in_order

        def resize() -> None:
            for size in itertools.cycle([1, 3, 2] if kind == "threads" else [2, 1]):
                pool.resize(size)
                if ended.wait(0.005 if kind == "threads" else 0.1):
                    return

        def loops() -> None:
            try:
                in_threads([partial(loop, seed) for seed in range(THREADS)])
            finally:
                ended.set()

        in_threads([loops, resize])
    wait_until_given_back(before)


@pytest.mark.parametrize("kind", ["serial", "threads"])
def test_a_loader_that_one_thread_closes_ends_in_all(kind: str, in_full: bool) -> None:
    source = source_of(SIZE * 30).map(AddsOne())
    before = held()
    for seed in range(200 if in_full else 10):
        loader = bu.Loader(source, SIZE, shuffle=seed, pool=kind, workers=None if kind == "serial" else 2)
        iterator = iter(loader)
        found: list[list[int]] = []

        def loop(iterator: Any = iterator, found: list[list[int]] = found, seed: int = seed) -> None:
            try:
                take(iterator, found, seed)
            except bu.PoolClosed:
                return

        def close(loader: bu.Loader = loader, seed: int = seed) -> None:
            for _ in range(seed % 7):
                time.sleep(0.0005)
            loader.close()
            loader.stats(), loader.settings(), repr(loader), loader.metrics()

        in_threads([loop, loop, close, close])
        assert len(set(itertools.chain(*found))) == len(list(itertools.chain(*found)))
        del loader, iterator, loop, close
    wait_until_given_back(before)
