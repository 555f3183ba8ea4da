"""Epochs in a row that a pool makes: one buffer for all, which stays full from one epoch to the next."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.work_pool import AbstractWorkerPool
from tests.submissions import Submissions
from tests.work_pool.processes.serialization_helpers import wait_until

N, SIZE = 40, 4


@pytest.fixture
def pool() -> Iterator[Submissions]:
    with Submissions() as pool:
        yield pool


def numbers() -> bu.ArrayDataSource:
    return bu.ArrayDataSource([np.arange(N)])


def rows(batches: Any) -> list[int]:
    return [int(row) for (x,) in batches for row in x]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20])
def test_the_next_epoch_is_submitted_when_the_last_batch_is_handed_out(pool: Submissions, size: int) -> None:
    handed_out = 0
    for batches in pool.parallel_data_source(numbers(), size).epochs(4, SIZE, shuffle=7):
        for number, _ in enumerate(batches):
            handed_out += 1
            assert len(pool.submitted) - handed_out <= size
            if number == 9 and batches.epoch < 3:
                assert pool.of(batches.epoch + 1) == min(size, 10)
    assert pool.submitted == [(e, k) for e in range(4) for k in range(10)]


def test_at_most_one_epoch_is_begun_ahead(pool: Submissions) -> None:
    epochs = pool.parallel_data_source(numbers(), 1000).epochs(None, SIZE, shuffle=7)
    for _ in next(epochs):
        pass
    assert (pool.of(0), pool.of(1), pool.of(2)) == (10, 10, 0)
    epochs.close()


def test_the_batches_of_an_epoch_are_made_before_those_of_the_next() -> None:
    made: list[int] = []
    begin = threading.Event()

    def note(x: np.ndarray) -> Any:
        assert begin.wait(60)
        made.extend(x.tolist())
        return (x,)

    with bu.WorkerThreadPool(1) as threads:
        source = threads.parallel_data_source(numbers().map(note), 40)
        with source.epochs(3, SIZE, shuffle=7) as epochs:
            first = next(epochs)
            begin.set()
            next(first)  # now all batches of the second epoch are queued behind those of the first
            rest = [list(first), *map(list, epochs)]
    assert [len(each) for each in rest] == [9, 10, 10]
    assert made == [n for e in range(3) for n in rows(numbers().batch_iterator(SIZE, shuffle=7, epoch=e))]


def test_the_bytes_of_both_epochs_together_are_bounded(pool: Submissions) -> None:
    nbytes = SIZE * 8
    source = pool.parallel_data_source(numbers(), 1000, buffer_bytes=nbytes * 5)
    handed_out = 0
    for batches in source.epochs(3, SIZE, shuffle=7):
        for number, _ in enumerate(batches):
            handed_out += 1
            assert len(pool.submitted) - handed_out <= 3
            if number == 9 and batches.epoch < 2:
                assert pool.of(batches.epoch + 1) == 3


def test_an_epoch_that_is_left_early_gives_its_room_to_the_next(pool: Submissions) -> None:
    epochs = pool.parallel_data_source(numbers(), 3).epochs(None, SIZE, shuffle=7)
    first = next(epochs)
    next(first)
    second = next(epochs)
    with pytest.raises(bu.PoolClosed):
        list(first)
    assert (pool.of(0), pool.of(1)) == (4, 3)
    assert len(list(second)) == 10
    epochs.close()
    assert list(epochs) == []


def test_the_epoch_ahead_ends_with_what_asked_for_it(pool: Submissions) -> None:
    epochs = pool.parallel_data_source(numbers(), 30).epochs(None, SIZE, shuffle=7)
    first = next(epochs)
    next(first)
    next(first)
    ahead = weakref.ref(epochs._begun_ahead)
    assert ahead() is not None
    del epochs
    gc.collect()
    assert ahead() is None
    assert len(list(first)) == 8, "the epoch in hand goes on"


def test_a_generator_is_not_drawn_from_ahead_of_its_epoch(pool: Submissions) -> None:
    rng, again = np.random.RandomState(3), np.random.RandomState(3)
    for batches in pool.parallel_data_source(numbers(), 30).epochs(3, SIZE, shuffle=rng):
        assert rows(batches) == rows(numbers().batch_iterator(SIZE, shuffle=again))
        assert rng.randint(1000) == again.randint(1000)


def test_what_goes_wrong_ahead_is_raised_when_the_epoch_is_asked_for(pool: Submissions) -> None:
    source = pool.parallel_data_source(numbers(), 30)
    epochs = source.epochs(3, SIZE, shuffle=7)
    first = next(epochs)
    node: Any = source.node
    start = node.start
    node.start = lambda *args: 1 / 0
    assert len(list(first)) == 10
    with pytest.raises(ZeroDivisionError):
        next(epochs)
    node.start = start
    assert [batches.epoch for batches in epochs] == [1, 2]


def test_empty_epochs_end() -> None:
    with bu.SerialPool() as pool:
        source = pool.parallel_data_source(bu.ArrayDataSource([np.arange(0)]))
        assert [len(list(batches)) for batches in source.epochs(5, 4, shuffle=7)] == [0] * 5


def test_epochs_of_a_closed_pool_say_so() -> None:
    with bu.WorkerThreadPool(1) as pool:
        epochs = pool.parallel_data_source(numbers(), 30).epochs(3, SIZE)
        next(epochs)
    with pytest.raises(bu.PoolClosed):
        next(epochs)


# -- every pool ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 30])
def test_the_batches_are_those_of_the_source(pools: list[AbstractWorkerPool], size: int) -> None:
    expected = [(batches.epoch, rows(batches)) for batches in numbers().epochs(3, SIZE, 7, shard=(1, 2))]
    for pool in pools:
        epochs = pool.parallel_data_source(numbers(), size).epochs(3, SIZE, 7, shard=(1, 2))
        assert [(batches.epoch, rows(batches)) for batches in epochs] == expected


def test_a_state_goes_on_in_its_epoch_with_those_that_follow(pools: list[AbstractWorkerPool]) -> None:
    whole = [rows(batches) for batches in numbers().epochs(3, SIZE, 7)]
    for pool in pools:
        source = pool.parallel_data_source(numbers(), 30)
        with source.epochs(3, SIZE, 7) as epochs:
            assert rows(next(epochs)) == whole[0]
            second = next(epochs)
            head = rows(next(second) for _ in range(9))  # the third is being made by now
            state = json.loads(json.dumps(second.state_dict()))
        assert state["epoch"] == 1
        rest = [rows(batches) for batches in source.epochs(3, SIZE, 7, state=state)]
        assert [head + rest[0], rest[1]] == whole[1:]


def test_an_epoch_goes_back_though_the_next_has_begun(pools: list[AbstractWorkerPool]) -> None:
    whole = [rows(batches) for batches in numbers().epochs(2, SIZE, 7)]
    for pool in pools:
        with pool.parallel_data_source(numbers(), 5).epochs(2, SIZE, 7) as epochs:
            first = next(epochs)
            head = rows([next(first)])
            state = first.state_dict()
            assert rows(first) == whole[0][SIZE:]
            first.load_state_dict(state)
            assert head + rows(first) == whole[0]
            assert rows(next(epochs)) == whole[1]


def test_loops_that_are_broken_off_leave_nothing_behind(pools: list[AbstractWorkerPool]) -> None:
    for pool in pools:
        for stop in (1, 9, 10):
            for batches in pool.parallel_data_source(numbers(), 12).epochs(None, SIZE, 7):
                for _, _ in zip(range(stop), batches, strict=False):
                    pass
                break


def test_sources_of_prefetch_have_epochs(pools: list[AbstractWorkerPool]) -> None:
    for pool in pools:
        stream = bu.CallableDataSource(lambda batch_size, epoch: iter([(np.full(batch_size, epoch),)]))
        got = [(batches.epoch, rows(batches)) for batches in pool.prefetch(stream).epochs(2, 3)]
        assert got == [(0, [0, 0, 0]), (1, [1, 1, 1])]


# -- the bound -----------------------------------------------------------------------------------------------------


def test_the_bound_is_told() -> None:
    with bu.SerialPool() as pool:
        source = pool.parallel_data_source(numbers(), 7, buffer_bytes=1000)
        assert "at most 1 batch or 1000 bytes ahead" in repr(source)  # nothing is made ahead on its thread
        assert " MB ahead, " in repr(pool.parallel_data_source(numbers()))
        prefetched = pool.prefetch(numbers(), 3, buffer_bytes=9)
        assert "a stream, at most 3 batches or 9 bytes ahead, by <Ser" in repr(prefetched)


@pytest.mark.parametrize("size", [5, 12, 40])
def test_workers_rest_for_some_batches_if_the_buffer_is_well_filled(size: int) -> None:
    with bu.WorkerThreadPool(2) as pool:
        iterator = pool.parallel_data_source(bu.ArrayDataSource([np.arange(100)]), size).batch_iterator(1)
        ahead, seen = [], []
        for (x,) in iterator:
            seen.append(int(x[0]))
            ahead.append(iterator.ahead())
            wait_until(lambda: iterator.buffered() == iterator.ahead())
    assert seen == list(range(100))
    rested = np.zeros(100, int)
    for begin in (32, 64):  # until 2 workers had no work for 4 steps; at most half of the buffer is used up
        rest = min(size // 2, 6) if size // 2 >= 3 else 0
        rested[begin : begin + rest] = np.arange(1, rest + 1)
    assert ahead == np.minimum(size - rested, 99 - np.arange(100)).tolist()
