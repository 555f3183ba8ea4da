"""``concat`` and ``mix`` of parts whose columns differ: refused, or of one dtype in every batch."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, MapResultError
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises

N = 7
X = np.arange(N)


def arrays(*columns: Any) -> Any:
    return bu.ArrayDataSource(list(columns))


def named(**columns: Any) -> Any:
    return bu.ArrayDataSource(columns)


def opaque(source: Any) -> Any:
    """Return the source after a map whose columns are not known before a batch is made."""
    return source.map(unchanged)


def unchanged(*batch: Any, **parts: Any) -> Any:
    return parts or batch


def cast(dtype: str, x: np.ndarray) -> np.ndarray:
    return x.astype(dtype)


def words(length: int, n: int = N) -> np.ndarray:
    return np.array([f"{i:0{length}}" for i in range(n)])


# -- what may be joined has one form in every batch --------------------------------------------------------------------

SOURCES: dict[str, Any] = {
    "tuples": lambda: (arrays(X, words(3)), arrays(X + 10, words(7)), arrays(X + 20, words(5))),
    "dicts": lambda: (named(x=X, t=words(3)), named(t=words(7), x=X + 10), named(x=X + 20, t=words(5))),
    "within": lambda: (arrays(X, words(3)).concat(arrays(X + 10, words(5))), arrays(X + 20, words(7))),
    "some unknown": lambda: (
        opaque(named(x=X, t=words(3))), named(t=words(7), x=X + 10), opaque(named(t=words(5), x=X + 20)),
    ),
    "bytes of another order": lambda: (
        arrays(X, words(3).astype(">U3")), arrays((X + 10).astype(">i8"), words(7)), arrays(X + 20, words(5)),
    ),
}  # fmt: skip


def values_of(source: Any) -> list[np.ndarray]:
    """Return the columns of a source, the numbers first, without any joining of the library."""
    batch = next(source.batch_iterator(100))
    return [batch["x"], batch["t"]] if isinstance(batch, dict) else list(batch)


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("join", [bu.concat, bu.mix])
def test_every_batch_has_one_dtype_and_one_order_of_names(
    kind: str, join: Any, pools: list[AbstractWorkerPool]
) -> None:
    parts = SOURCES[kind]()
    assert join is bu.concat or sum(part.num_samples() for part in parts) == 3 * N
    oracle = [np.concatenate(columns) for columns in zip(*map(values_of, parts), strict=True)]
    of_number = dict(zip(oracle[0].tolist(), oracle[1].tolist(), strict=True))
    source = join(*parts)
    order = list(parts[kind == "some unknown"][0:1])  # of the first part whose columns are known
    for made in (source, *[pool.parallel_data_source(source) for pool in pools]):
        for size in (1, N - 1, N, N + 1, 3 * N):
            for shuffle in (None, 5):
                found = []
                for batch in made.batch_iterator(size, shuffle):
                    if isinstance(batch, dict):
                        assert list(batch) == order
                        batch = batch["x"], batch["t"]
                    assert [column.dtype for column in batch] == [np.dtype(np.int64), np.dtype("U7")]
                    found += zip(*[column.tolist() for column in batch], strict=True)
                assert all(of_number[x] == t for x, t in found)
                if join is bu.concat:
                    assert sorted(found) == list(zip(*[column.tolist() for column in oracle], strict=True))
                    assert shuffle or [x for x, _ in found] == oracle[0].tolist()


@given(
    widths=st.lists(st.integers(1, 9), min_size=1, max_size=4), kind=st.sampled_from("US"), size=st.integers(1, 12),
    nested=st.booleans(),
)  # fmt: skip
def test_texts_are_those_of_numpy(widths: list[int], kind: str, size: int, nested: bool) -> None:
    columns = [words(width, 3).astype(kind) for width in widths]
    parts = [arrays(column) for column in columns]
    source = functools.reduce(lambda a, b: a.concat(b), parts) if nested else bu.concat(*parts)
    expected = np.concatenate(columns)
    batches = [batch[0] for batch in source.batch_iterator(size)]
    assert {batch.dtype for batch in batches} == {expected.dtype}
    assert np.concatenate(batches).tolist() == expected.tolist()
    assert source[4 % len(expected)][0] == expected[4 % len(expected)]
    assert source.columns[0].dtype == expected.dtype
    assert source.samples_by_indices(np.arange(0))[0].dtype == expected.dtype


@pytest.mark.parametrize("kind", "US")
def test_texts_that_maps_make_have_the_greatest_length_that_is_known(kind: str) -> None:
    two, five = [arrays(words(n)).map(functools.partial(cast, f"{kind}{n}"), on=0) for n in (2, 5)]
    known = arrays(words(7).astype(f"{kind}7"))

    def lengths_of(source: Any, size: int) -> list[str]:
        return [batch[0].dtype.str[1:] for batch in source.batch_iterator(size)]

    assert lengths_of(two.concat(five), N) == [f"{kind}2", f"{kind}5"]
    assert lengths_of(two.concat(five), 2 * N) == [f"{kind}5"]
    assert lengths_of(two.concat(five, known), N) == [f"{kind}7"] * 3
    same = two.map(functools.partial(cast, f"{kind}5"), on=0).concat(five)
    assert lengths_of(same, 3) == [f"{kind}5"] * 5


def test_a_column_that_is_read_alone_has_the_same_dtype() -> None:
    both = named(x=X, t=words(3)).concat(named(t=words(7), x=X))
    assert [batch["t"].dtype for batch in both.select("t").batch_iterator(N)] == [np.dtype("U7")] * 2
    pair = arrays(X, words(3)).concat(arrays(X, words(7)))
    for alone in (pair.select(1), pair.drop(0), pair.select(1, 0).select(0), pair.rename({0: "a", 1: "t"}).select("t")):
        dtypes = [np.asarray(next(iter(batch.values())) if isinstance(batch, dict) else batch[0]).dtype
                  for batch in alone.batch_iterator(N)]  # fmt: skip
        assert dtypes == [np.dtype("U7")] * 2


def test_a_batch_of_one_part_is_what_the_part_holds_no_longer() -> None:
    texts = words(3)
    source = arrays(texts).concat(arrays(words(7)))
    (batch,) = next(source.batch_iterator(N))
    batch[:] = "zzz"
    assert texts.tolist() == words(3).tolist()


def test_nothing_is_read_to_compare() -> None:
    class Counted:
        dtype, shape, read = np.dtype(np.int64), (N, 2), 0

        def __len__(self) -> int:
            return N

        def __getitem__(self, rows: Any) -> Any:
            Counted.read += 1
            return np.zeros((N, 2), np.int64)[rows]

    bu.concat(arrays(Counted()), opaque(arrays(Counted())), arrays(Counted()).map(unchanged, on=0))
    with raises(ArgumentError):
        bu.concat(arrays(Counted()), arrays(np.zeros((N, 3), np.int64)))
    assert Counted.read == 0


# -- what differs ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("one", "other"), [
    ({"x": X, "y": X}, {"x": X, "z": X}), ({"x": X, "y": X}, {"x": X}), ({"x": X}, {"x": X, "y": X}),
    ({"x": X, "y": X, "z": X}, {"x": X, "a": X}), ({"x": X}, [X]), ([X, X], {"x": X}), ([X, X, X], [X]),
])  # fmt: skip
@pytest.mark.parametrize("join", [bu.concat, bu.mix, lambda a, b: a.concat(b)])
def test_other_columns_are_refused_when_parts_are_joined(join: Any, one: Any, other: Any) -> None:
    with raises(ArgumentError):
        join(bu.ArrayDataSource(one), bu.ArrayDataSource(other))
    with raises(MapResultError):  # their rows are compared too, if only they show the columns
        list(join(bu.ArrayDataSource(one), opaque(bu.ArrayDataSource(other))).batch_iterator(N))


def test_the_remedies_for_other_columns_work() -> None:
    one, other = named(x=X, y=X * 2), named(x=X + 10, z=X)
    expected = {"x": [*X, *(X + 10)], "y": [*(X * 2), *X]}
    (batch,) = one.concat(other.rename({"z": "y"})).batch_iterator(2 * N)
    assert {name: column.tolist() for name, column in batch.items()} == expected
    (batch,) = one.drop("y").concat(other.drop("z")).batch_iterator(2 * N)
    assert {name: column.tolist() for name, column in batch.items()} == {"x": expected["x"]}
    (batch,) = one.concat(arrays(X + 10, X).rename({0: "x", 1: "y"})).batch_iterator(2 * N)
    assert {name: column.tolist() for name, column in batch.items()} == expected
    (batch,) = arrays(X, X).select(0).concat(arrays(X)).batch_iterator(2 * N)
    assert [column.tolist() for column in batch] == [[*X, *X]]


def test_tuples_whose_columns_have_names_must_have_them_in_one_order() -> None:
    table = {"path": ["a", "b"], "label": [0, 1], "age": [3, 4]}
    read = functools.partial(bu.from_table, table, images=lambda paths: np.zeros((len(paths), 2)), missing="ignore")
    first = read(label="label", columns=["age"])
    both = first.concat(read(label="label", columns=["age"]))
    assert both.select("age")[:][0].tolist() == [3, 4, 3, 4]
    assert len(first.concat(arrays(np.zeros((2, 2)), np.arange(2), np.arange(2)))) == 4  # without names
    for one, other in ((["image", "label"], ["image", "age"]), (["image", "age", "label"], ["image", "label", "age"])):
        with raises(ArgumentError):
            first.select(*one).concat(first.select(*other))


PAIRS = [
    ("u1", "f4", "f4"), ("i4", "i8", "i8"), ("f2", "f8", "f8"), ("i8", "u8", "f8"), ("i8", "f4", "f8"),
    ("?", "u1", "u1"), ("U3", "S3", "U3"), ("i4", "f4", "f8"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "wider"), PAIRS)
def test_other_dtypes_are_refused_and_the_remedy_is_numpys(one: str, other: str, wider: str) -> None:
    a, b = X.astype(one), X.astype(other)
    for parts in ((arrays(X, a), arrays(X, b)), (named(x=X, y=a), named(x=X, y=b))):
        with raises(ArgumentError):
            bu.concat(*parts)
        with raises(ArgumentError):
            bu.mix(*reversed(parts))
        key = 1 if parts[0].node.names is None else "y"
        made = bu.concat(*[part.map(functools.partial(cast, wider), on=key) for part in parts])
        batches = [batch[key] for batch in made.batch_iterator(4)]
        expected = np.concatenate([a, b])
        assert {batch.dtype for batch in batches} == {expected.dtype}
        assert np.concatenate(batches).tolist() == expected.tolist()


def test_digits_that_a_remedy_could_lose_are_named() -> None:
    with raises(ArgumentError):
        bu.concat(arrays(X), arrays(X.astype("u8")))


def test_other_shapes_are_refused() -> None:
    for other in (np.zeros((N, 3)), np.zeros(N), np.zeros((N, 2, 1))):
        with raises(ArgumentError):
            bu.concat(arrays(np.zeros((N, 2))), arrays(other))
    images = [bu.ImageFiles(["a"] * N, size=size) for size in (4, 5)]
    with raises(ArgumentError):
        bu.concat(*map(arrays, images))
    both = bu.concat(arrays(images[0]), arrays(bu.ImageFiles(["b"], size=4)))
    assert [each.data[0].shape for each in both.with_images(size=6).node.sources] == [
        (N, 6, 6, 3), (1, 6, 6, 3),
    ]  # fmt: skip
    with raises(ArgumentError):  # what with_images changes is compared again
        bu.concat(arrays(images[0]), arrays(np.zeros((N, 4, 4, 3), np.uint8))).with_images(size=6)


def test_lists_are_joined_with_lists_of_their_dtype() -> None:
    def ragged(dtype: Any, *shape: int) -> Any:
        return arrays(bu.Ragged(np.zeros((5, *shape), dtype), [0, 2, 5]))

    assert len(ragged("i4").concat(ragged("i4"))) == 4
    assert len(ragged("U3").concat(ragged("U7"))) == 4
    for one, other in (
        (ragged("i4"), ragged("i8")), (ragged("f4", 4), ragged("f4", 5)),
        (ragged("i4"), arrays(np.zeros((2, 3), "i4"))),
        (arrays(["a", "b"]), arrays(words(3))), (arrays(bu.ImageFiles(["a"])), arrays(bu.ImageFiles(["a"], size=4))),
    ):  # fmt: skip
        for parts in ((one, other), (other, one)):
            with raises(ArgumentError):
                bu.concat(*parts)


@pytest.mark.parametrize("other", [X * 0.5, X.astype("i4"), np.zeros((N, 2), int), words(3)])
def test_what_a_map_makes_is_compared_with_what_is_known(other: Any, pools: list[AbstractWorkerPool]) -> None:
    a, b = arrays(X), arrays(other)
    for parts in ((a, opaque(b)), (opaque(b), a), (a, b.map(unchanged, on=0)), (a, opaque(b), opaque(a))):
        source = bu.concat(*parts)
        for made in (source, *[pool.parallel_data_source(source) for pool in pools]):
            with raises(MapResultError):  # in order, no batch of N has rows of two parts
                list(made.batch_iterator(N))
            if parts[0] is a:
                assert next(made.batch_iterator(N))[0].tolist() == X.tolist()


ROWS = [np.arange(k) for k in (2, 0, 1, 2, 3, 1, 2)]


def lists(dtype: str, *axes: int) -> list[np.ndarray]:
    return [np.zeros((len(row), *axes), dtype) for row in ROWS]


OTHER_LISTS: dict[str, tuple[Any, Any]] = {
    "dtype of lists": (lists("i8"), lists("f8")),
    "rank of lists": (lists("i8"), lists("i8", 3)),
    "an array, a list of numbers": (X, list(X)),
    "an array, a list of texts": (words(3), [f"{i}" for i in X]),
    "an array, a list of arrays": (np.zeros((N, 2), int), lists("i8")),
    "lists, an array of numbers": (lists("i8"), X),
    "lists, an array of rows": (lists("i8"), np.zeros((N, 2))),
}


@pytest.mark.parametrize("kind", OTHER_LISTS)
def test_lists_that_a_map_makes_are_compared_with_what_is_known(kind: str, pools: list[AbstractWorkerPool]) -> None:
    one, other = OTHER_LISTS[kind]
    known, made = arrays(X, one), arrays(X, X).map(functools.partial(chosen, other), on=0, out=1)
    for source in (known.concat(made), made.concat(known), bu.mix(known, made)):
        for each in (source, *[pool.parallel_data_source(source) for pool in pools]):
            with raises(MapResultError):
                list(each.batch_iterator(N, on_error="skip"))


@pytest.mark.parametrize("kind", ["dtype of lists", "lists, an array of rows"])
def test_lists_that_no_part_shows_are_compared_in_batches_of_several_parts(kind: str) -> None:
    one, other = [arrays(X).map(functools.partial(chosen, column), on=0) for column in OTHER_LISTS[kind]]
    for source in (one.concat(other), opaque(other).concat(one)):
        with raises(MapResultError):
            list(source.batch_iterator(2 * N, on_error="skip"))


SORTS: dict[str, Any] = {
    "numbers": X, "numbers in a list": X.tolist(), "arrays": lists("i8"), "text": [f"{i}" for i in X],
    "array of text": words(3), "bytes": [b"x"] * N, "arrays of bytes": lists("S2"),
}  # fmt: skip


@pytest.mark.parametrize("tuples", [False, True])
def test_other_sorts_of_samples_are_refused(tuples: bool, pools: list[AbstractWorkerPool]) -> None:
    made = {
        name: (arrays(X) if tuples else named(x=X)).map(functools.partial(chosen, column), on=0 if tuples else "x")
        for name, column in SORTS.items()
    }
    sorts = [set(list(SORTS)[:3]), {"text", "array of text"}, {"bytes", "arrays of bytes"}]
    for one in made:
        for other in made:
            source = made[one].concat(made[other])
            alike = any({one, other} <= sort for sort in sorts)
            for each in (source, pools[0].parallel_data_source(source)) if one == "text" else (source,):
                if alike:
                    assert sum(map(_length, each.batch_iterator(4))) == 2 * N
                    continue
                with raises(MapResultError):
                    list(each.batch_iterator(4, on_error="skip"))


def test_a_text_is_no_column_though_it_has_as_many_characters_as_there_are_rows() -> None:
    source = named(x=X).map(lambda x: {"x": x, "text": "abcdefg"[: len(x)]})
    for other in (source, named(x=X).map(lambda x: {"x": x, "text": x})):
        for joined in (source.concat(other), other.concat(source)):
            with raises(MapResultError):
                list(joined.batch_iterator(4, on_error="skip"))


def _length(batch: Any) -> int:
    return len(batch["x"] if isinstance(batch, dict) else batch[0])


MIXED_LISTS: dict[str, tuple[Any, Any]] = {
    "images with and without channels": 2 * ([*lists("u1", 4)[:3], *lists("u1", 4, 3)[3:]],),
    "None, and an array by chance": ([None] * N, np.zeros((N, 2))),
    "None and arrays, an array by chance": ([None, *lists("f8")[1:]], np.zeros((N, 2))),
    "texts and NaN": ([*[float("nan")] * 4, *"abc"], [*"abc", *[float("nan")] * 4]),
    "dicts, rows": ([{"i": i} for i in X], np.zeros((N, 2))),
}


@pytest.mark.parametrize("kind", MIXED_LISTS)
def test_no_batch_is_refused_by_chance(kind: str) -> None:
    one, other = [arrays(X).map(functools.partial(chosen, column), on=0) for column in MIXED_LISTS[kind]]
    for source in (one.concat(other), other.concat(one), one.concat(one)):
        expected = sorted(str(value) for (column,) in source.batch_iterator(1) for value in column)
        for size in (2, 4, N, 2 * N):
            batches = source.batch_iterator(size, shuffle=4)
            assert sorted(str(value) for (column,) in batches for value in column) == expected


def chosen(column: Any, rows: np.ndarray) -> Any:
    """Return the rows of a list or array, as the same kind."""
    return column[rows] if isinstance(column, np.ndarray) else [column[row] for row in rows]


@pytest.mark.parametrize(("column", "is_data"), [
    ([f"{i}" for i in X], True), (lists("i8"), True), (lists("U3"), True), (lists("f4", 4), True),
    ([{"i": i} for i in X], False), ([None, *map(str, X[1:])], False), ([*lists("i8")[:3], *lists("f4", 2)[3:]], False),
    ([np.zeros(0), *lists("i8")[1:]], False), ([row.tolist() for row in ROWS], False),
])  # fmt: skip
def test_lists_of_one_kind_are_joined(column: list[Any], is_data: bool) -> None:
    made = arrays(X, X).map(functools.partial(chosen, column), on=0, out=1)
    known = arrays(X, column) if is_data else made
    for source in (known.concat(made), made.concat(known), made.concat(made), opaque(made).concat(opaque(made))):
        for size in (N, N + 2, 2 * N):
            batches = list(source.batch_iterator(size))
            assert all(type(batch[1]) is list for batch in batches)
            assert [str(one) for batch in batches for one in batch[1]] == [*map(str, column), *map(str, column)]


def test_what_a_map_of_samples_makes_is_a_list_beside_lists() -> None:
    known = arrays(X, bu.Ragged.from_rows(ROWS))
    made = known.map_samples(functools.partial(np.multiply, 2), on=1)
    assert type(next(made.batch_iterator(1))[1]) is np.ndarray  # by chance of the batch
    for source in (known.concat(made), made.concat(known)):
        for size in (1, 3, N + 1, 2 * N):
            batches = [batch[1] for batch in source.batch_iterator(size)]
            assert all(type(batch) is list and {row.dtype for row in batch} == {np.dtype(int)} for batch in batches)


def test_no_policy_leaves_out_the_samples_of_a_part_with_another_dtype() -> None:
    source = arrays(X).concat(opaque(arrays(X * 0.5)))
    for policy in ("skip", "replace"):
        with raises(MapResultError):
            list(source.batch_iterator(N, on_error=policy))


def test_what_no_part_shows_is_compared_in_batches_of_several_parts() -> None:
    source = bu.concat(opaque(arrays(X)), opaque(arrays(X * 0.5)))
    for size in (N + 1, 2 * N):
        with raises(MapResultError):
            list(source.batch_iterator(size, on_error="skip"))


def test_a_source_of_the_user_is_compared_too() -> None:
    class Own(bu.RandomAccessDataSource):
        def __init__(self, make: Any) -> None:
            super().__init__(N)
            self.make = make

        def samples_by_indices_nomapping(self, indices: Any) -> Any:
            return self.make(X[indices])

    joined = arrays(X).concat(Own(lambda x: (x + 10,)))
    assert np.concatenate([batch[0] for batch in joined.batch_iterator(3)]).tolist() == [*X, *(X + 10)]
    for make in (lambda x: x, lambda x: (x, x), lambda x: {"x": x}, lambda x: (x * 0.5,)):
        with raises(MapResultError):
            list(arrays(X).concat(Own(make)).batch_iterator(N))


def test_comparisons_are_pickled_with_the_node() -> None:
    source = pickle.loads(pickle.dumps(named(t=words(3)).concat(named(t=words(7))).node))
    assert source.samples_by_indices(np.arange(2))["t"].dtype == np.dtype("U7")


def test_many_parts_joined_one_by_one_take_no_time() -> None:
    columns: list[Any] = []

    class Watched(np.ndarray):
        @property
        def dtype(self) -> Any:
            columns.append(self)
            return np.ndarray.dtype.__get__(self)  # type: ignore[attr-defined]

    parts = [arrays(X) for _ in range(60)]
    for part in parts:
        part.node.data[0] = X.view(Watched)
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.concat(part)
    assert len(columns) < 10 * len(parts)
    assert whole.num_samples() == 60 * N
