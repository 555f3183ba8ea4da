"""Rows of batches: how much of an order is computed for those who ask, and what is known of batches without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng import batch as batches
from batchup_ng.randomness import OrderKey
from batchup_ng.sampling import StandardSampler
from batchup_ng.sampling.plans.choice import even_order
from batchup_ng.sampling.plans.rows import FIRST_BLOCK_POSITIONS, SamplerPlan, first_rows, first_samples

LONG = 10**9
KEY = OrderKey(1, 0)


class Listening(StandardSampler):
    """Notes how many positions are asked for each time."""

    def __init__(self, length: int, repeats: int = 1) -> None:
        super().__init__(length, repeats)
        self.asked: list[int] = []

    def rows_at(self, positions: np.ndarray, key: OrderKey | None) -> np.ndarray:
        self.asked.append(len(positions))
        return super().rows_at(positions, key)


@pytest.fixture
def sampler() -> Listening:
    return Listening(LONG)


def test_blocks_double_for_who_goes_through_an_order(sampler: Listening) -> None:
    plan = SamplerPlan(sampler, 64, KEY, False)
    for number in range(2000, 2000 + 4 * sampler.block // 64):
        plan.rows(number)
    doubled = [FIRST_BLOCK_POSITIONS << i for i in range(6)]
    assert sampler.asked[:6] == doubled
    assert doubled[-1] == sampler.block
    assert set(sampler.asked[6:]) == {sampler.block}
    assert sum(sampler.asked) < 6 * sampler.block


def test_of_few_rows_no_more_repeats_are_ordered_ahead_than_somebody_waits_for() -> None:
    sampler = Listening(3, repeats=-1)
    plan = SamplerPlan(sampler, 2, KEY, False)
    for number in range(1000):
        plan.rows(number)
    assert max(sampler.asked) <= 64 * 3
    assert len(sampler.asked) < 20
    assert Listening(10**6, repeats=-1).block == StandardSampler.block


def test_ranks_of_few_go_through_an_order_too(sampler: Listening) -> None:
    plan = SamplerPlan(sampler, 64, KEY, False)
    for number in range(2000, 14_000, 24):
        plan.rows(number)
    assert len(sampler.asked) < 40  # for 500 batches


def test_no_more_is_computed_than_who_jumps_asks_for(sampler: Listening) -> None:
    plan = SamplerPlan(sampler, 64, KEY, False)
    numbers = np.random.default_rng(1).integers(0, LONG // 64, 200)
    rows = [plan.rows(number) for number in map(int, numbers)]
    assert sampler.asked == [FIRST_BLOCK_POSITIONS, *[64] * 199]
    for number, found in zip(numbers, rows, strict=True):
        expected = StandardSampler(LONG).rows_at(np.arange(number * 64, number * 64 + 64), KEY)
        np.testing.assert_array_equal(found, expected)


def test_who_jumps_and_then_goes_on_is_computed_ahead_for_again(sampler: Listening) -> None:
    plan = SamplerPlan(sampler, 64, KEY, False)
    for number in [0, *range(10_000, 10_100)]:
        plan.rows(number)
    assert sampler.asked == [
        FIRST_BLOCK_POSITIONS,
        64,
        FIRST_BLOCK_POSITIONS,
        2 * FIRST_BLOCK_POSITIONS,
        4 * FIRST_BLOCK_POSITIONS,
    ]


def test_a_glance_elsewhere_does_not_make_what_is_computed_ahead_be_lost(sampler: Listening) -> None:
    plan = SamplerPlan(sampler, 64, KEY, False)
    for number in range(16):
        plan.rows(number)
        plan.rows_between(10**8 * (number % 7 + 1), 10**8 * (number % 7 + 1) + 1)
    assert sorted(sampler.asked) == [*[1] * 16, FIRST_BLOCK_POSITIONS]


def test_an_order_of_one_block_is_computed_once_for_who_jumps() -> None:
    sampler = Listening(20_000)
    plan = SamplerPlan(sampler, 64, KEY, False)
    for number in np.random.default_rng(1).permutation(-(-20_000 // 64)).tolist():
        plan.rows(number)
    assert sampler.asked[-1] == 20_000
    assert len(sampler.asked) <= 4


def test_a_shuffled_stratified_choice_computes_little_more_than_it_hands_out() -> None:
    samplers = [Listening(500_000), Listening(400_000)]
    parts = [bu.ArrayDataSource([np.zeros(s.length, np.uint8)], sampler=s) for s in samplers]
    batches: Any = bu.ChoiceDataSource(parts, stratified=True).batch_iterator(64, shuffle=1)
    for _ in range(500):
        next(batches)
    assert sum(samplers[0].asked) + sum(samplers[1].asked) < 500 * 64 + 20 * FIRST_BLOCK_POSITIONS


def array(n: int) -> bu.ArrayDataSource:
    return bu.ArrayDataSource([np.zeros(n, np.uint8)])


def buckets(n: int) -> bu.ArrayDataSource:
    lengths = np.arange(n) ** 2 % 13 + 1
    return bu.ArrayDataSource([np.zeros(n, np.uint8)], sampler=bu.BucketSampler(lengths, num_buckets=3, max_tokens=40))


def endless(n: int) -> bu.ArrayDataSource:
    return bu.ArrayDataSource([np.zeros(n, np.uint8)], repeats=-1)


def nests(inner: Any) -> Any:
    some = st.lists(inner, min_size=1, max_size=4)
    return st.one_of(
        st.builds(bu.ChoiceDataSource, some, st.booleans()),
        st.builds(lambda parts, trim: bu.CompositeDataSource(parts, trim=trim), some, st.booleans()),
        st.builds(lambda source, n: bu.take(source, n), inner, st.integers(1, 60)),
        st.builds(lambda source, n: bu.repeat(source, n), inner, st.integers(1, 3)),
    )


lengths = st.integers(2, 30)
leaves = st.one_of(lengths.map(array), lengths.map(array), lengths.map(buckets), lengths.map(endless))
sources = st.recursive(leaves, nests, max_leaves=8)
keys = st.none() | st.builds(OrderKey, st.integers(0, 99), st.integers(0, 9))


@given(source=sources, n=st.integers(1, 100), batch_size=st.integers(1, 9), key=keys, drop_last=st.booleans())
def test_the_first_samples_are_those_of_the_first_batches(
    source: Any, n: int, batch_size: int, key: OrderKey | None, drop_last: bool
) -> None:
    whole = source.row_plan(batch_size, key, drop_last)
    plan = first_samples(whole, batch_size, n, drop_last)
    left = n
    again = source.row_plan(batch_size, key, drop_last)
    for number in range(int(plan.n_batches)):
        assert again.samples_before(number) == n - left
        assert plan.samples_before(number) == n - left
        taken, rows = plan.rows(number), whole.rows(number)
        assert batches.length(taken) == min(batches.length(rows), left)
        assert str(taken) == str(first_rows(rows, left))
        left -= batches.length(taken)
    if left > 0 and not drop_last:
        assert plan.n_batches == whole.n_batches
    assert again.batches_until(n) == whole.batches_until(n)
    assert whole.batches_until(0) == 0
    for m in range(1, n - left + 1):
        batch = whole.batches_until(m)
        assert whole.samples_before(batch) >= m > whole.samples_before(batch - 1)


MANY = 200_000_000


class Many:
    """Rows of which only the number matters."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, rows: Any) -> Any:
        return np.asarray(rows)


def large(n: int) -> Any:
    return bu.ArrayDataSource([Many(n)])


def counted(plan: Any) -> list[int]:
    """Return the list in which the numbers of the batches of `plan` are noted whose rows are made from now on."""
    asked, rows = [], plan.rows
    plan.rows = lambda number: (asked.append(number), rows(number))[1]
    return asked


@pytest.mark.parametrize(
    "source",
    [
        bu.ChoiceDataSource([large(MANY), large(MANY // 3)]),
        bu.ChoiceDataSource([large(MANY), large(MANY // 3)], stratified=True),
        bu.CompositeDataSource([bu.ChoiceDataSource([large(MANY), large(MANY + 1)]), large(2 * MANY)]),
        bu.CompositeDataSource([large(MANY), large(2 * MANY)], trim=False),
        bu.repeat(bu.ChoiceDataSource([large(MANY), large(MANY)], stratified=True), 3),
        bu.take(bu.take(bu.ChoiceDataSource([large(MANY), large(MANY + 2)]), MANY), MANY - 1),
    ],
    ids=["in turn", "stratified", "beside", "untrimmed", "rounds", "twice"],
)
def test_the_first_of_millions_of_batches_are_found_without_making_them(source: Any) -> None:
    """Ten million batches would take minutes."""
    for n in (MANY // 3, 10):
        plan = source.row_plan(20, KEY, False)
        asked = counted(plan)
        first = first_samples(plan, 20, n, False)
        last = int(first.n_batches) - 1
        assert batches.length(first.rows(last)) == n - plan.samples_before(last)
        assert asked == [last]


def test_the_first_of_many_buckets_are_found_without_making_them() -> None:
    for options in ({"max_tokens": 60}, {}):
        sampler = bu.BucketSampler(np.arange(300_000) % 29, **options)
        plan = sampler.row_plan(20, KEY, False)
        first = first_samples(plan, 20, 299_990, False)
        asked = counted(plan)
        lengths = [len(first.rows(int(first.n_batches) - 1 - back)) for back in range(3)]
        assert len(asked) == 3
        assert plan.samples_before(int(first.n_batches) - 3) + sum(lengths) == 299_990


@pytest.mark.parametrize("parts", [(7, 8), (7, 11, 5), (16, 16)])
@pytest.mark.parametrize("stratified", [False, True])
@pytest.mark.parametrize("key", [None, KEY])
def test_any_batch_of_many_rounds_of_a_choice_is_found(parts: Any, stratified: bool, key: OrderKey | None) -> None:
    choice = bu.ChoiceDataSource([array(n) for n in parts], stratified=stratified)
    plan = bu.repeat(choice, 300).row_plan(4, key, False)
    rounds = [choice.row_plan(4, None if key is None else key.child(which), False) for which in range(300)]
    expected = [rows for each in rounds for rows in map(each.rows, range(int(each.n_batches)))]
    assert plan.n_batches == len(expected)
    for number in (len(expected) - 1, 0, len(expected) // 2):
        assert str(plan.rows(number)) == str(expected[number])


def sources_in(counts: list[int]) -> list[int]:
    turns: list[int] = np.repeat(np.arange(len(counts)), counts)[even_order(counts)].tolist()
    return turns


@given(counts=st.lists(st.integers(0, 20), max_size=6))
def test_sources_are_spread_as_by_counting_what_is_due_round_by_round(counts: list[int]) -> None:
    most, order, due, done = max(counts, default=0), [], [0.0] * len(counts), [-1 if n else 0 for n in counts]
    for _ in range(most):
        for i, n in enumerate(counts):
            if int(due[i] + 0.25 / most) > done[i]:
                order.append(i)
                done[i] = int(due[i] + 0.25 / most)
            due[i] += n / most
    assert sources_in(counts) == order


def test_a_source_without_a_batch_has_no_turn_in_a_stratified_choice() -> None:
    source = bu.ChoiceDataSource([array(2), array(7)], stratified=True)
    assert [len(x) for (x,) in source.batch_iterator(3, drop_last=True)] == [3, 3]


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (bu.take(bu.ChoiceDataSource([array(7), array(11)]), 2), {"drop_last": True, "shuffle": 3}),
        (bu.take(bu.ChoiceDataSource([array(0), array(5)]), 3), {}),
    ],
)
def test_endless_rounds_without_a_batch_are_refused(source: Any, options: Any) -> None:
    with pytest.raises(bu.ArgumentError, match="1000 epochs in a row of the source that is to be repeated without end"):
        next(bu.repeat(source, -1).batch_iterator(4, **options))
    assert list(bu.repeat(source, 1500).batch_iterator(4, **options)) == []


def test_empty_rounds_among_others_are_passed_over() -> None:
    source = bu.repeat(bu.ChoiceDataSource([array(0), array(5)]), -1)
    batches: Any = source.batch_iterator(4, shuffle=1)
    assert [len(next(batches)[0]) for _ in range(9)] == [4] * 9


def test_in_a_spread_choice_of_many_batches_the_few_begin_as_soon_as_they_are_due() -> None:
    assert np.flatnonzero(sources_in([300_000, 3])).tolist() == [1, 100_002, 200_003]
