"""The functions that compose sources, as methods: with_index, filter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.testing.sources import SourceContract, assert_same_batches
from tests.data_source.source_helpers import A, flat, ids, stream_of
from tests.messages import raises, warns

ENDS = bu.SubsetSampler([1, 19])


def numbers(n: int = 10) -> Any:
    return bu.ArrayDataSource([np.arange(n), np.arange(n) ** 2])


@pytest.mark.parametrize(
    ("method", "function"),
    [
        (lambda s: s.take(7), lambda s: bu.take(s, 7)),
        (lambda s: s.repeat(3), lambda s: bu.repeat(s, 3)),
        (lambda s: s.subset([3, 1, -1]), lambda s: bu.subset(s, [3, 1, -1])),
        (lambda s: s.split((0.5, 0.3), 4)[1], lambda s: bu.split(s, (0.5, 0.3), 4)[1]),
        (lambda s: s.split((0.5, 0.5), 4, A % 2)[0], lambda s: bu.split(s, (0.5, 0.5), 4, stratify=A % 2)[0]),
        (lambda s: s.concat(s, s), lambda s: bu.concat(s, s, s)),
        (lambda s: s.concat(s, sampler=ENDS), lambda s: bu.concat(s, s, sampler=ENDS)),
        (lambda s: s.zip(s), lambda s: bu.zip(s, s)),
        (lambda s: s.zip(s, flatten=False), lambda s: bu.zip(s, s, flatten=False)),
    ],
)  # fmt: skip
def test_methods_are_the_functions(method: Any, function: Any) -> None:
    for source in (numbers(), numbers().map(lambda x, y: (x, -y))):
        one, other = method(source), function(source)
        assert type(one) is type(other)
        assert_same_batches(list(one.batch_iterator(4, shuffle=3)), list(other.batch_iterator(4, shuffle=3)))


def test_methods_make_chains() -> None:
    train, test = numbers().filter(lambda x, y: x > 1).split((0.5, 0.5), seed=1)
    both = train.concat(test).map(lambda x, y: (x,))
    assert sorted(flat(ids(both))) == list(range(2, 10))
    assert flat(ids(both.take(6).repeat(2))) == 2 * flat(ids(both))[:6]


class TestIndexed(SourceContract):
    def make(self) -> Any:
        return numbers(13).map(lambda x, y, rng: (x, y + rng.normal()), rng="sample").with_index()


class TestFiltered(SourceContract):
    def make(self) -> Any:
        return numbers(30).filter(lambda x, y: x % 3 != 1)


def test_row_numbers_are_those_of_include_indices() -> None:
    data, rows = [A * 10], [7, 2, 5]
    for sampler in (None, bu.WeightedSampler(A + 1, num_samples=8), bu.SubsetSampler(rows)):
        expected = bu.ArrayDataSource(data, sampler=sampler, include_indices=True).batch_iterator(4, shuffle=2)
        got = bu.ArrayDataSource(data, sampler=sampler).with_index().batch_iterator(4, shuffle=2)
        assert_same_batches(list(got), list(expected))
    assert ids(bu.ArrayDataSource(data).with_index().subset(rows)) == [rows]
    assert ids(bu.ArrayDataSource(data).subset(rows).with_index()) == [[0, 1, 2]]


def test_row_numbers_of_sources_that_are_made_of_others() -> None:
    pair = bu.CompositeDataSource([numbers(4), bu.ArrayDataSource([A])])
    for i, j, x, _, a in pair.with_index().batch_iterator(3, shuffle=5):
        assert (i == x).all()
        assert (j == a).all()
    choice = bu.ChoiceDataSource([numbers(4), numbers(6).map(lambda x, y: (x + 100, y))])
    for which, row, x, _ in choice.with_index().batch_iterator(2, shuffle=5):
        assert (x == row + 100 * which).all()
    with raises(bu.ArgumentTypeError):
        stream_of(3).with_index()


class Counting:
    """An accessor that knows how often it was read."""

    def __init__(self, n: int) -> None:
        self.reads, self.values = 0, np.arange(n)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> Any:
        self.reads += 1
        return self.values[rows]


def test_filter_keeps_what_the_predicate_says_in_every_order() -> None:
    source = numbers(600).filter(lambda x, y: y % 7 == 2)
    expected = [x for x in range(600) if x * x % 7 == 2]
    assert flat(ids(source)) == expected
    assert sorted(flat(ids(source, shuffle=9))) == expected
    assert len(source) == len(expected)
    assert flat(ids(numbers().filter(lambda x, y: False))) == []


def test_filter_reads_only_the_columns_that_are_named() -> None:
    large, small = Counting(600), Counting(600)
    by_name = bu.ArrayDataSource({"image": large, "label": small})
    for source, columns in ((bu.ArrayDataSource([large, small]), 1), (by_name, ["label"]), (by_name, "label")):
        for view in (source, source.subset(np.arange(599, -1, -1))):
            large.reads = small.reads = 0
            kept = view.filter(lambda label: label < 3, on=columns)
            assert (large.reads, small.reads) == (0, 3)
            assert len(kept) == 3
    mapped = numbers().map(lambda x, y: (x, y, x + y))
    assert flat(ids(mapped.filter(lambda total, x: total == x + 16, on=[2, 0]))) == [4]
    assert small.reads == 3


def test_filter_of_random_maps_is_the_same_each_time() -> None:
    def noisy(x: Any, y: Any, rng: Any) -> Any:
        return x, rng.uniform(), np.random.uniform(size=len(x))

    source = numbers(100).map(noisy, rng="sample")
    before = np.random.get_state()[1].tolist()  # type: ignore[union-attr]
    views = [source.filter(lambda x, u, g: u + g < 1) for _ in range(2)]
    assert np.random.get_state()[1].tolist() == before  # type: ignore[union-attr]
    one, two = (flat(ids(view)) for view in views)
    assert one == two
    assert 20 < len(one) < 80


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: stream_of(5).filter(bool), TypeError),
        (lambda: bu.ChoiceDataSource([numbers()]).filter(bool), TypeError),
        (lambda: numbers().repeat().filter(bool), ValueError),
        (lambda: numbers().filter("x > 3"), TypeError),
        (lambda: numbers().filter(lambda x, y: None), TypeError),
        (lambda: numbers().filter(lambda x, y: np.array([True])), TypeError),
        (lambda: numbers().filter(lambda x: True, on=2), ValueError),
        (lambda: numbers().map(lambda x, y: (x, y)).filter(bool, on=[-3]), ValueError),
        (lambda: bu.ArrayDataSource({"x": A}).filter(bool, on="y"), ValueError),
        (lambda: numbers().map(lambda x, y: (x[:3],), resizes=True).filter(bool), ValueError),
    ],
)
def test_filter_says_what_it_cannot_do(make: Any, error: type[Exception]) -> None:
    with raises(error):
        make()


def test_filter_takes_tensors() -> None:
    torch = pytest.importorskip("torch", reason="its tensors are what is compared")
    pairs = [(torch.full((2,), i), torch.tensor(i)) for i in range(6)]
    source = bu.ArrayDataSource([bu.MapStyle(pairs)]).filter(lambda x, y: y > 3, on=[0, 1])
    assert len(source) == 2


def test_filter_by_columns_keeps_the_repeats_of_a_subset() -> None:
    source = numbers(4).subset([3, 2, 0]).repeat(2)
    for columns in (None, [0, 1]):
        assert flat(ids(source.filter(lambda x, y: x % 2 == 0, on=columns))) == [2, 0, 2, 0]
    repeated = bu.ArrayDataSource([A], repeats=2)
    assert len(repeated.filter(lambda x: x < 2, on=[0])) == len(repeated.filter(lambda x: x < 2)) == 4


def test_a_predicate_of_chosen_columns_is_called_by_place_as_maps_are() -> None:
    source = bu.ArrayDataSource({"x": np.arange(6), "y": np.arange(6) * 2, "z": np.zeros(6)})
    for lazy in (False, True):
        for over in (source, source.map(lambda **batch: batch)):
            kept = over.filter(lambda a, b: a + b == 9, on=["y", "x"], lazy=lazy)
            assert [batch["x"].tolist() for batch in kept.batch_iterator(6)] == [[3]]
            with raises(bu.MapCallError):
                list(over.filter(lambda a, b: True, on="y", lazy=lazy).batch_iterator(6))
    with warns(DeprecationWarning):
        kept = source.filter(lambda x: x == 3, columns="x")  # type: ignore[call-arg]  # the name of earlier versions
    assert kept[:]["x"].tolist() == [3]
    with raises(bu.ArgumentTypeError):
        source.filter(bool, columns="x", on="x")  # type: ignore[call-arg]
