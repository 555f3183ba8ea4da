"""Each batch of an epoch has the class that its map returned: a namedtuple, an OrderedDict."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.work_pool import AbstractWorkerPool


class Pair(NamedTuple):
    """A batch with names."""

    x: Any
    y: Any


class Named(dict):  # type: ignore[type-arg]
    """A dict with a class of its own, and an attribute."""

    kind = "of the class"


class Held(UserDict):  # type: ignore[type-arg]
    """Not a dict, as batches of tokenizers are."""


def with_attribute(x: Any) -> Named:
    made = Named(y=x, x=2 * x)
    made.kind = "its own"
    return made


MADE: dict[type, Callable[[np.ndarray], Any]] = {
    Pair: lambda x: Pair(2 * x, x),
    OrderedDict: lambda x: OrderedDict(y=x, x=2 * x),
    defaultdict: lambda x: defaultdict(list, y=x, x=2 * x),
    Named: with_attribute,
    Held: lambda x: Held(y=x, x=2 * x),
    tuple: lambda x: (2 * x, x),
    dict: lambda x: {"y": x, "x": 2 * x},
}


def source(kind: type, first: int = 0, n: int = 6) -> Any:
    return bu.ArrayDataSource([np.arange(first, first + n)]).map(MADE[kind])


def check(batches: Any, kind: type, rows: list[list[int]]) -> None:
    found = list(batches)
    assert [type(batch) for batch in found] == [kind] * len(rows)
    for batch, expected in zip(found, rows, strict=True):
        x, y = batch if isinstance(batch, tuple) else (batch["x"], batch["y"])
        assert (x.tolist(), y.tolist()) == ([2 * row for row in expected], expected)
        if not isinstance(batch, tuple):
            assert list(batch) == ["y", "x"]
        if isinstance(batch, Named):
            assert batch.kind == "its own"


@pytest.mark.parametrize("kind", MADE)
def test_batches_keep_their_class(kind: type, pools: list[AbstractWorkerPool]) -> None:
    both = bu.concat(source(kind), source(kind, 6))
    rows = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    check(both.batch_iterator(4), kind, rows)
    for pool in pools:
        check(pool.parallel_data_source(both).batch_iterator(4), kind, rows)
    check(bu.mix(source(kind), source(kind, 6), weights=[1, 1]).batch_iterator(6), kind,
          [[0, 6, 1, 7, 2, 8], [3, 9, 4, 10, 5, 11]])  # fmt: skip
    if kind is not Held:  # a lazy filter calls its predicate with the parts
        kept = source(kind, n=9).filter(lambda x, y: y != 3, lazy=True)
        check(kept.batch_iterator(3), kind, [[0, 1, 2], [4, 5], [6, 7, 8]])


@pytest.mark.parametrize("kind", [Pair, OrderedDict, dict, tuple])
def test_nested_batches_do_too(kind: type) -> None:
    def nested(x: np.ndarray) -> Any:
        return x, MADE[kind](x)

    both = bu.concat(*(bu.ArrayDataSource([np.arange(6)]).map(nested) for _ in range(2)))
    assert [type(batch[1]) for batch in both.batch_iterator(4)] == [kind] * 3


@pytest.mark.parametrize("kind", [Pair, OrderedDict, Named, dict, tuple])
def test_columns_that_are_brought_into_one_form_keep_it(kind: type) -> None:
    """Texts of several lengths are widened in some batches only."""

    def texts(words: list[str]) -> Any:
        return bu.ArrayDataSource([np.array(words)]).map(lambda w: kind(zip("ab", (w, w), strict=True))
                                                         if issubclass(kind, dict)
                                                         else (Pair(w, w) if kind is Pair else (w, w)))  # fmt: skip

    both = bu.concat(texts(["a", "bb", "cc"]), texts(["d", "eeee", "f"]))
    assert [type(batch) for batch in both.batch_iterator(2)] == [kind] * 3


def test_batches_of_two_classes_are_tuples_and_dicts() -> None:
    both = bu.concat(source(Pair), source(tuple, 6))
    assert [type(batch) for batch in both.batch_iterator(4)] == [Pair, tuple, tuple]
    ordered = bu.concat(source(OrderedDict), source(dict, 6))
    assert [type(batch) for batch in ordered.batch_iterator(4)] == [OrderedDict, dict, dict]


@pytest.mark.parametrize("kind", MADE)
def test_a_batch_that_is_cut_keeps_its_class(kind: type) -> None:
    stream = bu.IteratorDataSource(MADE[kind](np.arange(4 * i, 4 * i + 4)) for i in range(3))
    check(stream.take(6).batch_iterator(4), kind, [[0, 1, 2, 3], [4, 5]])
