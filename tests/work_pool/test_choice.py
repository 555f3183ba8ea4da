"""Which pool suits which work."""

from __future__ import annotations

import itertools
import linecache
import math
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.work_pool import choice
from batchup_ng.work_pool.choice import choose, suited

TOO_BUSY = "too busy to tell"


def in_python(x: Any) -> Any:
    total = 0
    for number in range(60_000):
        total += number
    return (x,)


def asleep(x: Any) -> Any:
    time.sleep(0.002)
    return (x,)


@pytest.fixture
def source() -> bu.ArrayDataSource:
    return bu.ArrayDataSource([np.arange(80_000)])


def test_tiny_work_stays_on_the_thread(source: bu.ArrayDataSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "TINY", 1.0)  # seconds, which no machine is too busy for
    kind, why = choose(source, 8, True)
    assert kind == "serial"
    assert "less than handing it over" in why


def test_python_work_needs_processes(source: bu.ArrayDataSource) -> None:
    kind, why = choose(source.map(in_python), 8, True)
    assert kind == "processes"
    assert "of it with the interpreter's lock" in why or TOO_BUSY in why


def test_work_that_lets_the_lock_go_suits_threads(source: bu.ArrayDataSource) -> None:
    kind, why = choose(source.map(asleep), 8, False)
    assert kind == "threads"
    assert re.search(r"a batch takes .* ms, \d+% of it on a CPU", why)


@pytest.mark.parametrize("rows", [1, 16, 80])
def test_no_processes_are_started_for_a_short_epoch(rows: int) -> None:
    calls: list[int] = []

    def make(item: int) -> None:
        calls.append(item)
        in_python(item)

    assert choose(bu.ArrayDataSource([np.arange(rows)]).map(in_python), 8, True).kind == "threads"
    kind, why = suited(make, range(2), 2)
    assert (kind, len(calls)) == ("threads", 2)
    assert "too short for a start of processes" in why


def test_what_cannot_be_tried_goes_to_threads(source: bu.ArrayDataSource, tmp_path: Path) -> None:
    with open(tmp_path / "file", "w") as file:
        assert "cannot be pickled" in choose(source.map(lambda x: (file.name, x)), 8, True).why
    assert "ZeroDivisionError" in choose(source.map(lambda x: (1 // 0,)), 8, True).why
    assert "only streams" in choose(bu.CallableDataSource(lambda *_, **__: iter([])), 8, True).why


def test_an_empty_source_can_be_tried() -> None:
    assert choose(bu.ArrayDataSource([np.arange(0)]), 8, True) == ("serial", "there are no batches")


def test_nothing_is_tried_that_may_hang(source: bu.ArrayDataSource) -> None:
    kind, why = choose(source.map(lambda x: time.sleep(1000)), 8, True, timeout=1.0)
    assert kind == "processes"
    assert "timeout=" in why
    lock = threading.Lock()
    assert choose(source.map(lambda x: (lock and x,)), 8, True, timeout=1.0).kind == "threads"


class Counts:
    """A data set that writes to an array of its own, large enough to be shared with a copy."""

    def __init__(self) -> None:
        self.seen = np.zeros(100_000)

    def __len__(self) -> int:
        return 80

    def __getitem__(self, index: int) -> float:
        self.seen[index] += 1
        return float(self.seen[index])


def test_a_data_set_that_writes_is_not_written_to() -> None:
    data = Counts()
    kind, why = choose(bu.ArrayDataSource([bu.MapStyle(data)]), 8, False)
    assert not data.seen.any()
    assert (kind, "ValueError" in why) == ("threads", True)


def test_trying_changes_nothing(source: bu.ArrayDataSource) -> None:
    calls = []

    def drawing(x: Any) -> Any:
        calls.append(len(x))
        return (x, np.random.rand(len(x)))

    state = np.random.get_state(legacy=False)
    choose(source.map(drawing), 8, True)
    assert calls == []  # the copy has a list of its own
    np.testing.assert_equal(np.random.get_state(legacy=False), state)


def interrupted_at(line: int, run: Callable[[], object]) -> bool:
    """Run under an interrupt at the line of that number that this thread runs in ``choice.py``; return if it came."""
    lines = itertools.count(1)
    came = False

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal came
        if frame.f_code.co_filename != choice.__file__:
            return None
        # Not before the line that puts the interval back: Python deals with no signal there.
        puts_back = "setswitchinterval(before)" in linecache.getline(choice.__file__, frame.f_lineno)
        if event == "line" and not came and not puts_back and next(lines) == line:
            came = True
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return came


def test_an_interrupt_at_any_line_arrives(
    source: bu.ArrayDataSource, monkeypatch: pytest.MonkeyPatch, in_full: bool
) -> None:
    monkeypatch.setattr(choice, "ENOUGH", 1)
    monkeypatch.setattr(choice, "QUEUED", math.inf)
    python, interval = source.map(in_python), sys.getswitchinterval()
    for line in itertools.count(1, 1 if in_full else 9):
        try:
            came = interrupted_at(line, lambda: choose(python, 8, True))
        except KeyboardInterrupt:
            came = True
        else:
            assert not came, f"the interrupt at line {line} was swallowed"
        assert sys.getswitchinterval() == interval
        if not came:
            break
    assert line > 50


def test_an_interrupt_while_the_second_thread_starts_arrives(
    source: bu.ArrayDataSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Raised(Exception):
        pass

    def handler(number: int, frame: Any) -> None:
        raise Raised

    def start(thread: threading.Thread) -> None:
        handler(signal.SIGUSR1, sys._getframe())

    monkeypatch.setattr(choice, "EPOCH", 0.0)
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(Raised):
        choose(source.map(in_python), 8, True)


def test_an_error_on_the_second_thread_arrives() -> None:
    calls = []

    def make(item: int) -> None:
        calls.append(item)
        in_python(item)
        if len(calls) == 3:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        suited(make, range(6))
