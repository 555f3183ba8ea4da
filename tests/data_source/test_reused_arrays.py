"""Functions of single samples, and data sets, that return the same memory each time."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.accessors import MapStyle
from batchup_ng.batch_layout import settled
from batchup_ng.work_pool import AbstractWorkerPool

N = 11
X = np.arange(float(N))
Pair = collections.namedtuple("Pair", "a b")




def whole() -> Callable[[float], Any]:
    out = np.empty(3)

    def fn(x: float) -> Any:
        out[...] = 2 * x
        return (out,)

    return fn


def slices() -> Callable[[float], Any]:
    out = np.empty(9)

    def fn(x: float) -> Any:
        out[...] = 2 * x
        return out[:3], out[3:6]

    return fn


def two_in_turn() -> Callable[[float], Any]:
    out = np.empty((2, 3))

    def fn(x: float) -> Any:
        out[int(x) % 2] = 2 * x
        return (out[int(x) % 2],)

    return fn


def a_tuple() -> Callable[[float], Any]:
    sample = (np.empty(3), np.empty(1))

    def fn(x: float) -> Any:
        for part in sample:
            part[...] = 2 * x
        return sample

    return fn


def a_dict() -> Callable[[float], Any]:
    sample = {"a": np.empty(3), "b": [np.empty(1)]}

    def fn(x: float) -> Any:
        sample["a"][...] = sample["b"][0][...] = 2 * x
        return sample

    return fn


def a_new_dict() -> Callable[[float], Any]:
    fill = whole()
    return lambda x: {"a": fill(x)[0]}


def kept_in_a_new_dict() -> Callable[[float], Any]:
    fill = whole()
    return lambda x: {"n": x, "new": np.full(2, x), "a": fill(x)[0]}


def of_several_lengths() -> Callable[[float], Any]:
    fill = whole()
    return lambda x: (fill(x)[0][: 1 + int(x) % 3],)


def lists() -> Callable[[float], Any]:
    words: list[Any] = []

    def fn(x: float) -> Any:
        words[:] = [str(x), [x]]
        return (words,)

    return fn


def objects() -> Callable[[float], Any]:
    out = np.empty(2, object)
    inner = np.empty(1)

    def fn(x: float) -> Any:
        inner[...] = out[0] = 2 * x
        out[1] = inner
        return (out,)

    return fn


def records() -> Callable[[float], Any]:
    out = np.zeros(1, [("a", float), ("b", int)])

    def fn(x: float) -> Any:
        out["a"] = out["b"] = 2 * x
        return (out[0],)

    return fn


def named() -> Callable[[float], Any]:
    fill = whole()
    return lambda x: Pair(fill(x)[0], x)


def at_times() -> Callable[[float], Any]:
    fill = whole()
    return lambda x: (np.full(3, x),) if x % 3 else fill(x)


MADE = [whole, slices, two_in_turn, a_tuple, a_dict, a_new_dict, kept_in_a_new_dict, of_several_lengths, lists, objects,
        records, named, at_times]  # fmt: skip


def plain(value: Any) -> Any:
    """Return a value as Python's own lists, tuples, dicts and numbers."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [plain(part) for part in value]
    return plain(value.tolist()) if isinstance(value, (np.ndarray, np.generic)) else value


def rows_of(batches: Any) -> list[Any]:
    """Return the samples of batches, each as a list or dict of its parts."""
    found: list[Any] = []
    for batch in batches:
        if isinstance(batch, dict):
            found += [dict(zip(batch, parts, strict=True)) for parts in zip(*map(plain, batch.values()), strict=True)]
        else:
            found += map(list, zip(*map(plain, batch), strict=True))
    return found


def expected(make: Callable[[], Callable[[float], Any]], rows: Any = range(N)) -> list[Any]:
    fn = make()
    return [plain(fn(X[row])) for row in rows]


class Calls:
    """A data set whose samples a function makes."""

    def __init__(self, fn: Callable[[float], Any]) -> None:
        self.fn = fn

    def __len__(self) -> int:
        return N

    def __getitem__(self, row: int) -> Any:
        return self.fn(X[row])


@pytest.mark.parametrize("size", [1, 2, 4, N])
@pytest.mark.parametrize("make", MADE)
def test_samples_are_those_of_single_calls(make: Any, size: int) -> None:
    source = bu.ArrayDataSource([X])
    assert rows_of(source.map_samples(make()).batch_iterator(size)) == expected(make)
    assert rows_of(bu.ArrayDataSource([MapStyle(Calls(make()))]).batch_iterator(size)) == expected(make)


@pytest.mark.parametrize("make", MADE)
def test_further_arguments_change_nothing(make: Any) -> None:
    fn = make()
    source = bu.ArrayDataSource([X]).map_samples(lambda x, rng: fn(x), rng="sample")
    assert rows_of(source.batch_iterator(4)) == expected(make)
    collected = bu.ArrayDataSource([X]).map_samples(make()).collate(lambda samples: ([plain(one) for one in samples],))
    assert [one for (batch,) in collected.batch_iterator(4) for one in batch] == expected(make)


def filled(x: Any) -> Any:
    OUT[...] = 2 * x
    return (OUT,)


OUT = np.empty(3)


def test_workers_give_the_same_samples(pools: list[AbstractWorkerPool]) -> None:
    source = bu.ArrayDataSource([X]).map_samples(filled)
    made = rows_of(pools[1].parallel_data_source(source).batch_iterator(4))
    assert made == [[[2 * x] * 3] for x in X.tolist()]


def test_tensors_too() -> None:
    torch = pytest.importorskip("torch", reason="tensors are what the function returns")
    out = torch.empty(3)

    def fn(x: Any) -> Any:
        return (out.fill_(float(x)),)

    for source in (bu.ArrayDataSource([X]).map_samples(fn), bu.ArrayDataSource([MapStyle(Calls(fn))])):
        assert rows_of(source.batch_iterator(4)) == [[[x] * 3] for x in X.tolist()]


def test_new_arrays_and_views_of_the_sample_are_not_copied() -> None:
    x, label = np.arange(12.0).reshape(2, 6)[1], np.arange(3)
    given = (x, label)

    def same(result: Any, parts: list[int]) -> bool:
        return [id(part) for part in result] == parts

    for make in (lambda: (np.ones(3), 5), lambda: (np.ones((3, 4)).T, "a"), lambda: [np.ones(2)]):
        parts: list[int] = []

        def made(make: Any = make, parts: list[int] = parts) -> Any:
            result = make()
            parts += map(id, result)
            return result

        result = settled(made(), given)  # within an assertion, pytest would refer to what the call returned
        assert same(result, parts)
    view, whole, by_name = (settled((x[1:3],), given), settled((x, label), given), settled({"x": x}, {"x": x}))
    assert np.shares_memory(view[0], x)
    assert whole[0] is by_name["x"] is x


def test_samples_that_a_data_set_keeps_are_copied_into_their_column() -> None:
    kept = [np.arange(6.0).reshape(2, 3) + row for row in range(4)]
    made = MapStyle(kept)[[2, 0, 2]]
    assert made.tolist() == [kept[row].tolist() for row in (2, 0, 2)]
    assert made.base is None
    pairs = MapStyle([(x, x + 1, np.float32(1)) for x in kept])[1:4]
    np.testing.assert_equal(pairs, (np.stack(kept[1:]), np.stack(kept[1:]) + 1, np.ones(3, np.float32)))
    mixed = MapStyle([kept[0], kept[1].astype(np.float32), kept[2].astype(">f8"), np.asfortranarray(kept[3])])[:]
    np.testing.assert_equal(mixed, np.stack(kept))
    odd = MapStyle([kept[0], kept[1][:1], kept[2], kept[3][:, :1]])[:]
    assert [x.tolist() for x in odd] == [x.tolist() for x in (kept[0], kept[1][:1], kept[2], kept[3][:, :1])]
    odd[0][...] = odd[1][...] = -1
    assert [float(x.min()) for x in kept] == [0, 1, 2, 3]
