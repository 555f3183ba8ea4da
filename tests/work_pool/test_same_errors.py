"""The same program raises the same error with every pool and without one, after one trip."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises

N, SIZE = 60, 8
pytestmark = pytest.mark.filterwarnings("ignore::batchup_ng.SampleWarning")


class Named:
    """An accessor that names its samples, and cannot read one of them."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, rows: Any) -> Any:
        if 17 in np.atleast_1d(rows):
            raise OSError("cannot be read")
        return np.arange(N)[rows]

    def sample_name(self, row: int) -> str:
        return f"shard/{row}.png"


def refuses_some(x: np.ndarray) -> Any:
    for row in x.tolist():
        if row in (5, 17, 18, 40):
            raise KeyError(f"row {row}")
    return (x,)


def refuses_all(x: np.ndarray) -> Any:
    raise TypeError(f"a bug, for {x.dtype}")


def needs_a_whole_batch(x: np.ndarray) -> Any:
    if len(x) not in (SIZE, N % SIZE):
        raise ValueError("needs a whole batch")
    if 17 in x:
        raise LookupError("is here")
    return (x,)


def needs_a_pair(x: np.ndarray) -> Any:
    if len(x) < 2:
        raise ValueError("needs two")
    if 17 in x:
        raise LookupError("is here")
    return ((x + np.roll(x, 1)) // 2,)


def is_found_before_its_length(x: np.ndarray) -> Any:
    if 17 in x:
        raise LookupError("is here")
    if len(x) != SIZE:
        raise ValueError("needs a whole batch")
    return (x,)


def fails_in_another_way_alone(x: np.ndarray) -> Any:
    if 17 in x:
        raise IndexError("alone") if len(x) == 1 else LookupError("in company")
    return (x,)


def ends_the_loop(x: np.ndarray) -> Any:
    if 17 in x:
        raise StopIteration("early")
    return (x,)


def cannot_read(x: np.ndarray) -> Any:
    if 17 in x:
        raise bu.SampleReadError("no such picture", "17.png")
    return (x,)


def says_much(x: np.ndarray) -> Any:
    if 17 in x:
        raise ValueError("very " * 40_000)
    return (x,)


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    """An exception that lets nobody write to it, Python's own code included."""

    row_of_it: int


def refuses_by_what_is_frozen(x: np.ndarray) -> Any:
    if 17 in x:
        raise Frozen(17)
    return (x,)


def gives_nothing(x: np.ndarray) -> Any:
    return None if 17 in x else (x,)


ROWS = bu.ArrayDataSource([np.arange(N)])
MAPS = [
    refuses_some, refuses_all, needs_a_whole_batch, needs_a_pair, is_found_before_its_length,
    fails_in_another_way_alone, ends_the_loop, gives_nothing, cannot_read, says_much,
    refuses_by_what_is_frozen,
]  # fmt: skip
FAULTY: dict[str, Callable[[], Any]] = {
    "accessor": lambda: bu.ArrayDataSource([Named()]),
    **{fn.__name__: lambda fn=fn: ROWS.map(fn) for fn in MAPS},  # type: ignore[misc]
}


def told(batches: Any) -> Any:
    """Return the rows of an epoch, the errors that were let pass, and what ended it."""
    rows: list[Any] = []
    ended = None
    with batches:
        try:
            for (x,) in batches:
                rows.append(x.tolist())
        except Exception as error:
            kinds = [kind.__name__ for kind in type(error).__mro__]
            named = [str(getattr(error, name, None)) for name in ("row", "source", "op", "position", "batch", "rows")]
            ended = kinds, str(error), named
        passed = [(one.row, one.position, one.batch, one.source, str(one)) for one in batches.errors]
    return rows, passed, ended


@pytest.mark.parametrize("action", ["raise", "skip", "replace"])
@pytest.mark.parametrize("name", FAULTY)
def test_every_pool_and_the_direct_loop_raise_the_same_error(
    pools: list[AbstractWorkerPool], name: str, action: str
) -> None:
    source = FAULTY[name]()
    expected = told(source.batch_iterator(SIZE, shuffle=7, epoch=0, on_error=action))
    assert expected[1] or expected[2]
    with bu.SerialPool() as serial:
        for pool in (serial, *pools):
            parallel = pool.parallel_data_source(source, on_error=action)
            assert told(parallel.batch_iterator(SIZE, shuffle=7, epoch=0)) == expected


@pytest.mark.parametrize("action", ["raise", "skip", "replace"])
@pytest.mark.parametrize("fn", [needs_a_pair, is_found_before_its_length, fails_in_another_way_alone])
def test_no_good_sample_is_blamed(fn: Callable[..., Any], action: str) -> None:
    _, passed, ended = told(ROWS.take(N // SIZE * SIZE).map(fn).batch_iterator(SIZE, on_error=action))
    assert {row for row, *_ in passed} <= {17}
    assert ended is None or ended[2][0] in ("None", "17")


class Counted(bu.SerialPool):
    """A pool that counts its tasks."""

    tasks = 0

    def submit(self, task: Any, how: Any = None) -> Any:
        self.tasks += 1
        return super().submit(task, how)


@pytest.mark.parametrize("action", ["raise", "skip"])
def test_an_exception_makes_one_trip(action: str) -> None:
    with Counted() as pool:
        batches = pool.parallel_data_source(ROWS.map(refuses_some), on_error=action).batch_iterator(SIZE)
        told(batches)
        assert pool.tasks <= -(-N // SIZE)


def test_an_exception_that_is_frozen_arrives_with_its_attributes(pools: list[AbstractWorkerPool]) -> None:
    with pytest.raises(Frozen):
        ROWS.map(refuses_by_what_is_frozen)[17]
    for pool in (None, *pools):
        source = ROWS.map(refuses_by_what_is_frozen)
        batches = (pool.parallel_data_source(source) if pool else source).batch_iterator(SIZE, shuffle=7)
        with batches, pytest.raises(Frozen) as caught:
            list(batches)
        assert isinstance(caught.value, bu.BatchError)
        assert (caught.value.row, caught.value.op, caught.value.row_of_it) == (17, "refuses_by_what_is_frozen", 17)
        if pool is not None:
            stream = pool.work_stream(iter([(refuses_by_what_is_frozen, (np.array([17]),))]))
            with pytest.raises(Frozen) as caught:
                stream.retrieve()
            assert caught.value.row_of_it == 17


class Private(Exception):
    """An exception that cannot be sent to another process."""

    def __reduce__(self) -> Any:
        raise TypeError("not to be sent")


def raises_what_cannot_travel(x: np.ndarray) -> Any:
    raise Private("keep out")


def test_the_map_is_named_whatever_it_raises(pools: list[AbstractWorkerPool]) -> None:
    for pool in pools:
        batches = pool.parallel_data_source(ROWS.map(raises_what_cannot_travel)).batch_iterator(SIZE)
        with batches, raises(bu.BatchError) as caught:
            next(batches)
        assert caught.value.op == "raises_what_cannot_travel"


def test_each_failure_tells_the_traceback_of_its_worker(pools: list[AbstractWorkerPool]) -> None:
    for pool in pools:
        with pool.parallel_data_source(ROWS.map(refuses_some), on_error="skip").batch_iterator(SIZE) as batches:
            list(batches)
            assert [one.row for one in batches.errors] == [5, 17, 18, 40]
            for one in batches.errors:
                assert re.search(r"in refuses_some\n", one.traceback)
