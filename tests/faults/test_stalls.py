"""Nothing waits for ever: F19, F20."""

from __future__ import annotations

import re

import pytest

from .accounting import BATCH, BATCHES, PROCESSES
from .scenes import hangs, stalls
from .settings import PARALLEL, Extent, kinds, quick
from .stage import play, start

TIMEOUT = 6.0
"""Seconds that a sample may take. One that is well takes a millisecond, or seconds on a machine that is busy."""

STUCK = ["sleep", "C call", "SIGSTOP", "busy", "backtrack", "lock"]
"""What a process can be stuck in. A thread can be in ``sleep`` and ``busy`` so that others still run."""


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("kind", "workers", "act"),
    quick(
        [("forkserver", 2, "SIGSTOP")],
        [
            *[("forkserver", 2, act) for act in STUCK],
            *[("spawn", 4, "SIGSTOP"), ("spawn", 1, "backtrack"), ("spawn", 1, "C call"), ("spawn", 4, "lock")],
            *[("threads", 2, "sleep"), ("threads", 2, "busy")],
        ],
    ),
)
def test_f19_a_sample_that_never_ends_is_named(kind: str, workers: int, act: str) -> None:
    found = play(stalls.timed_out, kind=kind, workers=workers, act=act, timeout=TIMEOUT, leaves=leaves(kind))
    assert found["row"] == found["stuck"]
    assert str(found["stuck"]) in found["message"]
    assert found["delivered"] == stalls.POSITION // BATCH
    assert found["usable"]


def leaves(kind: str) -> list[str]:
    """Return what a scene with a stuck sample may leave in its process: the thread that is stuck."""
    return ["threads"] if kind == "threads" else []


@pytest.mark.parametrize(
    ("kind", "acts"),
    quick(
        [],  # the contract of each pool skips one
        [
            ("threads", ["sleep"]),
            ("forkserver", STUCK[:3]),
            ("spawn", STUCK[1:]),
            ("threads", ["busy"]),
        ],
    ),
)
def test_f19_samples_that_never_end_can_be_skipped(kind: str, acts: list[str]) -> None:
    # With three workers and more, all that is stuck is stuck at once.
    assert play(stalls.skipped, kind=kind, workers=3, acts=acts, timeout=TIMEOUT, leaves=leaves(kind))


@pytest.mark.parametrize(
    ("kind", "act"), quick([("forkserver", "C call")], [("forkserver", act) for act in STUCK] + [("spawn", "SIGSTOP")])
)
def test_f19_without_a_timeout_a_warning_names_the_rows(kind: str, act: str) -> None:
    found = play(stalls.warned_of, kind=kind, act=act)
    assert len(found["told"]) == 1
    assert found["told"][0].startswith("StallWarning: ")
    assert str(found["stuck"]) in found["told"][0]
    assert found["batches"] == BATCHES


@pytest.mark.parametrize("kind", quick([], PARALLEL))
def test_f19_a_slow_batch_of_quick_samples_is_delivered(kind: str) -> None:
    assert play(stalls.slow_but_alive, kind=kind) == 14


@pytest.mark.parametrize(
    ("kind", "act", "close"),
    quick(
        [("threads", "sleep", False)],
        [
            ("threads", "busy", True),
            ("threads", "busy", False),
            ("threads", "sleep", True),
            ("forkserver", "C call", True),
        ],
    ),
)
def test_f19_a_stuck_sample_does_not_keep_the_program(kind: str, act: str, close: bool) -> None:
    with start("stuck.py", "--pool", kind, "--act", act, *["--close"] * close) as stage:
        stage.wait_for("SampleTimeout")
        stage.wait_for("end")
        assert stage.wait() == 0
        stage.assert_nothing_left()


# -- F20 ---------------------------------------------------------------------------------------------------------


NOT_READY = r"^(WorkerDied|PoolBroken): .*a worker process \(pid \d+\) was not ready within start_timeout=0\.1 s of its"
NO_ANSWER = (
    r"^PoolBroken: the server of worker processes \(pid \d+\) started no worker within start_timeout=0\.1 s; it was"
)
NOT_STARTED = {"forkserver": NO_ANSWER, "spawn": NOT_READY}
"""What is said of a start that hangs: who was waited for, and for what."""


@pytest.mark.parametrize("kind", kinds())
def test_f20_workers_that_hang_in_their_start_are_told_of(kind: str) -> None:
    said = play(hangs.hangs_in_start, kind=kind)
    assert re.search(NOT_STARTED[kind], said), said


@pytest.mark.parametrize("kind", quick([], PROCESSES))
def test_f20_a_worker_that_cannot_be_replaced_is_not_waited_for(kind: str) -> None:
    said = play(hangs.hangs_in_replacement, kind=kind)
    if kind == "forkserver":
        assert said == ""  # a new server takes the place of the one that hangs
    else:
        assert re.search(NOT_STARTED[kind], said), said


def test_f20_a_fork_server_that_is_killed_is_replaced_or_told_of() -> None:
    how = play(hangs.server_killed, kind="forkserver")
    assert how == f"completed {BATCHES}" or how.startswith(("WorkerDied", "PoolBroken"))


@pytest.mark.parametrize(
    ("kind", "act", "server_too"),
    quick(
        [("forkserver", "SIGSTOP", True)],
        [
            ("forkserver", "SIGSTOP", False), ("forkserver", "sleep", True), ("forkserver", "C call", False),
            ("spawn", "SIGSTOP", False), ("spawn", "C call", False),
        ],
    ),
)  # fmt: skip
def test_f20_two_workers_that_are_stuck_do_not_keep_close(
    kind: str, act: str, server_too: bool, extent: Extent
) -> None:
    patience = 5.0 if extent.thorough else 0.05  # what the package allows them, or less
    assert not play(hangs.hangs_in_close, kind=kind, act=act, server_too=server_too, patience=patience)
