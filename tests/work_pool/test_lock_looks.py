"""The share of a thread's CPU time with the interpreter's lock held is found, on a busy machine too."""

from __future__ import annotations

import hashlib
import math
import random
import resource
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchup_ng.platforms import system
from batchup_ng.work_pool import lock_looks
from batchup_ng.work_pool.lock_looks import Looks, looks_at
from tests.threads import needs_lock

BLOCK = bytes(3_000_000)


def in_python() -> None:
    for _ in range(50_000):
        pass


def without_lock() -> None:
    hashlib.sha256(BLOCK).digest()


def looked(run: Callable[[], object], error: float = 0.06) -> Looks:
    """Look until the standard error is small."""
    looks = Looks()
    while looks.error > error:
        looks = looks.and_more(looks_at(run, 0.002))
    return looks


@needs_lock
@pytest.mark.in_turn
def test_work_in_python_holds_the_lock_and_hashing_does_not() -> None:
    interval = sys.getswitchinterval()
    python, free = looked(in_python), looked(without_lock)
    assert python.share > free.share + 0.4
    assert 0 < python.held <= python.cpu
    assert sys.getswitchinterval() == interval


def test_nothing_of_the_program_is_drawn_from() -> None:
    random.seed(1)
    np.random.seed(1)
    looks_at(in_python, 0.002)
    assert random.random() == random.Random(1).random()
    assert np.random.randint(10**6) == np.random.RandomState(1).randint(10**6)


def test_work_that_sleeps_has_little_cpu_time() -> None:
    looks = looks_at(lambda: time.sleep(0.02), 0.02)
    assert looks.cpu < 0.02


def test_an_error_arrives_and_no_thread_is_left() -> None:
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        looks_at(lambda: 1 // 0, 0.001)
    assert threading.active_count() == before


def test_a_system_that_counts_less_is_looked_at_by_elapsed_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(resource, "RUSAGE_THREAD", raising=False)
    monkeypatch.setattr(lock_looks, "HAS_CLOCKS", False)
    assert math.isnan(system.voluntary_switches())
    looks = looks_at(in_python, 0.002)
    assert 0 <= looks.share <= 1
    assert looks.cpu > 0


AMOUNTS = st.floats(1e-6, 1.0)


@given(st.lists(st.tuples(AMOUNTS, st.booleans()), min_size=1, max_size=50))
def test_looks_add_up(each: list[tuple[float, bool]]) -> None:
    looks = Looks()
    for cpu, held in each:
        looks = looks.and_more(Looks(cpu * held, cpu, cpu**2))
    assert looks.share == pytest.approx(sum(cpu for cpu, held in each if held) / sum(cpu for cpu, _ in each))
    assert 0 < looks.error <= 1.0
    assert looks.and_more(looks).error <= looks.error + 1e-9


def test_without_looks_nothing_is_known() -> None:
    assert math.isnan(Looks().share)
    assert Looks().error == 1.0
