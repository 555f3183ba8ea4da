"""The times of a thread on a CPU, and in the queue for one."""

from __future__ import annotations

import builtins
import os
import threading
import time

import pytest

from batchup_ng.meters.cpu import queued_seconds, timed


def test_a_call_that_sleeps_neither_runs_nor_queues_for_all_of_its_time() -> None:
    measured = timed(lambda: time.sleep(0.05))
    assert measured.seconds >= 0.05
    assert measured.ran < measured.seconds
    assert 0 <= measured.queued < measured.seconds


def test_a_call_that_computes_runs() -> None:
    def compute() -> None:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass

    measured = timed(compute)
    assert measured.seconds >= measured.ran >= 0.02


def test_it_is_of_the_thread_that_asks() -> None:
    seen: list[float] = []
    before = queued_seconds()
    thread = threading.Thread(target=lambda: seen.append(queued_seconds()))
    thread.start()
    thread.join()
    assert seen[0] >= 0
    assert queued_seconds() >= before


def test_a_system_without_the_file_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_file(*args: object, **kwargs: object) -> int:
        raise FileNotFoundError("there is no /proc here")

    monkeypatch.setattr(os, "open", no_file)
    monkeypatch.setattr(builtins, "open", no_file)
    assert queued_seconds() == 0.0
