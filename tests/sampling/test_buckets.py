"""Batches of rows of about one length: each row once, within bounds, with little padding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError, StateError
from batchup_ng.randomness import OrderKey
from batchup_ng.sampling import BucketSampler, StandardSampler
from tests.messages import raises, warns

LENGTHS = np.random.default_rng(4).lognormal(3, 0.8, 3000).astype(int)
KEY = OrderKey(3, 1)


def epoch(sampler: BucketSampler, batch_size: int, key: OrderKey | None = KEY) -> list[np.ndarray]:
    plan = sampler.row_plan(batch_size, key, False)
    return [plan.rows(number) for number in range(int(plan.n_batches))]


def padded(batches: list[np.ndarray], lengths: np.ndarray = LENGTHS) -> float:
    """Return how many tokens the batches have after padding, for each before."""
    return sum(len(rows) * int(lengths[rows].max()) for rows in batches) / int(lengths.sum())


@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=80),
    buckets=st.integers(1, 12) | st.lists(st.integers(1, 40), max_size=6, unique=True).map(sorted),
    spare=st.none() | st.integers(0, 60),
    batch_size=st.integers(1, 12),
    seed=st.none() | st.integers(0, 2**60),
)  # fmt: skip
def test_each_row_comes_once_within_bounds(
    lengths: list[int], buckets: Any, spare: int | None, batch_size: int, seed: int | None
) -> None:
    most = None if spare is None else max(1, *lengths) + spare
    options = {"num_buckets": buckets} if isinstance(buckets, int) else {"boundaries": buckets}
    sampler = BucketSampler(lengths, max_tokens=most, **options)
    batches = epoch(sampler, batch_size, None if seed is None else OrderKey(seed, 0))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    found = np.array(lengths)
    for rows in batches:
        assert 1 <= len(rows) <= batch_size
        assert most is None or len(rows) * found[rows].max() <= most
    if most is None:
        assert [len(rows) for rows in batches[:-1]] == [batch_size] * (len(batches) - 1)
    # A batch is as large as its bucket allows: that of its longest row, or a later one, where all were carried over.
    owners = np.searchsorted(sampler.boundaries, found, side="right")
    longest = {owner: found[owners == owner].max() for owner in set(owners.tolist())}
    sizes = {owner: batch_size if most is None else min(batch_size, most // max(1, m)) for owner, m in longest.items()}
    for rows in batches[:-1]:
        own = max(owners[rows])
        assert len(rows) in {size for owner, size in sizes.items() if owner >= own}


def test_in_order_rows_come_by_length_and_equal_ones_by_number() -> None:
    rows = np.concatenate(epoch(BucketSampler(LENGTHS, max_tokens=500), 16, None))
    np.testing.assert_array_equal(rows, np.argsort(LENGTHS, kind="stable"))


def test_little_is_padding() -> None:
    full = [StandardSampler(3000).rows_at(np.arange(i, min(i + 32, 3000)), KEY) for i in range(0, 3000, 32)]
    assert padded(full) > 2.5
    assert padded(epoch(BucketSampler(LENGTHS), 32)) < 1.3
    assert padded(epoch(BucketSampler(LENGTHS, num_buckets=64), 32)) < 1.15
    assert padded(epoch(BucketSampler(LENGTHS, max_tokens=1000), 32)) < 1.3
    assert padded(epoch(BucketSampler(LENGTHS), 32, None)) < 1.1


def test_tokens_fill_batches() -> None:
    batches = epoch(BucketSampler(LENGTHS, max_tokens=1000), 10_000)
    assert LENGTHS.sum() / (1000 * len(batches)) > 0.75


def test_buckets_hold_about_as_many_tokens_each() -> None:
    sampler = BucketSampler(LENGTHS, num_buckets=8)
    assert len(sampler.boundaries) == 7
    shares = np.bincount(np.searchsorted(sampler.boundaries, LENGTHS, side="right"), LENGTHS) / LENGTHS.sum()
    np.testing.assert_allclose(shares, 1 / 8, atol=0.03)


def test_numbers_may_be_as_large_as_int64_holds_and_bounds_larger() -> None:
    lengths = [2**62] * 8 + [3]
    assert BucketSampler(lengths, num_buckets=4).boundaries == (2**62,)
    bound, free = (epoch(BucketSampler([3, 1, 2], max_tokens=most), 2) for most in (2**70, None))
    assert [rows.tolist() for rows in bound] == [rows.tolist() for rows in free]
    assert sorted(np.concatenate(epoch(BucketSampler(lengths, max_tokens=2**63), 9)).tolist()) == list(range(9))


def test_a_row_as_long_as_a_boundary_is_in_the_bucket_above() -> None:
    sampler = BucketSampler([5, 4, 5, 4, 6, 4], boundaries=[5], max_tokens=12)
    assert [sorted(rows.tolist()) for rows in epoch(sampler, 10, None)] == [[1, 3, 5], [0, 2], [4]]


def test_batches_and_rows_are_shuffled_anew_each_epoch() -> None:
    sampler = BucketSampler(LENGTHS, num_buckets=6)
    one, two = (epoch(sampler, 16, OrderKey(3, number)) for number in (0, 1))
    means = [LENGTHS[rows].mean() for rows in one[:-1]]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.25  # short and long batches in no order
    assert means != [LENGTHS[rows].mean() for rows in two[:-1]]
    owners = np.searchsorted(sampler.boundaries, LENGTHS, "right")
    firsts = [[owners[rows].min() for rows in order] for order in (one, two)]
    assert np.mean(np.equal(*firsts)) < 0.5  # the batches of the buckets come in another order
    together = {tuple(sorted(rows.tolist())) for rows in one} & {tuple(sorted(rows.tolist())) for rows in two}
    assert len(together) == 0


def test_each_bucket_has_an_order_of_its_own() -> None:
    plan = BucketSampler(np.repeat([1, 2], 100), boundaries=[2]).row_plan(100, KEY, False)
    one, two = sorted((plan.rows(number) for number in range(2)), key=min)
    assert sorted(one.tolist()) == list(range(100))
    assert (two - 100).tolist() != one.tolist()


def test_each_row_shares_a_batch_with_any_of_its_bucket(in_full: bool) -> None:
    # 12 rows of one bucket, in batches of 3: each pair shares one with chance 2/11.
    sampler = BucketSampler(np.ones(12, int))
    pairs = np.zeros((12, 12))
    each = 400 if in_full else 60
    for number in range(each * 11 // 2):
        for rows in epoch(sampler, 3, OrderKey(1, number)):
            pairs[np.ix_(rows, rows)] += 1
    counts = pairs[np.triu_indices(12, 1)]
    chi_squared = ((counts - each) ** 2 / each).sum()
    assert abs(chi_squared - 65) < 5 * math.sqrt(2 * 65)


def source(**options: Any) -> bu.ArrayDataSource:
    return bu.ArrayDataSource([np.arange(3000)], sampler=BucketSampler(LENGTHS, **options))


def rows_of(batches: Any) -> np.ndarray:
    return np.concatenate([batch[0] for batch in batches])


@pytest.mark.parametrize("shuffle", [None, 7])
def test_a_source_counts_its_batches_and_goes_on_with_their_size_only(shuffle: Any) -> None:
    made = source(max_tokens=1000)
    iterator = made.batch_iterator(32, shuffle=shuffle)
    state, n = iterator.state_dict(), len(iterator)
    whole = list(iterator)
    assert len(whole) == n
    assert made.num_samples() == len(set(rows_of(whole).tolist())) == 3000
    with raises(StateError):
        made.batch_iterator(16, shuffle=shuffle, state=state)


def negative(rows: np.ndarray) -> tuple[np.ndarray]:
    return (-rows,)


def test_sources_made_of_it_hand_out_its_batches() -> None:
    lengths = np.arange(40) % 9

    def small(first: int = 0) -> bu.ArrayDataSource:
        return bu.ArrayDataSource([first + np.arange(40)], sampler=BucketSampler(lengths, max_tokens=24))

    own = sorted(range(40))
    twice = list(bu.repeat(small().map(negative), 2).batch_iterator(6, shuffle=1))
    assert sorted(-rows_of(twice)) == sorted(own * 2)
    choice = list(bu.ChoiceDataSource([small(), small(100)], stratified=True).batch_iterator(6, shuffle=1))
    assert sorted(rows_of(choice)) == own + [100 + row for row in own]
    some = list(bu.take(small(), 17).batch_iterator(6, shuffle=1))
    assert len(set(rows_of(some))) == 17
    both = bu.CompositeDataSource([small(), bu.ArrayDataSource([np.arange(1000)])], trim=False)
    assert sorted(rows_of(both.batch_iterator(6, shuffle=1))) == own
    for whole_batches in (small(), bu.take(small().map(negative), 17)):
        with raises(ArgumentError):  # which would lose samples
            bu.CompositeDataSource([whole_batches, bu.ArrayDataSource([np.arange(1000)])])
    for refused in (
        lambda: bu.concat(small(), small()),
        lambda: bu.subset(small(), [1, 2]),
        lambda: bu.zip(small(), small()),
        lambda: bu.split(small(), (0.5, 0.5), seed=1),
    ):
        with raises(ArgumentTypeError):
            refused()


@pytest.mark.parametrize("pool", ["serial", "threads", "processes"])
@pytest.mark.in_turn
def test_a_row_of_any_length_does_not_replace_one_that_fails(pool: str) -> None:
    """It could make a batch many times larger than `max_tokens` allows."""
    lengths = np.array([1] * 20 + [10] * 20)
    source = bu.ArrayDataSource([np.arange(40)]).map(without_row_3)
    for sampler in (BucketSampler(lengths, max_tokens=20), bu.PackSampler(lengths, 20)):
        for data in (source.sample(sampler), bu.take(source.sample(sampler).map(negative), 30)):
            with bu.Loader(data, 20, shuffle=1, pool=pool, on_error="replace") as loader, raises(ArgumentError):
                next(iter(loader))
    kept = source.sample(BucketSampler(lengths, max_tokens=20)).map(negative)
    with bu.Loader(kept, 20, shuffle=1, pool=pool, on_error="skip") as loader, warns(bu.SampleWarning):
        batches = [-x for (x,) in loader]
    assert sorted(np.concatenate(batches)) == [row for row in range(40) if row != 3]
    plain = source.sample(BucketSampler(lengths))
    with bu.Loader(plain, 8, shuffle=1, pool=pool, on_error="replace") as loader, warns(bu.SampleWarning):
        assert [len(x) for (x,) in loader] == [8] * 5


def without_row_3(rows: np.ndarray) -> tuple[np.ndarray]:
    if (rows == 3).any():
        raise ValueError("row 3")
    return (rows,)


def test_rows_of_one_number_are_those_of_the_data() -> None:
    made = bu.ArrayDataSource([np.arange(4) * 10], sampler=BucketSampler([3, 1, 2, 0], indices=[0, 3]))
    assert made.samples_by_indices(np.array([1]))[0].tolist() == [30]
    whole = bu.ArrayDataSource([np.arange(4) * 10], sampler=BucketSampler([3, 1, 2, 0]))
    assert whole.samples_by_indices(np.array([1]))[0].tolist() == [10]


def test_no_rows_give_no_batches() -> None:
    for sampler in (BucketSampler([]), BucketSampler([3, 4], indices=[], max_tokens=2)):
        assert epoch(sampler, 4) == epoch(sampler, 4, None) == []
        assert sampler.row_plan(4, None, False).n_in_any_order == 0
