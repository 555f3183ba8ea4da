"""Samples give what cannot travel (F9); the contract of every pool has those that raise (F7, F8)."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import batchup_ng as bu

from ..accounting import BATCH, SHUFFLE, N, make_pool, planned_rows, whole
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
            **{name: getattr(error, name, None) for name in ("row", "epoch", "batch")},
        }  # fmt: skip
    raise AssertionError(f"the epoch ended without an error, after {delivered} batches")


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
            found.append(said | {"bad": bad_row(), "usable": whole(pool, n=70, buffer=4) == 10})
    return found
