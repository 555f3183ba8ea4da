"""Columns that are no plain arrays become such, or are refused by name, when the source is made."""

from __future__ import annotations

import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises


def column(data: Any) -> Any:
    return bu.ArrayDataSource([data]).data[0]


def test_arrays_of_pandas_become_plain() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    cases = {
        "<U3": pandas.DataFrame({"label": ["cat", "dog"]})["label"].values,
        "<U1": pandas.Categorical(["a", "b"]),
        "int64": pandas.array([1, 2], dtype="Int64"),
        "float64": pandas.array([1.5, None], dtype="Float64"),
        "bool": pandas.array([True, False], dtype="boolean"),
        "uint8": pandas.Index(np.array([1, 2], np.uint8)),
        "<U2": pandas.Series(["a", "bb"], dtype="string").values,
    }
    for dtype, values in cases.items():
        plain = column(values)
        assert type(plain) is np.ndarray
        assert plain.dtype == np.dtype(dtype), values
        np.testing.assert_array_equal(plain[:1], np.asarray(values)[:1])
    with raises(ArgumentTypeError):
        bu.ArrayDataSource([pandas.MultiIndex.from_tuples([(1, 2), (3, 4)])])
    with raises(ArgumentError):
        column(pandas.array(["a", None], dtype="string"))
    with raises(ArgumentTypeError):
        column(pandas.Series([1, 2]))
    text = pandas.array(["x" * 20_000, *map(str, range(999))], dtype="string")
    with raises(ArgumentError):
        column(text)
    assert bu.ArrayDataSource([bu.MapStyle(text.tolist())])[1] == ("0",)


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_arrays_of_numpy_that_are_more_become_plain() -> None:
    for values in (np.matrix([[1, 2], [3, 4]]), np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])):
        plain = column(values)
        assert type(plain) is np.ndarray
        assert plain.shape == values.shape


@pytest.mark.parametrize(
    "data",
    [
        np.ma.masked_array([1, 2], [0, 1]),
        [np.ma.masked_array([1, 2], [0, 1]), np.ones(3, int)],
        ["a", 1],
        [1, 2],
        [],
        range(3),
        array.array("f", [1, 2]),
        memoryview(b"ab"),
        {1, 2},
    ],
)
def test_what_cannot_be_indexed_by_rows_is_refused(data: Any) -> None:
    with raises(ArgumentTypeError):
        column(data)


def test_a_raw_h5py_data_set_is_refused(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        stored = file.create_dataset("x", data=np.arange(5))
        with raises(ArgumentTypeError):
            bu.ArrayDataSource([np.arange(5), stored])


def test_strings_stay_one_kind_of_array_on_every_path(pools: list[AbstractWorkerPool]) -> None:
    names = np.array([f"{'x' * (i % 4)}{i}" for i in range(20)])
    plain = bu.ArrayDataSource([names, np.arange(20)])
    paths = {
        "plain": plain,
        "map": plain.map(lambda s, i: (s, i)),
        "samples": plain.map_samples(lambda s, i: (s, i)),
        "concat": bu.concat(plain, plain),
        "subset": bu.subset(plain, [3, 19, 4]),
    }
    for name, source in paths.items():
        expected = list(source.batch_iterator(8, shuffle=1))
        for strings, rows in expected:
            assert type(strings) is np.ndarray, name
            assert strings.dtype.kind == "U"
            assert strings.tolist() == names[rows].tolist()
        for pool in pools:
            assert_same_batches(list(pool.parallel_data_source(source).batch_iterator(8, shuffle=1)), expected)


class Lends:
    """An accessor that gives what it keeps: views of an array, or the arrays of a list."""

    def __init__(self, kept: Any) -> None:
        self.kept = kept

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(self.kept, list):
            return [self.kept[row] for row in np.atleast_1d(rows)]
        return self.kept[rows[0] : rows[-1] + 1]


class LendsAsSource(bu.RandomAccessDataSource):
    """The same as a source: of arrays, of arrays by name, of a batch that it made before."""

    def __init__(self, lends: Lends, how: str) -> None:
        super().__init__(length=len(lends))
        self.lends, self.how = lends, how
        self.made = (lends.kept,)

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        if self.how == "before" and len(indices) == len(self.lends):
            return self.made
        return {"x": self.lends[indices]} if self.how == "named" else (self.lends[indices],)


def adds_a_thousand(x: Any) -> Any:
    for row in x:
        row += 1000
    return (x,)


@pytest.mark.parametrize("width", [1, 1 << 13])
@pytest.mark.parametrize("how", ["array", "list", "tuple", "named", "before"])
def test_a_map_that_writes_to_its_batch_does_not_write_to_the_data(
    pools: list[AbstractWorkerPool], how: str, width: int
) -> None:
    array = np.arange(6.0).repeat(width).reshape(6, width)
    lends = Lends(list(array.copy()) if how == "list" else array)
    source = bu.ArrayDataSource([lends]) if how in ("array", "list") else LendsAsSource(lends, how)
    writing = source.map(adds_a_thousand)
    for pool in (None, *pools):
        batches = writing if pool is None else pool.parallel_data_source(writing)
        for size in (1, 2, 6):
            for _ in range(2):
                got = [row[0] for (x,) in batches.batch_iterator(size) for row in x]
                assert got == [1000.0, 1001.0, 1002.0, 1003.0, 1004.0, 1005.0]
    assert [row[0] for row in lends.kept] == list(range(6))


@pytest.mark.parametrize("n", [4, 40_000], ids=["32 bytes", "320 kB"])
def test_columns_that_stay_are_not_written_to(n: int) -> None:
    def adds(a: np.ndarray) -> np.ndarray:
        a += 1
        return a

    source = bu.ArrayDataSource({"a": np.zeros(n)})
    for made in (source.map(adds, on="a", out="b"), source.with_column("b", adds)):
        (batch,) = made.batch_iterator(n)
        assert not batch["a"].any()
        assert (batch["b"] == 1).all()
    assert (source.map(adds, on="a")[:]["a"] == 1).all()


def test_joined_parts_may_differ_in_byte_order() -> None:
    source = bu.ArrayDataSource({"x": np.arange(4, dtype=">f4")})
    both = source.concat(source, source.map(lambda x: np.float32(x) * 2, on="x"))
    batches = [batch["x"] for batch in both.batch_iterator(5, shuffle=1)]
    assert {batch.dtype.str for batch in batches} == {"<f4" if np.little_endian else ">f4"}
    assert sorted(np.concatenate(batches)) == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 6]
