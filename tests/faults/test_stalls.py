"""Nothing waits for ever: F19, F20."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

from .books import BATCH, BATCHES, PROCESSES
from .scenes import hangs, stalls
from .settings import MOSTLY, thorough
from .stage import Stage, play

PROGRAM = str(Path(__file__).parent / "programs" / "stuck.py")
TIMEOUT = 1.0

STUCK = ["sleep", "busy", "C call", "SIGSTOP", thorough("backtrack"), thorough("lock")]
"""What a process can be stuck in."""

IN_A_THREAD = ["sleep", "busy"]
"""What a thread can be stuck in so that others still run; the interpreter's lock held in C cannot be helped."""


@pytest.mark.parametrize(
    ("kind", "workers", "act"),
    [
        *[("forkserver", 2, act) for act in ("sleep", "busy", "C call", "SIGSTOP")],
        *[thorough(kind, workers, act) for kind in PROCESSES for workers in (1, 4) for act in ("backtrack", "lock")],
        ("spawn", 2, "SIGSTOP"),
        ("fork", 1, "C call"),
        *[("threads", 2, act) for act in IN_A_THREAD],
    ],
)
def test_f19_a_sample_that_never_ends_is_named(kind: str, workers: int, act: str) -> None:
    found = play(stalls.timed_out, kind=kind, workers=workers, act=act, timeout=TIMEOUT, leaves=leaves(kind))
    assert found["row"] == found["stuck"]
    assert str(found["stuck"]) in found["message"]
    assert found["delivered"] == stalls.POSITION // BATCH
    assert found["seconds"] <= TIMEOUT + 1
    assert found["usable"]


def leaves(kind: str) -> list[str]:
    """Return what a scene with a stuck sample may leave in its process: the thread that is stuck."""
    return ["threads"] if kind == "threads" else []


@pytest.mark.parametrize(
    ("kind", "workers", "act"),
    [("forkserver", 2, "sleep"), ("spawn", 1, "C call"), ("fork", 2, "SIGSTOP"), ("threads", 2, "sleep")],
)
def test_f19_a_sample_that_never_ends_can_be_skipped(kind: str, workers: int, act: str) -> None:
    found = play(stalls.skipped, kind=kind, workers=workers, act=act, timeout=TIMEOUT, leaves=leaves(kind))
    assert found["batches"] == BATCHES
    assert found["timeout"]


@pytest.mark.parametrize("act", STUCK)
@pytest.mark.parametrize("kind", ["forkserver", thorough("spawn"), thorough("fork")])
def test_f19_without_a_timeout_a_warning_names_the_rows(kind: str, act: str) -> None:
    found = play(stalls.warned_of, kind=kind, act=act)
    assert len(found["told"]) == 1
    assert found["told"][0].startswith("StallWarning: ")
    assert str(found["stuck"]) in found["told"][0]
    assert found["batches"] == BATCHES


@pytest.mark.parametrize("kind", ["forkserver", *map(thorough, ("threads", "spawn", "fork"))])
def test_f19_a_slow_batch_of_quick_samples_is_delivered(kind: str) -> None:
    assert play(stalls.slow_but_alive, kind=kind)["samples"] == 28


@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize(("kind", "act"), [("threads", "sleep"), ("threads", "busy"), ("forkserver", "C call")])
def test_f19_a_stuck_sample_does_not_keep_the_program(kind: str, act: str, close: bool) -> None:
    options = ["--pool", kind, "--act", act, *["--close"] * close]
    with Stage([sys.executable, PROGRAM, *options]) as stage:
        stage.wait_for("SampleTimeout", 10)
        began = time.monotonic()
        stage.wait_for("end", 6)
        assert time.monotonic() - began <= 5.0
        assert stage.wait(2.0) == 0
        stage.assert_nothing_left()


# -- F20 ---------------------------------------------------------------------------------------------------------


NOT_READY = r"^(WorkerLost|NoWorkers): .*a worker process \(pid \d+\) was not ready within 1 s of its start"
NO_ANSWER = r"^WorkerLost: the server of worker processes \(pid \d+\) started no worker within 1 s; it was still start"
NOT_STARTED = {"forkserver": NO_ANSWER, "spawn": NOT_READY, "fork": NOT_READY}
"""What is said of a start that hangs: who was waited for, and for what."""


@pytest.mark.parametrize("kind", MOSTLY)
def test_f20_workers_that_hang_in_their_start_are_told_of(kind: str) -> None:
    found = play(hangs.hangs_in_start, kind=kind)
    assert re.search(NOT_STARTED[kind], found["message"]), found
    assert found["seconds"] <= 8.0


@pytest.mark.parametrize("kind", MOSTLY)
def test_f20_a_worker_that_cannot_be_replaced_is_not_waited_for(kind: str) -> None:
    found = play(hangs.hangs_in_replacement, kind=kind)
    if kind == "forkserver":
        assert found["message"] == "", found  # a new server takes the place of the one that hangs
    else:
        assert re.search(NOT_STARTED[kind], found["message"]), found
    assert found["seconds"] <= 8.0


def test_f20_a_fork_server_that_is_killed_is_replaced_or_told_of() -> None:
    found = play(hangs.server_killed, kind="forkserver")
    assert found["how"] == f"completed {BATCHES}" or found["how"].startswith("WorkerLost")
    assert found["seconds"] <= 5.0


@pytest.mark.parametrize(
    ("kind", "act", "server_too"),
    [
        *[("forkserver", act, False) for act in ("sleep", "SIGSTOP")],
        ("forkserver", "SIGSTOP", True),
        ("spawn", "SIGSTOP", False),
        thorough("fork", "SIGSTOP", False),
        thorough("forkserver", "C call", False),
        thorough("forkserver", "sleep", True),
        *[thorough(kind, "C call", False) for kind in PROCESSES[1:]],
    ],
)
def test_f20_two_workers_that_are_stuck_do_not_keep_close(kind: str, act: str, server_too: bool) -> None:
    found = play(hangs.hangs_in_close, kind=kind, act=act, server_too=server_too)
    # 5 s of patience, then a kill. A server that is stopped as well has a second after that: measured, 6.41 s in all.
    assert found["seconds"] <= (7.0 if server_too else 5.5), found
    assert not found["left"], found
