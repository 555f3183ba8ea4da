"""Permutations of many sets at once: bijections, all orders equally likely, each entry on its own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchup_ng.randomness import words_at
from batchup_ng.sampling.plans.batched_permutation import SMALL_SIZE, each_permuted
from batchup_ng.sampling.plans.permutation import MAX_POSITIONS
from tests.extent import quick, thorough
from tests.messages import raises


def whole(n: int, key: int) -> np.ndarray:
    """Return the permutation of `n` places that belongs to a key."""
    return each_permuted(np.arange(n), np.full(n, n), np.full(n, key, np.uint64))


def by_keys(n: int, n_keys: int) -> np.ndarray:
    """Return the permutations of `n` places of many keys: ``(n_keys, n)``."""
    sizes = np.full(n * n_keys, n)
    keys = np.repeat(words_at(9, np.arange(n_keys)), n)
    return each_permuted(np.tile(np.arange(n), n_keys), sizes, keys).reshape(n_keys, n)


def deviation(counts: np.ndarray, freedom: int) -> float:
    """Return by how many standard deviations counts that should be equal differ by more than chance would have it."""
    expected = counts.sum() / counts.size
    return float((((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom))


def test_each_is_a_bijection() -> None:
    for n in [*range(1, 70), 99, 100, 101, 255, 256, 257, 1000, 4096, 4097]:
        for key in (0, 1, 2**64 - 1):
            assert sorted(whole(n, key)) == list(range(n)), (n, key)


@given(n=st.integers(1, 20_000), key=st.integers(0, 2**64 - 1))
def test_so_is_any(n: int, key: int) -> None:
    assert (np.bincount(whole(n, key), minlength=n) == 1).all()


@given(n=st.integers(1, MAX_POSITIONS), key=st.integers(0, 2**64 - 1), seed=st.integers(0, 2**32 - 1))
def test_of_any_size_values_are_in_range_and_differ(n: int, key: int, seed: int) -> None:
    places = np.unique(np.random.default_rng(seed).integers(0, n, 100))
    sent = each_permuted(places, np.full(len(places), n), np.full(len(places), key, np.uint64))
    assert len(set(sent)) == len(places)
    assert sent.min() >= 0
    assert sent.max() < n


def test_an_entry_does_not_depend_on_those_beside_it() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 3 * SMALL_SIZE, 100)
    places, keys = rng.integers(0, sizes), words_at(1, np.arange(100))
    together = each_permuted(places, sizes, keys)
    alone = [int(each_permuted(places[i : i + 1], sizes[i : i + 1], keys[i : i + 1])[0]) for i in range(100)]
    assert together.tolist() == alone
    assert len(each_permuted(places[:0], sizes[:0], keys[:0])) == 0


@pytest.mark.parametrize("n", [2, thorough(3), thorough(4), 5, thorough(6)])
def test_all_orders_are_equally_likely(n: int) -> None:
    codes = by_keys(n, 100_000) @ n ** np.arange(n)
    counts = np.unique(codes, return_counts=True)[1]
    assert len(counts) == math.factorial(n)
    assert abs(deviation(counts, math.factorial(n) - 1)) < 5


@pytest.mark.parametrize("n", [9, thorough(25), thorough(30), 81])
def test_even_and_odd_orders_are_equally_likely(n: int) -> None:
    orders = by_keys(n, 1000)
    inversions = sum((orders[:, :-step] > orders[:, step:]).sum(axis=1) for step in range(1, n))
    assert abs((inversions % 2).sum() - 500) < 5 * math.sqrt(250)


@pytest.mark.parametrize("n", quick([9, SMALL_SIZE], [7, 9, 10, 16, 25, 50, SMALL_SIZE - 1, SMALL_SIZE, 100, 500]))
def test_any_place_is_sent_anywhere_and_neighbours_apart(n: int) -> None:
    sent = by_keys(n, 10_000)
    counts = np.stack([np.bincount(column, minlength=n) for column in sent.T])
    assert abs(deviation(counts, (n - 1) ** 2)) < 5
    steps = np.bincount(((sent[:, 1:] - sent[:, :-1]) % n).ravel(), minlength=n)
    assert steps[0] == 0
    assert abs(deviation(steps[1:], n - 2)) < 5
    fixed = (sent == np.arange(n)).sum()
    assert abs(fixed - 10_000) < 5 * 100


@pytest.mark.parametrize("n", [10**7, 10**12])
def test_a_large_one_mixes_neighbours_and_keys(n: int) -> None:
    places = np.arange(200_000)
    one, two = (each_permuted(places, np.full(200_000, n), np.full(200_000, key, np.uint64)) for key in (1, 2))
    for numbers in (one, np.diff(one) % n, (one - two) % n):
        assert abs(deviation(np.bincount(numbers * 100 // n, minlength=100), 99)) < 6


@pytest.mark.parametrize(
    ("place", "size"), [(5, 5), (7, 5), (-1, 5), (0, 0), (2**62, 2**62), (0, 2**62 + 1), (-(2**63), 2**62), (0, -1)]
)
def test_what_would_never_be_sent_inside_is_refused(place: int, size: int) -> None:
    with raises(IndexError):
        each_permuted(np.array([0, place]), np.array([1, size]), np.zeros(2, np.uint64))
