"""What a trial measures is what there was."""

from __future__ import annotations

import gc
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks import trials
from benchmarks.processes import CpuMeter, footprint, private_bytes, tree
from benchmarks.trials import consumer, epochs, operation, run_epoch, shares, startup
from benchmarks.workloads.base import Batch, Workload
from tests.messages import raises

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
ROOT = Path(__file__).parents[2]
WORKLOAD = Workload(kind="python", folder="", samples=12, batch_size=4, x_sum=66, y_sum=66, nbytes=1000)


class Feed:
    """Three batches of the numbers below twelve."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def epoch(self, number: int) -> Iterator[Batch]:
        self.epochs.append(number)
        return iter([(batch,) for batch in np.arange(12).reshape(3, 4)])

    def close(self) -> None:
        self.epochs.append(-1)


def test_batches_of_one_array_count_once() -> None:
    epoch = run_epoch(partial(Feed().epoch, 0), WORKLOAD, check_x=True)
    assert (epoch.batches, epoch.samples, epoch.bytes) == (3, 12, 96)


@pytest.mark.parametrize("what", ["samples", "y_sum", "x_sum"])
def test_what_is_not_the_workload_is_refused(what: str) -> None:
    other = Workload(**{**vars(WORKLOAD), what: 5})
    with raises(trials.Unfair):
        run_epoch(partial(Feed().epoch, 0), other, check_x=True)


def test_an_operation_is_timed_on_each_batch_of_an_epoch() -> None:
    feed = Feed()
    feed.epoch = lambda number: iter([(batch, batch) for batch in np.arange(12).reshape(3, 4)])  # type: ignore[method-assign]
    epoch = operation(feed, WORKLOAD, 0, {})
    assert (epoch.batches, epoch.samples, epoch.bytes) == (3, 12, 96)
    assert 0 < epoch.first_batch_seconds <= epoch.seconds
    with raises(trials.Unfair):
        operation(feed, Workload(**{**vars(WORKLOAD), "samples": 5}), 0, {})


@LINUX
def test_a_turn_after_the_first_runs_as_many_epochs_as_its_settings_say() -> None:
    feed = Feed()
    first, later = (epochs(feed, WORKLOAD, number, {"epochs": 3}) for number in range(2))
    assert (first.samples, later.samples, later.batches, later.bytes) == (12, 36, 9, 288)
    assert feed.epochs == [0, 3, 4, 5]
    assert 0 < later.first_batch_seconds < later.seconds


@LINUX
def test_a_turn_counts_the_cpu_time_of_the_consumer_within_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = iter([1.0, 3.5])
    monkeypatch.setattr(trials.time, "process_time", lambda: next(clocks))
    figures = epochs(Feed(), WORKLOAD, 1, {}).figures
    assert figures["consumer_cpu_seconds"] == 2.5
    assert figures["cpu_seconds"] > 0
    assert figures["processes"] >= 1
    assert figures["pss"] > 0


def test_shares_are_of_the_whole_epoch_and_of_what_follows_the_first_batch() -> None:
    figures = shares([2.0, 0.5, 0.5], [3.0, 4.0], 10.0, 1.75)
    assert figures == {"step_seconds": 3.5, "alone": 0.5, "waited": 0.3, "waited_later": 1 / 8}


@pytest.mark.parametrize("settings", [{}, {"load": 0.9}, {"loops": 1000}])
def test_a_consumer_is_slower_than_the_loader_after_the_first_epoch(settings: dict[str, float]) -> None:
    feed = Feed()
    assert consumer(feed, WORKLOAD, 0, settings).figures == {}
    figures = consumer(feed, WORKLOAD, 1, settings).figures
    assert feed.epochs == [0, 2, 3]
    assert "loops" in settings or figures["step_seconds"] >= figures["pace_seconds"] / settings.get("load", 0.5)
    assert figures["alone"] > 0


@LINUX
def test_a_start_is_watched_twice_and_closed() -> None:
    feed = Feed()
    figures = startup(feed, WORKLOAD, 0, {}).figures
    assert feed.epochs == [0, 1, -1, 2, -1]
    assert figures["copy_seconds"] > 0
    assert figures["again_seconds"] > 0


CODE = "import sys, time\nwhile time.process_time() < 0.05: pass\nprint('done', flush=True); sys.stdin.read()"


@LINUX
def test_the_cpu_time_of_a_child_counts() -> None:
    meter = CpuMeter()
    with subprocess.Popen([sys.executable, "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == b"done\n"
        assert meter.seconds() >= 0.05
        child.stdin.close()


@LINUX
def test_a_child_in_a_session_of_its_own_is_in_the_tree() -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as child:
        try:
            assert child.pid in tree()
            assert footprint()["processes"] >= 2
        finally:
            child.kill()


@LINUX
def test_pages_of_a_private_mapping_are_private_and_those_of_a_shared_one_are_not() -> None:
    size = 20_000_000
    content = b"x" * size  # before anything is counted, for the allocator may keep what it had
    gc.collect()  # of what other tests left, which would go meanwhile
    before = private_bytes(os.getpid())
    with mmap.mmap(-1, size, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS) as shared:
        shared[:] = content
        assert abs(private_bytes(os.getpid()) - before) < size / 2
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as private:
        private[:] = content
        assert private_bytes(os.getpid()) - before > size / 2


@LINUX
def test_a_process_that_ends_before_it_is_looked_at_has_no_memory() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert private_bytes(child.pid) == 0
