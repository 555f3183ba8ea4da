"""Epochs that go on with other ranks, other batch sizes, other ends: every sample once, in the order of the stream."""

from __future__ import annotations

import dataclasses
import json
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng import batch as batches
from batchup_ng.data_source.epoch.opening import epoch_plan
from batchup_ng.data_source.epoch_options import epoch_options
from batchup_ng.sampling.plans.epoch import Reached
from batchup_ng.testing.sources import assert_same_batches
from tests.messages import raises


def noisy(x: np.ndarray, rng: Any) -> Any:
    return x, rng.normal()


def stage(source: Any, size: int, world: int, rounds: int | None, state: Any, **options: Any) -> tuple[list[Any], Any]:
    """Return the batches of some rounds of all ranks, in the order of the stream, with the state after them."""
    ranks = [source.batch_iterator(size, 5, shard=(rank, world), state=state, **options) for rank in range(world)]
    assert len({len(rank) for rank in ranks}) == 1
    given_ = []
    while rounds is None or rounds > 0:
        together = [next(rank, None) for rank in ranks]
        if together[0] is None:
            assert together == [None] * world
            break
        given_ += together
        rounds = None if rounds is None else rounds - 1
    states = [json.loads(json.dumps(rank.state_dict())) for rank in ranks]
    assert len({(state["samples"], state["batches"]) for state in states}) == 1
    return given_, states[-1]


def joined(parts: list[Any], column: int) -> np.ndarray:
    return np.concatenate([batch[column] for batch in parts] or [np.arange(0)])


STAGES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(0, 6)), max_size=4)


@given(st.integers(1, 150), STAGES, st.integers(1, 9), st.integers(1, 5), st.sampled_from(["pad", "drop"]))
def test_a_chain_of_worlds_and_sizes_hands_out_each_sample_once(
    n: int, stages: list[tuple[int, int, int]], size: int, world: int, uneven: str
) -> None:
    source = bu.ArrayDataSource([np.arange(n)]).map(noisy, rng="sample")
    ((x, noise),) = source.batch_iterator(n, 5)
    found, state = [], None
    for other_size, other_world, rounds in stages:
        part, state = stage(source, other_size, other_world, rounds, state, uneven="pad", pad_mask=True)
        found += part
    part, state = stage(source, size, world, None, state, uneven=uneven, pad_mask=True)
    found += part
    real = joined(found, 2).astype(bool)
    assert state["samples"] == n
    got, drawn = joined(found, 0)[real], joined(found, 1)[real]
    left_out = n - len(got)
    assert 0 <= left_out < (world if uneven == "drop" else 1)
    np.testing.assert_array_equal(got, x[: len(got)])
    np.testing.assert_array_equal(drawn, noise[: len(got)])
    assert stage(source, 3, 2, None, state, pad_mask=True)[0] == []


@pytest.mark.parametrize(("first", "then"), [(10, 20), (20, 10), (7, 3), (3, 50)])
def test_no_batch_draws_what_one_drew_before_the_size_was_changed(first: int, then: int) -> None:
    def draws(x: np.ndarray, rng: np.random.Generator) -> Any:
        return (rng.random(len(x)), np.random.random_sample(len(x)))

    source = bu.ArrayDataSource([np.arange(1000)]).map(draws, rng="batch")
    iterator = source.batch_iterator(first, 5)
    found = [next(iterator) for _ in range(7)]
    found += source.batch_iterator(then, 5, state=iterator.state_dict())
    together = np.concatenate([column for batch in found for column in batches.leaves(batch)])
    assert len(together) == len(np.unique(together)) == 2000


@pytest.mark.parametrize("kind", ["serial", "threads"])
def test_a_state_that_another_thread_takes_is_whole(kind: str) -> None:
    source = bu.ArrayDataSource([np.arange(600)]).map(noisy, rng="sample")
    whole = list(source.batch_iterator(10, 5))
    states: list[Any] = []
    done, taken = threading.Event(), threading.Semaphore(0)
    with bu.WorkerThreadPool(2) as pool:
        made = source if kind == "serial" else pool.parallel_data_source(source)
        with made.batch_iterator(10, 5) as iterator:

            def watch() -> None:
                while not done.is_set():
                    states.append(iterator.state_dict())
                    taken.release()

            watcher = threading.Thread(target=watch)
            watcher.start()
            try:
                for number, _ in enumerate(iterator):
                    # The other thread has its turn, however busy the machine is.
                    assert number % 20 or taken.acquire(timeout=240)
            finally:
                done.set()
                watcher.join(240)
        for state in states[:: max(1, len(states) // 20)]:
            assert state["counts"][0] == state["samples"] == 10 * state["batches"]
            with made.batch_iterator(10, 5, state=state) as rest:
                assert len(rest) == len(whole) - state["batches"]
                if len(rest):
                    assert_same_batches([next(rest)], [whole[state["batches"]]])


def test_after_an_error_the_epoch_goes_on_with_the_batch_that_failed() -> None:
    broken = {77}

    def fails(x: np.ndarray) -> Any:
        if broken & set(map(int, x)):
            raise OSError("the disk is away for a while")
        return (x,)

    source = bu.ArrayDataSource([np.arange(200)]).map(fails)
    whole = [batch[0] for batch in bu.ArrayDataSource([np.arange(200)]).batch_iterator(10, 5)]
    with bu.WorkerThreadPool(2) as pool:
        for made in (source, pool.parallel_data_source(source, 7)):
            broken.add(77)
            iterator = made.batch_iterator(10, 5)
            done: list[Any] = []
            with raises(OSError):
                _collect(iterator, done)
            state = iterator.state_dict()
            broken.clear()
            rest = [batch[0] for batch in made.batch_iterator(10, 5, state=state)]
            assert_same_batches(done + rest, whole)


def _collect(iterator: Any, into: list[Any]) -> None:
    """Put what an iterator gives into a list, until it raises."""
    for (x,) in iterator:
        into.append(x)


def refuse(lost: set[int]) -> Any:
    """Return a map that fails for some rows."""

    def fails(x: np.ndarray) -> Any:
        if lost & set(x.tolist()):
            raise ValueError("one of these cannot be made")
        return (x,)

    return fails


@pytest.mark.filterwarnings("ignore::batchup_ng.SampleWarning")
@pytest.mark.parametrize("make", [bu.SerialPool, bu.WorkerThreadPool])
def test_a_rank_never_leaves_out_a_whole_batch(make: Any) -> None:
    source = bu.ArrayDataSource([np.arange(32)]).map(refuse({8, 9, 10, 11}))
    with make() as pool:
        skips = pool.parallel_data_source(source, on_error="skip")
        assert [len(x) for (x,) in skips.batch_iterator(4)] == [4] * 7  # alone it does
        iterator = skips.batch_iterator(4, shard=(0, 2))
        next(iterator)
        with raises(bu.TooManyErrors) as e:
            next(iterator)
        assert [error.row for error in e.value.errors] == [8, 9, 10, 11]
        other = skips.batch_iterator(4, shard=(1, 2))
        next(other)
        assert iterator.state_dict() == other.state_dict()
        replaces = pool.parallel_data_source(source, on_error="replace")
        state = iterator.state_dict()
        ranks = [replaces.batch_iterator(4, shard=(rank, 2), state=state) for rank in range(2)]
        assert [[len(x) for (x,) in rank] for rank in ranks] == [[4] * 3] * 2


@pytest.mark.filterwarnings("ignore::batchup_ng.SampleWarning")
@pytest.mark.parametrize("action", ["skip", "replace"])
def test_states_are_equal_on_all_ranks_after_samples_that_failed(action: str) -> None:
    source = bu.ArrayDataSource([np.arange(54)]).map(refuse({1, 2, 9, 17, 40, 48, 53}))
    with bu.WorkerThreadPool(2) as pool:
        parallel = pool.parallel_data_source(source, on_error=action)
        ranks = [parallel.batch_iterator(4, shard=(rank, 3)) for rank in range(3)]
        assert [len(rank) for rank in ranks] == [5, 5, 5]
        for _ in range(5):
            states = [rank.state_dict() for rank in ranks]
            assert len({json.dumps({**state, "counts": None}) for state in states}) == 1
            for rank in ranks:
                next(rank)
        assert [list(rank) for rank in ranks] == [[], [], []]


@pytest.mark.filterwarnings("ignore::batchup_ng.SampleWarning")
def test_what_stands_for_a_sample_of_a_stream_without_end_does_not_depend_on_the_batch_size() -> None:
    source = bu.ArrayDataSource([np.arange(10)], repeats=-1).map(refuse({3}))
    with bu.SerialPool() as pool:
        replaces = pool.parallel_data_source(source, on_error="replace")
        found = []
        for size in (1, 2, 5, 40):
            iterator = replaces.batch_iterator(size, shuffle=1)
            found.append(np.concatenate([next(iterator)[0] for _ in range(80 // size)]).tolist())
        ranks = [replaces.batch_iterator(8, shuffle=1, shard=(rank, 2)) for rank in range(2)]
        found.append(np.concatenate([next(rank)[0] for _ in range(5) for rank in ranks]).tolist())
        for seed in range(20):  # wherever the bad one stands, at the very beginning too
            assert 3 not in next(replaces.batch_iterator(10, shuffle=seed))[0]
    assert 3 not in found[0]
    assert found == [found[0]] * 5


def test_a_batch_that_pads_a_choice_is_one_of_before_with_all_its_draws() -> None:
    parts = [bu.ArrayDataSource([np.arange(8)]), bu.ArrayDataSource([np.arange(100, 104)])]
    source = bu.ChoiceDataSource(parts, stratified=True).map(noisy, rng="sample").map(noisy_batch, rng="batch")
    source = source.map(lambda *batch: (*batch, np.random.rand(len(batch[0]))))
    whole = list(source.batch_iterator(4, 5))
    assert len(whole) == 3
    padded = list(source.batch_iterator(4, 5, shard=(1, 2), pad_mask=True))
    assert_same_batches([batch[:-1] for batch in padded], [whole[1], whole[0]])
    assert [batch[-1].tolist() for batch in padded] == [[True] * 4, [False] * 4]


def noisy_batch(*batch: Any, rng: np.random.Generator) -> Any:
    return *batch, rng.normal(size=len(batch[0]))


def test_a_rank_goes_on_with_the_number_of_its_own_next_batch() -> None:
    source = bu.ArrayDataSource([np.arange(40)])
    for parts in (source, bu.ChoiceDataSource([source])):
        options = dataclasses.replace(epoch_options(4, shard=(1, 2)), reached=Reached(24, 6))
        plan = epoch_plan(parts.node, options)
        assert (plan.first, len(plan)) == (3, 5)
        assert [(planned.number, planned.key.batch) for planned in plan] == [(3, 7), (4, 9)]
