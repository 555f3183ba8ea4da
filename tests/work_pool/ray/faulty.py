"""What actors are given to do that goes wrong; they import it without pytest."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import batchup_ng as bu
from tests.work_pool.pool_tasks import time_is_up

SAMPLES = 240
SIZE = 8


def same(x: np.ndarray, y: np.ndarray) -> Any:
    return x, y


def source(fn: Callable[..., Any] = same) -> Any:
    """Return the numbers below :data:`SAMPLES`, each with random ones that are its own, after the map `fn`."""
    return bu.ArrayDataSource([np.arange(SAMPLES)]).map(drawn, rng="sample").map(fn)


def drawn(x: np.ndarray, rng: bu.SampleRng) -> Any:
    return x, rng.normal((32,))


def slow(x: np.ndarray, y: np.ndarray) -> Any:
    time.sleep(0.01)
    return x, y


class Once:
    """Does something to the actor that makes a sample, the first time that one does."""

    def __init__(self, mark: Any, row: int, act: Callable[[], Any]) -> None:
        self.mark = str(mark)
        self.row = row
        self.act = act

    def __call__(self, x: np.ndarray, y: np.ndarray) -> Any:
        if self.row in x:
            try:
                os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return x, y
            self.act()
        return x, y


class Always(Once):
    """Does it each time."""

    def __call__(self, x: np.ndarray, y: np.ndarray) -> Any:
        if self.row in x:
            self.act()
        return x, y


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave() -> None:
    os._exit(0)


def hang(mark: Path) -> None:
    time_is_up(mark)
    time.sleep(3600)
