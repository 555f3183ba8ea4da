"""A composite whose parts give different numbers of samples: 1 labelled to 7 unlabelled, as in FixMatch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.testing.sources import SourceContract, assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.data_source.source_helpers import stream_of
from tests.messages import raises, warns


def arrays(n: int, **more: Any) -> Any:
    return bu.ArrayDataSource([np.arange(n)], **more)


def both(n: int = 11, m: int = 70, sizes: Any = (1, 7), **more: Any) -> Any:
    return bu.CompositeDataSource([arrays(n), arrays(m)], batch_size=sizes, **more)


class TestOneToSeven(SourceContract):
    def make(self) -> Any:
        return both().map(lambda x, u: (x, u + 1000))


class TestNested(SourceContract):
    def make(self) -> Any:
        noisy = arrays(90).map(lambda u, rng: (u, rng.normal()), rng="sample")
        return bu.CompositeDataSource([arrays(20), bu.CompositeDataSource([arrays(99), noisy], batch_size=[3, 2])],
                                      batch_size=[1, 2])  # fmt: skip


def sizes(source: Any, batch_size: int, **options: Any) -> list[tuple[int, ...]]:
    return [tuple([len(part) for part in batch]) for batch in source.batch_iterator(batch_size, **options)]


def test_sizes_are_multiples_of_the_batch_size() -> None:
    assert sizes(both(), 4) == [(4, 28), (4, 28), (2, 14)]  # 70 unlabelled make 10 groups of 7
    assert sizes(both(sizes=[3, 2]), 2, shuffle=1) == [(6, 4), (3, 2)]
    assert sizes(both(200, 1000, [64, 448]), 1) == [(64, 448), (64, 448)]
    assert sizes(both(), 4, drop_last=True) == [(4, 28), (4, 28)]
    assert sizes(both(), 4, shuffle=np.random.RandomState(1), drop_last=True) == [(4, 28), (4, 28)]
    assert sizes(both(sizes=None), 4)[-1] == (3, 3)
    endless = bu.CompositeDataSource([arrays(3, repeats=-1), arrays(70)], batch_size=[1, 7])
    assert sizes(endless, 4) == [(4, 28), (4, 28), (2, 14)]
    assert (len(both()), len(endless), len(both(3))) == (10, 10, 3)


def test_each_part_has_the_order_that_it_has_alone() -> None:
    x, u = (np.concatenate(parts) for parts in zip(*both().batch_iterator(4, shuffle=3), strict=True))
    assert len(set(x.tolist())) == 10
    assert sorted(u.tolist()) == list(range(70))
    again = [np.concatenate(parts) for parts in zip(*both().batch_iterator(9, shuffle=3), strict=True)]
    np.testing.assert_array_equal(again[0], x)
    np.testing.assert_array_equal(again[1], u)


def test_draws_of_a_part_are_one_a_sample_whatever_the_batch_size() -> None:
    noisy = arrays(70).map(lambda u, rng: (rng.normal(),), rng="sample")
    for options in ({"shuffle": 3}, {}):
        (alone,) = noisy.batch_iterator(70)
        source = bu.CompositeDataSource([arrays(11), noisy], batch_size=[1, 7])
        draws = [np.concatenate([u for _, u in source.batch_iterator(size, **options)]) for size in (2, 5)]
        np.testing.assert_array_equal(*draws)
        assert len(set(draws[0].tolist())) == 70
        assert alone[0].shape == (70,)


def test_an_epoch_goes_on_with_another_batch_size_and_pool(pools: list[AbstractWorkerPool]) -> None:
    source = both()
    whole = [np.concatenate(parts) for parts in zip(*source.batch_iterator(3, shuffle=3), strict=True)]
    begun = source.batch_iterator(3, shuffle=3)
    first = next(begun)
    for pool in pools:
        rest = pool.parallel_data_source(source).batch_iterator(2, shuffle=3, state=begun.state_dict())
        joined = [np.concatenate(parts) for parts in zip(first, *rest, strict=True)]
        for mine, theirs in zip(joined, whole, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    with raises(bu.StateError):
        both(sizes=[1, 6]).batch_iterator(3, shuffle=3, state=begun.state_dict())


def test_shards_take_whole_groups() -> None:
    ranks = [list(both().batch_iterator(2, shuffle=3, shard=(rank, 2))) for rank in range(2)]
    assert [[len(part) for part in batch] for rank in ranks for batch in rank] == ([[2, 14]] * 2 + [[1, 7]]) * 2
    turns = [batch for pair in zip(*ranks, strict=True) for batch in pair]
    assert_same_batches(turns[:4], list(both().batch_iterator(2, shuffle=3))[:4])
    padded = list(both().batch_iterator(4, shard=(1, 3), pad_mask=True))
    assert [len(mask) for *_, mask in padded] == [len(x) for x, *_ in padded]


def fragile(u: Any) -> Any:
    if 20 in u:
        raise ValueError("twenty")
    return (u,)


def test_a_bad_sample_takes_its_group_along() -> None:
    source = bu.CompositeDataSource([arrays(11), arrays(70).map(fragile)], batch_size=[1, 7])
    with bu.WorkerThreadPool(2) as pool:
        batches = pool.parallel_data_source(source, on_error="skip").batch_iterator(5)
        with warns(bu.SampleWarning):
            parts = [np.concatenate(parts).tolist() for parts in zip(*batches, strict=True)]
        assert parts[0] == [0, 1, *range(3, 10)]
        assert parts[1] == [*range(14), *range(21, 70)]
        (error,) = batches.errors
        assert error.row == (2, list(range(14, 21)))
        replaced = pool.parallel_data_source(source, on_error="replace").batch_iterator(5, shuffle=1)
        with warns(bu.SampleWarning):
            assert [tuple(map(len, batch)) for batch in replaced] == [(5, 35), (5, 35)]
        with raises(bu.BatchError):
            list(pool.parallel_data_source(source).batch_iterator(5))


def test_groups_have_positions() -> None:
    x, u = both()[[0, 9]]
    assert x.tolist() == [0, 9]
    assert u.tolist() == [*range(7), *range(63, 70)]
    assert sizes(both().subset([3, 4, 5]).repeat(2), 4) == [(4, 28), (2, 14)]
    x, u = next(both().batch_iterator(2, shuffle=8))
    rows = next(both().batch_indices_iterator(2, shuffle=8))
    np.testing.assert_array_equal(both().samples_by_indices_nomapping(rows)[1], u)
    np.testing.assert_array_equal(both().samples_by_indices(rows)[1], u)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: both(sizes=[1]), ValueError),
        (lambda: both(sizes=7), ValueError),
        (lambda: both(sizes=[1, 0]), ValueError),
        (lambda: both(sizes=[1, 2.5]), TypeError),
        (lambda: both(trim=False), ValueError),
        (lambda: one_to_seven(stream_of(70)), ValueError),
    ],
)
def test_sizes_are_checked(make: Any, error: type[Exception]) -> None:
    with raises(error):
        make()


@pytest.mark.parametrize("shuffle", [3, "RandomState"])
def test_a_choice_cannot_be_put_in_groups(shuffle: Any) -> None:
    choice = bu.ChoiceDataSource([arrays(5), arrays(7)])
    rng = np.random.RandomState(1) if shuffle == "RandomState" else shuffle
    with raises(bu.ArgumentError):
        list(bu.CompositeDataSource([arrays(5), choice], batch_size=[1, 2]).batch_iterator(2, shuffle=rng))
    ok = bu.CompositeDataSource([choice, arrays(50)], batch_size=[1, 2])
    assert all(len(u) == 2 * len(x) for x, u in ok.batch_iterator(2, shuffle=rng))


def test_samples_of_groups_cannot_be_taken_apart() -> None:
    for use in (lambda s: s.filter(bool), lambda s: next(s.collate(list).batch_iterator(2))):
        with raises(bu.ArgumentError):
            use(both())


def one_to_seven(unlabelled: Any = None) -> Any:
    return bu.CompositeDataSource([arrays(10), unlabelled or arrays(70)], batch_size=[1, 7])


@pytest.mark.parametrize("shuffle", [None, 3])
def test_a_composite_around_it_loses_no_samples(shuffle: Any) -> None:
    assert sizes(bu.CompositeDataSource([one_to_seven(), arrays(10)]), 5, shuffle=shuffle) == [(5, 35, 5)] * 2
    grouped = bu.CompositeDataSource([one_to_seven(), arrays(50)], batch_size=[1, 5])
    assert sizes(grouped, 5, shuffle=shuffle) == [(5, 35, 25)] * 2
    rows = next(grouped.batch_indices_iterator(5, shuffle))
    assert [len(part) for part in grouped.samples_by_indices(rows)] == [5, 35, 25]
    _, unlabelled, _ = zip(*grouped.batch_iterator(5, shuffle=shuffle), strict=True)
    assert sorted(np.concatenate(unlabelled)) == list(range(70))


def test_rows_of_different_lengths_are_still_cut() -> None:
    flat = bu.CompositeDataSource([arrays(10), arrays(10)])
    for rows in ([np.arange(3), np.arange(5)], (slice(0, 3), slice(0, 5))):
        assert [part.tolist() for part in flat.samples_by_indices(rows)] == [[0, 1, 2]] * 2
