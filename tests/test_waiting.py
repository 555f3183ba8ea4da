"""Watching how long a loop waits."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentTypeError


def slow(n: int) -> Any:
    for number in range(n):
        time.sleep(0.02)
        yield number


def test_the_wait_for_the_first_batch_counts_apart() -> None:
    waits: list[bu.EpochWait] = []
    with bu.watch(slow(3), waits.append) as iterator:
        assert list(iterator) == [0, 1, 2]
    (wait,) = waits
    assert (wait.epoch, wait.batches) == (0, 3)
    assert 0.02 <= wait.first < wait.waited <= wait.seconds
    assert wait.waited >= 0.06
    assert wait.share == pytest.approx((wait.waited - wait.first) / (wait.seconds - wait.first))


def test_a_loop_that_never_waits() -> None:
    assert bu.EpochWait(3, 20, 2.5, 0.52, 0.5).share == pytest.approx(0.01)
    assert str(bu.EpochWait(3, 20, 2.5, 0.52, 0.5)) == (
        "epoch 3: 20 batches in 2.50 s, 0.50 s to the first; then the loop waited 1.0 % of the time"
    )
    assert bu.EpochWait(0, 0, 0.0, 0.0, 0.0).share == 0.0


def test_each_epoch_of_a_loader_is_reported() -> None:
    waits: list[bu.EpochWait] = []
    with bu.Loader([np.arange(20)], 4, pool="serial", start_epoch=5) as loader:
        watched = bu.watch(loader, waits.append)
        assert isinstance(watched, bu.Loader)
        for _ in range(2):
            assert len(list(watched)) == 5
        next(iter(watched))
    assert [(wait.epoch, wait.batches) for wait in waits] == [(5, 5), (6, 5), (7, 1)]


def test_what_another_library_iterates_over(capsys: pytest.CaptureFixture[str]) -> None:
    watched = bu.watch([1, 2, 3])
    assert len(watched) == 3
    assert watched.count(2) == 1
    assert [list(watched) for _ in range(2)] == [[1, 2, 3]] * 2
    assert [line.split(" in ")[0] for line in capsys.readouterr().out.splitlines()] == [
        "epoch 0: 3 batches", "epoch 1: 3 batches",
    ]  # fmt: skip
    with pytest.raises(ArgumentTypeError, match="something to iterate over"):
        bu.watch(5)
