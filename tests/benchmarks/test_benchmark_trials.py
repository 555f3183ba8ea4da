"""What a trial measures is what there was."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import processes
from benchmarks.answers import NoAnswer, answering, nap
from benchmarks.peers import orderers
from benchmarks.peers.base import Batch, Variant
from benchmarks.processes import (
    CpuMeter,
    come_to_rest,
    footprint,
    forget_peak,
    peak_bytes,
    private_bytes,
    resident_bytes,
    tree,
    unique_bytes,
)
from benchmarks.readers import ArrayReader
from benchmarks.trials.busy_consumer import BusyConsumer
from benchmarks.trials.consumption import Consumption
from benchmarks.trials.cpu import CpuTime
from benchmarks.trials.draws import Draws
from benchmarks.trials.epochs import Epochs, Unfair, together
from benchmarks.trials.footprint import Resting
from benchmarks.trials.order import Order
from benchmarks.trials.slow_consumer import SlowConsumer, shares
from benchmarks.trials.startup import copy_seconds
from benchmarks.workloads import Workload

MEGABYTE = 1_000_000
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

ROOT = Path(__file__).parents[2]
WORKLOAD = Workload(kind="python", folder="", samples=12, batch_size=4, x_sum=66, y_sum=66)


class Told(Iterator[Batch]):
    """Three batches of the numbers below twelve, with the ``stats()`` of an iterator of ours."""

    def __init__(self, waited: float) -> None:
        self._batches = iter(np.arange(12).reshape(3, 4))
        self._waited = waited
        self._given = 0

    def __next__(self) -> Batch:
        batch = next(self._batches)
        self._given += 1
        return (batch,)

    def stats(self) -> dict[str, float]:
        return {"wait_seconds": self._waited * self._given}


class Feed:
    def __init__(self, waited: float | None = None) -> None:
        self.waited = waited
        self.epochs: list[int] = []

    def epoch(self, number: int) -> Iterator[Batch]:
        self.epochs.append(number)
        return iter(list(Told(0.0))) if self.waited is None else Told(self.waited)

    def close(self) -> None:
        self.epochs.append(-1)


def variant(feed: Feed) -> Variant:
    return Variant(name="x", family="x", module="x", open=lambda workload, workers: feed)


def test_batches_of_one_array_count_once() -> None:
    epoch = Epochs(variant(Feed()), WORKLOAD, 2, {}).turn(0)
    assert (epoch.batches, epoch.samples, epoch.bytes) == (3, 12, 96)


def test_closing_a_trial_closes_the_feed() -> None:
    feed = Feed()
    Epochs(variant(feed), WORKLOAD, 2, {}).close()
    assert feed.epochs == [-1]


def test_epochs_together_are_a_long_one() -> None:
    trial = Epochs(variant(Feed()), WORKLOAD, 2, {})
    one, two = trial.turn(0), trial.turn(1)
    both = together([one, two])
    assert both.seconds == one.seconds + two.seconds
    assert (both.batches, both.samples, both.bytes) == (6, 24, 192)
    assert both.first_batch_seconds == one.first_batch_seconds


@pytest.mark.parametrize("kind", [Epochs, CpuTime])
def test_a_turn_after_the_first_runs_as_many_epochs_as_its_settings_say(kind: type[Epochs]) -> None:
    feed = Feed()
    trial = kind(variant(feed), WORKLOAD, 2, {"epochs": 3})
    assert trial.turn(0).samples == 12
    assert trial.turn(1).samples == 36
    assert feed.epochs == [0, 3, 4, 5]


def test_a_cpu_turn_counts_cpu_time() -> None:
    epoch = CpuTime(variant(Feed()), WORKLOAD, 2, {"epochs": 3}).turn(1)
    assert epoch.figures["cpu_seconds"] > 0


def test_a_consumption_clocks_each_wait_and_each_step() -> None:
    steps: list[str] = []
    slow = Consumption(Feed(waited=0.25), lambda: steps.append("step"))
    assert len(list(slow.epoch(0))) == 3
    assert len(slow.waits) == 4  # the end is waited for too
    assert len(slow.steps) == len(steps) == 3
    assert slow.reported == [0.25, 0.75]


def test_a_loader_without_stats_reports_nothing() -> None:
    slow = Consumption(Feed(), lambda: None)
    list(slow.epoch(0))
    assert slow.reported == []
    assert shares(slow, 1.0).keys() == {"step_seconds", "waited", "waited_later"}


def test_shares_are_of_the_whole_epoch_and_of_what_follows_the_first_batch() -> None:
    slow = Consumption(Feed(), lambda: None)
    slow.waits, slow.steps, slow.reported = [2.0, 0.5, 0.5], [3.0, 4.0], [1.0, 2.0]
    assert shares(slow, 10.0) == {
        "step_seconds": 3.5,
        "waited": 0.3,
        "waited_later": 1 / 8,
        "reported": 0.2,
        "reported_later": 1 / 8,
    }


def test_a_slow_consumer_takes_the_time_of_two_batches() -> None:
    feed = Feed(waited=0.0)
    trial = SlowConsumer(variant(feed), WORKLOAD, 2, {})
    for number in range(2):
        figures = trial.turn(number).figures
        assert figures["step_seconds"] >= 2 * figures["pace_seconds"]
    assert feed.epochs == [0, 1, 2, 3, 4]  # the very first one warms up


def test_a_busy_consumer_is_compared_with_itself_alone() -> None:
    figures = BusyConsumer(variant(Feed()), WORKLOAD, 2, {"loops": 1000}).turn(0).figures
    assert figures["loops_per_second"] > 0
    assert figures["alone"] > 0


@LINUX
def test_the_cpu_time_of_a_child_counts() -> None:
    meter = CpuMeter()
    with spinning_child() as child:
        until_it_says_so(child)
        assert meter.seconds() >= 0.05


@pytest.mark.parametrize(("busy", "most", "rest"), [(0.0, 30.0, 1.5), (4.0, 30.0, 5.5), (1e9, 7.0, 7.0)])
def test_rest_is_when_nothing_has_worked_for_some_time_and_is_not_waited_for_for_ever(
    busy: float, most: float, rest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock:
        now = 0.0

        def perf_counter(self) -> float:
            return self.now

        def sleep(self, seconds: float) -> None:
            self.now += seconds

    class Meter:
        def seconds(self) -> float:
            return 0.01 if clock.now < busy else 0.001  # since a tenth of a second ago

    clock = Clock()
    monkeypatch.setattr(processes, "time", clock)
    monkeypatch.setattr(processes, "CpuMeter", Meter)
    come_to_rest(most)
    assert clock.now == pytest.approx(rest, abs=0.15)


def test_a_resting_consumer_gets_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    monkeypatch.setattr(time, "sleep", rests.append)
    assert len(list(Resting(Feed()).epoch(3))) == 3
    assert rests == [0.2, 0.2, 0.2]


@LINUX
def test_a_child_in_a_session_of_its_own_is_in_the_tree() -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as child:
        try:
            assert child.pid in tree()
            assert footprint().processes >= 2
        finally:
            child.kill()


@LINUX
def test_what_was_there_before_is_not_in_the_tree() -> None:
    asks = "import os; from benchmarks.processes import tree; print(os.getpid() in tree(), os.getppid() in tree())"
    shell = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", asks]
    done = subprocess.run(shell, cwd=ROOT, start_new_session=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "True False\n", done.stderr


class spinning_child:
    """A process that says ``done`` after 0.05 s of CPU time, then waits for the end of its stdin."""

    CODE = "import sys, time\nwhile time.process_time() < 0.05: pass\nprint('done', flush=True); sys.stdin.read()"

    def __enter__(self) -> subprocess.Popen[bytes]:
        self._child = subprocess.Popen(
            [sys.executable, "-c", self.CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self._child

    def __exit__(self, *exc: object) -> None:
        self._child.communicate()


def until_it_says_so(child: subprocess.Popen[bytes]) -> None:
    assert child.stdout is not None
    assert child.stdout.readline() == b"done\n"


@LINUX
def test_pages_of_a_private_mapping_are_private_and_those_of_a_shared_one_are_not() -> None:
    size = 20 * MEGABYTE
    content = b"x" * size  # before anything is counted, for the allocator may keep what it had
    before = private_bytes(os.getpid()), unique_bytes(os.getpid())
    with mmap.mmap(-1, size, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS) as shared:
        shared[:] = content
        assert abs(private_bytes(os.getpid()) - before[0]) < size / 2
        assert unique_bytes(os.getpid()) - before[1] > size / 2
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as private:
        private[:] = content
        assert private_bytes(os.getpid()) - before[0] > size / 2


def test_a_plain_copy_takes_time(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.ones((10, 4, 4, 3), np.uint8))
    assert copy_seconds(tmp_path) > 0


def test_workers_that_do_not_answer_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.answers.PATIENCE", 0.0)
    with pytest.raises(NoAnswer, match="2 workers were to answer; after 0 s 1 had"):
        answering(iter(nap, None), 2)


@pytest.mark.parametrize("mapped", [False, True])
def test_a_mapped_reader_travels_by_name_and_another_by_value(tmp_path: Path, mapped: bool) -> None:
    import pickle

    np.save(tmp_path / "images.npy", np.zeros((100, 8, 8, 3), np.uint8))
    np.save(tmp_path / "labels.npy", np.arange(100))
    workload = Workload(kind="arrays", folder=str(tmp_path), samples=100, batch_size=4, mapped=mapped)
    sent = pickle.dumps(ArrayReader(workload))
    assert (len(sent) < 2000) == mapped
    arrived: Any = pickle.loads(sent)
    assert isinstance(arrived.images, np.memmap) == mapped
    assert arrived.many(np.array([3, 5]))[1].tolist() == [3, 5]




SHUFFLED = Workload(kind="order", folder="", samples=5000, batch_size=64, x_sum=12_497_500, y_sum=12_497_500)


def order_trial(name: str, **settings: float) -> Order:
    (found,) = (variant for variant in orderers("order") if variant.name == name)
    return Order(found, SHUFFLED, 2, {"early": 10, "all": 1, **settings})


@LINUX
@pytest.mark.parametrize("name", ["numpy-permutation", "numpy-generator", "ours-rows", "ours-batches"])
def test_an_order_is_handed_out_to_its_end(name: str) -> None:
    epoch = order_trial(name).turn(0)
    assert (epoch.batches, epoch.samples) == (79, 5000)
    assert 0 < epoch.first_batch_seconds < epoch.seconds
    assert epoch.figures["early_rate"] > 0
    assert ("resume_seconds" in epoch.figures) == (name == "ours-batches")


@LINUX
def test_an_order_can_be_broken_off() -> None:
    assert order_trial("ours-rows", all=0).turn(0).batches == 10


@LINUX
def test_an_order_that_repeats_a_row_is_refused() -> None:
    trial = order_trial("numpy-permutation")
    trial._feed._order = lambda n, seed: np.zeros(n, dtype=np.int64)
    with pytest.raises(Unfair, match=r"sum up to 12497500; got 5000, 0"):
        trial.turn(0)


@LINUX
def test_an_order_that_resumes_elsewhere_is_refused() -> None:
    trial = order_trial("ours-batches")
    trial._feed.resumed = lambda state: trial._feed.epoch(0)
    with pytest.raises(Unfair, match="goes on with another batch"):
        trial.turn(0)


def draws_trial(name: str) -> Draws:
    (found,) = (variant for variant in orderers("weights") if variant.name == name)
    return Draws(found, Workload(kind="weights", folder="", samples=1000, batch_size=8), 2, {"batches": 30})


@LINUX
@pytest.mark.parametrize("name", ["numpy-searchsorted", "numpy-choice", "ours"])
def test_draws_leave_out_what_weighs_nothing(name: str) -> None:
    epoch = draws_trial(name).turn(0)
    assert (epoch.batches, epoch.samples) == (31, 248)
    assert 0 < epoch.figures["batch_seconds"] <= epoch.figures["longest_batch_seconds"]


@LINUX
def test_draws_of_what_weighs_nothing_are_refused() -> None:
    trial = draws_trial("numpy-choice")
    trial._feed.epoch = lambda number: iter([(np.arange(8),)] * 31)
    with pytest.raises(Unfair, match="a row of weight 0 was drawn"):
        trial.turn(0)


@LINUX
def test_a_peak_is_remembered_until_it_is_forgotten() -> None:
    before = resident_bytes()
    np.ones(50 * MEGABYTE, dtype=np.uint8)
    assert peak_bytes() > before + 40 * MEGABYTE
    forget_peak()
    assert peak_bytes() < before + 40 * MEGABYTE
