"""A request that fails after batches that a lazy filter leaves empty: nothing is lost, nothing comes twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.work_pool import AbstractWorkerPool

SIZE = 4


class Once(Exception):
    """What a map raises, once."""


class Rows:
    """An iterator of the user's of batches of row numbers. It can be saved."""

    def __init__(self, n: int) -> None:
        self.n, self.given = n, 0

    def __iter__(self) -> Rows:
        return self

    def __next__(self) -> Any:
        if self.given == self.n:
            raise StopIteration
        first, self.given = self.given, min(self.given + SIZE, self.n)
        return (np.arange(first, self.given),)

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.given = state["given"]


class FailsOnce:
    """A map that raises an error at its call number `at`, once. It marks each batch with a draw."""

    def __init__(self, error: type[BaseException], at: int) -> None:
        self.error, self.left = error, at

    def __call__(self, x: np.ndarray, rng: np.random.Generator) -> Any:
        self.left -= 1
        if self.left == -1:
            raise self.error("once")
        return x, rng.random(len(x))


class Among:
    """A predicate that keeps some rows."""

    def __init__(self, kept: frozenset[int]) -> None:
        self.kept = kept

    def __call__(self, x: Any) -> bool:
        return int(x) in self.kept


def filtered(kind: str, n: int, kept: frozenset[int]) -> Any:
    source = bu.ArrayDataSource([np.arange(n)]) if kind == "rows" else bu.IteratorDataSource(Rows(n))
    return source.filter(Among(kept), lazy=True)


def over(source: Any, pool: AbstractWorkerPool | None, kind: str) -> Any:
    if pool is None:
        return source
    return pool.prefetch(source, 2) if kind == "stream" else pool.parallel_data_source(source)


def told(batches: Any) -> list[tuple[list[int], list[float]]]:
    return [(x.tolist(), drawn.tolist()) for x, drawn in batches]


def resumed(source: Callable[[Any], Any], at: int, error: type[BaseException]) -> None:
    """Check that a loop whose request `at` fails, and a second one from its state, give the same as one without."""
    whole = told(source(FailsOnce(error, 1 << 30)).batch_iterator(SIZE))
    iterator = source(FailsOnce(error, at)).batch_iterator(SIZE)
    done = []
    try:
        for batch in iterator:
            done.append(batch)
    except error:
        assert len(done) == at
    else:
        assert at >= len(whole)
    state = iterator.state_dict()
    rest = source(FailsOnce(error, 1 << 30)).batch_iterator(SIZE, state=state)
    assert told(done) + told(rest) == whole
    assert iterator.stats()["batches"] == len(done)


@pytest.mark.parametrize("kind", ["rows", "stream"])
@given(n=st.integers(1, 40), kept=st.frozensets(st.integers(0, 40)), at=st.integers(0, 6), after_pool=st.booleans())
def test_a_map_that_fails_after_empty_batches_loses_nothing(
    kind: str, n: int, kept: frozenset[int], at: int, after_pool: bool
) -> None:
    pool = bu.SerialPool() if after_pool else None
    resumed(lambda fn: over(filtered(kind, n, kept), pool, kind).map(fn, rng="batch"), at, Once)


@pytest.mark.parametrize("error", [Once, KeyboardInterrupt])
@pytest.mark.parametrize("kind", ["rows", "stream"])
@pytest.mark.parametrize("workers", [0, 1])
def test_nor_does_one_after_workers(
    kind: str, workers: int, error: type[BaseException], pools: list[AbstractWorkerPool]
) -> None:
    kept = frozenset({1, 2, 17, 18, 30, 31})
    resumed(lambda fn: over(filtered(kind, 40, kept), pools[workers], kind).map(fn, rng="batch"), 1, error)


class ViewFailsOnce(FailsOnce):
    """The same as the view of a loader."""

    def __call__(self, x: np.ndarray) -> Any:
        return super().__call__(x, np.random.default_rng(0))


def listed(batches: Any) -> list[list[int]]:
    return [x.tolist() for x, _ in batches]


@pytest.mark.parametrize("pool", ["serial", 0, 1])
@pytest.mark.parametrize("kind", ["rows", "stream"])
@pytest.mark.parametrize("at", [0, 1])
def test_the_view_of_a_loader_fails_and_the_epoch_goes_on(
    at: int, kind: str, pool: Any, pools: list[AbstractWorkerPool]
) -> None:
    kept = frozenset({5, 6, 17, 18, 30, 31})
    made_by = pool if pool == "serial" else pools[pool]

    def view(at: int) -> Any:
        return bu.Loader(filtered(kind, 40, kept), SIZE, pool=made_by).map(ViewFailsOnce(Once, at))

    first, second, done = view(at), view(1 << 30), []
    with pytest.raises(Once):
        done.extend(first)
    second.load_state_dict(first.state_dict())
    assert listed(done) + listed(second) == [[5, 6], [17, 18], [30, 31]]


@pytest.mark.parametrize("kind", ["rows", "stream"])
def test_an_epoch_that_fails_before_its_first_batch_begins_again(kind: str) -> None:
    if kind == "rows":
        source = filtered("rows", 12, frozenset(range(4, 12)))
    else:
        made = bu.CallableDataSource(lambda size, **_: ((np.arange(i, i + size),) for i in range(0, 12, size)), 12)
        source = made.filter(Among(frozenset(range(4, 12))), lazy=True)
    loader = bu.Loader(source, SIZE, pool="serial").map(ViewFailsOnce(Once, 0))
    with pytest.raises(Once):
        next(iter(loader.epochs(1)))
    assert listed(loader.epochs(1)) == [[4, 5, 6, 7], [8, 9, 10, 11]]
