"""Watching how long a loop waits."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentTypeError
from batchup_ng.frameworks.ahead import AheadIterator
from batchup_ng.work_pool import AbstractWorkerPool
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


# How fast the loop would be if data cost nothing

FED = 10


@pytest.fixture(scope="module", params=["serial", "threads", "processes"])
def pool(request: pytest.FixtureRequest, pools: list[AbstractWorkerPool]) -> AbstractWorkerPool:
    threads, processes = pools
    return {"serial": bu.SerialPool(), "threads": threads, "processes": processes}[request.param]


def numbers(as_dict: bool) -> bu.ArrayDataSource:
    return bu.ArrayDataSource({"x": np.arange(200)} if as_dict else [np.arange(200)])


def nap(x: Any) -> Any:
    time.sleep(0.006)
    return x


@pytest.mark.parametrize("as_dict", [False, True])
def test_one_batch_comes_again_and_the_epoch_goes_on_where_it_was(pool: AbstractWorkerPool, as_dict: bool) -> None:
    key: Any = "x" if as_dict else 0
    with bu.Loader(numbers(as_dict), 10, shuffle=3, pool=pool) as loader:
        expected = [[batch[key].tolist() for batch in loader] for _ in range(2)]
    said: list[Any] = []
    with bu.Loader(numbers(as_dict), 10, shuffle=3, pool=pool) as loader:
        watched = bu.watch(loader, said.append, headroom=FED)
        got, states = [], []
        for batch in watched:
            got.append(batch[key].tolist())
            batch[key][:] = -1  # a step may write to its batch
            states.append(watched.state_dict())
        assert got == [*expected[0][:8], *[expected[0][7]] * FED, *expected[0][8:]]
        assert states[7] == states[8] == states[7 + FED] != states[8 + FED]
        assert [batch[key].tolist() for batch in watched] == expected[1]  # it is done once
        assert loader.metrics()["batches"] == 40
    assert [wait.batches for wait in said] == [20, 20]
    assert [wait.headroom >= 0 for wait in said] == [True, False]
    assert "a step with a batch that is there takes" in str(said[0])
    with bu.Loader(numbers(as_dict), 10, shuffle=3, pool=pool) as loader:
        loader.load_state_dict(states[12])  # from between two of the copies
        assert [batch[key].tolist() for batch in loader] == expected[0][8:]


def test_the_steps_with_one_batch_are_those_of_the_loop_without_waits() -> None:
    said: list[Any] = []
    with bu.Loader(numbers(False).map(nap, on=0), 5, pool="serial") as loader:
        for _ in bu.watch(loader, said.append, explain=True, headroom=FED):
            time.sleep(0.003)
    wait, why = said
    assert why.headroom.measured
    assert 0.003 <= why.headroom.seconds == wait.headroom < why.seconds_per_batch
    assert why.headroom.share == pytest.approx(1 - why.headroom.seconds / why.seconds_per_batch)
    assert why.batches == 40 - 2  # without the first ones, and without the copies
    assert max(why._evidence.step) < 0.003 * FED  # they are no step of the loop
    assert why.to_dict()["headroom"]["measured"]
    assert sum(line.startswith("If data cost nothing, a batch would come each ") for line in str(why).splitlines()) == 1
    assert wait.waited >= 40 * 0.006


def test_without_that_the_headroom_is_that_of_the_loops_own_steps() -> None:
    with bu.Loader(numbers(False).map(nap, on=0), 5, pool="serial") as loader:
        for _ in loader:
            time.sleep(0.003)
        why = loader.explain(trial=False)
    assert not why.headroom.measured
    assert why.headroom.seconds == why.step_seconds


def test_a_loop_that_ends_early_loses_no_batch() -> None:
    said: list[Any] = []
    with bu.Loader(numbers(False), 10, pool="serial") as loader:
        watched = bu.watch(loader, said.append, headroom=FED)
        for number, _ in enumerate(watched):
            if number == 7 + FED // 2:
                break
        watched.close()
        state = loader.state_dict()
    assert said[0].batches == 8
    with bu.Loader(numbers(False), 10, pool="serial") as loader:
        loader.load_state_dict(state)
        assert next(iter(loader))[0].tolist() == [*range(80, 90)]


def test_any_iterable_has_its_eighth_batch_again() -> None:
    said: list[bu.EpochWait] = []
    watched = bu.watch([*range(10)], said.append, headroom=FED)
    assert [list(watched) for _ in range(2)] == [[*range(8), *[7] * FED, 8, 9], [*range(10)]]
    assert [wait.batches for wait in said] == [10, 10]
    assert list(bu.watch([1, 2], headroom=FED, report=said.append)) == [1, 2]  # too few


def test_batches_that_were_listed_come_once() -> None:
    with bu.Loader(numbers(False), 10, pool="serial") as loader:
        watched = bu.watch(loader, lambda _: None, headroom=FED)
        assert [x[0] for (x,) in watched.batches(range(20))] == [*range(0, 200, 10)]


def test_where_it_would_mislead_it_is_refused() -> None:
    with raises(bu.ArgumentError):
        bu.watch([1], headroom=7)
    with raises(bu.ArgumentError):
        bu.watch([1], headroom=-1)
    with bu.Loader(numbers(False), 10, pool="serial") as loader:
        watched = bu.watch(loader, headroom=FED)
        ahead = watched.view(lambda iterator: AheadIterator(iterator, lambda batch: batch))
        with raises(bu.ArgumentError):
            iter(ahead)
