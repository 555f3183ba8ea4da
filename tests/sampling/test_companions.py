"""The draws of companions: valid for each row, uniform, independent of the order, and others in each epoch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.randomness import BatchKey
from batchup_ng.sampling.companions import Companions, distinct, rows_of

N = 12


def in_turn(draws: list[float], size: int, taken: list[int]) -> list[int]:
    """Pick from a list of what is free, draw after draw."""
    free = [number for number in range(size) if number not in taken]
    return [free.pop(int(draw * len(free))) for draw in draws]


@given(st.integers(1, 30), st.integers(0, 2**32), st.data())
def test_numbers_are_picked_from_those_that_are_free(n: int, seed: int, data: Any) -> None:
    rng = np.random.default_rng(seed)
    n_taken, count = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 5))
    sizes = rng.integers(n_taken + count, 40, n) + (n_taken + count == 0)
    taken = np.array([rng.permutation(size)[:n_taken] for size in sizes]).reshape(n, n_taken)
    draws = rng.random((n, count))
    draws[rng.random((n, count)) < 0.2] = np.nextafter(1, 0)
    found = distinct(draws, sizes, taken)
    samples = zip(draws.tolist(), sizes.tolist(), taken.tolist(), strict=True)
    assert found.tolist() == [in_turn(*each) for each in samples]


@given(st.integers(0, 60), st.booleans(), st.integers(1, 4), st.sampled_from(["any", "same", "other"]),
       st.integers(0, 99))  # fmt: skip
def test_companions_are_other_rows_of_the_class_that_was_asked_for(
    n: int, chosen: bool, count: int, kind: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(100)[:n]) if chosen else None
    classes = None if kind == "any" else rng.integers(0, 1 + seed % 5, n)
    made = Companions(count, n, rows, classes, kind == "same")
    listed = list(range(n)) if rows is None else rows.tolist()
    allowed = {
        row: {
            other for place, other in enumerate(listed)
            if other != row and (classes is None or (classes[i] == classes[place]) == (kind == "same"))
        }
        for i, row in enumerate(listed)
    }  # fmt: skip
    if n:
        assert made.fewest == min(map(len, allowed.values()))
    if made.fewest < count:
        return
    own = np.array(listed, np.int64)[rng.integers(0, n, 25)]
    found = made.drawn(BatchKey(seed), own)
    assert found.shape == (count, 25)
    for row, others in zip(own.tolist(), found.T.tolist(), strict=True):
        assert len(set(others)) == count
        assert set(others) <= allowed[row]


@given(st.integers(2, 40), st.integers(0, 99))
def test_they_depend_on_the_position_and_not_on_the_batch(n: int, seed: int) -> None:
    made, rng = Companions(1 + seed % (n - 1), n), np.random.default_rng(seed)
    rows = rng.integers(0, n, 30)
    whole = made.drawn(BatchKey(seed, 3, 0, 100, (0, 1)), rows)
    places = rng.permutation(30)[: rng.integers(1, 30)]
    np.testing.assert_array_equal(made.drawn(BatchKey(seed, 3, 7, 100, (0, 1), places), rows[places]), whole[:, places])
    at = int(rng.integers(0, 30))
    np.testing.assert_array_equal(made.drawn(BatchKey(seed, 3, 9, 100 + at, (0, 1)), rows[at:]), whole[:, at:])


def chi_squared(counts: np.ndarray) -> float:
    """Return by how many standard deviations the statistic of equal chances is off its mean."""
    expected = counts.sum() / counts.size
    freedom = counts.size - 1
    return float((((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom))


def epochs(companions: Any, number: int, size: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows in their order, ``(number, N)``, and their companions, ``(number, N, count)``, of epochs."""
    source = bu.ArrayDataSource([np.arange(N), np.arange(N) % 3]).map(
        lambda x, y, others: (x, np.stack([other[0] for other in others], axis=1)), companions=companions
    )
    made = [list(source.batch_iterator(size, shuffle=5, epoch=epoch)) for epoch in range(number)]
    rows, found = ([np.concatenate([batch[i] for batch in epoch]) for epoch in made] for i in (0, 1))
    return np.stack(rows), np.stack(found)


def test_companions_are_uniform_over_the_other_rows_and_independent_of_the_order_and_the_epoch(in_full: bool) -> None:
    rows, found = epochs(2, 4000 if in_full else 400)
    counts = np.zeros((N, N, 2))
    np.add.at(counts, (rows[..., None], found, np.arange(2)), 1)
    assert (counts.sum(axis=2).diagonal() == 0).all()
    others = counts[~np.eye(N, dtype=bool)]
    assert abs(chi_squared(others[:, 0])) < 5
    assert abs(chi_squared(others[:, 1])) < 5
    # Pairs of companions, the distance in the order of the epoch, and the companions of the next epoch.
    pairs = np.zeros((N, N))
    np.add.at(pairs, (found[..., 0], found[..., 1]), 1)
    assert abs(chi_squared(pairs[~np.eye(N, dtype=bool)])) < 5
    places = np.argsort(rows, axis=1)
    away = (np.take_along_axis(places, found[..., 0], axis=1) - np.arange(N)) % N
    assert abs(chi_squared(np.bincount(away.ravel(), minlength=N)[1:])) < 5
    of_row = np.take_along_axis(found[..., 0], places, axis=1)  # in the order of the rows
    steps = (of_row[1:] - of_row[:-1]) % N
    same = np.count_nonzero(steps == 0)
    expected = steps.size / (N - 1)
    assert abs(same - expected) < 5 * math.sqrt(expected)
    neighbours = np.count_nonzero(found[:, 1:, 0] == found[:, :-1, 0])
    expected = found[:, 1:, 0].size * (N - 2) / (N - 1) ** 2
    assert abs(neighbours - expected) < 5 * math.sqrt(expected)


@pytest.mark.parametrize("same", [True, False])
def test_companions_of_a_class_are_uniform(same: bool, in_full: bool) -> None:
    rows, found = epochs(bu.same_class(1) if same else bu.other_class(1), 2000 if in_full else 300)
    counts = np.zeros((N, N))
    np.add.at(counts, (rows, found[..., 0]), 1)
    allowed = (np.arange(N)[:, None] % 3 == np.arange(N) % 3) == same
    np.fill_diagonal(allowed, False)
    assert (counts[~allowed] == 0).all()
    assert abs(chi_squared(counts[allowed])) < 5


Y = np.array([0, 3, 3, 0, 3, 3, 7, 3, 3, 0, 3, 7, 3])


@pytest.mark.parametrize(
    "sampler",
    [
        bu.StandardSampler(13), bu.StandardSampler(9, repeats=3), bu.SubsetSampler([4, 1, 1, 9], -1),
        bu.StridedSampler(13, 2, stride=3), bu.BlockShuffleSampler(13, 3, 2), bu.StratifiedSampler(Y),
        bu.StratifiedSampler(Y, [12, 3, 5]), bu.BalancedBatchSampler(Y, 1), bu.MixtureSampler([3, 10], [2, 1]),
        bu.WeightedSampler(Y), bu.WeightedSubsetSampler([1, 0, 2], [11, 4, 8]), bu.BucketSampler(Y, num_buckets=2),
        bu.PackSampler(Y, 20, indices=[3, 4, 12]),
    ],
    ids=lambda sampler: repr(sampler)[:40],
)  # fmt: skip
def test_the_rows_of_a_sampler_are_those_of_its_epochs(sampler: Any) -> None:
    size = sampler.batch_size or 4
    seen: set[int] = set()
    for seed in range(30):
        plan = sampler.row_plan(size, bu.randomness.OrderKey(seed, 0), False)
        for number in range(int(min(plan.n_batches, 40))):
            seen |= set(plan.rows(number).tolist())
    n, rows = rows_of(sampler)
    assert sorted(seen) == (list(range(n)) if rows is None else rows.tolist())
    assert rows is None or len(rows) == n
