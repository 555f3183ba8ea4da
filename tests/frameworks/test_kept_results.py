"""Functions after the pool that fill one array again and again, under what reads ahead of the loop.

The loops of NumPy in this file say what each batch must hold.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.batch_layout import unkept

from .handover_helpers import ahead

N, SIZE, WIDTH = 8, 4, 1000
X = np.repeat(np.arange(float(N)), SIZE)
Pair = collections.namedtuple("Pair", "x y")  # as users write it


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return an array at a multiple of 64 bytes, whose memory JAX and TensorFlow use."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.empty(nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + nbytes].view(dtype).reshape(shape)


class Filled:
    """Functions that return one array, filled anew with each call, in many forms."""

    def __init__(self) -> None:
        self.array = aligned((SIZE, WIDTH), np.float32)
        self.objects = np.empty(SIZE, object)
        self.list: list[Any] = [None] * SIZE
        self.dict: dict[str, Any] = {}
        self.rows = [np.empty(3) for _ in range(SIZE)]
        self.all = (self.array, self.array)

    def fill(self, x: np.ndarray) -> np.ndarray:
        self.array[...] = x[:, None]
        return self.array

    def tuple(self, x: np.ndarray) -> Any:
        return self.fill(x), x

    def one(self, x: np.ndarray) -> Any:
        return self.fill(x)

    def view(self, x: np.ndarray) -> Any:
        return self.fill(x)[:, ::2], x

    def named(self, x: np.ndarray) -> Any:
        return Pair(self.fill(x), x)

    def in_dict(self, x: np.ndarray) -> Any:
        return {"x": self.fill(x), "y": x}

    def same_dict(self, x: np.ndarray) -> Any:
        self.dict["x"], self.dict["y"] = x[:, None] * np.ones(3), x
        return self.dict

    def same_tuple(self, x: np.ndarray) -> Any:
        self.fill(x)
        return self.all

    def in_list(self, x: np.ndarray) -> Any:
        return [self.fill(x), x]

    def nested(self, x: np.ndarray) -> Any:
        return x, {"below": [self.fill(x), (self.array[:2], x)]}

    def same_list(self, x: np.ndarray) -> Any:
        self.list[:] = x.tolist()
        return self.list, x

    def same_rows(self, x: np.ndarray) -> Any:
        for row, value in zip(self.rows, x, strict=True):
            row[...] = value
        return list(self.rows), x

    def of_objects(self, x: np.ndarray) -> Any:
        self.objects[...] = x.tolist()
        return self.objects, x


WAYS = [name for name in vars(Filled) if not name.startswith("_") and name != "fill"]
NUMERIC = ["tuple", "view", "in_dict", "nested"]


def first_values(batch: Any) -> list[float]:
    """Return the first number of each leaf of a batch."""
    if isinstance(batch, (tuple, list, dict)):
        parts = batch.values() if isinstance(batch, dict) else batch
        return [value for part in parts for value in first_values(part)]
    return [float(np.asarray(batch).ravel()[0])]


def check(batches: Iterator[Any]) -> None:
    """Check that all numbers of batch `i` are `i`, also of batches that are kept."""
    held = list(batches)
    assert len(held) == N
    assert [set(first_values(batch)) for batch in held] == [{float(number)} for number in range(N)]


@pytest.fixture(params=["serial", "threads"])
def loader(request: pytest.FixtureRequest) -> Iterator[bu.Loader]:
    with bu.Loader([X], SIZE, pool=request.param, workers=None if request.param == "serial" else 2) as made:
        yield made


@pytest.mark.parametrize("way", WAYS)
def test_what_a_map_of_a_loader_fills_again(way: str, loader: bu.Loader) -> None:
    check(iter(ahead(loader.map(getattr(Filled(), way)))))
    check(ahead(bu.watch(loader.map(getattr(Filled(), way)), lambda wait: None)).epochs(2))
    if way != "same_list":
        twice = loader.map(lambda x: x + 0).map(getattr(Filled(), way))
        check(ahead(twice).epochs(3))


@pytest.mark.parametrize("way", WAYS)
def test_what_a_map_after_a_pool_fills_again(way: str) -> None:
    with bu.WorkerThreadPool(1) as pool:
        for source in (pool.parallel_data_source(bu.ArrayDataSource([X])), pool.prefetch(bu.ArrayDataSource([X]))):
            check(ahead(source.map(getattr(Filled(), way))).batch_iterator(SIZE))
            check(ahead(source.map(lambda x: (x,)).map(getattr(Filled(), way)).batch_iterator(SIZE)))


@pytest.mark.parametrize("way", WAYS)
def test_what_a_generator_fills_again(way: str) -> None:
    check(ahead(map(getattr(Filled(), way), np.split(X, N))))

    def each() -> Iterator[Any]:
        fill = getattr(Filled(), way)
        for x in np.split(X, N):
            batch = fill(x)
            yield batch

    check(ahead(each()))


def test_a_plain_loop_gets_the_results_themselves(loader: bu.Loader) -> None:
    filled = Filled()
    assert all(array is filled.array for array, _ in loader.map(filled.tuple))
    assert all(batch is filled.dict for batch in loader.map(filled.same_dict))


RESULTS: list[Callable[[np.ndarray], Any]] = [
    lambda x: (x * 2, x),
    lambda x: (x, x),
    lambda x: x * 2,
    lambda x: (x[::-1], (x * 2)[1:]),
    lambda x: {"x": x * 2, "y": [x * 2, {"z": x[:2]}]},
    lambda x: [x * 2, x],
    lambda x: Pair(x * 2, x),
    lambda x: ([row * 2 for row in x[:, None]], x),
]


def addresses(batch: Any) -> list[int]:
    if isinstance(batch, (tuple, list, dict)):
        return [place for part in (batch.values() if isinstance(batch, dict) else batch) for place in addresses(part)]
    return [batch.ctypes.data]


@pytest.mark.parametrize("number", range(len(RESULTS)))
def test_new_arrays_are_not_copied(number: int, loader: bu.Loader) -> None:
    made = []

    def noted(x: np.ndarray) -> Any:
        result = RESULTS[number](x)
        made.append(addresses(result))
        return result

    assert [addresses(batch) for batch in ahead(loader.map(noted))] == made
    made.clear()
    assert [addresses(batch) for batch in ahead(map(noted, (part.copy() for part in np.split(X, N))))] == made


def test_what_the_conversion_copies_is_not_copied_before() -> None:
    filled = Filled()
    got = unkept([filled.nested(X[:SIZE])], copies=lambda value: value is filled.array)
    assert got[1]["below"][0] is filled.array
    got = unkept([filled.of_objects(X[:SIZE])], copies=lambda value: value is filled.array)
    assert got[0] is not filled.objects
    assert got[0].tolist() == filled.objects.tolist()


def test_what_a_function_keeps_of_its_argument() -> None:
    kept: list[np.ndarray] = []

    def keeps(x: np.ndarray) -> Any:
        for earlier in kept:
            earlier[...] = -1
        kept.append(x)
        return (x,)

    with bu.Loader([X], SIZE, pool="serial") as loader:
        check(iter(ahead(loader.map(keeps))))


# -- the frameworks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", NUMERIC)
def test_torch(way: str, loader: bu.Loader) -> None:
    pytest.importorskip("torch")
    from batchup_ng.frameworks.torch import as_dataset, to_torch

    check(iter(to_torch(loader.map(getattr(Filled(), way)))))
    check(iter(as_dataset(loader.map(getattr(Filled(), way)))))


@pytest.mark.parametrize("way", NUMERIC)
def test_jax(way: str, loader: bu.Loader) -> None:
    pytest.importorskip("jax")
    from batchup_ng.frameworks.jax import to_jax

    check(iter(to_jax(loader.map(getattr(Filled(), way)))))
    check(to_jax(map(getattr(Filled(), way), np.split(X, N))))


@pytest.mark.parametrize("way", NUMERIC)
def test_tensorflow(way: str, loader: bu.Loader) -> None:
    pytest.importorskip("tensorflow")
    from batchup_ng.frameworks.tensorflow import to_tensorflow, to_tf_dataset

    check(iter(to_tensorflow(loader.map(getattr(Filled(), way)))))
    check(to_tensorflow(map(getattr(Filled(), way), np.split(X, N))))
    if way != "nested":  # a list inside is stacked there
        check(iter(to_tf_dataset(loader.map(getattr(Filled(), way)))))
        check(iter(to_tf_dataset(map(getattr(Filled(), way), np.split(X, N)))))
        check(iter(to_tf_dataset(loader.map(getattr(Filled(), way)).epochs(3), prefetch=0)))


def test_keras(loader: bu.Loader) -> None:
    pytest.importorskip("keras")
    from batchup_ng.frameworks.keras import endless, to_keras

    dataset = to_keras(loader.map(Filled().tuple))
    check(iter([dataset[number] for number in range(N)]))
    batches = endless(loader.map(Filled().tuple))
    for _ in range(2):
        check(iter([next(batches) for _ in range(N)]))


# -- maps of a loader one after the other --------------------------------------------------------------------------


def test_a_later_map_of_a_loader_writes_to_columns_of_its_own(loader: bu.Loader) -> None:
    def increased(x: np.ndarray, *others: Any) -> Any:
        x += 1
        return (x, *others)

    constant, expected = np.zeros(SIZE), np.split(X, N)
    for first, of_x in [
        (lambda x: (x, x), lambda x: (x + 1, x)),
        (lambda x: (x, x[:2]), lambda x: (x + 1, x[:2])),
        (lambda x: (constant, x), lambda x: (constant + 1, x)),
        (lambda x: [x, x], lambda x: (x + 1, x)),
        (lambda x: constant, lambda x: (constant + 1,)),
        (lambda x: constant[:], lambda x: (constant + 1,)),
    ]:
        for _ in range(2):
            for batch, x in zip(loader.map(first).map(increased), expected, strict=True):
                for one, other in zip(batch, of_x(x), strict=True):
                    np.testing.assert_array_equal(one, other)
        watched = bu.watch(loader.map(first), lambda wait: None).map(functools.partial(increased))
        np.testing.assert_array_equal(next(iter(watched))[0], of_x(expected[0])[0])
    assert not constant.any()
    with bu.WorkerThreadPool(1) as pool:
        source = pool.parallel_data_source(bu.ArrayDataSource([X])).map(lambda x: constant).map(increased)
        assert [float(x[0]) for (x,) in source.batch_iterator(SIZE)] == [1.0] * N


def test_a_list_stands_for_a_tuple_in_the_next_map(loader: bu.Loader) -> None:
    of_loader = loader.map(lambda x: [x, x]).map(lambda *columns: len(columns))
    assert set(of_loader) == {2}
    assert all(type(batch) is list for batch in loader.map(lambda x: [x, x]))
