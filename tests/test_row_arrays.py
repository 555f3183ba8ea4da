"""Rows without a value have the dtype and the number of axes of others, in whatever batch they are."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError, SampleWarning
from batchup_ng.testing.sources import assert_same_batches
from tests.messages import raises, warns

COUNTS = [0, 0, 2, 3, 0, 1]


def boxes(n: Any) -> list[Any]:
    """Return a list of boxes for each number, as plain lists."""
    return [[[0, 0, 1, 1.5]] * int(k) for k in n]


def source() -> Any:
    return bu.ArrayDataSource({"n": np.array(COUNTS)}).map(boxes, on="n", out="b")


@given(order=st.permutations(range(6)), size=st.integers(1, 6), listed=st.booleans())
def test_every_batch_has_one_dtype_and_one_number_of_axes(order: list[int], size: int, listed: bool) -> None:
    rows = boxes([COUNTS[i] for i in order])
    rows = rows if listed else [np.array(row, np.float32).reshape(-1, 4) if row else [] for row in rows]
    for start in range(0, 6, size):
        part = rows[start : start + size]
        x, n = bu.pad_batch(part, shape=(None, 4), dtype="float32", return_lengths=True)
        assert (x.dtype, x.shape) == (np.float32, (len(part), max(n), 4))
        values, offsets = bu.flat_batch(part, shape=(None, 4), dtype="float32")
        assert (values.dtype, values.shape) == (np.float32, (sum(n), 4))
        np.testing.assert_array_equal(np.diff(offsets), n)
        if sum(n):  # the others know
            known = np.float64 if listed else np.float32
            assert (bu.pad_batch(part).dtype, bu.pad_batch(part).shape) == (known, x.shape)
            assert (bu.flat_batch(part)[0].dtype, bu.flat_batch(part)[0].shape) == (known, values.shape)
            np.testing.assert_array_equal(bu.pad_batch(part), x)


def test_the_form_of_a_column_holds_in_every_pool(pools: list[Any]) -> None:
    form: dict[str, Any] = {"shape": (None, 4), "dtype": "float32"}
    padded, flat = source().pad("b", mask=True, **form), source().collate(bu.FlatColumns("b", **form))
    for made in (padded, flat):
        expected = list(made.batch_iterator(2))
        assert {(batch["b"].dtype, batch["b"].shape[-1], batch["b"].ndim) for batch in expected} == {
            (np.dtype("float32"), 4, 3 if made is padded else 2)
        }
        for pool in pools:
            assert_same_batches(list(pool.parallel_data_source(made).batch_iterator(2)), expected)


def test_a_batch_of_empty_lists_alone_is_warned_of_unless_its_form_is_given() -> None:
    with warns(SampleWarning):
        next(source().pad("b").batch_iterator(2))
    for options in ({}, {"shape": (None, 4)}, {"dtype": "float32"}):
        with warns(SampleWarning):
            bu.pad_batch([[], []], **options)
        with warns(SampleWarning):
            bu.flat_batch([[], ()], **options)
    with warns(SampleWarning):
        assert bu.pad_batch([[], []], axes=2).shape == (2, 0, 0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert bu.pad_batch([[], np.zeros((0, 4), "f4")]).shape == (2, 0, 4)
        assert bu.pad_batch([np.zeros(0, "i4"), []]).dtype == np.int32
        assert bu.pad_batch([[], []], axes=2, shape=(None, None, 3), dtype="u1").shape == (2, 0, 0, 3)
        assert bu.pad_batch([[], np.ones((2, 3, 3))], axes=2).shape == (2, 2, 3, 3)
        bu.pad_batch([])
    assert told == []


def test_dtypes_are_taken_if_they_hold_the_values() -> None:
    assert bu.pad_batch([[1, 2], [2.5]], dtype="float16").tolist() == [[1, 2], [2.5, 0]]
    assert bu.pad_batch([np.array([1, 255]), []], dtype="uint8").dtype == np.uint8
    assert bu.pad_batch([["ab"], ["c"]], dtype="U", padding_value="").dtype == np.dtype("U2")
    assert bu.pad_batch([[1 << 24, 1 << 30, True]], dtype="float32").tolist() == [[1 << 24, 1 << 30, 1]]
    assert bu.pad_batch([[1 << 53, -1 << 53]], dtype="float64").tolist() == [[1 << 53, -1 << 53]]
    whole = [([[256]], "uint8"), ([[-1]], "uint16"), ([[1.0]], "int64"), ([["1"]], "int64"), ([[1j]], "f8")]
    rounded = [
        ([[(1 << 24) + 1]], "float32"), ([[-(1 << 24) - 1, 0]], "complex64"), ([[2049]], "float16"),
        ([[70000]], "float16"), ([[(1 << 53) + 1]], "float64"), ([np.array([2**64 - 1], "u8")], "float64"),
    ]  # fmt: skip
    for rows, dtype in whole + rounded:
        with raises(ArgumentError):
            bu.pad_batch(rows, dtype=dtype)


def test_shapes_are_checked() -> None:
    with raises(ArgumentError):
        bu.pad_batch([[[1, 2]], [[1, 2, 3, 4]]], shape=(None, 4))
    for rows in ([np.zeros(0), np.ones((2, 4))], [np.ones((2, 4)), np.zeros(0)]):
        with raises(ArgumentError):
            bu.pad_batch(rows)
        assert bu.pad_batch(rows, shape=(None, 4)).shape == (2, 2, 4)
        assert bu.flat_batch(rows, shape=(None, 4))[0].shape == (2, 4)
    for shape in ((4,), (4, None), (None, None, 4), (None, -1), (None, 1.5), ()):
        with raises(ArgumentError):
            source().pad("b", shape=shape)
    for options in ({"shape": 4}, {"shape": "n4"}, {"dtype": "f5"}, {"dtype": object}):
        with raises(ArgumentTypeError):
            bu.FlatColumns("b", **options)


def test_lists_out_of_a_parquet_file(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    import pyarrow

    rows: list[Any] = [[], [], [[0.0, 0, 1, 1]], [[1.0, 1, 2, 2]]]
    fixed = pyarrow.array(rows, pyarrow.list_(pyarrow.list_(pyarrow.float32(), 4)))
    table = {"boxes": rows, "fixed": fixed, "ids": pyarrow.array([[], [], [1], [2, 3]], pyarrow.list_(pyarrow.int32()))}
    parquet.write_table(pyarrow.table(table), tmp_path / "x.parquet")
    stored = bu.from_file(tmp_path / "x.parquet")
    ids, known, given_form = (list(made.batch_iterator(2)) for made in (
        stored.select("ids").pad("ids"), stored.select("fixed").pad("fixed"),
        stored.select("boxes").pad("boxes", shape=(None, 4), dtype="float64"),
    ))  # fmt: skip
    assert [(x["ids"].shape, x["ids"].dtype) for x in ids] == [((2, 0), np.int32), ((2, 2), np.int32)]
    assert [(x["fixed"].shape, x["fixed"].dtype) for x in known] == [((2, k, 4), np.float32) for k in (0, 1)]
    assert [(x["boxes"].shape, x["boxes"].dtype) for x in given_form] == [((2, k, 4), np.float64) for k in (0, 1)]
    with warns(SampleWarning):
        next(stored.select("boxes").pad("boxes").batch_iterator(2))
    assert stored.select("boxes").pad("boxes")[1:3]["boxes"].shape == (2, 1, 4)


MOST = 2**53


@pytest.mark.parametrize(
    ("row", "kept"),
    [
        ([1, "a"], False), ([1, b"a"], False), (["a", "b\0"], False), ([True, "a"], False),
        ([MOST, 0.5], True), ([MOST + 1, 0.5], False), ([MOST + 2, 0.5], True), ([-MOST - 1, 0.5], False),
        ([[1, 0.5], [MOST + 1, 2]], False), ([[1, 0.5], [MOST, 2]], True), (((1, 2), (3.5, 4)), True),
        ([MOST + 1, 2], True), ([2**63, 2**64 - 1], True), ([2**64 - 1, 0.5], False), ([1, float("nan")], True),
        ([float("inf"), 1], True), (["a", "bc"], True), ([True, False], True), ([1, 2j], True), ([MOST + 1, 2j], False),
        ([np.float32(0.1), 2], True), ([np.array([1, 2]), np.array([0.5, 3])], True), ([1, 2], True), ([0.5, 1], True),
        ([np.array([MOST + 1]), np.array([0.5])], False), ([np.True_, False], True),
    ],
)  # fmt: skip
def test_a_list_is_refused_if_its_array_would_hold_other_values(row: Any, kept: bool) -> None:
    makers = (lambda: bu.flat_batch([row])[0], lambda: bu.Ragged.from_rows([row])[0])
    for make in makers:
        if kept:
            values = np.array(row, object).reshape(-1).tolist()
            for own, value in zip(make().reshape(-1).tolist(), values, strict=True):
                assert own == value or (own != own and value != value)
        else:
            with raises(ArgumentError):
                make()


@pytest.mark.parametrize("row", [[True, 2], [True, 0.5]])
def test_truth_values_among_numbers_are_numbers(row: Any) -> None:
    assert bu.flat_batch([row])[0].tolist() == bu.pad_batch([row])[0].tolist() == row
    with raises(ArgumentError):
        bu.Ragged.from_rows([row])
