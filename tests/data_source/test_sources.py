"""What is special to one kind of source."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.buffers import BufferPool
from batchup_ng.data_source import AbstractDataSource, PlannedDataSource
from batchup_ng.errors import ArgumentError, ArgumentTypeError, InOrderNotSupported, LostSamples
from batchup_ng.randomness import BatchKey
from batchup_ng.testing.sources import assert_same_batches

A = np.arange(10)


def ids(source: AbstractDataSource, batch_size: int = 4, **options: Any) -> list[list[int]]:
    return [batch[0].tolist() for batch in source.batch_iterator(batch_size, **options)]


def flat(lists: list[list[int]]) -> list[int]:
    return [item for items in lists for item in items]


# -- arrays ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (A, ArgumentTypeError, "data must be a list"),
        ((A,), ArgumentTypeError, "data must be a list"),
        ([], ArgumentError, "data must hold at least one array"),
        ([A, 3], ArgumentTypeError, r"data\[1\] is a int"),
        ([[1, 2]], ArgumentTypeError, r"data\[0\] is a list.*numpy.asarray"),
        ([A, A[:3]], ArgumentError, "array 0 has length 10, while array 1 has length 3"),
    ],
)
def test_what_is_no_list_of_arrays_is_refused(data: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        bu.ArrayDataSource(data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeats": 0}, "Invalid number of repeats"),
        ({"indices": [10]}, "indices must be row numbers below 10.*one is 10"),
        ({"indices": [-11]}, "one is -11"),
        ({"sampler": bu.StandardSampler(10), "repeats": 2}, "repeats should be 1 when sampler"),
        ({"sampler": bu.StandardSampler(10), "indices": [1]}, "indices should be None when sampler"),
    ],
)
def test_bad_options_of_arrays_are_refused(options: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        bu.ArrayDataSource([A], **options)
    with pytest.raises(ArgumentTypeError, match="sampler must be an AbstractSampler"):
        bu.ArrayDataSource([A], sampler=np.arange(3))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(60.0).reshape(10, 6)),
        np.arange(200).reshape(20, 10)[::2, ::3],
        np.arange(10).astype(">i4"),
        np.array([b"a", b"bc"] * 5),
        np.array([f"row {i}" for i in range(10)]),
        np.array([{"i": i} for i in range(10)], dtype=object),
        np.arange(10).astype("datetime64[D]"),
        np.zeros(10, dtype=[("x", "f4"), ("y", "i2", 3)]),
        np.ma.masked_array(np.arange(10), np.arange(10) % 2),
        np.empty((10, 0, 3)),
        np.arange(10) > 5,
        np.arange(10, dtype=np.complex64),
        np.random.RandomState(0).rand(10, 30_000).astype(np.float16),
    ],
    ids=lambda array: f"{type(array).__name__}-{array.dtype}-{array.shape}",
)
def test_rows_of_any_array_are_those_of_indexing(array: np.ndarray) -> None:
    source = bu.ArrayDataSource([array])
    for rows in source.batch_indices_iterator(3, shuffle=1):
        (got,) = source.read(rows, BatchKey(), BufferPool())
        assert type(got) is type(array[rows])
        assert got.dtype == array.dtype
        np.testing.assert_array_equal(got, array[rows])


def test_rows_of_a_memmap_are_read(tmp_path: Any) -> None:
    array = np.lib.format.open_memmap(tmp_path / "a.npy", mode="w+", dtype=np.uint8, shape=(20, 5000))
    array[:] = np.arange(20)[:, None]
    for (x,) in bu.ArrayDataSource([array]).batch_iterator(16, shuffle=3):
        assert type(x) is np.ndarray
        assert (x == x[:, :1]).all()


def test_negative_rows_count_from_the_end() -> None:
    assert ids(bu.ArrayDataSource([A], indices=[-1, 0, -10, 5])) == [[9, 0, 0, 5]]


def test_rows_out_of_range_are_refused() -> None:
    source = bu.ArrayDataSource([A, np.ones((10, 30000))])
    for rows in ([10], [-11], [3, 99]):
        with pytest.raises(IndexError, match=r"out of (range|bounds)"):
            source.samples_by_indices_nomapping(np.array(rows))


def test_slices_may_be_read() -> None:
    source = bu.ArrayDataSource([A], include_indices=True)
    rows, x = source.samples_by_indices_nomapping(slice(2, 8, 3))
    assert rows.tolist() == x.tolist() == [2, 5]


def test_a_subclass_may_read_in_its_own_way() -> None:
    class Mine(bu.ArrayDataSource):
        def samples_by_indices_nomapping(self, indices: Any) -> Any:
            return (-indices,)

    assert ids(Mine([A])) == [[0, -1, -2, -3], [-4, -5, -6, -7], [-8, -9]]


@pytest.mark.parametrize(
    "sampler",
    [
        bu.StandardSampler(11),
        bu.SubsetSampler([10]),
        bu.WeightedSampler(np.ones(9)),
        bu.WeightedSampler(np.ones(11)),
        bu.WeightedSubsetSampler(np.ones(2), [3, 10]),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_samplers_of_other_data_are_refused(sampler: Any) -> None:
    with pytest.raises(ArgumentError, match="sampler"):
        bu.ArrayDataSource([A], sampler=sampler)


def test_pandas_columns_are_refused() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    with pytest.raises(ArgumentTypeError, match=r"data\[1\] is a pandas Series.*to_numpy"):
        bu.ArrayDataSource([A, pandas.Series(A)])


def test_columns_of_a_map_style_data_set_stand_side_by_side() -> None:
    pairs = bu.MapStyle([(i, [i] * 2, np.full(3, i)) for i in range(10)])
    singles = bu.MapStyle(list(range(10)))
    ((x, y, z, s, w),) = bu.ArrayDataSource([pairs, singles, A * 2]).batch_iterator(10, shuffle=1)
    assert z.shape == (10, 3)
    assert y == [[i] * 2 for i in x]
    assert x.tolist() == s.tolist() == (w // 2).tolist()


def test_maps_that_forget_to_return_are_named() -> None:
    def augment(x: Any) -> None:
        x += 1

    for source in (bu.ArrayDataSource([A]).map(augment), bu.ArrayDataSource([A.copy()]).map_samples(lambda x: None)):
        with pytest.raises(ArgumentTypeError, match=r"map '.*(augment|lambda).*' returned None"):
            next(source.batch_iterator(4))


def test_an_iterator_that_is_used_up_says_so() -> None:
    source = bu.IteratorDataSource(iter([(A,)]))
    assert len(ids(source)) == 1
    with pytest.raises(ArgumentError, match=r"used up.*CallableDataSource"):
        ids(source)
    again = bu.IteratorDataSource([(A,)])  # type: ignore[arg-type]
    assert ids(again) == ids(again)


def test_sources_tell_what_they_are() -> None:
    assert repr(bu.ArrayDataSource([A])) == "<ArrayDataSource: 10 samples>"
    assert repr(stream_of(3)) == "<CallableDataSource: a stream>"
    assert repr(bu.SerialPool()) == "<SerialPool>"


def test_sources_may_be_given_in_one_list() -> None:
    parts = [bu.ArrayDataSource([A]), bu.ArrayDataSource([A + 10])]
    assert ids(bu.concat(parts)) == ids(bu.concat(*parts))  # type: ignore[arg-type]
    assert len(next(bu.zip(parts).batch_iterator(3))) == 2  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="datasets must be a list of data sources, not a ArrayDataSource"):
        bu.CompositeDataSource(*parts)  # type: ignore[arg-type]


def test_large_rows_in_falling_order_are_not_taken_for_a_run() -> None:
    big = np.arange(10)[:, None] * np.ones((1, 60_000), np.uint8)
    for rows in ([5, 4], [5, 5], [4, 5], [3, 4, 5], [5, 4, 3], [4, 6, 5, 7]):
        (x,) = bu.ArrayDataSource([big]).samples_by_indices_nomapping(np.array(rows))
        assert x[:, 0].tolist() == rows


def test_writing_into_a_batch_changes_neither_data_nor_plan() -> None:
    data = np.arange(20)
    source = bu.zip(bu.ArrayDataSource([data], include_indices=True), bu.ArrayDataSource([data], include_indices=True))
    for shuffle in (None, 3):
        for i, x, j, y in source.batch_iterator(4, shuffle=shuffle):
            assert i.tolist() == x.tolist() == j.tolist() == y.tolist()
            i += 1
            x += 1
            assert j.tolist() == y.tolist() == (x - 1).tolist()
    (part,) = bu.ArrayDataSource([data]).samples_by_indices_nomapping(slice(2, 5))
    part[:] = 0
    assert data.tolist() == list(range(20))


def test_indices_of_any_integer_type_are_rows() -> None:
    big = np.arange(300)
    for dtype in (np.uint8, np.int8, np.uint64, np.int32):
        assert ids(bu.subset(bu.ArrayDataSource([big]), np.arange(100, 104, dtype=dtype))) == [[100, 101, 102, 103]]
        assert ids(bu.ArrayDataSource([big], indices=np.array([5, 7], dtype=dtype))) == [[5, 7]]
        wide = bu.ArrayDataSource([big[:, None] * np.ones((1, 60_000))])
        assert wide.samples_by_indices_nomapping(np.array([7, 5], dtype=dtype))[0][:, 0].tolist() == [7, 5]
    mine = np.array([1, 2])
    source = bu.ArrayDataSource([big], indices=mine)
    mine[:] = 9
    assert ids(source) == [[1, 2]]


def test_a_subclass_may_list_its_rows_in_its_own_way() -> None:
    class Backwards(bu.ArrayDataSource):
        def batch_indices_iterator(self, batch_size: int, shuffle: Any = None, **options: Any) -> Any:
            return iter(np.split(np.arange(10)[::-1], [5]))

    source = Backwards([A])
    assert ids(source) == [[9, 8, 7, 6, 5], [4, 3, 2, 1, 0]]
    with bu.WorkerThreadPool(1) as pool:
        assert ids(pool.parallel_data_source(source)) == ids(source)


def test_batches_that_are_lists_or_dicts_are_understood() -> None:
    source = bu.ArrayDataSource([A]).map(lambda x: [x, x, x])
    assert len(draws(source.map(lambda *b, rng: (rng.uniform(),), rng="sample"), 4)) == 10
    assert source.batch_map_mean(lambda x, y, z: x.sum(), 4) == (4.5,)
    named = bu.ArrayDataSource([bu.MapStyle([{"i": i, "x": i * 2.0} for i in range(10)])])
    for joined in (bu.concat(named, named), bu.CompositeDataSource([named, bu.ArrayDataSource([A[:7]])])):
        batch = list(joined.batch_iterator(4))[-1]
        assert (batch[0]["i"] * 2 == batch[0]["x"]).all()
    ((x,),) = named.map_samples(lambda sample: (sample["x"],)).batch_iterator(10)
    assert x.tolist() == (A * 2.0).tolist()


def test_weights_may_be_enormous() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler = bu.WeightedSampler(np.array([1e308, 1e308, 0.0]))
    assert sampler.weights.tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize("stratified", [False, True])
def test_a_shuffled_choice_has_an_order_for_each_seed_and_epoch(stratified: bool) -> None:
    source = bu.ChoiceDataSource([bu.ArrayDataSource([np.full(20, k)]) for k in range(4)], stratified=stratified)
    turns = [tuple(batch[0] for batch in ids(source, 4, shuffle=s, epoch=e)) for s, e in ((1, 0), (1, 1), (2, 0))]
    assert len(set(turns)) == 3
    if stratified:
        assert all(sorted(turn) == sorted([0, 1, 2, 3] * 5) for turn in turns)


def test_weighted_sources_have_no_order() -> None:
    source = bu.ArrayDataSource([A], sampler=bu.WeightedSampler(np.ones(10)))
    for call in (source.batch_iterator, source.batch_indices_iterator, source.plan):
        with pytest.raises(InOrderNotSupported, match="pass shuffle="):
            call(4)


# -- seeds -----------------------------------------------------------------------------------------------------


def test_each_epoch_of_a_seed_has_its_own_order() -> None:
    source = bu.ArrayDataSource([np.arange(100)])
    orders = [flat(ids(source, shuffle=3, epoch=e)) for e in range(4)]
    assert all(sorted(order) == list(range(100)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4


def test_the_order_of_a_seed_does_not_depend_on_the_batch_size() -> None:
    source = bu.ArrayDataSource([np.arange(10_000)])
    assert flat(ids(source, 7, shuffle=3)) == flat(ids(source, 4097, shuffle=3))


def test_true_draws_from_the_global_state_of_numpy() -> None:
    np.random.seed(9)
    ours = flat(ids(bu.ArrayDataSource([A]), shuffle=True))
    np.random.seed(9)
    assert ours == np.random.permutation(10).tolist()


def test_false_is_in_order() -> None:
    assert ids(bu.ArrayDataSource([A]), 10, shuffle=False) == [A.tolist()]


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ArgumentError, match="negative seed"):
        bu.ArrayDataSource([A]).batch_iterator(3, shuffle=-1)


def test_sources_side_by_side_have_orders_of_their_own() -> None:
    source = bu.CompositeDataSource([bu.ArrayDataSource([np.arange(50)]), bu.ArrayDataSource([np.arange(50)])])
    ((x, y),) = source.batch_iterator(50, shuffle=2)
    assert x.tolist() != y.tolist()


def draws(source: PlannedDataSource, batch_size: int, **options: Any) -> np.ndarray:
    return np.concatenate([batch[-1] for batch in source.batch_iterator(batch_size, **options)])


def uniform(i: Any, rng: Any) -> Any:
    return i, rng.uniform(size=len(i)) if isinstance(rng, np.random.Generator) else rng.uniform()


def test_randomness_of_a_sample_does_not_depend_on_the_batch_size() -> None:
    source = bu.ArrayDataSource([np.arange(50)]).map(uniform, rng="sample")
    one = draws(source, 7, shuffle=3, epoch=2)
    np.testing.assert_array_equal(one, draws(source, 50, shuffle=3, epoch=2))
    assert len(set(one)) == 50
    assert not np.intersect1d(one, draws(source, 7, shuffle=3, epoch=3)).size
    assert not np.intersect1d(one, draws(source, 7, shuffle=4, epoch=2)).size


def test_randomness_of_a_batch_is_another_for_each() -> None:
    source = bu.ArrayDataSource([np.arange(50)]).map(uniform, rng="batch")
    one = draws(source, 7, shuffle=3)
    np.testing.assert_array_equal(one, draws(source, 7, shuffle=3))
    assert len(set(one)) == 50


def test_no_two_maps_share_their_draws() -> None:
    for kind in ("sample", "batch"):
        base = bu.ArrayDataSource([np.arange(50)])
        pairs = [bu.zip(base.map(uniform, rng=kind), base.map(uniform, rng=kind)),
                 bu.CompositeDataSource([base.map(uniform, rng=kind), base.map(uniform, rng=kind)])]  # fmt: skip
        for pair in pairs:
            for _, u, _, v in pair.batch_iterator(50, shuffle=1):
                assert not np.intersect1d(u, v).size


def test_parts_of_a_concat_draw_by_their_place_in_the_stream() -> None:
    parts = [bu.ArrayDataSource([np.arange(20) + k]).map(uniform, rng="sample") for k in (0, 20)]
    whole = bu.concat(*parts)
    one, two = (draws(whole, size, shuffle=5) for size in (3, 40))
    np.testing.assert_array_equal(one, two)
    assert len(set(one)) == 40


def test_a_random_state_seeds_the_maps_without_being_drawn_from() -> None:
    source = bu.ArrayDataSource([np.arange(50)]).map(uniform, rng="sample")
    rng = np.random.RandomState(3)
    first, second = draws(source, 7, shuffle=rng), draws(source, 7, shuffle=rng)
    assert not np.intersect1d(first, second).size
    np.testing.assert_array_equal(first, draws(source, 7, shuffle=np.random.RandomState(3)))


@pytest.mark.parametrize("bad", ["samples", "Batch", True])
def test_an_unknown_kind_of_randomness_is_refused(bad: Any) -> None:
    with pytest.raises(ArgumentError, match="rng must be one of None, 'batch', 'sample'"):
        bu.ArrayDataSource([A]).map(len, rng=bad)
    with pytest.raises(ArgumentError, match="rng must be one of None, 'sample'"):
        bu.ArrayDataSource([A]).map_samples(len, rng="batch")


def test_a_map_needs_a_function_and_a_source() -> None:
    with pytest.raises(ArgumentTypeError, match="fn must be callable"):
        bu.ArrayDataSource([A]).map(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="source must be a data source"):
        bu.MapDataSource([A], len)  # type: ignore[arg-type]


def test_samples_of_different_shapes_stay_lists() -> None:
    source = bu.ArrayDataSource([np.arange(1, 6)]).map_samples(lambda i: (i, np.zeros(i), "text", {"i": i}))
    ((i, zeros, texts, dicts),) = source.batch_iterator(5)
    assert i.tolist() == [1, 2, 3, 4, 5]
    assert [z.shape for z in zeros] == [(1,), (2,), (3,), (4,), (5,)]
    assert texts == ["text"] * 5
    assert dicts[4] == {"i": 5}


def test_a_map_of_samples_may_return_one_array() -> None:
    ((x,),) = bu.ArrayDataSource([A]).map_samples(lambda i: i * 2.0).batch_iterator(10)
    assert x.tolist() == (A * 2.0).tolist()


# -- composition -----------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ([A.astype(float)], "dtypes"),
        ([np.zeros((10, 2), int)], "shapes"),
        ([A, A], "structure"),
    ],
)
def test_concat_of_unlike_sources_says_so(other: Any, message: str) -> None:
    whole = bu.concat(bu.ArrayDataSource([A]), bu.ArrayDataSource(other))
    with pytest.raises(ArgumentError, match=message):
        list(whole.batch_iterator(20))


def test_subset_picks_positions() -> None:
    base = bu.ArrayDataSource([A * 10], indices=[5, 6, 7])
    assert ids(bu.subset(base, [2, 0, -1])) == [[70, 50, 70]]
    assert ids(bu.subset(bu.subset(base, [2, 0]), [1])) == [[50]]
    for bad in ([3], [-4]):
        with pytest.raises(ArgumentError, match="rows must be below 3"):
            bu.subset(base, bad)
    with pytest.raises(ArgumentTypeError, match="not None"):
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


@pytest.mark.parametrize("fractions", [(0.8, 0.3), (0.5, 0.0), (-0.5, 0.5), (), ((0.5,),), (float("nan"),)])
def test_bad_fractions_are_refused(fractions: Any) -> None:
    with pytest.raises(ArgumentError, match="fractions must be above 0"):
        bu.split(bu.ArrayDataSource([A]), fractions, seed=0)


def test_a_split_that_cannot_be_is_refused() -> None:
    source = bu.ArrayDataSource([A])
    with pytest.raises(ArgumentError, match="less than one sample"):
        bu.split(source, (0.99, 0.01), seed=0)
    with pytest.raises(ArgumentError, match="class of each of the 10 samples"):
        bu.split(source, (0.5,), seed=0, stratify=[1, 2])


def test_take_ends_an_epoch_early() -> None:
    endless = bu.ArrayDataSource([A], repeats=-1)
    assert ids(bu.take(endless, 13)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1], [2]]
    assert ids(bu.take(bu.ArrayDataSource([A]), 99)) == ids(bu.ArrayDataSource([A]))
    assert bu.take(endless, 13).num_samples() == 13
    assert ids(bu.subset(bu.take(endless, 13), [12])) == [[2]]
    weighted = bu.take(bu.ArrayDataSource([A], sampler=bu.WeightedSampler(np.ones(10))), 1000)
    assert len(weighted.batch_iterator(64, shuffle=1)) == 16
    with pytest.raises(ArgumentError, match="n must be at least 1"):
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
    with pytest.raises(ArgumentTypeError, match="source"):
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
    with pytest.raises(ArgumentError, match="same length"):
        bu.zip(bu.ArrayDataSource([A]), bu.ArrayDataSource([A[:3]]))


def test_samples_without_numbers_are_refused_where_numbers_are_needed() -> None:
    choice = bu.ChoiceDataSource([bu.ArrayDataSource([A])])
    weighted = bu.ArrayDataSource([A], sampler=bu.WeightedSampler(np.ones(10)))
    stream = bu.IteratorDataSource(iter([(A,)]))
    for source in (choice, weighted, stream, stream.map(lambda x: (x,))):
        for use in (bu.concat, bu.zip, lambda s: bu.subset(s, [0]), lambda s: bu.split(s, (0.5,), 0)):
            with pytest.raises(ArgumentTypeError, match="have no numbers of their own"):
                use(source)
    with pytest.raises(ArgumentError, match="never ends"):
        bu.concat(bu.ArrayDataSource([A], repeats=-1))


@pytest.mark.parametrize(
    "make", [bu.CompositeDataSource, bu.ChoiceDataSource, lambda s: bu.concat(*s), lambda s: bu.zip(*s)]
)
def test_sources_of_sources_check_what_they_are_given(make: Any) -> None:
    with pytest.raises(ArgumentError, match="at least one data source"):
        make([])
    with pytest.raises(ArgumentTypeError, match=r"s\[1\] must be a data source, not a ndarray; wrap arrays"):
        make([bu.ArrayDataSource([A]), A])


def test_a_composite_untrimmed_gives_equal_batches_by_either_way() -> None:
    source = bu.CompositeDataSource([bu.ArrayDataSource([A]), bu.ArrayDataSource([np.arange(14)])], trim=False)
    serial = list(source.batch_iterator(4))
    assert [[len(part) for part in batch] for batch in serial] == [[4, 4], [4, 4], [2, 4]]
    with bu.WorkerThreadPool(2) as pool:
        assert_same_batches(list(pool.parallel_data_source(source).batch_iterator(4)), serial)


# -- streams ---------------------------------------------------------------------------------------------------


def stream_of(n: int) -> bu.CallableDataSource:
    def batches(batch_size: int, shuffle: Any = None, **more: Any) -> Iterator[Any]:
        for start in range(0, n, batch_size):
            yield (np.arange(start, min(start + batch_size, n)),)

    return bu.CallableDataSource(batches, n)


def test_streams_go_through_every_kind_of_source() -> None:
    source = bu.CompositeDataSource([stream_of(10), bu.ArrayDataSource([A]).map(uniform, rng="sample")])
    mapped = source.map(lambda i, j, u: (i + j, u))
    got = list(mapped.batch_iterator(4))
    assert [batch[0].tolist() for batch in got] == [[0, 2, 4, 6], [8, 10, 12, 14], [16, 18]]
    assert_same_batches(got, list(mapped.batch_iterator(4)))
    assert ids(bu.take(mapped, 5)) == [[0, 2, 4, 6], [8]]
    assert ids(bu.repeat(stream_of(5), 2)) == [[0, 1, 2, 3], [4], [0, 1, 2, 3], [4]]
    assert ids(stream_of(10), drop_last=True) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert len(stream_of(10).batch_iterator(4)) == 3


def test_randomness_works_in_streams() -> None:
    source = stream_of(30).map(uniform, rng="sample")
    one = draws(source, 7, shuffle=3)
    np.testing.assert_array_equal(one, draws(source, 7, shuffle=3))
    assert len(set(one)) == 30


@pytest.mark.parametrize("stratified", [False, True])
@pytest.mark.parametrize("shuffle", [None, 3])
def test_a_choice_of_streams_gives_their_batches(stratified: bool, shuffle: Any) -> None:
    source = bu.ChoiceDataSource([stream_of(8), bu.ArrayDataSource([A[:8] + 100])], stratified=stratified)
    got = ids(source, 4, shuffle=shuffle)
    assert sorted(flat(got)) == sorted([*range(8), *range(100, 108)])


def test_all_batches_of_a_stream_are_mapped_however_many() -> None:
    tens = bu.IteratorDataSource(((np.arange(10) + 10 * k,) for k in range(10)), 100)
    (seen,) = tens.batch_map_concat(lambda x: x, 64) or ()
    assert seen.tolist() == list(range(100))
    choice = bu.ChoiceDataSource([stream_of(10), stream_of(10)], stratified=True)
    assert sum(map(len, ids(choice, 4))) == 20
    with pytest.raises(TypeError, match="not known"):
        len(choice.batch_iterator(4))


def test_samples_of_a_stream_have_draws_of_their_own_whatever_its_batches() -> None:
    tens = bu.IteratorDataSource((np.arange(10) + 10 * k,) for k in range(3))
    assert len(set(draws(tens.map(uniform, rng="sample"), 4))) == 30


def test_the_length_of_a_stream_heeds_drop_last() -> None:
    iterator = stream_of(10).batch_iterator(4, drop_last=True)
    assert len(iterator) == len(list(iterator)) == 2
    counted = bu.CallableDataSource(lambda batch_size, **more: iter([]), lambda shuffle=None: 10)
    assert len(counted.batch_iterator(4, epoch=1, drop_last=True, shuffle=2)) == 2


def test_misspelt_options_do_not_hide_behind_an_iterator() -> None:
    for source in (bu.IteratorDataSource(iter([(A,)])),
                   bu.CompositeDataSource([bu.IteratorDataSource(iter([(A,)])), bu.ArrayDataSource([A])])):  # fmt: skip
        with pytest.raises(ArgumentTypeError, match="did you mean 'shuffle'"):
            source.batch_iterator(2, shufle=3)


def test_options_of_a_function_reach_it() -> None:
    seen: list[Any] = []

    def batches(batch_size: int, **options: Any) -> Iterator[Any]:
        seen.append(options)
        return iter([])

    list(bu.CallableDataSource(batches).map(len).batch_iterator(4, shuffle=3, epoch=1, colour="red", drop_last=True))
    assert seen == [{"shuffle": 3, "epoch": 1, "colour": "red"}]

    def plain(batch_size: int, shuffle: Any) -> Iterator[Any]:
        seen.append(shuffle)
        return iter([])

    list(bu.CallableDataSource(plain).batch_iterator(4, shuffle=3, epoch=1))
    assert seen[-1] == 3


def test_streams_have_no_random_access() -> None:
    source = stream_of(10).map(lambda x: (x,))
    for call in (
        lambda: source.samples_by_indices_nomapping([0]),
        lambda: source.samples_by_indices([0]),
        lambda: source.batch_indices_iterator(4),
        lambda: source.plan(4),
        lambda: stream_of(3).samples_by_indices([0]),
        lambda: bu.CompositeDataSource([source]).samples_by_indices([[0]]),
        lambda: bu.ChoiceDataSource([source]).samples_by_indices([0]),
        lambda: bu.take(source, 3).samples_by_indices([0]),
    ):
        with pytest.raises(ArgumentTypeError, match=r"does not support random access.*prefetch"):
            call()


@pytest.mark.parametrize("bad", [True, "5", 2.5])
def test_bad_counts_of_streams_are_refused(bad: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="should be None"):
        bu.IteratorDataSource(iter([]), bad)
    with pytest.raises(ArgumentTypeError, match="should be None"):
        bu.CallableDataSource(iter, bad)


def test_streams_of_the_wrong_kind_are_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="use IteratorDataSource"):
        bu.CallableDataSource(iter([]))  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="must be an iterator"):
        bu.IteratorDataSource(3)  # type: ignore[arg-type]


# -- the iterator ----------------------------------------------------------------------------------------------


def test_the_iterator_tells_its_statistics() -> None:
    iterator = bu.ArrayDataSource([A]).batch_iterator(4)
    next(iterator)
    stats = iterator.stats()
    assert (stats["batches"], stats["samples"], stats["ready"]) == (1, 4, 0)
    assert stats["seconds_waited"] > 0
    assert len(iterator) == iterator.__length_hint__() == 2
    assert len(list(iterator)) == 2
    assert len(iterator) == 0


def test_a_closed_iterator_ends() -> None:
    with bu.ArrayDataSource([A]).batch_iterator(4) as iterator:
        next(iterator)
    assert list(iterator) == []
    iterator.close()


def test_a_stream_of_unknown_length_has_none() -> None:
    iterator = bu.IteratorDataSource(iter([(A,)])).batch_iterator(4)
    with pytest.raises(ArgumentTypeError, match="not known"):
        len(iterator)
    assert iterator.__length_hint__() == 0
    assert len(list(iterator)) == 1


def test_lost_batches_are_noticed() -> None:
    class Forgetful(bu.ArrayDataSource):
        def plan_of(self, options: Any) -> Any:
            plan: Any = super().plan_of(options)
            plan.n_batches += 1
            plan.__class__ = type("Short", (type(plan),), {"__iter__": lambda self: (self[k] for k in range(2))})
            return plan

    with pytest.raises(LostSamples, match="4 batches were planned for this epoch and 2 were delivered"):
        list(Forgetful([A]).batch_iterator(4))


def test_an_iterator_that_is_dropped_lets_go_of_its_source() -> None:
    source = bu.ArrayDataSource([A])
    iterator = source.batch_iterator(4)
    next(iterator)
    gone = weakref.ref(source)
    del source, iterator
    gc.collect()
    assert gone() is None


def test_two_threads_may_read_one_source() -> None:
    source = bu.ArrayDataSource([np.arange(1000)]).map(uniform, rng="sample")
    expected = list(source.batch_iterator(10, shuffle=1))
    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda: results.append(list(source.batch_iterator(10, shuffle=1)))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for result in results:
        assert_same_batches(result, expected)
    assert len(results) == 4


# -- batch_map, coerce ------------------------------------------------------------------------------------------


def test_results_are_joined_and_averaged() -> None:
    source = bu.ArrayDataSource([A, A * 2.0])
    joined = source.batch_map_concat(lambda k, x, y: (x + k, y), 4, prepend_args=(100,))
    assert joined is not None
    np.testing.assert_array_equal(joined[0], A + 100)
    mean = source.batch_map_mean(lambda x, y: (float(x.sum()), y), 4, sum_axis=None, n_batches=1)
    assert mean is not None
    mean = source.batch_map_mean(lambda x, y: (x, y), 4, sum_axis=0)
    assert mean == (4.5, 9.0)
    assert source.batch_map_concat(lambda x, y: None, 4) is None
    assert source.batch_map_mean(lambda x, y: None, 4) is None


def test_progress_is_told_the_number_of_batches() -> None:
    seen: list[Any] = []

    def progress(iterator: Any, total: Any, leave: Any) -> Any:
        seen.append((total, leave))
        return iterator

    bu.ArrayDataSource([A]).batch_map_concat(lambda x: x, 4, progress)
    bu.IteratorDataSource(iter([(A,)])).batch_map_concat(lambda x: x, 4, progress)
    bu.ArrayDataSource([A], repeats=-1).batch_map_mean(lambda x: x.sum() * 1.0, 4, progress, n_batches=2)
    assert seen == [(3, False), (None, False), (2, False)]


def test_endless_sources_need_a_number_of_batches() -> None:
    source = bu.ArrayDataSource([A], repeats=-1)
    for method in (source.batch_map_concat, source.batch_map_mean):
        with pytest.raises(ArgumentError, match=r"infinite.*n_batches"):
            method(lambda x: x, 4)


def test_results_of_another_kind_are_refused() -> None:
    source = bu.ArrayDataSource([A])
    for method in (source.batch_map_concat, source.batch_map_mean):
        with pytest.raises(ArgumentTypeError, match="Batch function should return"):
            method(lambda x: "text", 4)


def test_arrays_iterators_and_functions_become_sources() -> None:
    source = bu.ArrayDataSource([A])
    assert bu.coerce_data_source(source) is source
    assert isinstance(bu.coerce_data_source((A, A)), bu.ArrayDataSource)
    assert isinstance(bu.coerce_data_source(iter([])), bu.IteratorDataSource)
    assert isinstance(bu.coerce_data_source(lambda batch_size: iter([])), bu.CallableDataSource)
    for bad, error in ((3, ArgumentTypeError), ([], ArgumentError), ([3], ArgumentTypeError)):
        with pytest.raises(error, match="Cannot convert x"):
            bu.coerce_data_source(bad)


def test_the_base_class_says_what_is_missing() -> None:
    for call in (
        lambda: AbstractDataSource().num_samples(),
        lambda: AbstractDataSource().batch_iterator(3),
        lambda: bu.RandomAccessDataSource(3).samples_by_indices_nomapping([0]),
    ):
        with pytest.raises(NotImplementedError, match="Abstract for type"):
            call()


class WrittenForBatchUp(AbstractDataSource):
    """A source of a user's that knows only BatchUp's methods."""

    @property
    def is_random_access(self) -> bool:
        return True

    def num_samples(self, **kwargs: Any) -> int:
        return 11

    def batch_indices_iterator(self, batch_size: int, shuffle: Any = None, **kwargs: Any) -> Iterator[Any]:
        order = np.arange(11) if shuffle is None else shuffle.permutation(11)
        return (order[i : i + batch_size] for i in range(0, 11, batch_size))

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        return (indices * 2,)

    def batch_iterator(self, batch_size: int, shuffle: Any = None, **kwargs: Any) -> Iterator[Any]:
        for rows in self.batch_indices_iterator(batch_size, shuffle):
            yield self.samples_by_indices_nomapping(rows)


@pytest.mark.parametrize("shuffle", [None, 5, "RandomState"])
def test_sources_written_for_batchup_go_anywhere(shuffle: Any) -> None:
    def rng() -> Any:
        return np.random.RandomState(4) if shuffle == "RandomState" else shuffle

    mine = WrittenForBatchUp()
    for source in (mine, mine.map(lambda x: (x + 1,)), bu.CompositeDataSource([mine, bu.ArrayDataSource([A])]),
                   bu.ChoiceDataSource([mine, mine], stratified=True), bu.take(mine, 7)):  # fmt: skip
        with bu.WorkerThreadPool(2) as pool:
            got = list(pool.parallel_data_source(source).batch_iterator(4, shuffle=rng()))
        if source is not mine or shuffle != 5:
            assert_same_batches(got, list(source.batch_iterator(4, shuffle=rng())))
        assert got


def test_nothing_warns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for options in ({}, {"shuffle": 3}, {"shuffle": np.random.RandomState(1)}):
            list(bu.ArrayDataSource([A], repeats=3).map(uniform, rng="sample").batch_iterator(4, **options))
