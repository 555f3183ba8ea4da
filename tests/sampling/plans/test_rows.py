"""Rows of batches: how much of an order is computed for those who ask, and what is known of batches without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.randomness import OrderKey
from batchup_ng.sampling import StandardSampler
from batchup_ng.sampling.plans import choice as choice_plans
from batchup_ng.sampling.plans.rows import (
    FIRST_BLOCK,
    FirstPlan,
    OfBatches,
    RoundsPlan,
    RowPlan,
    SamplerPlan,
    rows_length,
)

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
    doubled = [FIRST_BLOCK << i for i in range(6)]
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
    assert sampler.asked == [FIRST_BLOCK, *[64] * 199]
    for number, found in zip(numbers, rows, strict=True):
        expected = StandardSampler(LONG).rows_at(np.arange(number * 64, number * 64 + 64), KEY)
        np.testing.assert_array_equal(found, expected)


def test_who_jumps_and_then_goes_on_is_computed_ahead_for_again(sampler: Listening) -> None:
    plan = SamplerPlan(sampler, 64, KEY, False)
    for number in [0, *range(10_000, 10_100)]:
        plan.rows(number)
    assert sampler.asked == [FIRST_BLOCK, 64, FIRST_BLOCK, 2 * FIRST_BLOCK, 4 * FIRST_BLOCK]


def test_a_glance_elsewhere_does_not_make_what_is_computed_ahead_be_lost(sampler: Listening) -> None:
    plan = SamplerPlan(sampler, 64, KEY, False)
    for number in range(16):
        plan.rows(number)
        plan.rows_between(10**8 * (number % 7 + 1), 10**8 * (number % 7 + 1) + 1)
    assert sorted(sampler.asked) == [*[1] * 16, FIRST_BLOCK]


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
    assert sum(samplers[0].asked) + sum(samplers[1].asked) < 500 * 64 + 20 * FIRST_BLOCK


def array(n: int) -> bu.ArrayDataSource:
    return bu.ArrayDataSource([np.zeros(n, np.uint8)])


def buckets(n: int) -> bu.ArrayDataSource:
    lengths = np.arange(n) ** 2 % 13 + 1
    return bu.ArrayDataSource([np.zeros(n, np.uint8)], sampler=bu.BucketSampler(lengths, num_buckets=3, max_tokens=40))


def balanced(n: int) -> bu.ArrayDataSource:
    return bu.ArrayDataSource([np.zeros(n, np.uint8)], sampler=bu.BalancedBatchSampler(np.arange(n) % 2, 1))


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


@given(source=sources, batch_size=st.integers(1, 9), key=keys, drop_last=st.booleans())
def test_a_plan_tells_how_many_samples_come_before_a_batch(
    source: Any, batch_size: int, key: OrderKey | None, drop_last: bool
) -> None:
    plan = source.row_plan(batch_size, key, drop_last)
    n = int(min(plan.n_batches, 50))
    starts = np.cumsum([0, *[rows_length(plan.rows(number)) for number in range(n)]])
    told = [plan.samples_before(number) for number in range(n + 1)]
    assert told in ([None] * (n + 1), starts.tolist())
    if plan.steady and key is not None:
        assert source.row_plan(batch_size, OrderKey(100, 3), drop_last).n_batches == plan.n_batches


class Silent(OfBatches):
    """A plan that does not tell what it knows."""

    def __init__(self, plan: RowPlan) -> None:
        self.n_batches = plan.n_batches
        self.rows = plan.rows


@given(source=sources, n=st.integers(1, 100), batch_size=st.integers(1, 9), key=keys, drop_last=st.booleans())
def test_the_first_samples_are_the_same_whether_batches_are_walked_through_or_not(
    source: Any, n: int, batch_size: int, key: OrderKey | None, drop_last: bool
) -> None:
    plan = source.row_plan(batch_size, key, drop_last)
    if plan.regular:
        return
    found, walked = (FirstPlan(part, batch_size, n, drop_last) for part in (plan, Silent(plan)))
    assert found.n_batches == walked.n_batches
    for number in range(int(found.n_batches)):
        assert str(found.rows(number)) == str(walked.rows(number))
        assert found.samples_before(number) == walked.samples_before(number)


@pytest.mark.parametrize("stratified", [False, True])
@pytest.mark.parametrize("of", [array, balanced])
def test_plans_of_choices_and_buckets_do_tell_it(of: Any, stratified: bool) -> None:
    choice = bu.ChoiceDataSource([of(10), of(6)], stratified=stratified)
    for source in (choice, buckets(20), bu.take(choice, 5), bu.CompositeDataSource([choice, array(9)], trim=False)):
        plan = source.row_plan(2, KEY, False)
        assert plan.samples_before(1) == rows_length(plan.rows(0))


def test_a_short_batch_in_the_round_that_is_not_whole_counts_too() -> None:
    plan = bu.ChoiceDataSource([array(5), array(4)]).row_plan(4, None, False)
    assert plan.n_batches == 3
    assert [plan.samples_before(number) for number in range(4)] == [0, 4, 8, 9]


def test_of_a_long_stratified_choice_batches_are_found_without_their_rows() -> None:
    samplers = [Listening(400_001), Listening(300_002)]
    parts = [bu.ArrayDataSource([np.zeros(s.length, np.uint8)], sampler=s) for s in samplers]
    plan = bu.take(bu.ChoiceDataSource(parts, stratified=True), 600_000).row_plan(4, KEY, False)
    assert samplers[0].asked == samplers[1].asked == []
    assert 150_000 <= plan.n_batches <= 150_002  # of which some may be short
    whole = bu.ChoiceDataSource(parts, stratified=True).row_plan(4, KEY, False)
    short = [place for place in (plan._part._short or (0, []))[1] if place]  # type: ignore[attr-defined]
    assert sorted(lacking for _, lacking in short) == [2, 3]
    for place, lacking in short:
        assert rows_length(whole.rows(place)) == 4 - lacking


def test_places_are_looked_through_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    choice = bu.ChoiceDataSource([array(29), array(39), array(7)], stratified=True)
    expected = [choice.row_plan(4, KEY, False).samples_before(number) for number in range(20)]
    monkeypatch.setattr(choice_plans, "MANY", 3)
    assert [choice.row_plan(4, KEY, False).samples_before(number) for number in range(20)] == expected


@pytest.mark.parametrize(
    ("source", "key", "made"),
    [
        (bu.ChoiceDataSource([array(7), array(8)]), KEY, 1),
        (bu.ChoiceDataSource([array(7), array(11), array(5)]), None, 1),
        (bu.ChoiceDataSource([bu.ChoiceDataSource([array(7), array(8)]), array(16)]), KEY, 1),
        (bu.ChoiceDataSource([array(7), array(11), array(5)]), KEY, 1000),
    ],
)
def test_rounds_are_only_counted_where_they_may_differ(source: Any, key: OrderKey | None, made: int) -> None:
    rounds = []

    def make(which: int) -> RowPlan:
        rounds.append(which)
        return source.row_plan(4, None if key is None else key.child(which), False)  # type: ignore[no-any-return]

    plan = RoundsPlan(make, 1000, None)
    expected = sum(int(make(which).n_batches) for which in range(1000))
    rounds.clear()
    assert plan.n_batches == expected
    assert len(rounds) <= made
    assert rows_length(plan.rows(expected - 1)) > 0


@given(counts=st.lists(st.integers(0, 20), max_size=6))
def test_sources_are_spread_as_by_counting_what_is_due_round_by_round(counts: list[int]) -> None:
    most, order, due, done = max(counts, default=0), [], [0.0] * len(counts), [-1 if n else 0 for n in counts]
    for _ in range(most):
        for i, n in enumerate(counts):
            if int(due[i] + 0.25 / most) > done[i]:
                order.append(i)
                done[i] = int(due[i] + 0.25 / most)
            due[i] += n / most
    assert choice_plans.interleaved(counts).tolist() == order


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
    with pytest.raises(bu.ArgumentError, match="1000 epochs in a row of the source that is to be repeated for ever"):
        next(bu.repeat(source, -1).batch_iterator(4, **options))
    assert list(bu.repeat(source, 1500).batch_iterator(4, **options)) == []


def test_empty_rounds_among_others_are_passed_over() -> None:
    source = bu.repeat(bu.ChoiceDataSource([array(0), array(5)]), -1)
    batches: Any = source.batch_iterator(4, shuffle=1)
    assert [len(next(batches)[0]) for _ in range(9)] == [4] * 9


def test_a_spread_choice_begins_each_batch_as_soon_as_it_is_due() -> None:
    """Of n batches, when that source which has most has given t, as many have begun as t * n / most, rounded down."""
    rng = np.random.default_rng(3)
    for _ in range(60):
        counts = [int(n) for n in rng.integers(0, rng.choice([2, 9, 60]), rng.integers(1, 6))]
        most, done, expected = max(counts), [-1] * len(counts), []
        for t in range(most):
            for i, n in enumerate(counts):
                if n and t * n // most > done[i]:
                    done[i] = t * n // most
                    expected.append(i)
        assert choice_plans.interleaved(counts).tolist() == expected
    large = choice_plans.interleaved([300_000, 3])
    assert np.flatnonzero(large == 1).tolist() == [1, 100_002, 200_003]
