"""How much of an order is computed for the batches that are asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.randomness import OrderKey
from batchup_ng.sampling import StandardSampler
from batchup_ng.sampling.plans.rows import FIRST_BLOCK_POSITIONS, SamplerPlan

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
