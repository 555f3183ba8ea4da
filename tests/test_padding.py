"""Arrays of different lengths become one array, on their own and as columns of batches."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises, warns


@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    inner=arrays_of.array_shapes(min_dims=0, max_dims=2, max_side=3),
    side=st.sampled_from(["left", "right"]),
    multiple=st.none() | st.integers(1, 5),
    dtype=st.sampled_from([np.uint8, np.int64, np.float32, np.float64, np.bool_]),
)
def test_values_stay_and_all_else_is_padding(
    lengths: list[int], inner: tuple[int, ...], side: str, multiple: int | None, dtype: Any
) -> None:
    given_arrays = [np.arange(n * int(np.prod(inner))).reshape(n, *inner).astype(dtype) for n in lengths]
    x, found, mask = bu.pad_batch(
        given_arrays, padding_value=1, padding_side=side, pad_to_multiple_of=multiple, return_lengths=True,
        return_mask=True,
    )  # fmt: skip
    assert x.dtype == dtype
    assert x.shape == (len(lengths), x.shape[1], *inner)
    assert max(lengths) <= x.shape[1] < max(lengths) + (multiple or 1)
    assert x.shape[1] % (multiple or 1) == 0
    assert found.tolist() == lengths
    assert mask.shape == x.shape[:2]
    for row, own, real in zip(x, given_arrays, mask, strict=True):
        np.testing.assert_array_equal(row[real], own)
        assert (row[~real] == 1).all()
        assert real.tolist() == sorted(real.tolist(), reverse=side == "right")


@given(
    shapes=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), min_size=1, max_size=5),
    side=st.sampled_from(["left", "right"]),
    multiple=st.none() | st.integers(1, 4),
    inner=st.sampled_from([(), (3,)]),
)
def test_two_axes_are_padded(shapes: Any, side: str, multiple: int | None, inner: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    given_arrays = [rng.integers(1, 9, (*shape, *inner)) for shape in shapes]
    x, found, mask = bu.pad_batch(
        given_arrays, axes=2, padding_side=side, pad_to_multiple_of=multiple, return_lengths=True, return_mask=True
    )
    assert found.tolist() == [list(shape) for shape in shapes]
    assert mask.shape == x.shape[:3]
    longest = np.max(shapes, axis=0)
    assert (x.shape[1:3] >= longest).all()
    assert (x.shape[1:3] < longest + (multiple or 1)).all()
    for row, own, real in zip(x, given_arrays, mask, strict=True):
        np.testing.assert_array_equal(row[real].reshape(own.shape), own)
        assert (row[~real] == 0).all()
        corner = (0, 0) if side == "right" else (-1, -1)
        assert real.sum() == own.shape[0] * own.shape[1]
        assert not own.size or real[corner]
    cut = bu.pad_batch(given_arrays, axes=2, padding="max_length", max_length=(2, 3), truncation=True)
    assert cut.shape == (len(shapes), 2, 3, *inner)


def test_a_source_pads_its_columns(pools: list[AbstractWorkerPool]) -> None:
    texts, boxes = [[1, 2, 3], [4], [5, 6]], [np.ones((2, 4)), np.zeros((0, 4)), np.ones((1, 4))]
    source = bu.ArrayDataSource({"ids": texts, "boxes": boxes, "y": np.arange(3)})
    padded = source.pad("ids", value=-1, to_multiple=4, mask=True, lengths=True).pad("boxes", length=3)
    expected = {
        "ids": [[1, 2, 3, -1], [4, -1, -1, -1], [5, 6, -1, -1]], "ids_lengths": [3, 1, 2],
        "ids_mask": [[True] * 3 + [False], [True] + [False] * 3, [True] * 2 + [False] * 2],
        "boxes": [[[1.0] * 4] * n + [[0.0] * 4] * (3 - n) for n in (2, 0, 1)], "y": [0, 1, 2],
    }  # fmt: skip
    for over in (padded, *[pool.parallel_data_source(padded) for pool in pools]):
        batch = next(over.batch_iterator(3))
        assert {name: column.tolist() for name, column in batch.items()} == expected
    assert source.pad("ids", side="left")[0:2]["ids"].tolist() == [[1, 2, 3], [0, 0, 4]]
    assert source.pad("ids", length=2, truncate=True)[0:2]["ids"].tolist() == [[1, 2], [4, 0]]
    with raises(ArgumentError):
        source.pad("idz")
    of_tuples = bu.ArrayDataSource([texts, np.arange(3)]).pad(0, mask=True)
    assert [part.shape for part in of_tuples[0:3]] == [(3, 3), (3, 3), (3,)]


@pytest.mark.parametrize("options", [
    {"length": 2}, {"length": [2, 3]}, {"length": 0}, {"length": 6, "to_multiple": 4}, {"truncate": True},
    {"truncate": 1}, {"to_multiple": 0}, {"side": "top"}, {"value": 0.5}, {"value": [0]}, {"lengths": "yes"},
    {"mask": "yes"},
])  # fmt: skip
def test_errors_of_a_source_name_its_own_arguments(options: dict[str, Any]) -> None:
    source = bu.ArrayDataSource({"ids": [[1, 2, 3], [4]]})
    with raises((ArgumentError, ArgumentTypeError)) as caught:
        next(source.pad("ids", **options).batch_iterator(2))
    theirs = ("max_length", "truncation", "pad_to", "padding_", "return_")
    assert not any(name in str(caught.value) for name in theirs)


def test_it_pads_as_torch_does() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rng = np.random.default_rng(0)
    given_arrays = [rng.random((n, 3), dtype=np.float32) for n in (4, 1, 7, 0)]
    tensors = [torch.from_numpy(array) for array in given_arrays]
    for side in ("right", "left"):
        theirs = torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=-2.5, padding_side=side)
        np.testing.assert_array_equal(bu.pad_batch(given_arrays, padding_value=-2.5, padding_side=side), theirs.numpy())
        np.testing.assert_array_equal(bu.pad_batch(tensors, padding_value=-2.5, padding_side=side), theirs.numpy())


def test_columns_come_in_many_forms() -> None:
    parts = [np.array([1, 2]), np.array([3])]
    objects = np.empty(2, object)
    objects[:] = parts
    for column in (parts, tuple(parts), objects, [[1, 2], [3]], iter(parts)):
        assert bu.pad_batch(column).tolist() == [[1, 2], [3, 0]]
    assert bu.pad_batch([[], [1, 2]]).dtype == np.int64  # what an empty list would be does not matter
    with warns(bu.SampleWarning):
        assert bu.pad_batch([[], []]).shape == (2, 0)
    assert bu.pad_batch([["a", "bcd"], ["e"]], padding_value="").tolist() == [["a", "bcd"], ["e", ""]]


def test_equal_lengths_are_copied() -> None:
    whole = np.arange(6).reshape(2, 3)
    padded = bu.pad_batch(whole)
    np.testing.assert_array_equal(padded, whole)
    padded[0] = 9
    assert whole[0, 0] == 0
    assert bu.pad_batch(whole, pad_to_multiple_of=4, padding_value=7).tolist() == [[0, 1, 2, 7], [3, 4, 5, 7]]


def test_lengths_are_bounded() -> None:
    parts = [[1, 2, 3], [4], []]
    x, lengths = bu.pad_batch(parts, max_length=2, truncation=True, return_lengths=True)
    assert (x.tolist(), lengths.tolist()) == ([[1, 2], [4, 0], [0, 0]], [2, 1, 0])
    left = bu.pad_batch(parts, max_length=2, truncation=True, padding_side="left")
    assert left.tolist() == [[1, 2], [0, 4], [0, 0]]
    assert bu.pad_batch(parts, max_length=5).shape == (3, 3)
    assert bu.pad_batch(parts, max_length=5, padding="max_length").shape == (3, 5)
    assert bu.pad_batch(parts, max_length=4, pad_to_multiple_of=2).shape == (3, 4)


def test_no_samples_give_an_array_of_none() -> None:
    x, lengths, mask = bu.pad_batch([], return_lengths=True, return_mask=True, max_length=4, padding="max_length")
    assert (x.shape, lengths.shape, mask.shape) == ((0, 4), (0,), (0, 4))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(0, np.uint8), (255, np.uint8), (0.1, np.float32), (np.nan, np.float64), (-np.inf, np.float16), (False, bool)],
)
def test_padding_values_that_fit_are_taken(value: Any, dtype: Any) -> None:
    padded = bu.pad_batch([np.ones(1, dtype), np.ones(2, dtype)], padding_value=value)
    np.testing.assert_array_equal(padded[0, 1], np.array(value, dtype))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(-1, np.uint8), (256, np.uint8), (0.5, np.int64), (np.nan, np.int32), (-1e9, np.float16), (2, bool), ("5", float)],
)
def test_padding_values_that_do_not_fit_are_refused(value: Any, dtype: Any) -> None:
    with raises(ArgumentError) as caught:
        bu.pad_batch([np.ones(1, dtype), np.ones(2, dtype)], padding_value=value)
    assert f"that {np.dtype(dtype)} can" in str(caught.value)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool, "U3"])
def test_a_complex_padding_value_is_refused_without_a_warning(dtype: Any) -> None:
    for value in (1j, 1 + 0j, np.complex64(2)):
        with raises(ArgumentError):
            bu.pad_batch([np.ones(1, dtype), np.ones(2, dtype)], padding_value=value)
    padded = bu.pad_batch([np.ones(1, complex), np.ones(2, complex)], padding_value=1j)
    assert padded[0].tolist() == [1, 1j]


def test_pad_columns_takes_the_options_of_pad_batch() -> None:
    others = {
        "padding_value": 7, "padding": "max_length", "max_length": 4, "truncation": True, "pad_to_multiple_of": 2,
        "padding_side": "left", "axes": 1, "return_lengths": True, "return_mask": True, "shape": (None, 5),
        "dtype": "float32",
    }  # fmt: skip
    assert others.keys() == inspect.signature(bu.pad_batch).parameters.keys() - {"arrays"}
    column = [np.ones((2, 5)), np.ones((3, 5))]
    assert_same_batches([bu.PadColumns(0, **others)(column)], [bu.pad_batch(column, **others)])
    assert_same_batches([bu.PadColumns(0)(np.ones((2, 3)))], [(bu.pad_batch(np.ones((2, 3))),)])


ONE = [np.ones(1), np.ones(2)]


pad = bu.pad_batch
REFUSED: list[Any] = [
    lambda: pad([1, 2]),
    lambda: pad([np.ones((2, 3)), np.ones((2, 4))]),
    lambda: pad([np.ones((2, 3)), np.ones(2)]),
    lambda: pad([[1], [2], [2.5]]),
    lambda: pad([[1], [2, 3]], max_length=1),
    lambda: pad([np.array([b"\xff"]), np.array(["a", "b"])], padding_value=""),
    lambda: pad([[[4]], [[1, 2], [3]]]),
    lambda: pad(ONE, padding="max"),
    lambda: pad(ONE, padding_side="top"),
    lambda: pad(ONE, padding="max_length"),
    lambda: pad(ONE, truncation=True),
    lambda: pad(ONE, max_length=0),
    lambda: pad(ONE, pad_to_multiple_of=0),
    lambda: pad(ONE, pad_to_multiple_of=4, max_length=6),
    lambda: bu.PadColumns(),
    lambda: bu.PadColumns(0, 0),
    lambda: bu.PadColumns(0, padding="max"),
    lambda: bu.PadColumns(2)(ONE, ONE),
    lambda: bu.PadColumns(1)(ONE, [[1], [2.5]]),
]  # fmt: skip
OF_ANOTHER_KIND: list[Any] = [
    lambda: pad(ONE, truncation=1),
    lambda: pad(ONE, padding_value=[1]),
    lambda: pad(5),
    lambda: pad(None),
    lambda: pad(np.array(5)),
    lambda: bu.PadColumns(0)(5),
    lambda: bu.PadColumns(0, pading="max"),
    lambda: bu.PadColumns(1.5),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (call, kind)
        for kind, calls in ((ArgumentError, REFUSED), (ArgumentTypeError, OF_ANOTHER_KIND))
        for call in calls
    ],
)
def test_what_cannot_be_padded_is_refused(call: Any, error: type) -> None:
    with raises(error):
        call()


def test_lengths_and_mask_stand_behind_their_column() -> None:
    pad = bu.PadColumns(-1, 0, return_lengths=True, return_mask=True)
    batch = pad([[1], [2, 3]], np.array([5, 6]), [[7], [8]])
    assert [part.tolist() for part in batch] == [
        [[1, 0], [2, 3]], [1, 2], [[True, False], [True, True]], [5, 6], [[7], [8]], [1, 1], [[True], [True]],
    ]  # fmt: skip


def test_columns_are_padded_by_name() -> None:
    pad = bu.PadColumns("ids", "type", padding_value=9, return_lengths=True, return_mask=True)
    batch = pad(y=np.array([5, 6]), ids=[[1], [2, 3]], type=[[0], [0]])
    assert {name: part.tolist() for name, part in batch.items()} == {
        "y": [5, 6], "ids": [[1, 9], [2, 3]], "ids_lengths": [1, 2], "ids_mask": [[True, False], [True, True]],
        "type": [[0], [0]], "type_lengths": [1, 1], "type_mask": [[True], [True]],
    }  # fmt: skip
    assert list(batch)[:4] == ["y", "ids", "ids_lengths", "ids_mask"]
    source = bu.ArrayDataSource({"ids": bu.Ragged(np.arange(6), [0, 2, 2, 6]), "y": np.arange(3)})
    assert source.map(bu.PadColumns("ids"))[1:3]["ids"].tolist() == [[0, 0, 0, 0], [2, 3, 4, 5]]
    with raises(ArgumentError):
        pad(ids=[[1]], type=[[1]], ids_mask=[1])
    with raises(ArgumentError):
        bu.PadColumns("idz")(ids=[[1]])


class NeverRead:
    """A column that fails when it is read."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, rows: Any) -> Any:
        raise AssertionError("this column is not to be read")


TOKENS = bu.Ragged(np.arange(12), [0, 1, 3, 3, 7, 9, 12])
LABELS = np.array([0, 1, 1, 0, 1, 0])
PADS: list[dict[str, Any]] = [{}, {"mask": True}, {"mask": True, "lengths": True, "length": 6}]


@pytest.mark.parametrize("options", PADS)
def test_columns_beside_a_padded_one_are_read_alone(options: dict[str, Any]) -> None:
    named = bu.ArrayDataSource({"ids": TOKENS, "image": NeverRead(), "label": LABELS}).pad("ids", **options)
    files = bu.FilesDataSource(
        [TOKENS, NeverRead(), LABELS], bu.FilesReport("here", 6, {}), {"ids": 0, "image": 1, "label": 2}
    ).pad("ids", **options)
    n_more = sum(options.get(name, False) for name in ("mask", "lengths"))
    placed = bu.ArrayDataSource([TOKENS, LABELS, NeverRead()]).pad(0, **options)
    for source, column in ((named, "label"), (files, "label"), (placed, 1 + n_more)):
        rows = [part.rows.tolist() for part in source.split([0.5, 0.5], 1, stratify=column)]
        plain = bu.ArrayDataSource([LABELS, LABELS])
        assert rows == [part.rows.tolist() for part in plain.split([0.5, 0.5], 1, stratify=0)]
        assert bu.statistics(source, column)[column].mean == 0.5
        picked = [batch[0].tolist() if isinstance(batch, tuple) else batch["label"].tolist()
                  for batch in source.select(column).batch_iterator(4)]  # fmt: skip
        assert np.concatenate(picked).tolist() == LABELS.tolist()
    assert named.lengths("ids").tolist() == [options.get("length", 4)] * 6
    for source in (named, files, named.subset(range(6))):
        assert source.labels.tolist() == LABELS.tolist()
        assert len(source.sample(balanced=True)) == 6


@pytest.mark.parametrize("options", PADS)
def test_the_columns_that_follow_padding_are_known(options: dict[str, Any]) -> None:
    for columns, pads in (({"x": LABELS, "ids": TOKENS, "y": LABELS, "more": TOKENS}, ("more", "ids")),
                          ([LABELS, TOKENS, LABELS, TOKENS], (3, 1))):  # fmt: skip
        source = bu.ArrayDataSource(columns).pad(*pads, **options)
        batch, form = source[0:6], source.node.form()
        assert list(form) == list(batch if isinstance(batch, dict) else range(len(batch)))
        made = {key for key in form if source.node.only([key]) is None}
        assert made == {key for key in form if not np.array_equal(batch[key], LABELS)}


class Sentences:
    """An accessor that gives a list of arrays of different lengths."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, rows: Any) -> Any:
        return [np.arange(int(row) % 7 + 1) for row in np.atleast_1d(rows)]


def test_any_pool_pads_columns(pools: list[AbstractWorkerPool]) -> None:
    objects = np.empty(40, object)
    objects[:] = Sentences()[np.arange(40)]
    for column in (Sentences(), objects):
        source = bu.ArrayDataSource([column, np.arange(40)])
        padded = source.map(bu.PadColumns(0, padding_value=-1, return_lengths=True))
        expected = list(padded.batch_iterator(8, shuffle=3))
        for x, lengths, rows in expected:
            assert (lengths == rows % 7 + 1).all()
            assert ((x >= 0).sum(axis=1) == lengths).all()
        for pool in pools:
            got = list(pool.parallel_data_source(padded).batch_iterator(8, shuffle=3))
            assert_same_batches(got, expected)
            only = bu.ArrayDataSource([column]).map(functools.partial(bu.pad_batch, padding_value=-1, return_mask=True))
            x, mask = next(pool.parallel_data_source(only).batch_iterator(8))
            np.testing.assert_array_equal(x >= 0, mask)


def test_an_error_names_it_as_the_map() -> None:
    source = bu.ArrayDataSource([np.arange(40)]).map(bu.PadColumns(0))
    with bu.WorkerThreadPool(1) as pool, raises(bu.BatchError):
        next(pool.parallel_data_source(source).batch_iterator(8))


def test_flat_rows_stand_one_after_the_other() -> None:
    pairs = [np.arange(6).reshape(3, 2), np.zeros((0, 2), int)]
    for rows in ([[1, 2, 3], [], [4]], pairs, np.ones((3, 2, 4), "f4"), []):
        values, offsets = bu.flat_batch(rows)
        assert offsets.dtype == np.int64
        assert offsets.tolist() == np.cumsum([0, *map(len, rows)]).tolist()
        for row, start, end in zip(rows, offsets, offsets[1:], strict=False):
            np.testing.assert_array_equal(values[start:end], row)
    assert bu.flat_batch([[], [1, 2]])[0].dtype == np.int64
    assert bu.flat_batch(np.ones((3, 2, 4), "f4"))[0].dtype == np.float32


def test_columns_are_flat_in_tuples_and_dicts() -> None:
    rows = bu.Ragged(np.arange(6), [0, 2, 2, 6])
    by_place = bu.ArrayDataSource([rows, np.arange(3)]).collate(bu.FlatColumns(0))
    by_name = bu.ArrayDataSource({"x": rows, "y": np.arange(3)}).collate(bu.FlatColumns("x"))
    (values, offsets, y) = next(by_place.batch_iterator(3))
    named = next(by_name.batch_iterator(3))
    assert (values.tolist(), offsets.tolist(), y.tolist()) == ([0, 1, 2, 3, 4, 5], [0, 2, 2, 6], [0, 1, 2])
    assert list(named) == ["x", "x_offsets", "y"]
    assert named["x"].tolist() == values.tolist()


@pytest.mark.parametrize(
    "call",
    [
        lambda: bu.FlatColumns(),
        lambda: bu.FlatColumns("x")([{"y": 1}]),
        lambda: bu.FlatColumns("x")([{"x": [1], "x_offsets": 0}]),
        lambda: bu.PadColumns("x", return_mask=True)(x=ONE, x_mask=[1, 2]),
        lambda: bu.FlatColumns(0)([([1],), ([[2.5]],)]),
    ],
)
def test_columns_that_cannot_be_made_flat_are_refused(call: Any) -> None:
    with raises(ArgumentError):
        call()


def test_lists_without_a_value_have_the_dtype_of_the_padding() -> None:
    texts = bu.ArrayDataSource({"t": ["a", "", "bc"]})
    tokens = texts.map(lambda t: [[ord(c) for c in each] for each in t], on="t", out="ids").pad("ids")
    with warns(bu.SampleWarning):
        assert {batch["ids"].dtype for batch in tokens.batch_iterator(1)} == {np.dtype(np.int64)}
    with warns(bu.SampleWarning):
        assert bu.pad_batch([[], []], padding_value=0.0).dtype == np.float64
    assert bu.pad_batch([np.zeros(0, np.int8), []]).dtype == np.int8
    assert bu.pad_batch([]).dtype == np.float64
