"""Statistics of columns: the numbers of NumPy, the same bits for any batch size and pool."""

from __future__ import annotations

import dataclasses
import math
import threading
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.errors import ArgumentTypeError
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises

NUMBERS = st.floats(allow_nan=True, allow_infinity=False)


def columns(n: int = 60) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    far = 1e8 + 1e-3 * rng.standard_normal(n)
    far[::7] = np.nan
    return {
        "far": far,
        "features": rng.standard_normal((n, 5)).astype(np.float32),
        "image": rng.integers(0, 256, (n, 4, 3, 3)).astype(np.uint8),
        "gray": rng.standard_normal((n, 4, 3)),
        "age": rng.integers(-(2**40), 2**40, n),
        "label": rng.integers(0, 4, n).astype(np.int16),
        "name": [str(each) for each in rng.integers(0, 3, n)],
    }


def bits(stats: bu.Statistics) -> str:
    return stats.as_text("")


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=0)
    assert np.shape(found) == np.shape(expected)


def test_numbers_are_those_of_numpy() -> None:
    data = columns()
    stats = bu.statistics(data)
    assert list(stats) == list(data)
    assert len(stats) == 7
    for name, axis in {"features": 0, "image": (0, 1, 2), "gray": None, "age": None, "label": None}.items():
        values, column = np.asarray(data[name], np.longdouble), stats[name]
        close(column.mean, values.mean(axis).astype(float))
        close(column.std, values.std(axis).astype(float))
        flat = values.reshape(-1, *np.shape(column.mean)).astype(float)
        close(column.min, flat.min(0))
        close(column.max, flat.max(0))
        close(column.quantile([0, 0.1, 0.5, 0.77, 1]), np.quantile(flat, [0, 0.1, 0.5, 0.77, 1], axis=0))
        close(column.quantile(0.3), np.quantile(flat, 0.3, axis=0))
        assert column.quantile_error == 0
        assert np.all(column.count == len(flat))
        assert np.all(column.missing == 0)
    assert stats["label"].classes.tolist() == [0, 1, 2, 3]
    assert stats["label"].class_counts.tolist() == np.bincount(data["label"]).tolist()
    assert stats["name"].class_counts.tolist() == [data["name"].count(each) for each in "012"]
    assert stats["name"].classes.tolist() == ["0", "1", "2"]
    assert stats["name"].mean is None
    assert stats["features"].classes is None
    assert stats["features"].quantiles[0.5].shape == (5,)


def test_data_far_from_zero_lose_no_digits_and_nan_is_counted() -> None:
    values = columns()["far"]
    stats, there = bu.statistics([values])[0], [Fraction(each) for each in values[~np.isnan(values)].tolist()]
    mean = sum(there) / len(there)
    assert stats.mean == float(mean)
    close(stats.std, math.sqrt(sum((each - mean) ** 2 for each in there) / len(there)))
    close(stats.quantile(0.2), np.nanquantile(values, 0.2))
    assert (stats.count, stats.missing) == (51, 9)


@given(st.lists(NUMBERS, max_size=30), st.integers(1, 7))
def test_any_floats_have_the_rounded_exact_mean(numbers: list[float], batch_size: int) -> None:
    there = [each for each in numbers if not math.isnan(each)]
    if not numbers:
        return
    column = bu.statistics([np.array(numbers)], batch_size=batch_size)[0]
    assert column.count == len(there)
    if not there:
        assert math.isnan(column.mean)
        assert math.isnan(column.std)
        assert math.isnan(column.min)
        assert math.isnan(column.quantile(0.5))
        return
    exact = [Fraction(each) for each in there]
    mean = sum(exact) / len(exact)
    assert column.mean == float(mean)
    assert (column.min, column.max) == (min(there), max(there))
    variance = sum((each - mean) ** 2 for each in exact) / len(exact)
    if variance:
        assert abs(Fraction(column.std) ** 2 / variance - 1) < 1e-12 or column.std < 1e-307
    else:
        assert column.std == 0


def test_quantiles_of_numbers_whose_difference_overflows() -> None:
    most, q = 1.7e308, [0, 0.125, 0.25, 0.5, 0.75, 1]
    close(bu.statistics([np.array([-most, most])])[0].quantile(q), [(2 * each - 1) * most for each in q])
    assert bu.statistics([np.array([-np.inf, most])])[0].quantile(1) == most


def test_samples_that_depend_on_the_batch_size_are_refused() -> None:
    def numbers(n: int, **options: Any) -> Any:
        return bu.ArrayDataSource([np.arange(float(n))], **options)

    choice = bu.ChoiceDataSource([numbers(7), numbers(13)])
    uneven = bu.CompositeDataSource([numbers(7), numbers(13)], trim=False)
    endless = bu.ChoiceDataSource([numbers(7), numbers(3, repeats=-1)], stratified=True).take(20)
    for source in (choice, choice.take(9), choice.map(lambda x: x), uneven, endless):
        with raises(bu.ArgumentError):
            bu.statistics(source)
    for source in (
        bu.concat(numbers(7), numbers(13)), bu.ChoiceDataSource([numbers(7), numbers(13)], stratified=True),
        bu.ChoiceDataSource([numbers(7), numbers(7)]), bu.CompositeDataSource([numbers(7), numbers(13)]),
        bu.CompositeDataSource([numbers(7), numbers(7)], trim=False),
        bu.CompositeDataSource([numbers(7), numbers(13)], batch_size=[1, 2]),
    ):  # fmt: skip
        assert len({str(bu.statistics(source, batch_size=size)) for size in (1, 2, 3, 7, 256)}) == 1


def test_infinite_numbers() -> None:
    high, both = bu.statistics({"high": np.array([1.0, np.inf]), "both": np.array([-np.inf, np.inf])}).values()
    assert high.mean == np.inf == high.max
    assert high.min == 1
    assert math.isnan(high.std)
    assert math.isnan(both.mean)
    assert both.min == -np.inf


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.int64, np.uint64, np.float16])
def test_dtypes(dtype: Any) -> None:
    values = np.array([0, 1] if dtype is bool else [3, 100, 7], dtype)
    if dtype in (np.int64, np.uint64):
        values = np.array([3, 100, 7, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    column = bu.statistics([values])[0]
    exact = [Fraction(each) for each in values.tolist()]
    mean = sum(exact) / len(exact)
    assert column.mean == float(mean)
    assert (column.min, column.max) == (min(values.tolist()), max(values.tolist()))
    close(column.std, float(sum((each - mean) ** 2 for each in exact) / len(exact)) ** 0.5)
    assert column.dtype == ("float64" if dtype is np.float16 else np.dtype(dtype).name)


def test_batch_size_and_pool_change_no_bit(pools: list[Any]) -> None:
    source = bu.ArrayDataSource(columns())
    expected = bits(bu.statistics(source))
    for batch_size in (1, 7, 60, 100):
        assert bits(bu.statistics(source, batch_size=batch_size)) == expected
    for pool in pools:
        assert bits(bu.statistics(source, pool=pool, batch_size=13)) == expected


@pytest.mark.in_turn
@pytest.mark.parametrize("kind", ["serial", "threads", "processes"])
def test_the_workers_of_loaders_count(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "2")
    source = bu.ArrayDataSource(columns())
    expected = bits(bu.statistics(source))
    before = threading.active_count()
    with bu.Loader(source, 7, pool=kind) as loader:
        assert bits(bu.statistics(source, pool=loader, batch_size=13)) == expected
        with_one = threading.active_count()
        assert bits(bu.statistics(source, pool=kind, batch_size=13)) == expected
        assert threading.active_count() == with_one
        assert len(list(loader)) == 9
    assert bits(bu.statistics(source, pool=kind)) == expected
    assert threading.active_count() == before


def test_tuples_have_places_or_the_names_of_their_source(pools: list[Any]) -> None:
    data = columns()
    by_name, source = bu.statistics(data), bu.ArrayDataSource([data["image"], data["label"]])
    by_place = bu.statistics(source, [1, 0], pool=pools[0])
    assert list(by_place) == [1, 0]
    close(by_place[0].mean, by_name["image"].mean)
    assert by_place[1].class_counts.tolist() == by_name["label"].class_counts.tolist()
    for pool in [None, *pools]:
        stream = bu.IteratorDataSource(source.batch_iterator(11))
        assert bits(bu.statistics(stream, [1, 0], pool=pool)) == bits(by_place)


class Refusing:
    """A column that must not be read."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, rows: Any) -> Any:
        raise AssertionError("read")


def test_other_columns_are_not_read() -> None:
    data = columns()
    source = bu.ArrayDataSource({**data, "refusing": Refusing()})
    assert bits(bu.statistics(source, "far")) == bits(bu.statistics(data, "far"))


def test_samples_of_different_sizes() -> None:
    rng = np.random.default_rng(1)
    images = [rng.integers(0, 256, (h, 9 - h, 3)).astype(np.uint8) for h in range(1, 9)]
    tokens = [np.arange(k) for k in (3, 0, 2, 1, 4, 4, 1, 1)]
    pixels = np.concatenate([each.reshape(-1, 3) for each in images]).astype(float)
    for batch_size in (1, 3, 8):
        stats = bu.statistics({"image": bu.MapStyle(images), "tokens": tokens}, batch_size=batch_size)
        close(stats["image"].std, pixels.std(0))
        close(stats["image"].quantile(0.4), np.quantile(pixels, 0.4, axis=0))
        assert stats["tokens"].axis == "all"
        assert stats["tokens"].count == 16
        assert stats["tokens"].max == 3


def test_axis() -> None:
    gray = columns()["gray"]
    for axis, over in {"all": None, "channels": (0, 1), "elements": 0}.items():
        close(bu.statistics([gray], axis=axis)[0].mean, gray.mean(over))


def test_progress_counts_batches() -> None:
    asked = []

    def progress(iterator: Any, total: Any, leave: bool) -> Any:
        asked.append((total, leave))
        return iterator

    bu.statistics([np.arange(10)], batch_size=3, progress=progress)
    assert asked == [(4, False)]


def test_the_table() -> None:
    text = repr(bu.statistics(columns()))
    assert [line.split()[0] for line in text.split("\n")] == ["column", *columns()]
    assert repr(bu.statistics(columns())["age"]).count("\n") == 1


def test_what_has_no_statistics_is_refused() -> None:
    data = columns()
    with raises(bu.ArgumentError):
        bu.statistics(data, "no")
    with raises(bu.ArgumentError):
        bu.statistics(bu.ArrayDataSource(data).repeat())
    with raises(bu.ArgumentError):
        bu.statistics([np.zeros(3, complex)])
    with raises(bu.ArgumentError):
        bu.statistics(data, axis="rows")
    with raises(bu.ArgumentTypeError):
        bu.statistics(data, pool=3)
    with bu.Loader(data, 2, pool="serial") as loader, raises(bu.ArgumentTypeError):
        bu.statistics(loader)
    with raises(bu.ArgumentError):
        bu.statistics(data, pool="auto")
    with raises(bu.ArgumentError):
        bu.statistics(bu.ArrayDataSource(data).sample(balanced="label"))
    with raises(bu.ArgumentTypeError):
        bu.statistics(data, on="age")  # type: ignore[call-arg]
    with raises(bu.ArgumentTypeError):
        bu.statistics(data)["name"].quantile(0.5)
    with raises(bu.ArgumentError):
        bu.statistics(data)["age"].quantile(1.5)
    with raises(KeyError):
        bu.statistics(data)["no"]
    assert list(bu.statistics({**data, "c": np.zeros(60, complex)})) == list(data), "other columns are left out"


def test_columns_that_change_their_kind_are_refused() -> None:
    def shape(first: Any, second: Any) -> bu.IteratorDataSource:
        return bu.IteratorDataSource(iter([(first,), (second,)]))

    with raises(bu.ArgumentError):
        bu.statistics(shape(np.zeros(2), np.zeros(2, int)))
    with raises(bu.ArgumentError):
        bu.statistics(shape(np.zeros((2, 3)), np.zeros((2, 4))))
    with raises(bu.ArgumentError):
        bu.statistics(shape(["a"], np.zeros(1)))


# -- Python objects --------------------------------------------------------------------------------------------------


def objects() -> dict[str, list[Any]]:
    """Return columns whose samples are of several kinds, most of them rare."""
    return {
        "texts": ["p"] * 200 + [np.nan] * 3 + ["q"] * 7 + [None] * 100,
        "floats": [1.0] * 300 + [None] * 10,
        "whole": [None, 3, 4, True] * 77 + [float("nan"), 2**40],
        "mixed": [1, 2.5, np.float32(0.5), np.int16(7), False] * 61 + [None, 2**63, 2**53 + 1, -1, np.nan],
        "large": [2**63, 1, 2**64 - 1, None, 0] * 62,
        "lists": [[1, 2], [0.5], [], [3, 4, 5], None] * 62,
        "none": [None] * 310,
        "nan": [None] * 309 + [np.nan],
        "left out": [None, {"a": 1}] * 155,
    }


class Listed:
    """A column whose batches are lists."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, rows: Any) -> list[Any]:
        return [self.items[row] for row in np.arange(len(self.items))[rows].tolist()]


def as_objects(column: list[Any]) -> np.ndarray:
    made = np.empty(len(column), object)
    made[:] = column
    return made


def columns_of(form: Any) -> bu.ArrayDataSource:
    return bu.ArrayDataSource({name: form(column) for name, column in objects().items()})


@pytest.mark.in_turn
def test_objects_count_alike_in_batches_of_any_size(pools: list[Any]) -> None:
    data = objects()
    expected = bu.statistics(columns_of(Listed), batch_size=1000)
    assert list(expected) == list(data)[:-1], "what can be counted in no batch is left out"
    text = bits(expected)
    placed = bu.ArrayDataSource([Listed(column) for column in data.values()])
    for batch_size in (1, 7, 100, 1000):
        assert bits(bu.statistics(columns_of(as_objects), batch_size=batch_size)) == text
        by_place = bu.statistics(placed, batch_size=batch_size)
        assert [each.name for each in by_place.values()] == list(range(len(expected)))
        named = {name: dataclasses.replace(by_place[place], name=name) for place, name in enumerate(expected)}
        assert bits(bu.Statistics(named)) == text
    for form in (Listed, as_objects):
        assert bits(bu.statistics(columns_of(form), pool=pools[0], batch_size=7)) == text


def test_objects_that_are_missing_are_counted() -> None:
    stats = bu.statistics(columns_of(Listed))
    counts = {name: (column.dtype, column.count, column.missing) for name, column in stats.items()}
    assert counts == {
        "texts": ("str", 207, 103), "floats": ("float64", 300, 10), "whole": ("int64", 232, 78),
        "mixed": ("float64", 308, 2), "large": ("uint64", 248, 62), "lists": ("float64", 372, 62),
        "none": ("str", 0, 310), "nan": ("float64", 0, 310),
    }  # fmt: skip
    assert dict(zip(stats["texts"].classes, stats["texts"].class_counts, strict=True)) == {"p": 200, "q": 7}
    assert stats["whole"].classes.tolist() == [1, 3, 4, 2**40]
    exact = [Fraction(x.item() if isinstance(x, np.generic) else x) for x in objects()["mixed"] if x and x == x]
    assert stats["mixed"].mean == float(sum(exact) / 308)
    assert (stats["mixed"].min, stats["mixed"].max) == (-1, 2.0**63)
    assert stats["large"].max == 2**64 - 1
    vectors = bu.statistics([Listed([np.zeros(2), None, np.ones(2)])], axis="elements", batch_size=1)[0]
    assert vectors.missing.tolist() == [1, 1]


@pytest.mark.parametrize("batch_size", [1, 7, 100, 1000])
@pytest.mark.parametrize("form", [Listed, as_objects])
def test_objects_that_have_no_statistics_are_refused_among_others(form: Any, batch_size: int) -> None:
    for column in (["p"] * 101 + [{"a": 1}], [None] * 9 + [b"x"] + [2] * 100, [1.0] * 100 + [2**70]):
        source = bu.ArrayDataSource({"a": form(column), "b": np.arange(len(column))})
        with raises(bu.ArgumentError):
            bu.statistics(source, batch_size=batch_size)
        with raises(bu.ArgumentTypeError):
            bu.statistics(source, "a", batch_size=batch_size)
        assert bu.statistics(source, "b", batch_size=batch_size)["b"].count == len(column)
    with raises(bu.ArgumentError):
        bu.statistics({"a": form(["p"] * 101 + [3])}, batch_size=batch_size)
    with raises(bu.ArgumentError):
        bu.statistics({"a": form([np.zeros((2, 2))] * 9 + [np.zeros((2, 2, 3))])}, batch_size=batch_size)


def test_tensors_of_a_dtype_that_numpy_lacks_are_refused_with_a_remedy(pools: list[AbstractWorkerPool]) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.arange(6).reshape(3, 2)
    source = bu.ArrayDataSource({"x": x.to(torch.bfloat16), "y": np.arange(3)})
    for pool in (None, pools[0]):
        with raises(ArgumentTypeError):
            bu.statistics(source, "x", pool=pool)
        assert [*bu.statistics(source, pool=pool)] == ["y"]  # columns that nobody names are left out
    assert bu.statistics(source.map(lambda x: x.float(), on="x"), "x")["x"].mean.tolist() == [2, 3]
