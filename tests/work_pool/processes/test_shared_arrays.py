"""Copies of arrays for workers: how many there are, for how long; where none is made."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np
import psutil
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, PoolClosed, SerializationError
from batchup_ng.work_pool.processes import shared_arrays, shared_constants
from tests.work_pool.processes.serialization_helpers import MB, crossing, one, same


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_there_is_one_copy_however_many_workers(workers: int) -> None:
    array = np.arange(1_000_000)
    with bu.WorkerProcessPool(workers) as pool:
        constant = pool.shared_constant({"source": bu.ArrayDataSource([array]), "again": [array]})
        for _ in range(4 * workers):
            assert one(pool, lambda c: int(c["again"][0].sum()), constant) == array.sum()
        assert array.nbytes <= pool._dispatcher.copies.arena.taken < array.nbytes + 3 * MB


def test_sources_over_one_array_share_a_copy_while_one_of_them_lives() -> None:
    array = np.arange(200_000)
    with crossing() as both:
        first = both.share(bu.ArrayDataSource([array], indices=np.arange(100)))
        taken = both.arena.taken
        second = both.share(bu.ArrayDataSource([array.reshape(-1, 2)[:]]))
        assert both.arena.taken == taken
        del first
        both.copies.sweep()
        assert both.arena.taken == taken
        assert both.arrived(second).data[0][7].tolist() == [14, 15]
        del second
        both.copies.sweep()
        assert both.arena.taken == 0


def test_an_array_that_was_written_to_is_copied_anew() -> None:
    array = np.arange(200_000)
    with crossing() as both:
        before = both.share([array])
        taken = both.arena.taken
        array[-1] = 0
        after = both.share([array])
        assert both.arena.taken == 2 * taken
        assert both.arrived(before)[0][-1] == 199_999
        assert both.arrived(after)[0][-1] == 0


def test_a_pool_gives_the_memory_of_forgotten_constants_back() -> None:
    with bu.WorkerProcessPool(1) as pool:
        arena = pool._dispatcher.copies.arena
        for i in range(5):
            constant = pool.shared_constant(np.full(100_000, i))
            assert one(pool, lambda a: int(a[0] + a[-1]), constant) == 2 * i
            del constant
        deadline = time.monotonic() + 20
        while arena.taken:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_copies_come_and_go_on_many_threads(in_full: bool) -> None:
    arrays = [np.full(30_000, i) for i in range(4)]
    with crossing() as both:
        wrong: list[int] = []

        def work(seed: int) -> None:
            for i in np.random.default_rng(seed).integers(0, 4, 200 if in_full else 25).tolist():
                constant = both.share([arrays[i]])
                if not np.array_equal(both.arrived(constant)[0], arrays[i]):
                    wrong.append(i)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        both.copies.sweep()
        assert (wrong, both.arena.taken) == ([], 0)


def test_a_pool_that_is_closed_copies_nothing_any_more() -> None:
    array = np.arange(100_000)
    with crossing() as both:
        both.share([array])
        both.copies.close()
        with pytest.raises(PoolClosed, match="the pool was closed before the arrays of a source were copied"):
            both.share([array])


def test_a_copy_that_is_being_made_ends_with_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_arrays, "PIECE", 4096)
    with crossing() as both:
        written = both.arena._write

        def write(piece: Any, at: int) -> int:
            both.copies._closed = True
            return written(piece, at)

        monkeypatch.setattr(both.arena, "_write", write)
        with pytest.raises(PoolClosed):
            both.share([np.arange(100_000)])
        assert both.arena.taken == 0


def test_many_arrays_need_few_descriptors() -> None:
    arrays = [np.full(10_000 + i, i) for i in range(200)]
    with crossing() as both:
        constant = both.share(arrays)
        before = len(os.listdir("/proc/self/fd"))
        arrived = both.arrived(constant)
        assert len(os.listdir("/proc/self/fd")) <= before + 3
        assert all(same(a, b) for a, b in zip(arrays, arrived, strict=True))


def test_without_room_in_the_shared_memory_each_worker_gets_a_copy() -> None:
    array = np.arange(1_000_000)
    with crossing(4 * MB) as both:
        constant = both.share([array], "shared")
        assert constant.arrays == "sent"
        assert both.arena.taken == 0
        assert same(both.arrived(constant)[0], array)


def test_a_constant_of_one_pool_works_in_another() -> None:
    with crossing() as one_pool, crossing() as other:
        constant = one_pool.share([np.arange(100_000)])
        assert other.arrived(constant)[0][-1] == 99_999
        assert other.arena.taken == 0


def test_the_private_memory_of_a_worker_does_not_grow_with_what_is_shared() -> None:
    def private() -> int:
        return int(psutil.Process().memory_full_info().uss)

    array = np.ones(60 * MB, np.uint8)
    with bu.WorkerProcessPool(1) as pool:
        idle = one(pool, private)
        constant = pool.shared_constant(bu.ArrayDataSource([array]))
        assert one(pool, lambda s: int(s.data[0].sum()), constant) == array.size
        assert one(pool, private) - idle <= 20 * MB


# -- which transport ---------------------------------------------------------------------------------------------------


def test_what_fits_once_but_not_twice_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    images, table = np.ones((1000, 1000), np.uint8), np.ones(100_000, np.uint8)
    small = bu.ArrayDataSource([images])
    with crossing() as both:
        for free, transport in ((2_000_000, "shared"), (1_000_000, "served")):
            monkeypatch.setattr(shared_constants, "available", lambda free=free: free)
            assert both.share(small).arrays == transport
        both.copies.sweep()
        assert both.share(small, "shared").arrays == "shared"
        assert both.share(small, "served").arrays == "served"
        both.copies.sweep()
        monkeypatch.setattr(shared_constants, "available", lambda: 130_000)
        assert both.share(small.map(lambda x: (x, table))).arrays == "served"
        both.copies.sweep()
        monkeypatch.setattr(shared_constants, "available", lambda: 120_000)
        message = r"map fn '<lambda>' closes over table, an array of 100000 bytes, cannot .* 100000 bytes are needed"
        with pytest.raises(SerializationError, match=message):
            both.share(small.map(lambda x: (x, table)))


def test_a_road_that_does_not_exist_is_refused() -> None:
    with crossing() as both, pytest.raises(ArgumentError, match=r"arrays must be one of .* did you mean 'served'"):
        both.share([1], "serve")
