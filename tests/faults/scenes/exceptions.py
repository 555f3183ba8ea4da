"""Samples raise, in every way that an exception can be odd, or give what cannot travel (F7–F9)."""

from __future__ import annotations

import builtins
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import batchup_ng as bu

from ..accounting import BATCH, SHUFFLE, SIZES, N, balance, make_pool, planned_rows, source
from ..mischief import InRows

POSITION = 200
"""Where in the epoch the bad row stands."""


def bad_row() -> int:
    return int(planned_rows()[POSITION])


def told(iterator: Any) -> dict[str, Any]:
    """Return what the error of an epoch tells; an AssertionError if the epoch ends without one."""
    delivered = 0
    try:
        for _ in iterator:
            delivered += 1
    except Exception as error:
        try:
            after = next(iterator, "the end")
        except bu.PoolClosed:
            after = None
        assert after is None, f"the iterator went on after it had raised, with {after}"
        return {
            "delivered": delivered, "types": [kind.__name__ for kind in type(error).__mro__],
            "is_batch_error": isinstance(error, bu.BatchError), "message": str(error)[: 1 << 20],
            **{name: _plain(getattr(error, name, None)) for name in ("row", "source", "op", "epoch", "batch")},
            "traceback": str(getattr(error, "traceback", None))[: 1 << 20],
        }  # fmt: skip
    raise AssertionError(f"the epoch ended without an error, after {delivered} batches")


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (int, str)) else str(value)


def fails_at_the_bad_row(rows: np.ndarray) -> Any:
    """The map whose name an error must tell."""
    if bad_row() in rows:
        raise LookupError("the row is bad")
    return (rows,)


def named(kind: str, workers: int, size: str) -> dict[str, Any]:
    """F7: a map raises at one row; the error tells all there is to know."""
    with make_pool(kind, workers) as pool:
        parallel = pool.parallel_data_source(source(SIZES[size], fault=fails_at_the_bad_row), 8)
        found = told(parallel.batch_iterator(BATCH, shuffle=SHUFFLE, epoch=0))
        return found | {"bad": bad_row(), "usable": _usable(pool)}


def skipped(kind: str, workers: int, size: str) -> dict[str, Any]:
    """F7: with ``on_error="skip"`` exactly the bad row is lost."""
    with make_pool(kind, workers) as pool:
        faulty = source(SIZES[size], fault=fails_at_the_bad_row)
        with pool.parallel_data_source(faulty, 8, on_error="skip").batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
            batches = balance(iterator, width=SIZES[size], bad=[bad_row()])
            (error,) = iterator.errors
            return {"batches": batches, "message": str(error)}


def _usable(pool: Any) -> bool:
    with pool.parallel_data_source(source(n=70), 4).batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
        return balance(iterator, n=70) == 10


# -- F8: odd exceptions ------------------------------------------------------------------------------------------


class Unrebuildable(Exception):
    """Its pickle lacks an argument."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Unpicklable(ValueError):
    """It holds what cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


class Lying(Exception):
    """It becomes something else on its way."""

    def __reduce__(self) -> Any:
        return str, ("not an exception",)


class Unprintable(Exception):
    """It has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Untraceable(LookupError):
    """Python's own code for tracebacks fails at it."""

    def __getattr__(self, name: str) -> Any:
        return {}[name]


class Truthless(Exception):
    """Nobody can ask whether it is true, as Python's own code for tracebacks does."""

    def __len__(self) -> int:
        raise RuntimeError("no length")


def _group() -> BaseException:
    group = getattr(builtins, "ExceptionGroup", None)
    return group("two at once", [ValueError("one"), KeyError("two")]) if group else ValueError("no groups before 3.11")


ODD: dict[str, Callable[[], BaseException]] = {
    "unrebuildable": lambda: Unrebuildable(1, 2),
    "unpicklable": Unpicklable,
    "lying": lambda: Lying("x"),
    "unprintable": Unprintable,
    "untraceable": lambda: Untraceable("no attributes"),
    "truthless": lambda: Truthless("no length"),
    "10 MB": lambda: ValueError("x" * 10_000_000),
    "100 MB": lambda: ValueError("x" * 100_000_000),
    "group": _group,
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": lambda: KeyboardInterrupt(),
    "StopIteration": lambda: StopIteration("early"),
    "GeneratorExit": lambda: GeneratorExit(),
}


class RaisesOdd:
    """A map that raises an odd exception at the bad row."""

    def __init__(self, which: str) -> None:
        self.which = which
        self.row = bad_row()

    def __call__(self, rows: np.ndarray) -> Any:
        if self.row in rows:
            raise ODD[self.which]()
        return (rows,)


def odd(kind: str, ways: list[str]) -> list[dict[str, Any]]:
    """F8: a map raises odd exceptions; each is named like any other, the pool goes on."""
    with make_pool(kind) as pool:
        found = []
        for which in ways:
            parallel = pool.parallel_data_source(source(fault=RaisesOdd(which)), 8)
            found.append(told(parallel.batch_iterator(BATCH, shuffle=SHUFFLE)) | {"bad": bad_row(), "usable": True})
        return found if _usable(pool) else []


def odd_skipped(kind: str, ways: list[str]) -> list[int]:
    """F8: and they can be skipped; return the batches of each epoch."""
    with make_pool(kind) as pool:
        found = []
        for which in ways:
            parallel = pool.parallel_data_source(source(fault=RaisesOdd(which)), 8, on_error="skip")
            with parallel.batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
                found.append(balance(iterator, bad=[bad_row()]))
        return found


# -- F9: results that cannot travel ------------------------------------------------------------------------------


class Holder:
    """Something with an attribute."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class LoadRaises:
    """It cannot be loaded."""

    def __reduce__(self) -> Any:
        return int, ("not a number",)


class LoadExits:
    """Loading it leaves the program, politely or not."""

    def __init__(self, politely: bool) -> None:
        self.politely = politely

    def __reduce__(self) -> Any:
        return (sys.exit, (5,)) if self.politely else (os._exit, (5,))


class LoadRaisesHere:
    """It can be loaded anywhere but in the program that it is for."""

    def __reduce__(self) -> Any:
        return refuse_here, ()


def refuse_here() -> None:
    if os.getpid() == int(os.environ["SCENE_PID"]):
        raise ValueError("not to be loaded here")


class EndKills:
    """The process that made it, dies when it is dropped."""

    def __init__(self) -> None:
        self.pid = os.getpid()

    def __del__(self) -> None:
        if getattr(self, "pid", None) == os.getpid() != int(os.environ["SCENE_PID"]):
            os._exit(9)


RESULTS: dict[str, Callable[[], Any]] = {
    "lock": lambda: Holder(lock=threading.Lock()),
    "load raises": LoadRaises,
    "load exits": lambda: LoadExits(True),
    "load kills": lambda: LoadExits(False),
    "load raises here": LoadRaisesHere,
    "end kills": EndKills,
}


class GivesOdd:
    """Makes a batch that cannot travel."""

    def __init__(self, which: str) -> None:
        self.which = which

    def __call__(self, rows: np.ndarray) -> Any:
        return rows, {"meta": RESULTS[self.which]()}


def results_that_cannot_travel(kind: str, ways: list[str]) -> list[dict[str, Any]]:
    """F9: the batch with the bad row cannot travel; it is told of, the pool goes on."""
    os.environ["SCENE_PID"] = str(os.getpid())
    found = []
    with make_pool(kind) as pool:
        for which in ways:
            rows = bu.ArrayDataSource([np.arange(N)]).map(InRows([bad_row()], GivesOdd(which)))
            iterator = pool.parallel_data_source(rows, 8).batch_iterator(BATCH, shuffle=SHUFFLE)
            try:
                said = told(iterator)
            except AssertionError:
                said = {"whole": iterator.stats()["samples"]}
            found.append(said | {"bad": bad_row(), "usable": _usable(pool)})
    return found
