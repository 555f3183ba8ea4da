"""Watching how long a loop waits."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentTypeError
from tests.messages import raises


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


def test_each_epoch_is_explained_if_that_is_wanted() -> None:
    said: list[Any] = []
    with bu.Loader([np.arange(200)], 4, pool="serial") as loader:
        watched = bu.watch(loader, said.append, explain=True)
        for _ in range(2):
            assert len(list(watched)) == 50
        next(iter(watched))
    assert [type(each) for each in said] == [bu.EpochWait, bu.Explanation] * 3
    assert said[1].batches > 20
    said.clear()
    assert list(bu.watch([1, 2, 3], said.append, explain=True)) == [1, 2, 3]
    assert [type(each) for each in said] == [bu.EpochWait]
    with bu.Loader([np.arange(8)], 4, pool="serial") as loader:
        list(bu.watch(loader, said.append, explain=True))
    assert [type(each) for each in said] == [bu.EpochWait] * 2


def test_what_another_library_iterates_over(capsys: pytest.CaptureFixture[str]) -> None:
    watched = bu.watch([1, 2, 3])
    assert len(watched) == 3
    assert watched.count(2) == 1
    assert [list(watched) for _ in range(2)] == [[1, 2, 3]] * 2
    assert [line.split(" in ")[0] for line in capsys.readouterr().out.splitlines()] == [
        "epoch 0: 3 batches", "epoch 1: 3 batches",
    ]  # fmt: skip
    with raises(ArgumentTypeError):
        bu.watch(5)


class SlowToStart(bu.SerialPool):
    """A pool that takes 0.05 s for its first task, as workers do that start."""

    begun = False

    def submit(self, *task: Any) -> Any:
        if not self.begun:
            time.sleep(0.05)
            self.begun = True
        return super().submit(*task)


def test_the_start_of_the_workers_is_waited_for() -> None:
    waits: list[bu.EpochWait] = []
    with bu.Loader([np.arange(20)], 4, pool=SlowToStart()) as loader:
        watched = bu.watch(loader, waits.append)
        list(watched)
        assert loader.stats()["wait_seconds"] >= 0.05
    (wait,) = waits
    assert 0.05 <= wait.first <= wait.waited <= wait.seconds


@pytest.mark.parametrize("opened", ["batch_iterator", "epochs", "watched"])
def test_so_it_is_in_a_source(opened: str) -> None:
    waits: list[bu.EpochWait] = []
    source = SlowToStart().parallel_data_source(bu.ArrayDataSource([np.arange(20)]))
    iterator = next(source.epochs(1, 4)) if opened == "epochs" else source.batch_iterator(4)
    with bu.watch(iterator, waits.append) if opened == "watched" else iterator as batches:
        list(batches)
        assert batches.stats()["wait_seconds"] >= 0.05
    assert all(wait.first >= 0.05 for wait in waits)
