"""Sources over arrays: rows of any kind, what is refused, samplers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError, InOrderNotSupported
from batchup_ng.memory.leases import BufferPool
from batchup_ng.randomness import BatchKey
from tests.data_source.source_helpers import A, draws, ids
from tests.messages import raises


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (A, ArgumentTypeError),
        ((A,), ArgumentTypeError),
        ([], ArgumentError),
        ([A, 3], ArgumentTypeError),
        ([[1, 2]], ArgumentTypeError),
        ([[A, A * 1.5], A[:2]], ArgumentTypeError),
        ([[("a", 1), ("b", 2)], A[:2]], ArgumentTypeError),
        ([[[None], [1]], A[:2]], ArgumentTypeError),
        ([[np.ones((2, 3)), np.ones((2, 4))], A[:2]], ArgumentTypeError),
        ([[[[1, 2], [3]], [[1]]], A[:2]], ArgumentTypeError),
        ([[A, A[:3], 3], A[:3]], ArgumentTypeError),
        ([[np.array(1), np.array(2)]], ArgumentTypeError),
        ([A, A[:3]], ArgumentError),
    ],
)
def test_what_is_no_list_of_arrays_is_refused(data: Any, error: type) -> None:
    with raises(error):
        bu.ArrayDataSource(data)


def test_arrays_that_are_no_list_are_told_from_the_rows_to_hand_out() -> None:
    with raises(ArgumentTypeError):
        bu.ArrayDataSource(A, A)  # type: ignore[arg-type]  # on purpose


def test_what_stands_in_the_error_on_rows_of_different_lengths_works() -> None:
    rows = [A, A[:3], A[:5]]
    held = np.empty(3, object)
    held[:] = rows
    for instead in (bu.MapStyle(rows), held):
        (batch,) = bu.ArrayDataSource([instead, A[:3]]).batch_iterator(3)
        assert [len(row) for row in batch[0]] == [10, 3, 5]


@pytest.mark.parametrize(
    "options",
    [
        {"repeats": 0},
        {"indices": [10]},
        {"indices": [-11]},
        {"sampler": bu.StandardSampler(10), "repeats": 2},
        {"sampler": bu.StandardSampler(10), "indices": [1]},
    ],
)
def test_bad_options_of_arrays_are_refused(options: Any) -> None:
    with raises(ArgumentError):
        bu.ArrayDataSource([A], **options)
    with raises(ArgumentTypeError):
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
        (got,) = source.node.read(rows, BatchKey(), BufferPool())
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
        with raises(IndexError):
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
    with raises(ArgumentError):
        bu.ArrayDataSource([A], sampler=sampler)


def test_columns_of_a_map_style_data_set_stand_side_by_side() -> None:
    pairs = bu.MapStyle([(i, [i] * 2, np.full(3, i)) for i in range(10)])
    singles = bu.MapStyle(list(range(10)))
    ((x, y, z, s, w),) = bu.ArrayDataSource([pairs, singles, A * 2]).batch_iterator(10, shuffle=1)
    assert z.shape == (10, 3)
    assert y == [[i] * 2 for i in x]
    assert x.tolist() == s.tolist() == (w // 2).tolist()


def test_an_iterator_that_is_used_up_says_so() -> None:
    source = bu.IteratorDataSource(iter([(A,)]))
    assert len(ids(source)) == 1
    with raises(ArgumentError):
        ids(source)
    again = bu.IteratorDataSource([(A,)])  # type: ignore[arg-type]
    assert ids(again) == ids(again)


def test_sources_may_be_given_in_one_list() -> None:
    parts = [bu.ArrayDataSource([A]), bu.ArrayDataSource([A + 10])]
    assert ids(bu.concat(parts)) == ids(bu.concat(*parts))  # type: ignore[arg-type]
    assert len(next(bu.zip(parts).batch_iterator(3))) == 2  # type: ignore[arg-type]
    with raises(ArgumentTypeError):
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
    wide = bu.ArrayDataSource([big[:9, None] * np.ones((1, 60_000))])
    for dtype in (np.uint8, np.int8, np.uint64, np.int32):
        assert ids(bu.subset(bu.ArrayDataSource([big]), np.arange(100, 104, dtype=dtype))) == [[100, 101, 102, 103]]
        assert ids(bu.ArrayDataSource([big], indices=np.array([5, 7], dtype=dtype))) == [[5, 7]]
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
        columns = batch if isinstance(batch, dict) else batch[0]
        assert (columns["i"] * 2 == columns["x"]).all()
    ((x,),) = named.map_samples(lambda i, x: (x,)).batch_iterator(10)
    assert x.tolist() == (A * 2.0).tolist()


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
        with raises(InOrderNotSupported):
            call(4)
