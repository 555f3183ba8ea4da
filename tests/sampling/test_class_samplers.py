"""Samplers that look at classes: what they promise of every stretch, batch and class."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng import randomness
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.randomness import OrderKey
from batchup_ng.sampling import BalancedBatchSampler, StratifiedSampler
from batchup_ng.sampling.plans import even_interleave
from batchup_ng.sampling.plans.even_interleave import Spread
from tests.extent import quick, thorough
from tests.messages import raises

Y = np.array([0, 3, 3, 0, 3, 3, 7, 3, 3, 0, 3, 7, 3])


classes = st.lists(st.integers(0, 12), min_size=1, max_size=120).map(np.array)


def strays_too_far(y: np.ndarray, length: int) -> list[int]:
    """Return the classes that some `length` entries in a row have more or fewer of than is promised."""
    own = y[:, None] == np.unique(y)
    counted = np.vstack([np.zeros(own.shape[1]), np.cumsum(own, axis=0)])
    share = own.mean(axis=0)
    strayed = np.abs(counted[length:] - counted[:-length] - length * share).max(axis=0)
    return np.flatnonzero(strayed > 1 + share * (len(share) - 2) + 1e-9).tolist()


@given(y=classes, repeats=st.integers(1, 3), seed=st.integers(0, 2**64), epoch=st.integers(0, 9))
def test_stratified_hands_out_each_row_once_a_repeat(y: np.ndarray, repeats: int, seed: int, epoch: int) -> None:
    rows = StratifiedSampler(y, repeats=repeats).rows_at(np.arange(len(y) * repeats), OrderKey(seed, epoch))
    for repeat in rows.reshape(repeats, len(y)):
        assert sorted(repeat) == list(range(len(y)))


@given(y=classes, seed=st.integers(0, 2**64), length=st.integers(1, 300), repeats=st.integers(1, 4))
def test_every_stretch_has_each_class_in_its_share(y: np.ndarray, seed: int, length: int, repeats: int) -> None:
    n = len(y) * repeats
    handed_out = y[StratifiedSampler(y, repeats=repeats).rows_at(np.arange(n), OrderKey(seed, 0))]
    assert strays_too_far(handed_out, min(length, n)) == []


def test_rows_are_shuffled_anew_each_repeat_where_classes_are_not() -> None:
    y = np.repeat([0, 1], [71, 19])
    repeats = StratifiedSampler(y, repeats=20).rows_at(np.arange(20 * 90), OrderKey(1, 0)).reshape(20, 90)
    assert len({tuple(y[repeat]) for repeat in repeats}) == 1
    for class_ in (0, 1):
        assert len({tuple(repeat[y[repeat] == class_]) for repeat in repeats}) == 20
    epochs = [StratifiedSampler(y).rows_at(np.arange(90), OrderKey(1, epoch)) for epoch in range(20)]
    assert len({tuple(y[epoch]) for epoch in epochs}) > 10


def test_classes_of_one_size_are_shuffled_each_for_itself() -> None:
    y = np.repeat([0, 1], 40)
    for sampler in (StratifiedSampler(y), BalancedBatchSampler(y, 1)):
        rows = sampler.rows_at(np.arange(80), OrderKey(1, 0))
        one, other = rows[rows < 40], rows[rows >= 40] - 40
        # An epoch begins anywhere in the round of each class: compared are the rounds, begun at one row.
        assert np.roll(one, -one.argmin()).tolist() != np.roll(other, -other.argmin()).tolist()


@given(word=st.integers(0, 2**64 - 1))
def test_what_is_drawn_of_a_spread_is_drawn_by_words_of_their_own(word: int) -> None:
    asked: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        original = randomness.word
        patch.setattr(randomness, "word", lambda *parts: asked.append(parts) or original(*parts))
        Spread(np.array([5, 3, 4]), word)
    assert len(set(asked)) == len(asked) == 3


@pytest.mark.parametrize(
    ("n_classes", "length"),
    quick([(30, 256)], [(n, length) for n in (2, 10, 200) for length in (64, 256, 4096)]),
)
def test_so_has_every_stretch_of_many_rows(n_classes: int, length: int) -> None:
    n = 100_021  # some slices
    y = (np.random.default_rng(1).random(n) ** 3 * n_classes).astype(int)  # small classes and large ones
    handed_out = y[StratifiedSampler(y).rows_at(np.arange(n), OrderKey(length, 0))]
    assert strays_too_far(handed_out, length) == []


@pytest.mark.parametrize("sizes", [[10_000] * 10, [90_000, *[10] * 1000], list(range(1, 400))])
def test_mostly_a_class_strays_far_less(sizes: list[int]) -> None:
    y = np.repeat(np.arange(len(sizes)), sizes)
    share = np.bincount(y) / len(y)
    handed_out = y[StratifiedSampler(y).rows_at(np.arange(len(y)), OrderKey(0, 0))]
    batches = handed_out[: len(y) // 256 * 256].reshape(-1, 256)
    strayed = np.array([np.bincount(batch, minlength=len(sizes)) for batch in batches]) - 256 * share
    assert np.sqrt((strayed**2).mean(axis=0)).max() < 1  # of a full shuffle it is up to 4.8
    assert np.abs(strayed).max() < 2.5


def test_any_row_may_stand_anywhere(in_full: bool) -> None:
    y = np.array([0] * 6 + [1] * 3 + [2] * 2 + [3])
    n_epochs = 3000 if in_full else 200
    orders = np.stack([StratifiedSampler(y).rows_at(np.arange(12), OrderKey(1, epoch)) for epoch in range(n_epochs)])
    seen = np.stack([np.bincount(at, minlength=12) for at in orders.T])
    chi2 = ((seen - n_epochs / 12) ** 2 / (n_epochs / 12)).sum()
    assert chi2 < 121 + 5 * math.sqrt(2 * 121)
    if not in_full:
        return
    pairs = np.zeros((12, 12))
    np.add.at(pairs, (orders[:, 0], orders[:, 2]), 1)
    inside = pairs[:6, :6][~np.eye(6, dtype=bool)]  # rows of one class, in any pairing
    assert inside.min() > 0.5 * inside.mean() > 5


@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=8), word=st.integers(0, 2**64 - 1))
def test_an_order_of_many_slices_is_one_order(sizes: list[int], word: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(even_interleave, "SLICE_MEMBERS", 5)
        places = np.arange(sum(sizes))
        classes, members = Spread(np.array(sizes), word).at(places)
        found = set(zip(classes.tolist(), members.tolist(), strict=True))
        assert found == {(i, k) for i, size in enumerate(sizes) for k in range(size)}
        backwards = Spread(np.array(sizes), word)
        for place in reversed(places):  # each asked for on its own, from the end
            class_, member = backwards.at(np.array([place]))
            assert (class_[0], member[0]) == (classes[place], members[place])
    assert strays_too_far(classes, min(7, len(classes))) == []


def test_in_order_the_rows_come_as_they_lie() -> None:
    assert StratifiedSampler(Y).rows_at(np.arange(13), None).tolist() == list(range(13))
    listed = StratifiedSampler(Y, indices=[4, 2, 9])
    assert listed.rows_at(np.arange(3), None).tolist() == [4, 2, 9]
    assert listed.map_indices(np.array([2, 0])).tolist() == [9, 4]
    assert sorted(listed.rows_at(np.arange(3), OrderKey(1, 0))) == [2, 4, 9]
    assert StratifiedSampler(Y).map_indices(5) == 5


def test_repeating_a_stratified_source_keeps_it_stratified() -> None:
    y = np.repeat([0, 1], [90, 10])
    source = bu.repeat(bu.ArrayDataSource([y], sampler=StratifiedSampler(y)), 3)
    for (batch,) in source.batch_iterator(20, shuffle=1):
        assert 1 <= batch.sum() <= 3


def test_more_classes_than_sixteen_bits_hold_are_sorted_too() -> None:
    y = np.random.default_rng(0).permutation(np.arange(5000) * (1 << 29) + 5) // 2  # two rows of no class are alike
    rows = BalancedBatchSampler(y, 1).rows_at(np.arange(5000), None)
    assert (np.diff(y[rows]) > 0).all()


@given(y=classes, per_class=st.integers(1, 5), seed=st.integers(0, 2**64))
def test_balanced_batches_have_as_many_of_each_class(y: np.ndarray, per_class: int, seed: int) -> None:
    sampler = BalancedBatchSampler(y, per_class)
    present, sizes = np.unique(y, return_counts=True)
    n_batches = -(-int(sizes.max()) // per_class)
    assert sampler.classes.tolist() == present.tolist()
    assert sampler.num_indices_generated() == n_batches * sampler.batch_size
    for key in (None, OrderKey(seed, 0)):
        rows = sampler.rows_at(np.arange(n_batches * sampler.batch_size), key).reshape(n_batches, -1)
        for batch in rows:
            assert y[batch].tolist() == np.repeat(present, per_class).tolist()
        for number, size in enumerate(sizes):
            own = rows[:, number * per_class : (number + 1) * per_class]
            assert all(len(set(batch)) == min(size, per_class) for batch in own.tolist())
            handed_out = own.ravel()
            for first in range(0, len(handed_out) - size + 1, size):
                assert len(set(handed_out[first : first + size])) == size


def test_a_class_is_shuffled_anew_when_it_begins_with_a_batch() -> None:
    y = np.repeat([0, 1], [4, 64])
    rows = BalancedBatchSampler(y, 2).rows_at(np.arange(128), OrderKey(3, 0)).reshape(32, 4)
    orders = {tuple(order) for order in rows[:, :2].reshape(16, 4).tolist()}
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
    assert len(orders) > 6


@given(
    n_classes=st.integers(1, 20), per_class=st.integers(1, 4), share=st.floats(0, 1), seed=st.integers(0, 2**64)
)  # fmt: skip
def test_batches_of_few_classes_have_that_many(n_classes: int, per_class: int, share: float, seed: int) -> None:
    y = np.arange(n_classes * 6) % n_classes
    few = 1 + int(share * (n_classes - 1))
    sampler = BalancedBatchSampler(y, per_class, classes_per_batch=few)
    for key in (None, OrderKey(seed, 0)):
        rows = sampler.rows_at(np.arange(sampler.num_indices_generated()), key).reshape(-1, sampler.batch_size)
        for batch in rows:
            held = np.bincount(y[batch])
            assert sorted(held[held > 0]) == [per_class] * few
            assert len(set(batch)) == sampler.batch_size
        a_round = n_classes // few
        for first in range(0, len(rows), a_round):
            in_round = y[rows[first : first + a_round]][:, ::per_class].ravel()
            assert key is None or len(set(in_round)) == len(in_round)


def test_few_classes_without_rest_go_through_their_rows() -> None:
    y = np.arange(12 * 7) % 12
    sampler = BalancedBatchSampler(y, 3, classes_per_batch=4)
    rows = sampler.rows_at(np.arange(7 * 12 * 3), OrderKey(1, 0))
    assert sorted(rows) == sorted(np.tile(np.arange(84), 3))


@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=9), per_class=st.integers(1, 5), share=st.floats(0, 1),
    seed=st.integers(0, 2**64),
)  # fmt: skip
def test_each_row_comes_once_before_any_comes_again(
    sizes: list[int], per_class: int, share: float, seed: int
) -> None:
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    few = 1 + int(share * (len(sizes) - 1))
    sampler = BalancedBatchSampler(y, per_class, classes_per_batch=few)
    n = sampler.num_indices_generated()
    for key in (None, OrderKey(seed, 0), OrderKey(seed, 1)):
        rows = sampler.rows_at(np.arange(3 * n), key)
        assert set(rows[:n].tolist()) == set(range(len(y)))
        for label, size in enumerate(sizes):
            own = rows[y[rows] == label].tolist()
            assert all(len({*own[i : i + size]}) == size for i in range(0, len(own) - size + 1, size))
        chosen = np.random.default_rng(seed).permutation(n)[:3]
        np.testing.assert_array_equal(sampler.rows_at(chosen, key), rows[chosen])  # without those before


@pytest.mark.parametrize("few", [thorough(1), 2, 3, thorough(4), 5, 6, thorough(7)])
def test_an_epoch_ends_with_the_round_in_which_the_last_row_of_the_largest_classes_comes(few: int) -> None:
    y = np.arange(7 * 30) % 7
    sampler = BalancedBatchSampler(y, 2, classes_per_batch=few)
    a_round = 7 // few * few * 2
    for epoch in range(5):
        rows = sampler.rows_at(np.arange(sampler.num_indices_generated()), OrderKey(5, epoch))
        assert len(rows) % a_round == 0
        assert len(np.unique(rows)) == 210 > len(np.unique(rows[:-a_round]))


def test_classes_take_turns_at_sitting_out() -> None:
    y = np.arange(10 * 3000) % 10
    sampler = BalancedBatchSampler(y, 1, classes_per_batch=4)
    circles, together = set(), np.zeros((10, 10))
    for epoch in range(5):
        rows = sampler.rows_at(np.arange(8 * 1000), OrderKey(1, epoch))
        out = [tuple(sorted({*range(10)} - {*in_round})) for in_round in y[rows].reshape(1000, 8).tolist()]
        for first in range(0, 1000, 5):
            assert sorted(itertools.chain.from_iterable(out[first : first + 5])) == list(range(10))
        circles.add(tuple(out[:5]))
        for batch in y[rows].reshape(-1, 4):
            together[np.ix_(batch, batch)] += 1
    assert len(circles) > 1  # others in each epoch
    pairs = together[~np.eye(10, dtype=bool)]
    assert pairs.min() > 0.8 * pairs.mean()


def test_another_batch_size_is_refused_with_the_right_one() -> None:
    source = bu.ArrayDataSource([Y], sampler=BalancedBatchSampler(Y, 4))
    for shuffle in (None, 3, np.random.RandomState(3)):
        with raises(ArgumentError):
            source.batch_iterator(10, shuffle=shuffle)
    with raises(ArgumentError):
        BalancedBatchSampler(Y, 4).in_order_indices_batch_iterator(3)
    assert len(source.batch_iterator(12, shuffle=3)) == 2


@pytest.mark.parametrize("uneven", ["pad", "drop"])
def test_ranks_share_out_whole_balanced_batches(uneven: Any) -> None:
    sampler = BalancedBatchSampler(Y, 2)  # four batches
    for world in (2, 3):
        for rank in range(world):
            source = bu.ArrayDataSource([Y], sampler=sampler)
            batches = list(source.batch_iterator(6, shuffle=1, shard=(rank, world), uneven=uneven))
            assert len(batches) == (4 // world if uneven == "drop" else -(-4 // world))
            assert all(batch.tolist() == [0, 0, 3, 3, 7, 7] for (batch,) in batches)


def test_a_balanced_source_can_be_taken_and_repeated() -> None:
    source = bu.ArrayDataSource([Y], sampler=BalancedBatchSampler(Y, 2))
    assert len(list(bu.repeat(source, 2).batch_iterator(6, shuffle=1))) == 8
    assert [len(x) for (x,) in bu.take(source, 14).batch_iterator(6, shuffle=1)] == [6, 6, 2]


def refused() -> list[Any]:
    return [
        (lambda: StratifiedSampler([]), ArgumentError),
        (lambda: StratifiedSampler([0, -1]), ArgumentError),
        (lambda: StratifiedSampler([[0, 1], [2]]), ArgumentTypeError),
        (lambda: StratifiedSampler(np.array([2**64 - 1, 3], np.uint64)), ArgumentError),
        (lambda: StratifiedSampler(["a"]), ArgumentTypeError),
        (lambda: StratifiedSampler([0, 1], indices=[2]), ArgumentError),
        (lambda: StratifiedSampler([0, 1], repeats=0), ArgumentError),
        (lambda: StratifiedSampler([0, 1], indices=[], repeats=-1), ArgumentError),
        (lambda: BalancedBatchSampler([], 1), ArgumentError),
        (lambda: BalancedBatchSampler(Y, 0), ArgumentError),
        (lambda: BalancedBatchSampler(Y, 1, 0), ArgumentError),
        (lambda: BalancedBatchSampler(Y, 1, 4), ArgumentError),
    ]


@pytest.mark.parametrize(("make", "error"), refused())
def test_what_cannot_be_is_refused(make: Any, error: type) -> None:
    with raises(error):
        make()


def test_no_rows_are_no_batches() -> None:
    empty = StratifiedSampler(Y, indices=[])
    assert empty.num_indices_generated() == 0
    assert list(bu.ArrayDataSource([Y], sampler=empty).batch_iterator(3, shuffle=1)) == []
