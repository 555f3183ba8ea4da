"""``source.views``: several views of each sample, each with random numbers of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.data_source.contents import contents_digest
from batchup_ng.errors import ArgumentError, ArgumentTypeError, BatchError, MapCallError, MapResultError
from batchup_ng.randomness.hashing import word
from batchup_ng.testing import assert_reproducible
from batchup_ng.testing.sources import SourceContract, assert_same_batch, assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.data_source.source_helpers import stream_of
from tests.messages import raises

N, SIZE = 48, 20
FLIP = augment.flip(p=1.0)
LARGE = 1 << 40


def noisy(x: np.ndarray, rng: bu.SampleRng) -> Any:
    """Add to each sample a large number of its own: ``x`` is what is left of it, and the draw is what was added."""
    return x + LARGE * rng.integers(1, 1 << 20)


def twice_noisy(x: np.ndarray, rng: bu.SampleRng) -> Any:
    rng.random(3)
    return noisy(noisy(x, rng), rng)


def one_by_one(x: np.ndarray, rng: bu.SampleRng) -> Any:
    return np.array([one + LARGE * int(own.integers(1, 1 << 20)) for one, own in zip(x, rng.generators(), strict=True)])


def negative(x: np.ndarray) -> Any:
    return -x


def numbers(n: int = N) -> Any:
    return bu.ArrayDataSource([np.arange(n), np.arange(n) * 3])


def opaque(source: Any) -> Any:
    """Return the source after a map whose columns are not known before a batch is made."""
    return source.map(lambda *batch, **parts: parts or batch)


def columns_of(source: Any, size: int = SIZE, shuffle: Any = 3, **options: Any) -> list[np.ndarray]:
    """Return the columns of an epoch, joined, in the order of the first column without noise."""
    batches = [[*batch.values()] if isinstance(batch, dict) else batch for batch in
               source.batch_iterator(size, shuffle, **options)]  # fmt: skip
    columns = [np.concatenate([np.array(part) for part in parts]) for parts in zip(*batches, strict=True)]
    order = np.argsort(columns[0] % LARGE)
    return [column[order] for column in columns]


class TestViewsOfNumbers(SourceContract):
    def make(self) -> Any:
        return numbers(37).views(2, noisy, one_by_one)


# -- where views stand -----------------------------------------------------------------------------------------------

def marked(mark: int, *columns: np.ndarray) -> Any:
    return tuple([mark * column for column in columns])


MARKS = [functools.partial(marked, 10**i) for i in range(3)]
"""Functions that draw nothing: of view i the values are 10^i times as large."""


@given(
    n=st.integers(1, 3), named=st.booleans(), known=st.booleans(), width=st.integers(1, 4),
    seed=st.integers(0, 1000), default=st.booleans(),
)  # fmt: skip
def test_views_stand_in_place_of_their_columns(
    n: int, named: bool, known: bool, width: int, seed: int, default: bool
) -> None:
    random = np.random.default_rng(seed)
    names = random.permutation(["image", "mask", "label", "id"]).tolist()[:width]
    data = {name: np.arange(1, 6) + 100 * i for i, name in enumerate(names)}
    chosen = random.permutation(width)[: random.integers(1, width + 1)].tolist()
    on: Any = [names[i] for i in chosen] if named else [i - width * int(random.integers(2)) for i in chosen]
    if default:
        on, chosen = None, [names.index("image") if named and "image" in names else 0]
    source = bu.ArrayDataSource(data if named else list(data.values()))
    made = (source if known else opaque(source)).views(*MARKS[:n], on=on)

    expected: list[tuple[str, np.ndarray]] = []
    for i, name in enumerate(names):
        each = [(f"{name}_{view + 1}", data[name] * 10**view) for view in range(n)]
        expected += each if i in chosen else [(name, data[name])]
    batch = next(made.batch_iterator(5))
    assert_same_batch(batch, dict(expected) if named else tuple([column for _, column in expected]))
    if known:
        form = made.node.form()
        assert list(form) == list(batch if named else range(len(expected)))
        for key, (name, column) in zip(form, expected, strict=True):
            assert_same_batch(made.select(key)[:], {name: column} if named else (column,))
            untouched = name in names
            assert (made.node.only([key]) is not None) is untouched  # then no view is made


def test_views_have_the_names_of_out() -> None:
    x = {"image": np.arange(4), "mask": np.arange(4) + 50, "label": np.arange(4) + 90}
    for source in (bu.ArrayDataSource(x), opaque(bu.ArrayDataSource(x))):
        made = source.views(*MARKS[:2], out=["weak", "image"])
        assert_same_batch(made[:], {"weak": x["image"], "image": x["image"] * 10, **dict(list(x.items())[1:])})
        made = source.views(*MARKS[:2], on=["mask", "image"], out=["m1", "m2", "i1", "i2"])
        assert list(made[:]) == ["i1", "i2", "m1", "m2", "label"]
        assert_same_batch(made[:]["m2"], x["mask"] * 10)


def test_columns_of_tuples_that_have_names_keep_them(tmp_path: Any) -> None:
    image = pytest.importorskip("PIL.Image")
    for name, colour in (("a/1.png", 10), ("a/2.png", 20), ("b/3.png", 30)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        image.new("RGB", (8, 8), (colour,) * 3).save(tmp_path / name)
    made = bu.from_folder(tmp_path, 8).views(*[functools.partial(marked, i) for i in (1, 2, 3)])
    a, b, c, label = made[:]
    assert_same_batch(made.select("image_3", "image_1", "label")[:], (c, a, label))
    assert_same_batch(made.labels, label)
    assert_same_batch(made.rename({i: f"c{i}" for i in range(4)})[:]["c1"], b)
    again = made.views(*MARKS[:2], on="image_3")
    assert_same_batch(again.select("image_3_2", "image_2", "label")[:], (c * 10, b, label))
    small = made.with_images(size=4)
    assert [part.shape[1:] for part in small[:]] == [(4, 4, 3)] * 3 + [()]


# -- random numbers --------------------------------------------------------------------------------------------------


def test_draws_are_those_of_the_position_and_the_view() -> None:
    """Saved epochs go on with these numbers, so they stay."""
    key = word("sample", 3, 1, 0)  # seed, epoch, and the path of the node, which is the root
    made = numbers().views(2, noisy).batch_iterator(SIZE, 3, epoch=1)
    for number, (first, second, label) in enumerate(made):
        positions = np.arange(number * SIZE, number * SIZE + len(label))
        for view, of_view in ((first, key), (second, word("view", key, 1))):
            drawn = bu.SampleRng(of_view, positions).integers(1, 1 << 20)
            np.testing.assert_array_equal(view, label // 3 + LARGE * drawn)


def test_a_view_does_not_depend_on_the_others() -> None:
    first, second, label = columns_of(numbers().views(2, noisy))
    assert not (first == second).any()
    assert_same_batches(columns_of(numbers().map(noisy, on=0, rng="sample")), [first, label])
    for before in (noisy, twice_noisy, one_by_one):
        one, other = columns_of(numbers().views(before, 2, noisy))[:2]
        assert_same_batch(other, second)
        assert_same_batch(one, columns_of(numbers().map(before, on=0, rng="sample"))[0])
    for without in (negative, np.negative):  # that of NumPy has no signature before NumPy 2.4
        one, other = columns_of(numbers().views(noisy, without))[:2]
        assert_same_batches([one, other], [first, -np.arange(N)])


@pytest.mark.parametrize("fn", [noisy, one_by_one])
def test_no_two_draws_are_alike(fn: Any) -> None:
    doubled = numbers(50).map(lambda x, y: (np.concatenate([x, x + 50]), np.tile(y, 2)), resizes=True)
    for source in (numbers(100), doubled):
        made = source.views(2, fn).views(2, fn)  # the first view has two more views
        draws = np.array([columns_of(made, epoch=epoch)[:3] for epoch in (0, 1)]) // LARGE
        assert len(np.unique(draws)) > 600 - 5  # of 20 bits: one or two may be alike by chance


@pytest.mark.parametrize("size", [1, 7, N])
def test_neither_batch_size_nor_ranks_nor_a_state_change_a_view(size: int) -> None:
    source = numbers().map(noisy, on=1, rng="sample").views(2, noisy, 1, one_by_one)
    expected = columns_of(source)
    assert_same_batches(columns_of(source, size), expected)
    of_ranks = [columns_of(source, size, shard=(rank, 2), uneven="drop") for rank in range(2)]
    for column, *parts in zip(expected, *of_ranks, strict=True):
        assert set(np.concatenate(parts)) <= set(column)
    begun = source.batch_iterator(5, 3)
    head = [next(begun) for _ in range(2)]
    rest = list(source.batch_iterator(size, 3, state=begun.state_dict()))
    for column, *of_batches in zip(expected, *head, *rest, strict=True):
        assert sorted(np.concatenate(of_batches)) == sorted(column)


def test_a_lazy_filter_changes_no_view_of_the_samples_that_are_left() -> None:
    views, kept = (2, noisy, one_by_one), np.arange(N) % 3 != 1
    below = numbers().filter(lambda x, y: x % 3 != 1, lazy=True).views(*views)
    assert_same_batches(columns_of(below), [column[kept] for column in columns_of(numbers().views(*views))])
    above = numbers().views(*views).filter(lambda a, b, c, y: a % LARGE % 3 != 1, lazy=True)
    expected = columns_of(numbers().views(*views).map(lambda *batch: batch))
    assert_same_batches(columns_of(above), [column[kept] for column in expected])


def test_views_in_other_sources_are_those_of_a_map() -> None:
    """The first view is that of a map in the same place, whatever is below and above."""

    def viewed(source: Any) -> Any:
        return source.views(2, noisy)

    def mapped(source: Any) -> Any:
        return source.map(noisy, on=0, rng="sample")

    made: list[Callable[[Any], Any]] = [
        lambda make: make(numbers()).concat(make(numbers(5))),
        lambda make: bu.mix(make(numbers()), make(numbers(5)), weights=[3, 1]),
        lambda make: make(numbers()).zip(numbers()),
        lambda make: bu.CompositeDataSource([make(numbers()), numbers(30)]),
        lambda make: make(bu.CompositeDataSource([numbers(), numbers(30)])),
        lambda make: make(numbers().concat(numbers(5))).take(30),
        lambda make: make(numbers().cache()).subset(np.arange(3, 40)),
        lambda make: make(numbers().split([0.5, 0.5], 1)[0]).split([0.5, 0.5], 2)[1],
        lambda make: make(numbers()).filter(lambda *batch: batch[-1] % 2 == 0),
        lambda make: make(numbers().repeat(2)),
        lambda make: make(numbers()).sample(weights=np.ones(N), num_samples=30),
        lambda make: make(stream_of(N)),
    ]
    for compose in made:
        views, plain = compose(viewed), compose(mapped)
        order = None if not views.is_random_access else 3
        pairs = zip(views.batch_iterator(7, order), plain.batch_iterator(7, order), strict=True)
        for (a, b, *others), (x, *rest) in pairs:
            assert_same_batch((a, *others), (x, *rest))
            assert_same_batch(b % LARGE, a % LARGE)
            assert not (a == b).any()


# -- a whole epoch ----------------------------------------------------------------------------------------------------


def test_images_are_read_once() -> None:
    read: list[int] = []

    class Counted:
        shape = (N,)

        def __len__(self) -> int:
            return N

        def __getitem__(self, rows: Any) -> np.ndarray:
            read.extend(map(int, rows))
            return np.asarray(rows)

    list(bu.ArrayDataSource([Counted()]).views(3, noisy, 2, one_by_one).batch_iterator(7, 3))
    assert sorted(read) == list(range(N))


def test_views_are_reproducible() -> None:
    made = numbers().views(2, noisy, 1, one_by_one).map(lambda a, b, c, y: (a, b - c, y))
    assert_reproducible(made, 5, pools=["threads"])


# -- other samples ---------------------------------------------------------------------------------------------------


def shouted(texts: Any, rng: bu.SampleRng) -> Any:
    return [text.upper() if loud else text for text, loud in zip(texts, rng.bernoulli(), strict=True)]


def test_views_of_texts_and_of_lists() -> None:
    texts = [f"word {i}" for i in range(N)]
    made = bu.ArrayDataSource([texts]).views(2, shouted)
    for one, other in made.batch_iterator(SIZE):
        assert [text.lower() for text in one] == [text.lower() for text in other]
        assert one != other
    ragged = bu.ArrayDataSource({"ids": bu.Ragged.from_rows([np.arange(i % 4) for i in range(N)]), "y": np.arange(N)})
    made = ragged.views(lambda ids: [row[::-1] for row in ids], lambda ids: [row.__iadd__(1) for row in ids])
    batch = made.pad("ids_1", "ids_2")[4:8]
    assert batch["ids_1"].tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0], [2, 1, 0]]
    assert batch["ids_2"].tolist() == [[0, 0, 0], [1, 0, 0], [1, 2, 0], [1, 2, 3]]


def test_an_iterator_has_views() -> None:
    def batches() -> Iterator[Any]:
        for start in range(0, N, 7):
            yield (np.arange(start, min(start + 7, N)),)

    one, other = columns_of(bu.IteratorDataSource(batches()).views(2, noisy), shuffle=None)
    assert_same_batch(one, columns_of(numbers().map(noisy, on=0, rng="sample"), shuffle=None)[0])
    assert not (one == other).any()


def test_the_file_of_a_filter_counts_all_functions() -> None:
    digests = [contents_digest(numbers().views(*views).node) for views in
               [(noisy, negative), (noisy, np.negative), (2, noisy), (noisy, negative), (negative, noisy)]]  # fmt: skip
    assert digests[0] == digests[3]
    assert len(set(digests)) == 4


def test_a_repr_names_the_functions() -> None:
    shown = repr(numbers().views(2, FLIP, noisy, on=1))
    assert shown.startswith(f"<ViewsDataSource: {N} samples, fns=views(2, flip, noisy), on=1, of <ArrayDataSource:")


# -- what is refused -------------------------------------------------------------------------------------------------

TRANSFORM = type("Compose", (), {"__module__": "torchvision.transforms.v2", "__call__": lambda self, *images: images})()

WRONG: list[tuple[Any, Any, dict[str, Any]]] = [
    (ArgumentTypeError, (), {}),
    (ArgumentTypeError, (2,), {}),
    (ArgumentTypeError, (noisy, 2), {}),
    (ArgumentTypeError, (2, 3, noisy), {}),
    (ArgumentTypeError, (True, noisy), {}),
    (ArgumentTypeError, (2.0, noisy), {}),
    (ArgumentTypeError, ([noisy, noisy],), {}),
    (ArgumentTypeError, (None, noisy), {}),
    (ArgumentTypeError, ("noisy",), {}),
    (ArgumentTypeError, (2, augment.flip), {}),
    (ArgumentTypeError, (2, TRANSFORM), {}),
    (ArgumentTypeError, (2, noisy), {"rng": "sample"}),
    (ArgumentTypeError, (2, noisy), {"names": ["a", "b"]}),
    (ArgumentError, (0, noisy), {}),
    (ArgumentError, (-1, noisy), {}),
    (ArgumentError, (2, negative), {}),
    (ArgumentError, (2, lambda x: x), {}),
    (ArgumentError, (negative, noisy, negative), {}),
    (ArgumentError, (2, noisy), {"on": "no"}),
    (ArgumentError, (2, noisy), {"on": []}),
    (ArgumentError, (2, noisy), {"out": "a"}),
    (ArgumentError, (2, noisy), {"out": ["a", "a"]}),
    (ArgumentError, (2, noisy), {"out": ["a", "b", "c"]}),
    (ArgumentError, (2, noisy), {"out": ["a", 1]}),
    (ArgumentError, (2, noisy), {"out": ["a", "label"]}),
    (ArgumentError, (2, augment.compose(FLIP, boxes="boxes")), {}),
]


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_wrong_arguments_are_refused_at_once(case: int) -> None:
    kind, views, options = WRONG[case]
    with raises(kind):
        bu.ArrayDataSource({"image": np.arange(3), "label": np.arange(3)}).views(*views, **options)


def test_a_name_that_is_taken_is_refused() -> None:
    source = bu.ArrayDataSource({"image": np.arange(3), "image_2": np.arange(3)})
    with raises(ArgumentError):
        source.views(2, noisy)
    with raises(BatchError):
        next(opaque(source).views(2, noisy).batch_iterator(3))


def test_tuples_have_no_names() -> None:
    for options in ({"out": ["a", "b"]}, {"on": "image"}, {"on": 2}, {"on": [0, -2]}):
        with raises(ArgumentError):
            numbers().views(2, noisy, **options)


def test_what_a_function_returns_is_checked(pools: list[AbstractWorkerPool]) -> None:
    def two(x: Any) -> Any:
        return x, x

    def fewer(x: Any) -> Any:
        return x[1:]

    def nothing(x: Any) -> Any:
        return None

    def takes_both(x: Any, y: Any) -> Any:
        return x

    for wrong, kind in ((two, MapResultError), (fewer, MapResultError), (nothing, MapResultError),
                        (takes_both, MapCallError)):  # fmt: skip
        for source in (numbers(), pools[0].parallel_data_source(numbers())):
            made = source.views(noisy, wrong)
            made = made if source is not numbers() else pools[0].parallel_data_source(made)
            if wrong is fewer and type(source) is not bu.ArrayDataSource:
                continue  # behind a pool a map may return anything
            with raises(kind):
                next(made.batch_iterator(4))


def test_an_error_names_the_functions() -> None:
    def fails(x: Any, rng: Any) -> Any:
        raise ValueError("no such colour")

    with raises(BatchError) as raised:
        next(numbers().views(noisy, fails).batch_iterator(4))
    assert raised.value.op == "views(noisy, fails)"
