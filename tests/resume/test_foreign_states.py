"""A state is refused by a source, an order or an epoch that is not its own, with the reason."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import StateError
from batchup_ng.sampling import standard
from batchup_ng.sampling.base import array_fingerprint
from batchup_ng.testing.sources import assert_same_batches
from tests.messages import raises


def noisy(x: np.ndarray, rng: Any) -> Any:
    return x, rng.normal(size=3)


def rows_and_noise(n: int) -> bu.MapDataSource:
    return bu.ArrayDataSource([np.arange(n)]).map(noisy, rng="sample")


def two_columns() -> bu.MapDataSource:
    """The source of the refusals, of which a map leaves out one of two arrays."""
    return bu.ArrayDataSource([np.arange(100)] * 2).map(noisy, rng="sample")


def refusals() -> list[Any]:
    """Sources and options that are not those of the state."""
    source = rows_and_noise(100)
    return [
        (rows_and_noise(99), {}),
        (bu.ArrayDataSource([np.arange(100)]), {}),
        (two_columns(), {}),
        (bu.subset(source, np.arange(50)), {}),
        (source, {"shuffle": 8}),
        (source, {"shuffle": None}),
        (source, {"shuffle": np.random.RandomState(3)}),
        (source, {"epoch": 3}),
    ]


def test_options_that_change_the_order_belong_to_the_source() -> None:
    pair = [bu.ArrayDataSource([np.arange(10)]), bu.ArrayDataSource([np.arange(7)])]
    for one, other in (
        (bu.ChoiceDataSource(pair), bu.ChoiceDataSource(pair, stratified=True)),
        (bu.CompositeDataSource(pair), bu.CompositeDataSource(pair, trim=False)),
        (bu.take(pair[0], 6), bu.take(pair[0], 7)),
        (bu.repeat(bu.take(pair[0], 6), 2), bu.repeat(bu.take(pair[0], 6), 3)),
        (bu.repeat(pair[0], 2), bu.repeat(pair[0], 3)),
    ):
        iterator = one.batch_iterator(4, shuffle=7)
        next(iterator)
        with raises(StateError):
            other.batch_iterator(4, shuffle=7, state=iterator.state_dict())


def twice(make: Any, n: int, dtype: Any = np.int64) -> tuple[Any, Any]:
    """Return what `make` makes of `n` numbers, and of the same of which two neighbours have changed places."""
    numbers = np.random.default_rng(0).permutation(n).astype(dtype)
    other = numbers.copy()
    other[[n // 3 + 5, n // 3 + 6]] = numbers[[n // 3 + 6, n // 3 + 5]]
    return make(numbers), make(other)


ROWS = 50_000
LARGE: dict[str, Any] = {
    "indices": lambda x: bu.ArrayDataSource([np.arange(ROWS)], indices=x),
    "subset": lambda x: bu.subset(bu.ArrayDataSource([np.arange(ROWS)]), x),
    "weights": lambda x: bu.ArrayDataSource([np.arange(ROWS)], sampler=bu.WeightedSampler(x + 1)),
    "rows of weights": lambda x: bu.ArrayDataSource(
        [np.arange(ROWS)], sampler=bu.WeightedSubsetSampler(np.ones(ROWS), x)
    ),
    "classes": lambda x: bu.ArrayDataSource([np.arange(ROWS)], sampler=bu.StratifiedSampler(x % 10)),
    "rows of classes": lambda x: bu.ArrayDataSource(
        [np.arange(ROWS)], sampler=bu.StratifiedSampler(np.zeros(ROWS, int), indices=x)
    ),
    "lengths": lambda x: bu.ArrayDataSource([np.arange(ROWS)], sampler=bu.BucketSampler(x)),
}


@pytest.mark.parametrize("what", LARGE)
def test_any_two_entries_of_a_large_array_that_differ_are_noticed(what: str) -> None:
    one, other = twice(LARGE[what], ROWS)
    iterator = one.batch_iterator(10, shuffle=7)
    next(iterator)
    state = iterator.state_dict()
    like, _ = twice(LARGE[what], ROWS)
    assert_same_batches([next(like.batch_iterator(10, shuffle=7, state=state))], [next(iterator)])
    with raises(StateError):
        other.batch_iterator(10, shuffle=7, state=state)


def test_an_array_is_read_once_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    monkeypatch.setattr(standard, "array_fingerprint", lambda array: read.append(len(array)) or ["an array"])
    source = bu.ArrayDataSource([np.arange(ROWS)], indices=np.arange(ROWS))
    for epoch in range(3):
        iterator = source.batch_iterator(10, shuffle=7, epoch=epoch)
        for _ in range(3):
            next(iterator)
            iterator.state_dict()
    assert read == [ROWS] * 3


def test_the_fingerprint_of_an_array_is_that_of_its_entries_however_they_lie() -> None:
    numbers = np.random.default_rng(0).integers(0, 1000, 300_000)
    for same in (numbers.copy(), numbers[::-1].copy()[::-1], numbers.astype(">i8")):
        assert array_fingerprint(same) == array_fingerprint(numbers)
    assert array_fingerprint(numbers.astype(np.int32)) != array_fingerprint(numbers)
    assert array_fingerprint(numbers[:-1]) != array_fingerprint(numbers)


@pytest.mark.parametrize("name", ["Plain", "Größe" * 40, "\N{GRINNING FACE}" * 99, "Long" * 100], ids=len)
def test_a_state_is_small_whatever_the_source_is_called(name: str) -> None:
    kind: Any = type(name, (bu.ArrayDataSource,), {})
    state = kind([np.arange(10)]).batch_iterator(4, shuffle=3).state_dict()
    assert len(json.dumps(state)) <= 4096
    assert name[:10] in state["told"]
    with raises(StateError) as refused:
        kind([np.arange(10)] * 2).batch_iterator(4, shuffle=3, state=state)
    saved, _, found = str(refused.value).partition("saved from ")[2].partition(", and this is ")
    assert saved != found.partition("; the graph")[0]


@pytest.mark.parametrize(("source", "options"), refusals())
def test_the_state_of_something_else_is_refused(source: Any, options: dict[str, Any]) -> None:
    iterator = rows_and_noise(100).batch_iterator(10, shuffle=7, epoch=2)
    next(iterator)
    with raises(StateError):
        source.batch_iterator(10, state=iterator.state_dict(), **{"shuffle": 7, "epoch": 2, **options})


@pytest.mark.parametrize("told", [np.arange(3), {1, 2}, float("nan"), 1j])
def test_a_fingerprint_that_json_cannot_hold_is_refused_by_name(told: Any) -> None:
    class Own(bu.ArrayDataSource):
        def fingerprint(self) -> list[Any]:
            return ["Own", told]

    state = bu.ArrayDataSource([np.arange(10)]).batch_iterator(4).state_dict()
    source = Own([np.arange(10)])
    for ask in (lambda: source.batch_iterator(4).state_dict(), lambda: source.batch_iterator(4, state=state)):
        with raises(StateError):
            ask()


def test_options_may_be_numbers_and_truths_of_numpy() -> None:
    parts = [bu.ArrayDataSource([np.arange(10)]), bu.ArrayDataSource([np.arange(10)])]
    for own, numpys in (
        (bu.ChoiceDataSource(parts, True), bu.ChoiceDataSource(parts, np.True_)),  # type: ignore[arg-type]
        (bu.CompositeDataSource(parts, trim=False), bu.CompositeDataSource(parts, trim=np.False_)),  # type: ignore[arg-type]
        (bu.take(parts[0], 7), bu.take(parts[0], np.int64(7))),  # type: ignore[arg-type]
    ):
        iterator = own.batch_iterator(3, shuffle=7)
        next(iterator)
        state = numpys.batch_iterator(3, shuffle=7, state=iterator.state_dict()).state_dict()
        assert state == iterator.state_dict()
    for make in (bu.ChoiceDataSource, bu.CompositeDataSource):
        with raises(bu.ArgumentTypeError):
            make(parts, "no")  # type: ignore[operator]


def test_row_numbers_beyond_int64_do_not_count_from_the_end() -> None:
    rows = np.array([1, (1 << 64) - 1], dtype=np.uint64)
    for make in (lambda: bu.subset(rows_and_noise(9), rows), lambda: bu.ArrayDataSource([np.arange(9)], indices=rows)):
        with raises(bu.ArgumentError):
            make()
