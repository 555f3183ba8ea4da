"""Mixing by proportions: whole counts a period, each part gone through in an order of its own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.randomness import OrderKey
from batchup_ng.sampling import BlockShuffleSampler, MixtureSampler
from batchup_ng.testing.sources import SourceContract
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises

parts = st.lists(st.tuples(st.integers(1, 12), st.integers(0, 5)), min_size=1, max_size=6).filter(
    lambda pairs: any(share for _, share in pairs)
)


def owners(lengths: list[int], rows: np.ndarray) -> np.ndarray:
    """Return the part that each row is of."""
    return np.searchsorted(np.cumsum(lengths), rows, side="right")


@given(parts=parts, seed=st.integers(0, 2**64), epoch=st.integers(0, 9))
def test_each_period_has_its_proportions_and_each_part_goes_round(
    parts: list[tuple[int, int]], seed: int, epoch: int
) -> None:
    lengths, shares = [n for n, _ in parts], np.array([share for _, share in parts])
    counts = shares // np.gcd.reduce(shares)
    period, n_periods = int(counts.sum()), 30
    sampler = MixtureSampler(lengths, shares, length=-1)
    for key in (None, OrderKey(seed, epoch)):
        rows = sampler.rows_at(np.arange(period * n_periods), key)
        for stretch in owners(lengths, rows).reshape(n_periods, period):
            assert np.bincount(stretch, minlength=len(lengths)).tolist() == counts.tolist()
        for stop in range(period, period * n_periods + 1, period):
            seen = np.bincount(rows[:stop], minlength=sum(lengths))
            for own in np.split(seen, np.cumsum(lengths)[:-1]):
                assert own.max() - own.min() <= 1  # each once before any comes again


@given(parts=parts, seed=st.integers(0, 2**64))
def test_an_epoch_hands_out_every_row(parts: list[tuple[int, int]], seed: int) -> None:
    used = [(n, share) for n, share in parts if share]
    sampler = MixtureSampler([n for n, _ in used], [share for _, share in used])
    n = sampler.num_indices_generated()
    seen = np.bincount(sampler.rows_at(np.arange(n), OrderKey(seed, 0)))
    assert (seen >= 1).all()
    period = sum(share for _, share in used) // math.gcd(*[share for _, share in used])
    assert n % period == 0
    fewer = np.bincount(sampler.rows_at(np.arange(n - period), OrderKey(seed, 0)), minlength=len(seen))
    assert (fewer == 0).any()


def test_equal_parts_of_equal_length_hand_out_each_row_once() -> None:
    sampler = MixtureSampler([50, 50, 50])
    rows = sampler.rows_at(np.arange(sampler.num_indices_generated()), OrderKey(1, 0))
    assert sorted(rows) == list(range(150))


@given(counts=st.lists(st.integers(1, 30), min_size=1, max_size=8))
def test_in_order_the_parts_are_spread_evenly(counts: list[int]) -> None:
    sampler = MixtureSampler([1000] * len(counts), counts, length=-1)
    drawn = owners([1000] * len(counts), sampler.rows_at(np.arange(2 * sum(counts)), None))
    held = np.cumsum(drawn[:, None] == np.arange(len(counts)), axis=0)
    due = np.arange(1, len(drawn) + 1)[:, None] * np.array(counts) / sum(counts)
    assert np.abs(held - due).max() <= max(1.0, len(counts) / 2)


def test_in_order_the_rows_of_a_part_come_as_they_lie() -> None:
    assert MixtureSampler([3, 2], [3, 1]).rows_at(np.arange(4), None).tolist() == [0, 1, 3, 2]
    sampler = MixtureSampler([3, 2], [2, 1])
    assert sampler.rows_at(np.arange(9), None).tolist() == [0, 3, 1, 2, 4, 0, 1, 3, 2]


@pytest.mark.parametrize(
    ("weights", "period", "counts"),
    [
        (None, 2, [1, 1]),
        ([6, 2], 4, [3, 1]),
        ([0.7, 0.3], 10, [7, 3]),
        ([1 / 3, 2 / 3], 3, [1, 2]),
        ([5, 0], 1, [1, 0]),
        ([1.0, 1e300], None, None),
        ([1, math.sqrt(2)], 1000, [414, 586]),
        ([99_999, 1], 100_000, [99_999, 1]),
        (np.array([200, 55], np.uint8), 51, [40, 11]),
    ],
)
def test_proportions_are_whole_counts_of_a_period(weights: Any, period: int | None, counts: Any) -> None:
    if counts is None:
        with raises(ArgumentError):
            MixtureSampler([5, 5], weights)
        return
    sampler = MixtureSampler([5, 5], weights, length=-1)
    for key in (None, OrderKey(1, 0)):
        rows = sampler.rows_at(np.arange(period), key)
        assert np.bincount(owners([5, 5], rows), minlength=2).tolist() == counts


@pytest.mark.in_turn
def test_any_part_may_stand_anywhere_in_a_period_and_any_row_in_its_part() -> None:
    sampler = MixtureSampler([6, 4], [3, 2], length=-1)
    rows = sampler.rows_at(np.arange(10 * 10_000), OrderKey(1, 0)).reshape(10_000, 10)
    seen = np.stack([np.bincount(at, minlength=10) for at in rows.T])
    chi2 = ((seen - 1000) ** 2 / 1000).sum()
    assert abs(chi2 - 81) < 6 * math.sqrt(2 * 81)
    # Not the same order of the parts, nor of a part's rows, period after period.
    assert len({tuple(row) for row in rows[:100].tolist()}) == 100


def test_parts_of_one_size_are_shuffled_each_for_itself() -> None:
    rows = MixtureSampler([40, 40]).rows_at(np.arange(80), OrderKey(1, 0))
    one, other = rows[rows < 40], rows[rows >= 40] - 40
    assert np.roll(one, -one.argmin()).tolist() != np.roll(other, -other.argmin()).tolist()


def test_a_part_is_found_at_once_in_many_huge_ones() -> None:
    sampler = MixtureSampler([10**12] * 2000, length=-1)
    rows = sampler.rows_at(np.arange(10**14, 10**14 + 2000), OrderKey(1, 0))
    assert sorted(rows // 10**12) == list(range(2000))


# -- sources of different storage -----------------------------------------------------------------------------------


class TestMixOfSources(SourceContract):
    def make(self) -> Any:
        return bu.mix(bu.ArrayDataSource([np.arange(23)]), bu.ArrayDataSource([np.arange(100, 107)]), weights=[2, 1])


class TestConcatWithASampler(SourceContract):
    def make(self) -> Any:
        parts = [bu.ArrayDataSource([np.arange(23)]), bu.ArrayDataSource([np.arange(100, 107)])]
        return bu.concat(parts, sampler=BlockShuffleSampler(30, 4, 3))


def of_many_kinds(folder: Path) -> list[bu.AbstractDataSource]:
    """Three sources of gray pictures, 4 × 4: an array, a mapped file, image files; the first pixel tells the sample."""
    stored = np.zeros((30, 4, 4), np.uint8)
    stored[:, 0, 0] = np.arange(30)
    np.save(folder / "mapped.npy", stored[10:20])
    paths = [folder / f"{i}.png" for i in range(20, 30)]
    for i, path in enumerate(paths, 20):
        Image.fromarray(stored[i]).save(path)
    mapped = np.load(folder / "mapped.npy", mmap_mode="r")
    images = bu.ImageFiles(paths, size=4, mode="L")
    return [bu.ArrayDataSource([data]) for data in (stored[:10], mapped, images)]


def test_sources_of_different_storage_are_mixed(pools: list[AbstractWorkerPool], tmp_path: Path) -> None:
    source = bu.mix(*of_many_kinds(tmp_path), weights=[0.5, 0.3, 0.2])
    assert source.num_samples() == 50
    alone = np.concatenate([x for (x,) in source.batch_iterator(7, shuffle=3)])
    assert (np.bincount(alone[:, 0, 0], minlength=30) >= 1).all()
    for pool in pools:
        batches = [x for (x,) in pool.parallel_data_source(source).batch_iterator(10, shuffle=3)]
        for batch in batches:
            assert np.bincount(batch[:, 0, 0] // 10).tolist() == [5, 3, 2]
        np.testing.assert_array_equal(np.concatenate(batches), alone)


def test_a_mix_without_end_is_cut_by_take() -> None:
    source = bu.mix(*[bu.ArrayDataSource([np.full(3, i)]) for i in range(2)], length=-1)
    assert source.num_samples() == math.inf
    assert [len(x) for (x,) in bu.take(source, 10).batch_iterator(4, shuffle=1)] == [4, 4, 2]


def test_what_is_drawn_by_maps_of_a_mix_is_each_positions_own() -> None:
    def noisy(x: np.ndarray, rng: Any) -> Any:
        return x, rng.random()

    parts = [bu.ArrayDataSource([np.arange(5)]).map(noisy, rng="sample") for _ in range(2)]
    source = bu.mix(parts, weights=[3, 2])
    draws = np.concatenate([noise for _, noise in source.batch_iterator(4, shuffle=1)])
    assert len(set(draws.tolist())) == source.num_samples()


def refused() -> list[Any]:
    two = [bu.ArrayDataSource([np.arange(3)]), bu.ArrayDataSource([np.arange(4)])]
    stream = bu.IteratorDataSource(iter([]))
    return [
        (lambda: MixtureSampler([]), ArgumentError),
        (lambda: MixtureSampler([3.5]), ArgumentTypeError),  # type: ignore[list-item]
        (lambda: MixtureSampler([3, 0]), ArgumentError),
        (lambda: MixtureSampler([3, -1], [1, 0]), ArgumentError),
        (lambda: MixtureSampler([2**62, 1]), ArgumentError),
        (lambda: MixtureSampler([3, 4], [1]), ArgumentError),
        (lambda: MixtureSampler([3, 4], ["a", "b"]), ArgumentError),
        (lambda: MixtureSampler([3, 4], [[1], [2, 3]]), ArgumentTypeError),
        (lambda: MixtureSampler([3, 4], [1, -1]), ArgumentError),
        (lambda: MixtureSampler([3, 4], [math.nan, 1]), ArgumentError),
        (lambda: MixtureSampler([3, 4], [0, 0]), ArgumentError),
        (lambda: MixtureSampler([3, 4], [0.9999, 0.0001]), ArgumentError),
        (lambda: MixtureSampler([3, 4], length=0), ArgumentError),
        (lambda: MixtureSampler([3, 4], length=2.5), ArgumentTypeError),  # type: ignore[arg-type]
        (lambda: bu.concat(two, sampler=MixtureSampler([3, 5])), ArgumentError),
        (lambda: bu.concat(two, sampler=3), ArgumentTypeError),  # type: ignore[arg-type]
        (lambda: bu.mix(*two, weights=[1]), ArgumentError),
        (lambda: bu.mix(), ArgumentError),
        (lambda: bu.mix(two[0], stream), ArgumentTypeError),
        (lambda: bu.mix(two[0], np.arange(3)), ArgumentTypeError),  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize(("make", "error"), refused())
def test_what_cannot_be_is_refused(make: Any, error: type) -> None:
    with raises(error):
        make()


def test_weights_are_told_apart_by_the_fingerprint_of_a_source() -> None:
    sources = [bu.ArrayDataSource([np.arange(3)]), bu.ArrayDataSource([np.arange(4)])]
    fingerprints = {str(bu.mix(sources, weights=shares).fingerprint()) for shares in ([1, 2], [2, 1])}
    assert len(fingerprints | {str(bu.concat(sources).fingerprint())}) == 3


def test_a_part_of_a_weighted_source_is_refused_by_a_message_that_names_mix() -> None:
    weighted = bu.ArrayDataSource([np.arange(5)], sampler=bu.WeightedSampler([1, 2, 3, 4, 5], num_samples=5))
    with raises(ArgumentTypeError):
        bu.subset(weighted, [1])
