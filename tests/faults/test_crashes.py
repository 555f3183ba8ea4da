"""Workers die: F1 to F6.

That a batch is there at once when its worker has died is asserted with ``--thorough`` alone, with ten times the
goal; a quick test asserts that it is there, and how many workers died for it.
"""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from batchup_ng.work_pool.processes import schedule

from .accounting import BATCHES
from .scenes import crashes, writes
from .settings import Extent, cover, kinds, quick, thorough
from .stage import play

MOMENTS_A_PROGRAM = 12
"""Epochs in each of which a worker is killed, that fit well in one program's time."""

SETTING = ("kind", "workers", "size")


def parts(moments: int) -> list[tuple[int, int]]:
    """Return the programs that so many moments take: the number of each, and how many moments fall to it."""
    firsts = range(0, moments, MOMENTS_A_PROGRAM)
    return [(part, min(MOMENTS_A_PROGRAM, moments - first)) for part, first in enumerate(firsts)]


@pytest.mark.parametrize(SETTING, cover(("forkserver", 2, "64 kB")))
def test_f1_a_worker_killed_at_any_moment_costs_nothing(
    kind: str, workers: int, size: str, seed: int, extent: Extent
) -> None:
    for part, moments in parts(extent.times(crashes.KILLS_A_POOL, 50)):
        setting = {"kind": kind, "workers": workers, "size": size, "seed": seed + part}
        assert play(crashes.killed_at_moments, **setting, moments=moments) == moments


@pytest.mark.parametrize(SETTING, [thorough("forkserver", 2, "0 B"), thorough("spawn", 2, "2 MB")])
def test_f1_the_batch_of_a_killed_worker_is_there_at_once(kind: str, workers: int, size: str, seed: int) -> None:
    # The goal is 50 ms, and 1 s at most. Measured on a quiet machine: 13 ms, 22 ms (fork).
    setting = {"kind": kind, "workers": workers, "size": size}
    taken: list[float] = []
    for part, moments in parts(50):
        taken += play(crashes.time_to_replace, **setting, seed=seed + part, moments=moments)
    assert statistics.median(taken) <= 0.5, taken
    assert max(taken) <= 10.0, taken


@pytest.mark.parametrize("kind", kinds())
def test_f1_workers_killed_while_idle_are_replaced(kind: str) -> None:
    assert play(crashes.dead_before_it_was_asked, kind=kind) == BATCHES


@pytest.mark.parametrize("kind", kinds())
def test_f1_a_result_that_was_sent_counts_though_its_worker_died(kind: str, extent: Extent) -> None:
    times = extent.times(1, 3)
    assert play(crashes.dies_when_it_has_answered, kind=kind, times=times) == times


@pytest.mark.parametrize(
    ("kind", "transport"),
    [
        ("forkserver", "slots"), thorough("forkserver", "socket"), thorough("spawn", "slots"),
        thorough("spawn", "socket"),
    ],
)  # fmt: skip
def test_f2_a_worker_killed_while_it_writes_costs_nothing(kind: str, transport: str, seed: int, extent: Extent) -> None:
    kill_writers(extent, kind, seed, transport=transport)


@pytest.mark.parametrize(("kind", "consumers"), quick([("forkserver", 2)], [("spawn", 1)]))
def test_f3_as_f2_with_consumers_on_other_threads(kind: str, consumers: int, seed: int, extent: Extent) -> None:
    kill_writers(extent, kind, seed, consumers=consumers, main=False)


def kill_writers(extent: Extent, kind: str, seed: int, **how: Any) -> None:
    """Kill workers, each in the middle of its write: a hundred, as F2 asks, or two."""
    for part, kills in parts(extent.times(2, 100)):
        figures = play(writes.killed_in_write, kind=kind, seed=seed + part, kills=kills, **how)
        assert figures["struck"] == kills
        assert figures["stood"] == (kills if how.get("transport") == "slots" else (kills + 1) // 2)
        assert figures["stood"] + figures["by themselves"] == kills


@pytest.mark.parametrize("kind", kinds())
def test_f2_a_worker_that_stops_in_a_write_holds_up_nobody_else(kind: str) -> None:
    assert play(writes.stopped_in_write, kind=kind) == BATCHES


@pytest.mark.parametrize(SETTING, cover(("forkserver", 2, "64 kB")))
def test_f4_all_workers_killed_at_once_cost_nothing(kind: str, workers: int, size: str) -> None:
    assert play(crashes.all_at_once, kind=kind, workers=workers, size=size) == BATCHES


@pytest.mark.parametrize(
    SETTING, [("forkserver", 2, "0 B"), thorough("spawn", 2, "64 kB"), thorough("forkserver", 4, "0 B")]
)
def test_f4_a_worker_killed_every_100_ms_ends_in_one_way_or_the_other(
    kind: str, workers: int, size: str, seed: int
) -> None:
    # The soak kills as often in a short run.
    # Which of the two is a matter of luck, above all where workers take longer than that to start.
    figures = play(crashes.one_every_100_ms, kind=kind, workers=workers, size=size, seed=seed)
    assert figures["killed"] >= 3, figures


HOW = {"segfault": "SIGSEGV", "exit 0": "exited with code 0", "exit 7": "exited with code 7", "SIGKILL": "SIGKILL"}

MAX_DEATHS = schedule.MAX_DEATHS + (schedule.MAX_DEATHS - 1) * 3
"""Workers that may die of one row of seven: with its batch, then alone with each half, quarter, and itself."""


@pytest.mark.parametrize(SETTING, cover(("forkserver", 2, "0 B")))
def test_f5_a_row_that_kills_each_worker_is_named(kind: str, workers: int, size: str, extent: Extent) -> None:
    setting, ways = {"kind": kind, "workers": workers, "size": size}, list(HOW)[: extent.times(2, 4)]
    for act, found in zip(ways, play(crashes.a_row_that_kills, **setting, ways=ways, on_error="raise"), strict=True):
        assert found["named"] == found["row"]
        assert found["is_batch_error"]
        assert str(found["row"]) in found["message"]
        assert HOW[act] in found["message"]
        assert found["deaths"] <= MAX_DEATHS, found


@pytest.mark.parametrize(SETTING, cover(("forkserver", 2, "0 B")))
def test_f5_a_row_that_kills_each_worker_can_be_skipped(kind: str, workers: int, size: str, extent: Extent) -> None:
    setting, ways = {"kind": kind, "workers": workers, "size": size}, list(HOW)[: extent.times(1, 4)]
    for act, found in zip(ways, play(crashes.a_row_that_kills, **setting, ways=ways, on_error="skip"), strict=True):
        assert found["lost"] == 1
        assert HOW[act] in found["message"]
        assert found["deaths"] <= MAX_DEATHS, found


@pytest.mark.parametrize(SETTING, cover(("forkserver", 2, "64 kB")))
def test_f6_an_exit_with_code_0_is_a_crash(kind: str, workers: int, size: str) -> None:
    assert play(crashes.exit_zero, kind=kind, workers=workers, size=size) == BATCHES
