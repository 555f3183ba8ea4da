"""Interrupts that are held back come at the end, once, and nowhere else."""

from __future__ import annotations

import functools
import os
import signal
import threading
from typing import Any

import pytest

import batchup_ng as bu
from batchup_ng.signals import InterruptsHeld
from batchup_ng.work_pool.processes.pool import START_METHODS
from batchup_ng.work_pool.processes.process import Launcher
from tests.extent import methods
from tests.messages import raises


def test_an_interrupt_waits_for_the_end() -> None:
    steps = []

    def interrupted_twice() -> None:
        with InterruptsHeld():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            steps.append("went on")
        steps.append("not reached")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        interrupted_twice()
    assert steps == ["went on"]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_exception_of_the_step_itself_stays() -> None:
    with raises(ValueError), InterruptsHeld():
        raise ValueError("its own")


def test_other_signals_whose_handlers_may_raise_wait_too() -> None:
    called: list[int] = []
    numbers = [signal.SIGTERM, signal.SIGUSR1]
    before = [signal.signal(number, lambda number, frame: called.append(number)) for number in numbers]
    try:
        with InterruptsHeld() as held:
            for number in numbers:
                os.kill(os.getpid(), number)
            assert (called, list(held.came)) == ([], numbers)
        assert called == numbers
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def test_a_handler_that_raises_keeps_no_other_from_its_turn() -> None:
    called: list[int] = []

    def struck_twice() -> None:
        with InterruptsHeld():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, lambda number, frame: called.append(number))
    try:
        with pytest.raises(KeyboardInterrupt):
            struck_twice()
        assert called == [signal.SIGTERM]
        os.kill(os.getpid(), signal.SIGTERM)
        assert called == [signal.SIGTERM] * 2, "its handler is in place again"
    finally:
        signal.signal(signal.SIGTERM, before)


def test_nothing_is_done_where_interrupts_are_ignored_or_on_another_thread() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with InterruptsHeld():
            os.kill(os.getpid(), signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    found = []

    def elsewhere() -> None:
        with InterruptsHeld():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [before]


def own_mask() -> set[int]:
    return {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])}


def end_oneself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("kind", methods("forkserver"))
def test_threads_that_start_processes_never_take_an_interrupt(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    masks = []

    def noted(self: Launcher, start: Any) -> Any:
        masks.append((threading.current_thread().name, signal.SIGINT in own_mask()))
        return start(self)

    for launcher in START_METHODS.values():
        monkeypatch.setattr(launcher, "start", functools.partialmethod(noted, launcher.start))
    with bu.WorkerProcessPool(1, start_method=kind, start_timeout=600) as pool:
        # Where a worker ignores it instead, for programs that a user's function starts inherit what is blocked.
        assert signal.SIGINT not in pool.work_stream(iter([(own_mask, ())])).retrieve()
        with pytest.raises(bu.WorkerDied):
            pool.work_stream(iter([(end_oneself, ())])).retrieve()
        pool.work_stream(iter([(own_mask, ())])).retrieve()
    assert masks == [("batchup_ng-dispatch", True), ("batchup_ng-start", True)]
    assert signal.SIGINT not in own_mask()
