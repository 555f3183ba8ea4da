"""The samplers: the contract for each, then what is special to one."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.randomness import OrderKey
from batchup_ng.sampling import (
    AbstractSampler,
    RandomAccessSampler,
    StandardSampler,
    SubsetSampler,
    WeightedSampler,
    WeightedSubsetSampler,
    num_batches,
)
from tests.messages import raises

KEY = OrderKey(3, 1)


@given(n=st.integers(1, 300), repeats=st.integers(1, 4), seed=st.integers(0, 2**70), epoch=st.integers(0, 9))
def test_each_repeat_hands_out_each_row_once(n: int, repeats: int, seed: int, epoch: int) -> None:
    rows = StandardSampler(n, repeats).rows_at(np.arange(n * repeats), OrderKey(seed, epoch))
    for repeat in rows.reshape(repeats, n):
        assert sorted(repeat) == list(range(n))


def test_repeats_are_shuffled_anew() -> None:
    first, second = StandardSampler(50, 2).rows_at(np.arange(100), KEY).reshape(2, 50)
    assert first.tolist() != second.tolist()


def test_a_subset_hands_out_its_rows() -> None:
    indices = np.array([5, 3, 8])
    sampler = SubsetSampler(indices)
    assert sampler.rows_at(np.arange(3), None).tolist() == [5, 3, 8]
    assert sorted(sampler.rows_at(np.arange(3), KEY)) == [3, 5, 8]
    assert sampler.map_indices(np.array([2, 0])).tolist() == [8, 5]


@pytest.mark.parametrize("seed", range(5))
def test_weighted_draws_are_those_of_choice(seed: int) -> None:
    p = np.random.RandomState(seed).rand(1000)
    p[::3] = 0
    for make in (np.random.RandomState, np.random.default_rng):
        ours: Any = WeightedSampler(p).shuffled_indices_batch_iterator(64, make(seed))
        theirs: Any = make(seed)
        for _ in range(5):
            np.testing.assert_array_equal(next(ours), theirs.choice(1000, size=64, p=p / p.sum()))


@pytest.mark.parametrize("weights", [[1.0, np.nan], [1.0, -2.0], [np.inf, 1.0], [0.0, 0.0], [], [[1.0]]])
def test_bad_weights_are_refused_without_a_warning(weights: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with raises(ArgumentError):
            WeightedSampler(np.array(weights))


def test_classes_that_do_not_occur_take_no_part() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weights = WeightedSampler.class_balancing_sample_weights(np.array([0, 0, 5, 5, 5, 9]))
    np.testing.assert_allclose(weights, [1 / 6, 1 / 6, 1 / 9, 1 / 9, 1 / 9, 1 / 3])
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_array_equal(WeightedSampler.class_balancing_sample_weights([0, 0, 5, 5, 5, 9], 20), weights)


def test_class_numbers_may_be_any() -> None:
    few = WeightedSampler.class_balancing_sample_weights([0, 0, 1, 2])
    many = WeightedSampler.class_balancing_sample_weights([7, 7, 10**15, 2**63 - 1])
    np.testing.assert_array_equal(many, few)


def test_a_class_balancing_sampler_draws_classes_equally() -> None:
    y = np.repeat([0, 1, 4], [900, 90, 10])
    drawn = y[WeightedSampler.class_balancing_sampler(y).rows_at(np.arange(60_000), KEY)]
    np.testing.assert_allclose(np.bincount(drawn)[[0, 1, 4]] / 60_000, 1 / 3, atol=0.01)
    subset = np.flatnonzero(y > 0)
    drawn = y[WeightedSubsetSampler.class_balancing_sampler(y, subset).rows_at(np.arange(60_000), KEY)]
    np.testing.assert_allclose(np.bincount(drawn)[[1, 4]] / 60_000, 1 / 2, atol=0.01)


@pytest.mark.parametrize(
    ("y", "n_classes", "error"),
    [
        ([], None, ArgumentError),
        ([[1]], None, ArgumentError),
        ([0, -1], None, ArgumentError),
        ([0.5, 1.0], None, ArgumentTypeError),
        ([0, 3], 3, ArgumentError),
    ],
)
def test_bad_classes_are_refused(y: Any, n_classes: Any, error: type) -> None:
    with raises(error):
        WeightedSampler.class_balancing_sample_weights(np.array(y), n_classes)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: StandardSampler(5, repeats=0), ArgumentError),
        (lambda: StandardSampler(5, repeats=-2), ArgumentError),
        (lambda: StandardSampler(5, repeats=1.5), ArgumentTypeError),
        (lambda: StandardSampler(-1), ArgumentError),
        (lambda: StandardSampler(0, repeats=-1), ArgumentError),
        (lambda: SubsetSampler([True, False]), ArgumentTypeError),
        (lambda: SubsetSampler([0.5]), ArgumentTypeError),
        (lambda: SubsetSampler([[1]]), ArgumentError),
        (lambda: SubsetSampler([[1], [2, 3]]), ArgumentTypeError),
        (lambda: SubsetSampler(np.array([2**64 - 1], np.uint64)), ArgumentError),
        (lambda: WeightedSubsetSampler(3, [0]), ArgumentError),
        (lambda: WeightedSubsetSampler(np.ones(2), [1]), ArgumentError),
        (lambda: num_batches(5, 0), ArgumentError),
        (lambda: num_batches(5, True), ArgumentTypeError),
    ],
)
def test_bad_arguments_are_refused(make: Any, error: type) -> None:
    with raises(error):
        make()


def test_the_base_classes_say_what_is_missing() -> None:
    for call in (
        lambda: AbstractSampler().num_indices_generated(),
        lambda: AbstractSampler().in_order_indices_batch_iterator(3),
        lambda: AbstractSampler().shuffled_indices_batch_iterator(3, None),
        lambda: RandomAccessSampler().rows_at(np.arange(3), None),
    ):
        with raises(NotImplementedError):
            call()
    assert AbstractSampler().map_indices(3) == 3


def test_counts_are_those_of_the_epoch() -> None:
    assert StandardSampler(7, 3).num_indices_generated() == 21
    assert StandardSampler(7, -1).num_indices_generated() == math.inf
    assert WeightedSampler(np.ones(3)).num_indices_generated() == math.inf
