"""Orders that are drawn from a ``RandomState``, batch after batch."""

from __future__ import annotations

import contextlib
import itertools
import signal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.data_source.epoch.opening import epoch_plan
from batchup_ng.data_source.epoch_options import epoch_options
from tests.faults.scenes.strikes import Rang, Strike, ring
from tests.messages import raises

Plan = Any


def column(n: int, repeats: int = 1) -> bu.ArrayDataSource:
    return bu.ArrayDataSource([np.arange(n)], repeats=repeats)


def weighted(n: int) -> bu.ArrayDataSource:
    return bu.ArrayDataSource([np.arange(n)], sampler=bu.WeightedSampler(np.arange(1, n + 1), num_samples=3 * n))


SOURCES: dict[str, Any] = {
    "one": lambda: column(23),
    "side by side": lambda: bu.CompositeDataSource([column(5, -1), column(7, 4)]),
    "side by side, not cut": lambda: bu.CompositeDataSource([column(5, 3), column(12)], trim=False),
    "in groups": lambda: bu.CompositeDataSource([column(5, 2), column(30)], batch_size=[1, 2]),
    "by turns": lambda: bu.ChoiceDataSource([column(9), column(14, 2)]),
    "spread": lambda: bu.ChoiceDataSource([column(9), column(14, 2)], stratified=True),
    "turns in spread ones": lambda: bu.ChoiceDataSource(
        [bu.ChoiceDataSource([column(8), column(7)]), bu.take(column(14), 5)], stratified=True
    ),
    "the first of turns": lambda: bu.take(bu.ChoiceDataSource([column(9), column(14, 2)]), 15),
    "rounds": lambda: bu.repeat(bu.ChoiceDataSource([column(9), column(4)]), 3),
    "weights beside": lambda: bu.CompositeDataSource([weighted(4), column(12)]),
    "a map": lambda: column(11).map(lambda x: (x + 1,)),
    "buckets": lambda: bu.ArrayDataSource([np.arange(12)], sampler=bu.BucketSampler(np.arange(12), num_buckets=3)),
}


def rows_of(plan: Plan) -> list[str]:
    return [f"{planned.rows!r} {planned.key!r}" for planned in plan]


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("drop_last", [False, True])
def test_who_asks_out_of_turn_draws_the_same_order(name: str, drop_last: bool) -> None:
    """What is asked for, and when, changes no draw: sources that share a generator draw from it by turns."""
    source = SOURCES[name]()

    def plan() -> Plan:
        return source.plan(3, shuffle=np.random.RandomState(5), drop_last=drop_last)

    whole = rows_of(plan())
    one = plan()
    assert len(one) == len(whole)  # counted before anything is drawn
    for number in [len(whole) - 1, 0, len(whole) // 2]:
        assert rows_of([one[number]]) == [whole[number]]
    assert rows_of(one) == whole
    with raises(IndexError):
        one[len(whole)]


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("world", [2, 3])
def test_ranks_with_generators_that_are_seeded_alike_share_one_order(name: str, world: int) -> None:
    source = SOURCES[name]()
    alone = epoch_plan(source.node, epoch_options(3, np.random.RandomState(5)))
    whole = [repr(planned.rows) for planned in alone]
    parts = []
    for rank in range(world):
        options = epoch_options(3, np.random.RandomState(5), shard=(rank, world), uneven="drop", drop_last=False)
        parts.append([repr(planned.rows) for planned in epoch_plan(source.node, options)])
    shared = [batch for step in zip(*parts, strict=True) for batch in step]
    n = len(whole) // world * world
    assert shared[:n] == whole[:n]


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 7), st.sampled_from([1, 2, 3, -1])), min_size=1, max_size=3),
    batch_size=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_one_permutation_is_drawn_each_time_that_a_repetition_begins(
    lengths: list[tuple[int, int]], batch_size: int, seed: int
) -> None:
    """The oracle draws as BatchUp did: source by source for each batch, a repetition's order when it begins."""
    source = bu.CompositeDataSource([column(n, repeats) for n, repeats in lengths], trim=False)
    rng = np.random.RandomState(seed)

    def drawn(n: int, repeats: int) -> Any:
        order = (row for _ in (itertools.count() if repeats == -1 else range(repeats)) for row in rng.permutation(n))
        while batch := list(itertools.islice(order, batch_size)):
            yield batch

    expected = list(itertools.islice(zip(*[drawn(*each) for each in lengths], strict=False), 6))
    plan = iter(source.plan(batch_size, shuffle=np.random.RandomState(seed)))
    found = [tuple(part.tolist() for part in planned.rows) for planned in itertools.islice(plan, 6)]
    single = len(lengths) == 1 or all(repeats == 1 for _, repeats in lengths)
    if single:  # with more, BatchUp drew the next repetition's order early where a batch ended with a repetition
        assert found == expected
    assert [tuple(map(len, batch)) for batch in found] == [tuple(map(len, batch)) for batch in expected]


@pytest.mark.parametrize("name", SOURCES)
def test_nothing_is_drawn_before_the_first_batch(name: str) -> None:
    rng = np.random.RandomState(1)
    before = repr(rng.get_state())
    plan = SOURCES[name]().plan(3, shuffle=rng)
    assert len(plan) > 0
    assert repr(rng.get_state()) == before
    next(iter(plan))
    assert repr(rng.get_state()) != before


def test_no_more_is_drawn_than_is_needed() -> None:
    class Counting(np.random.RandomState):
        drawn = 0

        def permutation(self, x: Any) -> Any:
            self.drawn += 1
            return super().permutation(x)

    rng = Counting(1)
    for source in (column(10, -1), bu.take(column(10, -1), 95), bu.repeat(column(10), 3)):
        rng.drawn = 0
        plan = iter(source.plan(5, shuffle=rng))
        assert rng.drawn == 0
        for number in range(6):
            next(plan)
            assert rng.drawn == number // 2 + 1


SMALL: dict[str, Any] = {
    "one": lambda: column(4, 2),
    "side by side": lambda: bu.CompositeDataSource([column(2, 3), column(5)], trim=False),
    "by turns": lambda: bu.ChoiceDataSource([column(3), column(4)]),
    "rounds": lambda: bu.repeat(column(2), 3),
}


@pytest.mark.parametrize("name", SMALL)
def test_an_exception_at_any_line_loses_no_batch_in_silence(name: str) -> None:
    """Whoever holds the plan goes on with the next batches after it, or is told that it is broken off."""
    source = SMALL[name]()

    def new() -> Plan:
        return source.plan(2, shuffle=np.random.RandomState(5))

    expected = [repr(planned.rows) for planned in new()]
    endings, handler = [], signal.signal(signal.SIGALRM, ring)
    try:
        for number in itertools.count():
            plan, found, ending = new(), [], "not struck"
            for place in range(len(expected) + 2):  # one is struck, and one is beyond the end
                try:
                    with Strike(number, signal.SIGALRM, lines=True) if place == 1 else contextlib.nullcontext():
                        found.append(repr(plan[len(found)].rows))
                except Rang:
                    ending = "went on"
                except IndexError:
                    assert found == expected
                except bu.PoolClosed:
                    ending = "told"
            assert found == expected[: len(found)]
            assert found == expected or ending == "told"
            endings.append(ending)
            if ending == "not struck":
                break
    finally:
        signal.signal(signal.SIGALRM, handler)
    assert {"told", "went on"} <= set(endings)
