"""Columns are chosen by name or place: for maps, and to leave out, rename or add some."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.errors import ArgumentError, ArgumentTypeError, MapCallError, MapResultError
from batchup_ng.testing.sources import SourceContract
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises

N = 23
DATA = {
    "age": np.arange(N) * 1.5,
    "image": np.arange(N * 12, dtype=np.uint8).reshape(N, 2, 2, 3),
    "label": np.arange(N) % 4,
}


def named() -> Any:
    return bu.ArrayDataSource(DATA)


def placed() -> Any:
    return bu.ArrayDataSource(list(DATA.values()))


def opaque(source: Any) -> Any:
    """Return the source after a map whose columns are not known before a batch is made."""
    return source.map(lambda *batch, **parts: parts or batch)


def one_batch(source: Any) -> Any:
    return next(source.batch_iterator(N, shuffle=3))


def assert_batch(batch: Any, expected: Any) -> None:
    """Check a batch of all rows in the order of ``shuffle=3`` against columns of all rows in order."""
    rows = next(bu.ArrayDataSource([np.arange(N)]).batch_iterator(N, shuffle=3))[0]
    assert type(batch) is type(expected)
    if isinstance(expected, dict):
        assert list(batch) == list(expected)
    pairs = (
        zip(batch.values(), expected.values(), strict=True)
        if isinstance(batch, dict)
        else zip(batch, expected, strict=True)
    )
    for column, of_all in pairs:
        assert column.dtype == of_all.dtype
        np.testing.assert_array_equal(column, of_all[rows])


class TestChosen(SourceContract):
    def make(self) -> Any:
        source = named().map(lambda age, rng: age + rng.normal(size=()), on="age", rng="sample")
        source = source.map(augment.flip(), on=["image"], out="view", rng="sample").rename({"label": "y"})
        return source.drop("image").with_column("row", np.arange(N)).select("row", "view", "y", "age")


@given(
    keys=st.lists(st.sampled_from(list(DATA)), min_size=1, unique=True),
    by_place=st.booleans(),
    hidden=st.booleans(),
    data=st.data(),
)
def test_a_map_of_columns_leaves_the_others_as_they_are(
    keys: list[str], by_place: bool, hidden: bool, data: Any
) -> None:
    names: list[Any] = list(DATA)
    on: Any = [names.index(key) - data.draw(st.sampled_from([0, len(names)])) for key in keys] if by_place else keys
    source = placed() if by_place else named()
    source = opaque(source) if hidden else source
    doubled = [(DATA[key] * 2).astype(DATA[key].dtype) for key in keys]

    def double(*columns: Any) -> Any:
        assert len(columns) == len(keys)
        return tuple([(column * 2).astype(column.dtype) for column in columns])

    if data.draw(st.booleans()):  # new columns
        out: Any = [len(names) + i if by_place else f"new {i}" for i in range(len(keys))]
        expected = {**DATA, **{f"new {i}": column for i, column in enumerate(doubled)}}
    else:
        out, expected = None, {**DATA, **dict(zip(keys, doubled, strict=True))}
    mapped = source.map(double, on=on[0] if len(on) == 1 else on, out=out)
    assert_batch(one_batch(mapped), tuple(expected.values()) if by_place else expected)


def test_a_single_column_is_returned_as_it_is_in_a_tuple_or_by_name() -> None:
    expected = {**DATA, "age": DATA["age"] + 1}
    for fn in (lambda age: age + 1, lambda age: (age + 1,), lambda age: [age + 1][0], lambda age: {"age": age + 1}):
        assert_batch(one_batch(named().map(fn, on="age")), expected)
    several = named().map(lambda age, label: {"label": label, "age": age + 1}, on=["age", "label"])
    assert_batch(one_batch(several), expected)
    listed = named().map(lambda age: list(age.tolist()), on="age")  # a list is a column
    assert one_batch(listed)["age"] == one_batch(named())["age"].tolist()
    assert_batch(one_batch(placed().map(lambda x: x + 1, on=0)), tuple(expected.values()))


def test_results_replace_some_columns_and_become_others() -> None:
    mapped = named().map(lambda age, label: (label, age), on=["age", "label"], out=["age", "old"])
    assert_batch(one_batch(mapped), {**DATA, "age": DATA["label"], "old": DATA["age"]})
    mapped = placed().map(lambda age: (age, age), on=0, out=[3, 2])
    assert_batch(one_batch(mapped), (DATA["age"], DATA["image"], DATA["age"], DATA["age"]))
    assert_batch(
        one_batch(named().map(lambda age: age.astype(int), on="age", out="label")),
        {**DATA, "label": DATA["age"].astype(int)},
    )


def test_samples_are_mapped_by_columns_too() -> None:
    source = named().map_samples(
        lambda age, label: (age + label, age * label), on=["age", "label"], out=["sum", "product"]
    )
    expected = {**DATA, "sum": DATA["age"] + DATA["label"], "product": DATA["age"] * DATA["label"]}
    assert_batch(one_batch(source), expected)
    drawn = named().map_samples(lambda age, rng: age + rng.integers(100, 200), on="age", rng="sample")
    ages = one_batch(drawn)["age"] - one_batch(named())["age"]
    assert ((ages >= 100) & (ages < 200)).all()
    assert len(set(ages.tolist())) > 5
    words = named().map_samples(lambda label: "abcd"[: int(label)], on="label")
    assert one_batch(words)["label"] == ["abcd"[:label] for label in one_batch(named())["label"].tolist()]


@pytest.mark.parametrize("n", [300, 60_000])  # below and above the size from which results share memory
def test_an_operation_of_one_column_never_changes_another(n: int, pools: list[AbstractWorkerPool]) -> None:
    """`image` stays in the batch beside what is made of it, so nothing may be written in place."""
    images = np.random.default_rng(0).integers(0, 255, (8, n // 3, 1, 3), np.uint8)
    source = bu.ArrayDataSource({"image": images})
    always = augment.flip(p=1.0, vertical=True)
    both = source.map(always, on="image", out="view", rng="sample").map(always, on="image", out="again", rng="sample")
    for batch in both.batch_iterator(4):
        np.testing.assert_array_equal(batch["view"], batch["image"][:, ::-1])
        np.testing.assert_array_equal(batch["again"], batch["view"])
    twice = source.map(always, on="image", rng="sample").map(always, on="image", rng="sample")
    np.testing.assert_array_equal(np.concatenate([batch["image"] for batch in twice.batch_iterator(3)]), images)
    bu.testing.assert_reproducible(both, 3, pools=("serial",))
    for pool in pools:
        assert_same(list(pool.parallel_data_source(both).batch_iterator(3)), list(both.batch_iterator(3)))


def test_columns_are_mapped_alike_in_every_pool(pools: list[AbstractWorkerPool]) -> None:
    before = named().map(lambda age, rng: age * rng.random(), on="age", rng="sample").rename({"label": "y"})
    last = before.map_samples(lambda age, y: age + y, on=["age", "y"], out="sum").drop("image").with_column(
        "root", lambda sum: np.sqrt(sum)
    )  # fmt: skip
    expected = list(last.batch_iterator(5, shuffle=2))
    for pool in (bu.SerialPool(), *pools):
        assert_same(list(pool.parallel_data_source(last).batch_iterator(5, shuffle=2)), expected)
        behind = pool.parallel_data_source(before).map_samples(lambda age, y: age + y, on=["age", "y"], out="sum")
        behind = behind.drop("image").with_column("root", lambda sum: np.sqrt(sum))
        assert_same(list(behind.batch_iterator(5, shuffle=2)), expected)
        assert behind.columns.keys() == {"age", "y", "sum", "root"}


def assert_same(batches: list[Any], expected: list[Any]) -> None:
    assert len(batches) == len(expected)
    for batch, other in zip(batches, expected, strict=True):
        assert list(batch) == list(other)
        for name in other:
            np.testing.assert_array_equal(np.asarray(batch[name]), np.asarray(other[name]))


@pytest.mark.parametrize("hidden", [False, True])
@given(data=st.data())
def test_columns_are_selected_dropped_and_renamed(hidden: bool, data: Any) -> None:
    names = list(DATA)
    some = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    source, by_place = (opaque(named()), opaque(placed())) if hidden else (named(), placed())
    source = data.draw(
        st.sampled_from([source, source.subset(np.arange(N)), source.concat(source).subset(np.arange(N))])
    )
    places = [names.index(name) for name in some]
    assert_batch(one_batch(source.select(*some)), {name: DATA[name] for name in some})
    assert_batch(one_batch(by_place.select(*places)), tuple([DATA[name] for name in some]))
    kept = [name for name in names if name not in some]
    if kept:
        assert_batch(one_batch(source.drop(*some)), {name: DATA[name] for name in kept})
        assert_batch(one_batch(by_place.drop(*places)), tuple([DATA[name] for name in kept]))
    new = {name: f"new {name}" for name in some}
    renamed = {new.get(name, name): column for name, column in DATA.items()}
    assert_batch(one_batch(source.rename(new)), renamed)
    assert_batch(one_batch(by_place.rename(dict(enumerate(renamed)))), renamed)
    again = source.rename(new).select(*reversed(new.values()))
    assert_batch(one_batch(again), {new[name]: DATA[name] for name in reversed(some)})


class Counted:
    """An accessor that counts the rows that are read."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.read = values, 0

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> Any:
        self.read += np.size(rows)
        return self.values[rows]


@pytest.mark.parametrize("way", [
    lambda source: source.select("y"), lambda source: source.drop("x"),
    lambda source: source.subset([3, 1, 2]).select("y"),
    lambda source: source.concat(source).drop("x"), lambda source: source.rename({"x": "z"}).drop("z"),
    lambda source: source.zip(bu.ArrayDataSource({"w": np.arange(9)})).select("y", "w"),
    lambda source: source.map(lambda x: x, on="x").select("y"),
    lambda source: source.with_column("w", np.arange(9)).drop("x"),
    lambda source: source.split([0.5, 0.5], 1)[0].select("y"),
])  # fmt: skip
def test_columns_that_are_left_out_are_not_read(way: Any) -> None:
    slow = Counted(np.arange(9))
    chosen = way(bu.ArrayDataSource({"x": slow, "y": np.arange(9) * 10}))
    got = np.concatenate([batch["y"] for batch in chosen.batch_iterator(4, shuffle=5)])
    assert set(got.tolist()) <= set(range(0, 90, 10))
    assert slow.read == 0
    assert "x" not in chosen.columns


def test_a_random_crop_does_not_change_with_the_columns_beside_it(tmp_path: Any) -> None:
    from PIL import Image

    rng = np.random.default_rng(1)
    for i in range(6):
        Image.fromarray(rng.integers(0, 255, (20, 30, 3), np.uint8)).save(tmp_path / f"{i}.png")
    pictures = bu.ImageFiles([tmp_path / f"{i}.png" for i in range(6)], 8, crop="random")
    source = bu.ArrayDataSource({"label": np.arange(6), "image": pictures})
    of_two = next(source.map(lambda **batch: batch).select("image").map(lambda **b: b).batch_iterator(6, shuffle=1))
    of_one = next(
        source.select("image").map(lambda **b: b).map(lambda **b: b).map(lambda **b: b).batch_iterator(6, shuffle=1)
    )
    np.testing.assert_array_equal(of_two["image"], of_one["image"])


def test_a_column_is_added_from_an_array_or_a_function() -> None:
    extra = np.arange(N) ** 2
    assert_batch(one_batch(named().with_column("extra", extra)), {**DATA, "extra": extra})
    assert_batch(one_batch(named().with_column("age", extra)), {**DATA, "age": extra})
    assert_batch(one_batch(placed().with_column(3, extra)), (*DATA.values(), extra))
    assert_batch(
        one_batch(named().with_column("sum", lambda label, age: age + label)),
        {**DATA, "sum": DATA["age"] + DATA["label"]},
    )
    assert_batch(one_batch(named().with_column("age", lambda age: age + 1)), {**DATA, "age": DATA["age"] + 1})
    assert_batch(
        one_batch(named().with_column("most", np.maximum, on=["age", "label"])),
        {**DATA, "most": np.maximum(DATA["age"], DATA["label"])},
    )
    half = named().subset(np.arange(N)[::-1]).with_column("place", np.arange(N))
    assert_batch(one_batch(half), {**{name: column[::-1] for name, column in DATA.items()}, "place": np.arange(N)})


def test_two_names_of_one_column_are_refused() -> None:
    for source in (placed(), opaque(placed())):
        for options in ({"on": [0, -3]}, {"on": [0, 1], "out": [1, -2]}):
            with raises(ArgumentError):
                next(source.map(lambda a, b: (a, b), **options).batch_iterator(3))
        with raises(ArgumentError):
            next(source.select(0, 1, -3).batch_iterator(3))


def test_an_array_is_added_to_batches_whose_form_shows_late() -> None:
    extra = np.arange(N) ** 2
    assert_batch(one_batch(opaque(named()).with_column("extra", extra)), {**DATA, "extra": extra})
    assert_batch(one_batch(opaque(placed()).with_column(3, extra)), (*DATA.values(), extra))
    for source, name in ((named(), 3), (placed(), "extra"), (placed(), 4), (placed(), -1)):
        for on_error in ("raise", "skip"):  # it is no fault of a sample
            with raises(MapResultError):
                next(bu.Loader(opaque(source).with_column(name, extra), 3, pool="serial", on_error=on_error).epochs(1))


@pytest.mark.parametrize("known", [True, False])
def test_an_array_replaces_a_column(known: bool) -> None:
    """Also the only one, and one that only the batches show."""
    extra = np.arange(N) ** 2

    def made(source: Any, name: Any) -> Any:
        return one_batch((source if known else opaque(source)).with_column(name, extra))

    for name in DATA:
        assert_batch(made(named(), name), {**DATA, name: extra})
    for place in range(3):
        expected = [*DATA.values()]
        expected[place] = extra
        assert_batch(made(placed(), place), tuple(expected))
    assert_batch(made(named().select("age"), "age"), {"age": extra})
    assert_batch(made(placed().select(0), 0), (extra,))
    half = named().subset(np.arange(N)[::-2]).select("age")
    new = np.arange(len(half))
    for batch in (half if known else opaque(half)).with_column("age", new).batch_iterator(3, shuffle=5):
        rows = batch["age"]
        assert set(rows) <= set(new)
        assert list(batch) == ["age"]


def test_two_columns_of_one_name_are_no_fault_of_a_sample() -> None:
    loader = bu.Loader(opaque(named()).rename({"age": "label"}), 3, pool="serial", on_error="skip")
    with loader, raises(MapResultError):
        list(loader)


def test_columns_tell_dtype_and_shape_of_any_source() -> None:
    def told(source: Any) -> Any:
        found = source.columns
        parts = found.items() if isinstance(found, dict) else enumerate(found)
        return {name: (str(column.dtype), tuple(column.shape)) for name, column in parts}

    expected = {"age": ("float64", (N,)), "image": ("uint8", (N, 2, 2, 3)), "label": ("int64", (N,))}
    for source in (
        named(),
        opaque(named()),
        named().subset(np.arange(N)),
        bu.SerialPool().parallel_data_source(named()),
    ):
        assert told(source) == expected
    assert told(placed()) == dict(enumerate(expected.values()))
    assert told(named().subset([1, 2]).map(lambda image: image / 2, on="image"))["image"] == ("float64", (2, 2, 2, 3))
    ragged = named().map_samples(lambda label: np.zeros((label + 1, 2), np.float32), on="label").columns["label"]
    assert (ragged.dtype, ragged.shape) == (np.float32, (N, None, 2))
    words = named().map_samples(lambda label: "abc", on="label").columns["label"]
    assert (words.dtype.kind, words.shape) == ("U", (N,))


def takes_age(age: Any) -> Any:
    return (age,)


def takes_two(a: Any, b: Any) -> Any:
    return a, b


def takes_rng(age: Any, rng: Any) -> Any:
    return age + rng.normal()


def test_a_map_that_refuses_the_columns_says_which_to_pass(pools: list[AbstractWorkerPool]) -> None:
    cases: dict[str, Any] = {
        "map takes_age takes (age), the batch has age, image, label: pass on='age'": named().map(takes_age),
        "map takes_age takes (age), the batch has 3 columns: pass on= with the places of the": placed().map(takes_age),
        "map takes_two takes (a, b), the batch has age, image, label: pass on= with the names": named().map(takes_two),
        "takes (a, b), and on=[0, 1] passes it 2 columns; the batch has 3 columns; it is also called with rng=":
            placed().map(takes_two, on=[0, 1], rng="sample"),
        "map takes_age takes (age), and on=['age', 'label'] passes it 2 columns; the batch has the columns age, image, "
        "label: pass on= with as many columns as it takes": named().map(takes_age, on=["age", "label"]),
        "map takes_two takes (a, b), and on='age' passes it 1 column; the batch has the columns age, image, label":
            named().map(takes_two, on="age"),
        "map takes_two takes (a, b), and on=-1 passes it 1 column; the batch has 3 columns: pass on= with as many":
            placed().map_samples(takes_two, on=-1),
        "predicate takes_two takes (a, b), and on='label' passes it 1 column; the batch has the columns age, image":
            named().filter(takes_two, on="label", lazy=True),
        "map takes_two takes (a, b), and on='image' passes it 1 column; the batch has the columns age, image, label":
            named().views(takes_two, lambda x: x, on="image"),
        "pass on=['age', 'label']": named().map(lambda age, label, scale=1: (age, label)),
        "map_samples": named().map_samples(takes_age),
        "map takes_rng takes (age, rng), the batch has age, image, label: pass on='age' and rng=\"sample\", or "
        "rng=\"batch\" to draw for the whole batch": named().map(takes_rng),
        "takes (age, rng), the batch has age, image, label: pass on='age' and rng=\"sample\"":
            named().map_samples(takes_rng),
        "so rename that column": named().rename({"age": "rng"}).map(lambda **b: b, rng="sample"),
    }  # fmt: skip
    actions = ("raise", "skip", "replace")
    for case, (message, source) in enumerate(cases.items()):
        for way, pool in enumerate((None, bu.SerialPool(), *pools)):
            over = source if pool is None else pool.parallel_data_source(source)
            for action in actions if pool is None else [actions[(case + way) % 3]]:  # each pool has all of them
                with raises(MapCallError) as raised:
                    list(over.batch_iterator(4, on_error=action))
                assert message in str(raised.value) or message == "map_samples"
                assert "row " not in str(raised.value)


def noisy(x: Any, rng: Any) -> Any:
    return x + rng.normal()


@pytest.mark.parametrize("tuples", [False, True])
def test_a_map_that_lacks_random_numbers_gets_the_option_for_them(
    tuples: bool, pools: list[AbstractWorkerPool]
) -> None:
    one = bu.ArrayDataSource([np.arange(N)] if tuples else {"x": np.arange(N)})
    two = one.zip(bu.ArrayDataSource([DATA["label"]] if tuples else {"label": DATA["label"]}))
    key: Any = 0 if tuples else "x"
    for source in (one.map(noisy), two.map(noisy, on=key), one.map_samples(noisy), two.map_samples(noisy, on=key)):
        for over in (source, pools[0].parallel_data_source(source)):
            with raises(MapCallError) as raised:
                next(over.batch_iterator(4))
            assert ("for the whole batch" in str(raised.value)) == ("Sample" not in source.node.name)
    for rng in ("sample", "batch"):
        assert len(list(two.map(noisy, on=key, rng=rng).batch_iterator(N))) == 1
    with raises(MapCallError):  # a predicate has no rng=
        one.filter(noisy)


def test_a_type_error_inside_a_map_is_its_own() -> None:
    def adds(age: Any, **rest: Any) -> Any:
        return takes_age(age, rest)  # type: ignore[call-arg]

    with raises(TypeError) as raised:
        next(named().map(adds).batch_iterator(3))
    assert not isinstance(raised.value, MapCallError)


@pytest.mark.parametrize("results", [
    lambda age: (age, age), lambda age: {"other": age}, lambda age: None, lambda age: 3.0, lambda age: np.float64(1),
    lambda age: age[:1], lambda age: iter(age), lambda age: (age for _ in range(1)),
])  # fmt: skip
def test_results_that_are_not_the_column_are_refused(results: Any, pools: list[AbstractWorkerPool]) -> None:
    source = named().map(results, on="age")
    for over in (source, pools[0].parallel_data_source(source)):
        with raises(MapResultError):
            next(over.batch_iterator(4))


def test_a_map_of_a_column_that_is_a_dict_returns_it_in_a_tuple(pools: list[AbstractWorkerPool]) -> None:
    inner = bu.MapStyle([{"q": row, "z": 2} for row in range(N)])
    for data, key in (({"c": inner, "label": DATA["label"]}, "c"), ([DATA["label"], inner], 1)):
        source: Any = bu.ArrayDataSource(data)
        if key == 1:
            source = source.map(lambda label, c: (label, c))
        with raises(MapResultError):
            next(source.map(lambda c: c, on=key).batch_iterator(4))
        made = source.map(lambda c: ({**c, "q": -c["q"]},), on=key)
        for over in (made, pools[0].parallel_data_source(made)):
            assert [batch[key]["q"].tolist() for batch in over.batch_iterator(N)] == [[-row for row in range(N)]]


def test_columns_that_are_not_there_are_refused_as_soon_as_they_are_known() -> None:
    wrong = [
        lambda source: source.map(takes_age, on="agee"), lambda source: source.select("agee"),
        lambda source: source.drop("agee"), lambda source: source.rename({"agee": "x"}),
        lambda source: source.map(takes_age, on=0), lambda source: source.select(0),
        lambda source: source.with_column("x", takes_two), lambda source: source.rename({"age": "label"}),
        lambda source: source.drop("age", "image", "label"), lambda source: source.map(takes_age, on="age", out=3),
    ]  # fmt: skip
    for way in wrong:
        with raises(ArgumentError):
            way(named())
        with raises(ArgumentError):
            next(way(opaque(named())).batch_iterator(3))
    for way in (
        lambda source: source.select(3), lambda source: source.drop(-4), lambda source: source.map(takes_age, on="age"),
        lambda source: source.rename({0: "x"}), lambda source: source.map(takes_age, on=0, out=4),
        lambda source: source.select("age"),
    ):  # fmt: skip
        with raises(ArgumentError):
            way(placed())
        with raises(ArgumentError):
            next(way(opaque(placed())).batch_iterator(3))


def test_wrong_arguments_are_refused() -> None:
    for kind, way in [
        (ArgumentError, lambda: named().map(takes_age, out="x")),
        (ArgumentError, lambda: named().map(takes_age, on="age", resizes=True)),
        (ArgumentError, lambda: named().map(takes_age, on=[])),
        (ArgumentError, lambda: named().map(takes_age, on=["age", "age"])),
        (ArgumentTypeError, lambda: named().map(takes_age, on=1.5)),
        (ArgumentTypeError, lambda: named().map(takes_age, on=True)),
        (ArgumentTypeError, lambda: named().select(["age", "label"])),
        (ArgumentTypeError, lambda: named().drop(["age"])),
        (ArgumentTypeError, lambda: named().pad(["agee"])),
        (ArgumentError, lambda: named().select()),
        (ArgumentTypeError, lambda: named().rename(["age"])),
        (ArgumentTypeError, lambda: named().rename({"age": 1})),
        (ArgumentError, lambda: named().with_column("x", np.arange(3))),
        (ArgumentError, lambda: named().with_column("x", np.maximum)),
        (ArgumentError, lambda: named().with_column("x", np.arange(N), on="age")),
        (ArgumentError, lambda: placed().with_column(4, np.arange(N))),
        (ArgumentError, lambda: placed().with_column(-1, np.arange(N))),
        (ArgumentError, lambda: placed().with_column("x", np.arange(N))),
        (ArgumentError, lambda: named().with_column(1, np.arange(N))),
        (ArgumentError, lambda: named().with_column("x", takes_rng)),
        (ArgumentTypeError, lambda: named().with_column("x", 3)),
        (ArgumentTypeError, lambda: bu.IteratorDataSource(iter([])).with_column(0, np.arange(N))),
        (ArgumentError, lambda: bu.ArrayDataSource([np.arange(0)]).map(lambda x: (x,)).columns),
    ]:
        with raises(kind):
            way()


def test_streams_have_columns_too() -> None:
    def batches(batch_size: int) -> Any:
        yield from named().batch_iterator(batch_size)

    stream = (
        bu.CallableDataSource(batches)
        .map(lambda age: age * 2, on="age", out="twice")
        .rename({"label": "y"})
        .drop("image")
    )
    for batch, plain in zip(stream.batch_iterator(5), named().batch_iterator(5), strict=True):
        assert list(batch) == ["age", "y", "twice"]
        np.testing.assert_array_equal(batch["twice"], plain["age"] * 2)
    with bu.WorkerThreadPool(1) as pool:
        got = list(pool.prefetch(stream.select("y")).batch_iterator(5))
    np.testing.assert_array_equal(np.concatenate([batch["y"] for batch in got]), DATA["label"])


def test_a_resumed_epoch_has_the_chosen_columns() -> None:
    source = named().map(lambda age: age * 2, on="age").select("label", "age")
    iterator = source.batch_iterator(4, shuffle=7)
    first = [next(iterator), next(iterator)]
    rest = list(source.batch_iterator(4, shuffle=7, state=iterator.state_dict()))
    assert_same([*first, *rest], list(source.batch_iterator(4, shuffle=7)))
