"""Sources made of sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.testing.sources import assert_same_batches
from tests.data_source.source_helpers import A, flat, ids
from tests.messages import raises


def test_concat_joins_sources_end_to_end() -> None:
    whole = bu.concat(bu.ArrayDataSource([A]), bu.ArrayDataSource([A + 10]))
    assert ids(whole, 8) == [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13, 14, 15], [16, 17, 18, 19]]
    shuffled = flat(ids(whole, 8, shuffle=1))
    assert sorted(shuffled) == list(range(20))
    assert min(shuffled[:10]) < 10 <= max(shuffled[:10])
    assert whole.num_samples() == 20


def test_concat_of_lists_gives_lists() -> None:
    words = bu.ArrayDataSource([A]).map(lambda i: ([f"a{k}" for k in i],))
    more = bu.ArrayDataSource([A]).map(lambda i: ([f"b{k}" for k in i],))
    (batch,) = bu.concat(words, more).batch_iterator(20, shuffle=1)
    assert sorted(batch[0]) == sorted([f"a{k}" for k in A] + [f"b{k}" for k in A])


@pytest.mark.parametrize("other", [[A.astype(float)], [np.zeros((10, 2), int)], [A, A]])
def test_concat_of_unlike_sources_says_so(other: Any) -> None:
    with raises(ArgumentError):
        bu.concat(bu.ArrayDataSource([A]), bu.ArrayDataSource(other))


def test_sources_that_are_joined_keep_the_number_of_samples() -> None:
    plain = bu.ArrayDataSource([A])
    twice = plain.map(lambda x: (np.concatenate([x, x]),), resizes=True)
    summed = plain.map(lambda x: (x, x.sum()))
    with raises(ArgumentError):
        list(bu.concat(plain, twice).batch_iterator(20))
    with raises(ArgumentError):
        list(bu.mix(twice, plain).batch_iterator(4, shuffle=1))
    with raises(ArgumentError):
        list(bu.concat(summed, bu.ArrayDataSource([A, A])).batch_iterator(20))
    named = plain.map(lambda x: {"x": x, "y": (x, x)})
    with raises(ArgumentError):
        list(bu.mix(plain, named).batch_iterator(4))
    whole = bu.concat(plain, plain).map(lambda x: (np.concatenate([x, x]),), resizes=True)
    assert ids(whole, 20) == [[*A, *A, *A, *A]]


def test_subset_picks_positions() -> None:
    base = bu.ArrayDataSource([A * 10], indices=[5, 6, 7])
    assert ids(bu.subset(base, [2, 0, -1])) == [[70, 50, 70]]
    assert ids(bu.subset(bu.subset(base, [2, 0]), [1])) == [[50]]
    for bad in ([3], [-4]):
        with raises(ArgumentError):
            bu.subset(base, bad)
    with raises(ArgumentTypeError):
        bu.subset(base, None)


def test_split_shares_out_every_sample_once() -> None:
    source = bu.ArrayDataSource([np.arange(101)])
    parts = bu.split(source, (0.5, 0.3, 0.2), seed=4)
    got = [flat(ids(part)) for part in parts]
    assert sorted(flat(got)) == list(range(101))
    assert [len(part) for part in got] == [50, 31, 20]
    assert all(part == sorted(part) for part in got)
    again = [flat(ids(part)) for part in bu.split(source, (0.5, 0.3, 0.2), seed=4)]
    assert got == again
    assert got != [flat(ids(part)) for part in bu.split(source, (0.5, 0.3, 0.2), seed=5)]


def test_a_stratified_split_shares_out_each_class() -> None:
    y = np.repeat([0, 1, 2], [60, 30, 10])
    source = bu.ArrayDataSource([y])
    halves = bu.split(source, (0.5, 0.5), seed=1, stratify=np.arange(100) // 7)
    assert [part.num_samples() for part in halves] == [50, 50]
    pairs = bu.split(bu.ArrayDataSource([np.arange(80)]), (0.8, 0.2), seed=1, stratify=np.arange(80) // 2)
    assert [part.num_samples() for part in pairs] == [64, 16]
    for labels in (y, y.astype(str)):
        train, test = bu.split(source, (0.8, 0.2), seed=1, stratify=labels)
        assert np.bincount(flat(ids(train))).tolist() == [48, 24, 8]
        assert np.bincount(flat(ids(test))).tolist() == [12, 6, 2]


def test_a_stratified_split_leaves_out_nobody() -> None:
    source = bu.ArrayDataSource([np.arange(100)])
    some = np.where(np.arange(100) % 2, 1.0, np.nan)
    for classes in (some, np.arange(100) // 2):
        parts = bu.split(source, (0.5, 0.5), 1, classes)
        assert sorted(flat(flat([ids(part) for part in parts]))) == list(range(100))
    halves = [flat(ids(part)) for part in bu.split(source, (0.5, 0.5), seed=1, stratify=some)]
    assert [sum(i % 2 for i in half) for half in halves] == [25, 25]


def test_what_cannot_be_split_by_is_refused() -> None:
    source = bu.ArrayDataSource([A])
    with raises(ArgumentTypeError):
        bu.split(source, (0.5, 0.5), seed=0, stratify=[None] * 5 + ["a"] * 5)
    with raises(ArgumentTypeError):
        bu.split(source, "half", seed=0)  # type: ignore[arg-type]


def test_a_batch_of_no_rows_has_the_structure_of_others() -> None:
    source = bu.concat(bu.ArrayDataSource([A, A * 0.5]), bu.ArrayDataSource([A, A * 0.5]))
    assert [(x.shape, x.dtype) for x in source.samples_by_indices(np.arange(0))] == [
        (x[:0].shape, x.dtype) for x in source.samples_by_indices(np.array([3, 13]))
    ]


@pytest.mark.parametrize("fractions", [(0.8, 0.3), (0.5, 0.0), (-0.5, 0.5), (), ((0.5,),), (float("nan"),)])
def test_bad_fractions_are_refused(fractions: Any) -> None:
    with raises(ArgumentError):
        bu.split(bu.ArrayDataSource([A]), fractions, seed=0)


def test_a_split_that_cannot_be_is_refused() -> None:
    source = bu.ArrayDataSource([A])
    with raises(ArgumentError):
        bu.split(source, (0.99, 0.01), seed=0)
    with raises(ArgumentError):
        bu.split(source, (0.5,), seed=0, stratify=[1, 2])


def test_take_ends_an_epoch_early() -> None:
    endless = bu.ArrayDataSource([A], repeats=-1)
    assert ids(bu.take(endless, 13)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1], [2]]
    assert ids(bu.take(bu.ArrayDataSource([A]), 99)) == ids(bu.ArrayDataSource([A]))
    assert bu.take(endless, 13).num_samples() == 13
    assert ids(bu.subset(bu.take(endless, 13), [12])) == [[2]]
    weighted = bu.take(bu.ArrayDataSource([A], sampler=bu.WeightedSampler(np.ones(10))), 1000)
    assert len(weighted.batch_iterator(64, shuffle=1)) == 16
    with raises(ArgumentError):
        bu.take(endless, 0)


def test_repeat_runs_over_the_seam() -> None:
    assert ids(bu.repeat(bu.ArrayDataSource([A[:5]]), 2)) == [[0, 1, 2, 3], [4, 0, 1, 2], [3, 4]]
    shuffled = flat(ids(bu.repeat(bu.ArrayDataSource([A]), 3), shuffle=1))
    assert [sorted(shuffled[i : i + 10]) for i in (0, 10, 20)] == [A.tolist()] * 3
    assert shuffled[:10] != shuffled[10:20]


def test_repeat_of_a_choice_ends_each_round() -> None:
    choice = bu.ChoiceDataSource([bu.ArrayDataSource([A[:5]]), bu.ArrayDataSource([A[5:]])], stratified=True)
    assert ids(bu.repeat(choice, 2)) == ids(choice) * 2
    shuffled = ids(bu.repeat(choice, 2), shuffle=3)
    assert sorted(flat(shuffled[:4])) == sorted(flat(shuffled[4:])) == A.tolist()
    endless = bu.repeat(choice)
    assert endless.num_samples() == np.inf
    iterator = endless.batch_iterator(4)
    assert [next(iterator)[0].tolist() for _ in range(8)] == ids(choice) * 2


def test_repeat_shuffles_what_is_inside_anew() -> None:
    short, long = bu.ArrayDataSource([A[:3]]), bu.ArrayDataSource([np.arange(30)])
    for source in (bu.CompositeDataSource([long, short]), bu.take(long, 3), bu.take(long, 3).map(lambda x: (x,))):
        for shuffle in (4, np.random.RandomState(4)):
            rounds = flat(ids(bu.repeat(source, 10), 8, shuffle=shuffle))
            assert len(rounds) == 30
            assert len(set(rounds)) > 12  # 30 draws from 30 rows see 19 of them; the first three rows alone are 3
    twice = bu.repeat(bu.ArrayDataSource([A], repeats=2), 2)
    order = flat(ids(twice, 5, shuffle=1))
    assert [sorted(order[i : i + 10]) for i in (0, 10, 20, 30)] == [A.tolist()] * 4
    with raises(ArgumentTypeError):
        bu.repeat(A)  # type: ignore[arg-type]


def test_maps_and_takes_do_not_change_the_order() -> None:
    source = bu.ArrayDataSource([np.arange(100)])
    order = ids(source, 8, shuffle=7)
    assert ids(source.map(lambda x: (x,)).map_samples(lambda x: (x,)), 8, shuffle=7) == order
    assert flat(ids(bu.take(source, 50), 8, shuffle=7)) == flat(order)[:50]


def test_zip_keeps_rows_together() -> None:
    source = bu.zip(bu.ArrayDataSource([A]), bu.ArrayDataSource([A * 2]).map(lambda x: (x + 1,)))
    for x, y in source.batch_iterator(3, shuffle=2):
        assert (x * 2 + 1).tolist() == y.tolist()
    with raises(ArgumentError):
        bu.zip(bu.ArrayDataSource([A]), bu.ArrayDataSource([A[:3]]))


def test_samples_without_numbers_are_refused_where_numbers_are_needed() -> None:
    choice = bu.ChoiceDataSource([bu.ArrayDataSource([A])])
    weighted = bu.ArrayDataSource([A], sampler=bu.WeightedSampler(np.ones(10)))
    stream = bu.IteratorDataSource(iter([(A,)]))
    for source in (choice, weighted, stream, stream.map(lambda x: (x,))):
        for use in (bu.concat, bu.zip, lambda s: bu.subset(s, [0]), lambda s: bu.split(s, (0.5,), 0)):
            with raises(ArgumentTypeError):
                use(source)
    with raises(ArgumentError):
        bu.concat(bu.ArrayDataSource([A], repeats=-1))


@pytest.mark.parametrize(
    "make", [bu.CompositeDataSource, bu.ChoiceDataSource, lambda s: bu.concat(*s), lambda s: bu.zip(*s)]
)
def test_sources_of_sources_check_what_they_are_given(make: Any) -> None:
    with raises(ArgumentError):
        make([])
    with raises(ArgumentTypeError):
        make([bu.ArrayDataSource([A]), A])


def test_a_composite_untrimmed_gives_equal_batches_by_either_way() -> None:
    source = bu.CompositeDataSource([bu.ArrayDataSource([A]), bu.ArrayDataSource([np.arange(14)])], trim=False)
    serial = list(source.batch_iterator(4))
    assert [[len(part) for part in batch] for batch in serial] == [[4, 4], [4, 4], [2, 4]]
    with bu.WorkerThreadPool(2) as pool:
        assert_same_batches(list(pool.parallel_data_source(source).batch_iterator(4)), serial)


@pytest.mark.parametrize("shuffle", [None, 3, "generator"])
def test_a_stratified_choice_of_which_no_batch_is_whole_is_an_empty_epoch(shuffle: Any) -> None:
    small = [bu.ArrayDataSource([np.arange(n)]) for n in (1, 2)]
    source = bu.ChoiceDataSource(small, stratified=True)
    rng = np.random.RandomState(1) if shuffle == "generator" else shuffle
    assert list(source.batch_iterator(3, shuffle=rng, drop_last=True)) == []
    assert len(list(source.batch_iterator(3, shuffle=rng))) == 2
