"""The labels and rows of any source, read without its other columns, and names for columns of tuples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from tests.data_source.chains import chains, made
from tests.data_source.source_helpers import stream_of
from tests.messages import raises

N = 20


class NeverRead:
    """An accessor that fails when it is read."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, rows: Any) -> Any:
        raise AssertionError("this column is not to be read")


def named(x: Any = None) -> Any:
    return bu.ArrayDataSource({"x": np.arange(N) if x is None else x, "label": np.arange(N) % 3, "row": np.arange(N)})


@given(chain=chains)
def test_labels_and_rows_are_those_of_the_samples(chain: list[str]) -> None:
    source = made(named(), chain)
    samples = source[:]
    np.testing.assert_array_equal(source.labels, samples["label"])
    np.testing.assert_array_equal(source.rows, samples["row"])
    unread = made(named(NeverRead()), [step for step in chain if step not in ("map", "samples")])
    np.testing.assert_array_equal(unread.labels, unread.select("label")[:]["label"])


def test_labels_are_read_in_the_calls_that_large_sources_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchup_ng.data_source.looking.VALUES_READ_AT_ONCE", 7)
    for n in (0, 1, 6, 7, 8, 14, 15):
        labels = np.arange(n, dtype=np.int16)
        source = bu.ArrayDataSource([np.zeros(n), labels]).map(lambda x: x, on=0)
        np.testing.assert_array_equal(source.labels, labels)
    words = bu.ArrayDataSource({"label": bu.ArrayDataSource([list("abcdefghijk")]).data[0]}).subset([10, 3])
    assert words.labels.tolist() == ["k", "d"]


def test_labels_are_the_column_of_that_name_or_the_second_of_a_tuple() -> None:
    x, y = np.arange(N), np.arange(N) % 4
    assert bu.ArrayDataSource({"x": x, "y": y}).labels is None
    assert bu.ArrayDataSource([x]).labels is None
    soft = np.eye(4)[y]
    for data in ([x, soft], [x, soft, x], {"label": soft}):
        source = bu.ArrayDataSource(data)
        np.testing.assert_array_equal(source.subset([3, 1]).labels, soft[[3, 1]])
    np.testing.assert_array_equal(bu.zip(bu.ArrayDataSource([x]), bu.ArrayDataSource([y])).labels, y)
    labels = bu.ArrayDataSource([x, y]).labels
    labels[:] = -1  # it is the caller's own
    assert bu.ArrayDataSource([x, y])[3][1] == 3


def test_labels_that_cannot_be_read_alone_say_so() -> None:
    for source in (named().map(lambda **batch: batch), bu.CompositeDataSource([named()]).map(lambda **batch: batch)):
        with raises(ArgumentError):
            _ = source.labels
    for source in (stream_of(4).map(lambda x: (x, x)), bu.ChoiceDataSource([named(), named()]),
                   bu.ArrayDataSource([np.arange(3)] * 2, sampler=bu.WeightedSampler([1, 2, 3]))):  # fmt: skip
        for look in (lambda source: source.labels, lambda source: source.rows):
            with raises(ArgumentTypeError):
                look(source)
    with raises(ArgumentError):
        _ = named().repeat().rows


class Watched(list[Any]):
    """A data set that notes which samples are read."""

    def __init__(self, samples: Any) -> None:
        super().__init__(samples)
        self.read: list[int] = []

    def __getitem__(self, row: Any) -> Any:
        self.read.append(row)
        return super().__getitem__(row)


def beside(named: bool, samples: Any = None) -> tuple[Any, Watched]:
    data = Watched(list("abcde") * 4 if samples is None else samples)
    columns = {"text": bu.MapStyle(data), "label": np.arange(N) % 3}
    return bu.ArrayDataSource(columns if named else list(columns.values())), data


BESIDE: list[Any] = [
    lambda s, text: s, lambda s, text: s.concat(s), lambda s, text: s.map(lambda x: x, on=text).subset([7, 3, 7]),
    lambda s, text: s.map_samples(lambda x: x * 2, on=text), lambda s, text: s.filter(lambda x: x > 0, on=1 - text)
    if text == 0 else s.select("text", "label"), lambda s, text: s.split([0.5], 1)[0],
]  # fmt: skip


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("number", range(len(BESIDE)))
def test_labels_beside_a_data_set_are_read_alone(number: int, named: bool) -> None:
    source, data = beside(named)
    source = BESIDE[number](source, "text" if named else 0)
    data.read.clear()
    labels = source.labels
    assert set(data.read) <= (set() if named else {0})  # of tuples, one sample shows how many columns it has
    np.testing.assert_array_equal(labels, source[:]["label"] if named else source[:][1])


@pytest.mark.parametrize("named", [True, False])
def test_labels_beside_a_data_set_split_and_sample(named: bool) -> None:
    source, plain = beside(named)[0], bu.ArrayDataSource([np.arange(N), np.arange(N) % 3])
    column: Any = "label" if named else 1
    for options in ({"stratify": column}, {"groups": column}):
        expected = plain.split([0.5, 0.5], 1, **dict.fromkeys(options, 1))
        for part, like in zip(source.split([0.5, 0.5], 1, **options), expected, strict=True):
            np.testing.assert_array_equal(part.rows, like.rows)
    for options, like in (({"balanced": True},) * 2, ({"weights": column}, {"weights": 1})):
        batches = source.sample(**options).batch_iterator(5, shuffle=3)
        labels = [batch[column].tolist() for batch in batches]
        assert labels == [batch[1].tolist() for batch in plain.sample(**like).batch_iterator(5, shuffle=3)]


def test_a_data_set_is_a_column_of_labels() -> None:
    for words in (list("abcde") * 4, [1.5, 2, 3, 4] * 5):
        data = bu.MapStyle(words)
        x = np.arange(N)
        for source in (bu.ArrayDataSource({"x": x, "label": data}), bu.ArrayDataSource([x, data])):
            assert source.labels.tolist() == words
    assert bu.ArrayDataSource([bu.MapStyle([1, 2])]).labels is None


def test_labels_inside_a_data_set_say_so_and_the_remedies_work() -> None:
    pairs = bu.ArrayDataSource([bu.MapStyle([("a", 5), ("b", 6)])])
    dicts = bu.ArrayDataSource([bu.MapStyle([{"text": "a", "label": 5}, {"text": "b", "label": 6}])])
    for source in (pairs, dicts, dicts.map(lambda **batch: batch), bu.CompositeDataSource([dicts])):
        with raises(ArgumentError):
            _ = source.labels
    assert pairs.select(1)[:][0].tolist() == dicts.select("label")[:]["label"].tolist() == [5, 6]
    with raises(ArgumentError):
        dicts.sample(weights="label")
    for nested in ((1, 2), {"a": 1, "b": 2}):
        with raises(ArgumentError):
            _ = bu.ArrayDataSource({"label": bu.MapStyle([nested] * 3)}).labels


def test_rows_of_several_sources_are_those_of_the_joined_source() -> None:
    both = named().concat(named())
    part = both.split([0.5], 1)[0]
    np.testing.assert_array_equal(both.rows, np.arange(2 * N))
    np.testing.assert_array_equal(part[:]["row"], both[:]["row"][part.rows])
    source = named()
    parts = [part.select("row") for part in source.split([0.5, 0.5], 1)]  # their nodes read other columns
    joined = bu.concat(*parts)
    np.testing.assert_array_equal(joined.rows, joined[:]["row"])
    users = OwnAttributes()
    train, test = users.split([0.5, 0.5], 1)
    np.testing.assert_array_equal(bu.concat(train, test).rows, np.concatenate([train.rows, test.rows]))
    few = bu.ArrayDataSource([np.arange(N)], indices=[9, 4, 6])
    assert few.subset([2, 0]).rows.tolist() == [2, 0]


class OwnAttributes(bu.RandomAccessDataSource):
    """A user's source with attributes that have the names of properties."""

    def __init__(self) -> None:
        super().__init__(6)
        self.labels, self.columns = None, ["x"]
        self.labels = "mine"

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        return (np.asarray(indices),)


def test_attributes_of_a_users_source_go_before_properties() -> None:
    source = OwnAttributes()
    assert (source.labels, source.columns) == ("mine", ["x"])
    assert source.rows.tolist() == list(range(6))
    source.rows = None
    assert source.rows is None
    assert source.subset([1]).columns[0].shape == (1,)


def files(**columns: Any) -> Any:
    """A source of tuples whose columns have names, over columns that are no files."""
    places = {name: place for place, name in enumerate(columns)}
    return bu.FilesDataSource(list(columns.values()), bu.FilesReport("here", N, {}), places)


def placed() -> Any:
    return files(image=np.arange(N) * 10, label=np.arange(N) % 3, patient=np.arange(N) // 4)


WAYS: list[Any] = [
    lambda s, image, label: s.map(lambda x: x + 1, on=image),
    lambda s, image, label: s.map(lambda x, y: (y, x), on=[image, label], out=[label, image]),
    lambda s, image, label: s.map(lambda x: (x, x), on=image, out=[label, 3]),
    lambda s, image, label: s.map_samples(lambda y: y * 2, on=label),
    lambda s, image, label: s.map(lambda x: x + 1, on=image).select(label, image),
    lambda s, image, label: s.select(label),
    lambda s, image, label: s.drop(image),
    lambda s, image, label: s.map(lambda x: x, on=image).drop(label).map(lambda x: x + 1, on=image),
    lambda s, image, label: s.rename({image: "x", label: "y", 2: "z"}),
    lambda s, image, label: s.filter(lambda y: y == 1, on=label),
    lambda s, image, label: s.map(lambda x: x, on=image).filter(lambda x: x > 40, on=[image]),
    lambda s, image, label: s.map(lambda x: x, on=image).filter(lambda x: x > 40, on=image, lazy=True),
    lambda s, image, label: s.with_column(label, lambda x: x + 1, on=image),
    lambda s, image, label: s.concat(s).select(label),
    lambda s, image, label: s.zip(bu.ArrayDataSource([np.arange(N)])).map(lambda x: x + 1, on=image),
    lambda s, image, label: s.take(5).with_index().subset([3]),
]


@pytest.mark.parametrize("number", range(len(WAYS)))
def test_columns_of_tuples_are_found_by_their_names(number: int) -> None:
    way = WAYS[number]
    by_name, by_place = way(placed(), "image", "label"), way(placed(), 0, 1)
    for one, other in zip(by_name.batch_iterator(6, shuffle=1), by_place.batch_iterator(6, shuffle=1), strict=True):
        assert type(one) is type(other)
        both = [list(batch.values()) if isinstance(batch, dict) else list(batch) for batch in (one, other)]
        assert all(np.array_equal(a, b) for a, b in zip(*both, strict=True))


def test_a_column_of_tuples_that_is_replaced_keeps_its_name() -> None:
    """As after the labels of a folder were corrected."""
    new = np.arange(N)[::-1] % 2
    for source in (placed().with_column("label", new), placed().with_column(1, new)):
        assert [column.dtype.kind for column in source.columns] == ["i", "i", "i"]
        for chain in (source, source.map(lambda x: x, on="image"), source.with_index()):
            np.testing.assert_array_equal(chain.labels, new)
            np.testing.assert_array_equal(chain.map(lambda y: y + 1, on="label").select("label")[:][0], new + 1)
            for part in chain.split([0.5, 0.5], 1, stratify="label"):
                assert abs(np.mean(part.labels) - np.mean(new)) < 0.2
        np.testing.assert_array_equal(source.select("patient")[:][0], np.arange(N) // 4)
    alone = placed().select("label").with_column("label", new)
    np.testing.assert_array_equal(alone[:][0], new)


def test_row_numbers_before_the_columns_of_tuples_keep_their_names() -> None:
    source = placed().with_index()
    np.testing.assert_array_equal(source.labels, np.arange(N) % 3)
    np.testing.assert_array_equal(source.map(lambda y: y + 5, on="label")[:][2], np.arange(N) % 3 + 5)
    np.testing.assert_array_equal(source.select("patient", "image")[:][1], np.arange(N) * 10)
    np.testing.assert_array_equal(source.select(0)[:][0], np.arange(N))
    composite = bu.CompositeDataSource([placed(), placed()]).with_index()
    assert len(composite[0:2]) == 8, "two row numbers come first"
    with raises(ArgumentError):
        composite.map(lambda y: y, on="label")[0:2]


def test_labels_are_found_by_their_name_in_tuples() -> None:
    y = np.arange(N) % 3
    np.testing.assert_array_equal(placed().select("patient", "label").labels, y)
    np.testing.assert_array_equal(placed().map(lambda x: x, on="image").select("patient", "label").labels, y)
    assert files(image=np.arange(N), patient=np.arange(N)).subset([1, 2]).labels is None
    other = bu.ArrayDataSource([np.arange(N), y])
    for source in (placed().subset([3, 1]), placed().zip(other).subset([3, 1]), other.zip(placed()).subset([3, 1])):
        assert source.labels.tolist() == [0, 1]
    assert placed().select("image", "label").concat(other).labels.tolist() == [*y, *y]  # only one has names
    with raises(ArgumentError):
        placed().split([0.5], 1, stratify="lable")
    with raises(ArgumentError):
        placed().zip(placed()).select("image")  # which of the two?
