"""Weighted draws: what is drawn how often, with and without replacement, and what that costs."""

from __future__ import annotations

import collections
import itertools
import math
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.errors import ArgumentError
from batchup_ng.randomness import OrderKey
from batchup_ng.sampling import WeightedSampler
from batchup_ng.sampling.weight_table import CHUNK_WEIGHTS, RUN_WEIGHTS, WeightTable
from tests.extent import quick
from tests.messages import raises

KEY = OrderKey(3, 1)


def chi_squared(counts: Any, expected: Any) -> float:
    """Return Pearson's statistic in deviations from its mean, for expected counts that are given."""
    counts, expected = np.asarray(counts, float), np.asarray(expected, float)
    degrees = np.count_nonzero(expected) - 1
    assert counts[expected == 0].sum() == 0
    some = expected > 0
    statistic = float(((counts[some] - expected[some]) ** 2 / expected[some]).sum())
    return float((statistic - degrees) / math.sqrt(2 * degrees))


# -- with replacement ------------------------------------------------------------------------------------------


SHARES = list(itertools.product([1, 2, 31, 32, 33, 1000, 100_000], [np.float64, np.float32, np.uint8, bool]))


@pytest.mark.parametrize(("n", "dtype"), quick(SHARES[::9], SHARES))
def test_each_row_is_drawn_in_proportion(n: int, dtype: Any) -> None:
    weights = (np.random.default_rng(n).integers(0, 5, n) * 40).astype(dtype)
    weights[-1] = 1
    rows = WeightedSampler(weights).rows_at(np.arange(100_000), KEY)
    shares = weights.astype(float) / weights.astype(float).sum()
    assert (weights[rows] > 0).all()
    cells = np.minimum(np.arange(n) * 500 // n, 499)
    expected = np.bincount(cells, shares) * 100_000
    if np.count_nonzero(expected) > 1:
        assert abs(chi_squared(np.bincount(cells[rows], minlength=len(expected)), expected)) < 5


@pytest.mark.parametrize(
    "place",
    [
        0,
        1,
        RUN_WEIGHTS - 1,
        RUN_WEIGHTS,
        RUN_WEIGHTS + 1,
        CHUNK_WEIGHTS - 1,
        CHUNK_WEIGHTS,
        CHUNK_WEIGHTS + 1,
        2 * CHUNK_WEIGHTS + 4,
    ],
)
def test_one_row_among_zeros_is_always_drawn(place: int) -> None:
    weights = np.zeros(2 * CHUNK_WEIGHTS + 5)
    weights[place] = 1e-200
    assert set(WeightedSampler(weights).rows_at(np.arange(5000), KEY).tolist()) == {place}


@given(
    st.lists(st.sampled_from([0, 0.1, 1 / 3, 1e-17, 1, 1e17, 1e-200, 1e300]), min_size=1, max_size=99).filter(any),
    st.sampled_from([0.0, 2.0**-53, 0.5, 1 - 2.0**-53]),
)
def test_no_rounding_draws_a_row_of_weight_zero(weights: list[float], at: float) -> None:
    table = WeightTable("weights", weights)
    inner = table._ends / table.total  # where one run ends and the next begins
    uniform = np.unique([at, *inner[inner < 1], *np.nextafter(inner, 0), *np.nextafter(inner, 1)[inner < 1 - 2e-16]])
    rows = table.rows_at(uniform)
    assert (rows < len(weights)).all()
    assert (np.array(weights)[rows] > 0).all()
    assert (np.diff(rows) >= 0).all()


def test_the_ends_of_the_numbers_draw_the_first_and_the_last_row_that_have_weight() -> None:
    least, most = np.array([0.0]), np.array([1 - 2.0**-53])
    for before in (0, 1, RUN_WEIGHTS, 3 * RUN_WEIGHTS):
        assert WeightTable("weights", [0.0] * before + [1.0, 2.0]).rows_at(least) == before
    disagreed = 0
    for seed in range(200):
        weights = np.zeros(RUN_WEIGHTS)
        weights[:20] = np.random.default_rng(seed).random(20)
        table = WeightTable("weights", weights)
        assert table.rows_at(most) == 19
        disagreed += np.cumsum(weights)[-1] <= np.nextafter(table.total, 0)
    assert disagreed > 10  # in so many the sum that is searched, one by one, is less than that of the run


def test_weights_beyond_two_to_the_24_are_summed_up_in_full() -> None:
    weights = np.ones(1000, np.float32)
    weights[0] = 2**24  # from which a plain sum in float32 does not go on
    assert WeightTable("weights", weights).total == 2**24 + 999


@pytest.mark.parametrize("weights", [[1.5e308, 0.0, 1.5e308], [5e-324, 0.0, 5e-324]])
def test_weights_whose_sum_leaves_the_range_of_a_float_are_refused(weights: list[float]) -> None:
    with raises(ArgumentError):
        WeightedSampler(weights)


@pytest.mark.parametrize("n", [100, 4 * RUN_WEIGHTS])
def test_a_later_change_of_the_users_array_changes_nothing(n: int) -> None:
    weights = np.arange(float(n))
    sampler = WeightedSampler(weights)
    weights[:] = 0
    weights[3] = np.nan
    twin = WeightedSampler(np.arange(float(n)))
    np.testing.assert_array_equal(sampler.rows_at(np.arange(500), KEY), twin.rows_at(np.arange(500), KEY))
    p = np.arange(float(n)) / np.arange(float(n)).sum()
    np.testing.assert_array_equal(sampler.weights, p)
    drawn = next(sampler.shuffled_indices_batch_iterator(500, np.random.RandomState(1)))
    np.testing.assert_array_equal(drawn, np.random.RandomState(1).choice(n, size=500, p=p))


def test_normalised_weights_and_their_sums_are_only_made_when_asked_for() -> None:
    sampler = WeightedSampler(np.ones(1000))
    sampler.rows_at(np.arange(1000), KEY)
    sampler.fingerprint()
    kept = {name: value.nbytes for name, value in vars(sampler._table).items() if isinstance(value, np.ndarray)}
    assert sum(kept.values()) <= 1000 * 8 * (1 + 1 / RUN_WEIGHTS) + 600
    next(sampler.shuffled_indices_batch_iterator(5, np.random.RandomState(1)))
    assert sampler.weights.sum() == pytest.approx(1)
    assert len(pickle.dumps(sampler)) < 10_000  # what can be made again does not travel


def test_a_number_of_samples_ends_the_epoch() -> None:
    source = bu.ArrayDataSource([np.arange(20)], sampler=WeightedSampler(np.arange(20), num_samples=33))
    for shuffle in (5, np.random.RandomState(5), np.random.default_rng(5)):
        iterator = source.batch_iterator(10, shuffle=shuffle)
        assert len(iterator) == 4
        assert [len(x) for (x,) in iterator] == [10, 10, 10, 3]
    assert source.num_samples() == 33
    endless = WeightedSampler(np.arange(20)).shuffled_indices_batch_iterator(10, np.random.RandomState(5))
    ended = WeightedSampler(np.arange(20), num_samples=33).shuffled_indices_batch_iterator(10, np.random.RandomState(5))
    np.testing.assert_array_equal(np.concatenate(list(ended)), np.concatenate(list(itertools.islice(endless, 4)))[:33])


# -- without ---------------------------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0, 1e-9, 1e9]), min_size=1, max_size=60).filter(any),
    st.integers(0, 2**60), st.data(),
)  # fmt: skip
def test_each_row_of_weight_above_zero_comes_once(weights: list[float], seed: int, data: Any) -> None:
    positive = np.flatnonzero(weights)
    n = data.draw(st.none() | st.integers(1, len(positive)))
    sampler = WeightedSampler(weights, replacement=False, num_samples=n)
    total = len(positive) if n is None else n
    assert sampler.num_indices_generated() == total
    drawn = np.concatenate([*sampler.shuffled_indices_batch_iterator(7, np.random.RandomState(seed % 2**32))])
    for rows in (sampler.rows_at(np.arange(total), OrderKey(seed, 0)), drawn):
        assert len(rows) == len(set(rows.tolist())) == total
        assert set(rows.tolist()) <= set(positive.tolist())


def shares_of_orders(weights: list[float], n: int) -> dict[tuple[int, ...], float]:
    """Return the chance of each order of `n` rows that are drawn one after the other."""
    shares: dict[tuple[int, ...], float] = {}
    for order in itertools.permutations(range(len(weights)), n):
        share, left = 1.0, sum(weights)
        for row in order:
            share *= weights[row] / left
            left -= weights[row]
        shares[order] = share
    return shares


@pytest.mark.parametrize(
    ("n", "kind"),
    quick(
        [(1, "RandomState"), (2, "Generator"), (4, "seed")],
        list(itertools.product([1, 2, 4], ["seed", "RandomState", "Generator"])),
    ),
)
def test_rows_are_drawn_in_proportion_to_the_weights_of_those_left(n: int, kind: str, in_full: bool) -> None:
    weights = [0.5, 4.0, 1.5, 2.0]
    shares = shares_of_orders(weights, n)
    runs = 3000 if in_full else 1000
    sampler = WeightedSampler(weights, replacement=False, num_samples=n)
    rng = np.random.RandomState(2) if kind == "RandomState" else np.random.default_rng(2)
    drawn = [
        sampler.rows_at(np.arange(n), OrderKey(3, epoch))
        if kind == "seed"
        else next(sampler.shuffled_indices_batch_iterator(n, rng))
        for epoch in range(runs)
    ]
    seen = collections.Counter(tuple(rows.tolist()) for rows in drawn)
    counts = [seen[order] for order in shares]
    assert sum(counts) == runs
    assert abs(chi_squared(counts, [share * runs for share in shares.values()])) < 5


def test_the_first_rows_are_those_of_the_whole_order() -> None:
    weights = np.random.default_rng(0).random(10_000) ** 4
    weights[::7] = 0
    whole = WeightedSampler(weights, replacement=False).rows_at(np.arange(8000), KEY)
    for n in (1, 17, 5000):
        some = WeightedSampler(weights, replacement=False, num_samples=n)
        np.testing.assert_array_equal(some.rows_at(np.arange(n), KEY), whole[:n])


def test_ties_and_extremes_have_an_order_too() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler = WeightedSampler([1e-320, 1e307, 0, 5e-324, 1e307], replacement=False)
        rows = sampler.rows_at(np.arange(4), KEY)
    assert (sorted(rows[:2]), sorted(rows[2:])) == ([1, 4], [0, 3])


def test_the_tables_of_two_epochs_are_kept() -> None:
    sampler = WeightedSampler(np.ones(1000), replacement=False)
    for epoch in range(5):
        sampler.rows_at(np.arange(10), OrderKey(1, epoch))
    before = dict(sampler._orders)
    assert len(before) == 2
    sampler.rows_at(np.arange(10), OrderKey(1, 3))
    sampler.rows_at(np.arange(10), OrderKey(1, 4))
    assert all(sampler._orders[key] is order for key, order in before.items())
    assert len(pickle.dumps(sampler)) < 10_000
