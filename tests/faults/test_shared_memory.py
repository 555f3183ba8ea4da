"""Where shared memory is short batches come another way, which is told of once: F16."""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.messages import raises

from .accounting import BATCH, PROCESSES
from .groups import group_with
from .scenes import shared_memory
from .scenes.shared_memory import BIG, FILLED_AT, SAYS
from .settings import Extent, quick
from .stage import play


@pytest.fixture
def batches(extent: Extent) -> int:
    """How many batches an epoch has: more than may be kept and ahead, so that slots must be had again."""
    return extent.times(15, 40)


NEEDED = BIG * BATCH
"""Bytes of the payload of a batch."""


def in_turn(first: str, times: int) -> list[str]:
    """Return so many start methods, each in turn."""
    start = PROCESSES.index(first)
    return [PROCESSES[(start + i) % len(PROCESSES)] for i in range(times)]


def assert_told(figures: dict[str, Any], slots: bool, none: str = "") -> None:
    """Assert that all batches came, some of them over the socket, and that one warning says what was short.

    Args:
        figures: Of :func:`shared_memory.epochs`.
        slots: Whether some came in shared memory.
        none: Why there is no shared memory at all, a pattern; empty where there is some, but too little.
    """
    transports = figures["transport"]
    assert transports.get("socket", 0) > 0, transports
    assert (transports.get("slots", 0) > 0) is slots, transports
    assert [category for category, _ in figures["told"]] == [SAYS], figures["told"]
    ((_, message),) = figures["told"]
    if none:
        assert re.search(none, message), f"why there is none is not told: {message}"
        return
    numbers = [int(number) for number in re.findall(r"(\d+) bytes", message)]
    assert any(NEEDED <= number < 1.3 * NEEDED for number in numbers), f"what is needed is not told: {message}"
    assert re.search(r"\d+ (bytes )?(that )?(are|is) free", message), f"what is free is not told: {message}"
    assert re.search(r"batch_buffer_size|buffer_bytes", message), f"what to do is not told: {message}"


MOUNT = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/dev/shm"]


def skip_where_nothing_can_be_mounted() -> None:
    try:
        subprocess.run(MOUNT, check=True, capture_output=True)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")


@pytest.mark.parametrize(
    ("first", "megabytes", "state", "slots"),
    quick(
        [("forkserver", 16, "", True)],
        [("spawn", 16, "full", False), ("forkserver", 256, "filled", True), ("forkserver", 16, "read-only", False)],
    ),
)
def test_f16_a_small_file_system_costs_speed_and_no_batch(
    first: str, megabytes: int, state: str, slots: bool, batches: int, extent: Extent
) -> None:
    skip_where_nothing_can_be_mounted()
    for kind in in_turn(first, extent.times(1, 10)):
        setting = {"kind": kind, "batches": batches, "how": "file system", "megabytes": megabytes, "state": state}
        figures = play(shared_memory.epochs, **setting)
        assert_told(figures, slots, none="Read-only file system" if state == "read-only" else "")
        assert state != "filled" or figures["transport"]["slots"] > FILLED_AT


@pytest.mark.parametrize(("first", "code"), quick([("forkserver", "ENOSPC")], [("spawn", "ENOMEM")]))
def test_f16_pages_that_are_refused_from_some_time_on_cost_no_batch(
    first: str, code: str, batches: int, seed: int, extent: Extent
) -> None:
    rng = random.Random(seed)
    for kind in in_turn(first, extent.times(1, 15)):
        nth = rng.randint(2, 9)
        setting = {"kind": kind, "batches": batches, "how": "pages", "nth": nth, "code": code}
        figures = play(shared_memory.epochs, **setting)
        assert_told(figures, slots=nth > 1)


@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="the number of the call is not known here")
@pytest.mark.parametrize(("first", "code"), quick([("forkserver", "ENOSYS")], [("spawn", "EPERM")]))
def test_f16_a_system_without_files_of_memory_costs_no_batch(
    first: str, code: str, batches: int, extent: Extent
) -> None:
    for kind in in_turn(first, extent.times(1, 8)):
        setting = {"kind": kind, "batches": batches, "how": "no memfd", "code": code}
        figures = play(shared_memory.epochs, **setting)
        assert figures["transport"]["slots"] > 1, "they lie in a file in the temporary folder"
        assert figures["told"] == []
        figures = play(shared_memory.epochs, **setting, folder=False)
        assert_told(figures, slots=False, none="allows no file in memory, and the temporary folder none .*denied")


@pytest.mark.parametrize(
    ("first", "nbytes", "slots"),
    quick([("forkserver", 64 << 20, True)], [("spawn", 1 << 20, False), ("forkserver", 8 << 20, False)]),
)
def test_f16_a_limit_on_the_size_of_files_costs_no_batch(
    first: str, nbytes: int, slots: bool, batches: int, extent: Extent
) -> None:
    for kind in in_turn(first, extent.times(1, 5)):
        figures = play(shared_memory.epochs, kind=kind, batches=batches, how="file size", nbytes=nbytes)
        assert_told(figures, slots)


@pytest.mark.thorough
def test_f16_a_container_without_room_for_all_slots_costs_no_batch() -> None:
    for kind in in_turn("forkserver", 8):
        with group_with("memory", "memory.max", "memory.limit_in_bytes") as group:
            limit = next(file for file in ("memory.max", "memory.limit_in_bytes") if (group / file).exists())
            (group / limit).write_text(str(320 << 20))
            figures = play(shared_memory.epochs, kind=kind, batches=40, how="container", group=str(group))
            assert_told(figures, slots=True)
            assert kills_for_memory(group) == 0


def kills_for_memory(group: Path) -> int:
    """Return how many processes of a group the system has ended because memory ran out."""
    for file in ("memory.events", "memory.oom_control"):
        if (group / file).exists():
            return int(re.findall(r"^oom_kill (\d+)$", (group / file).read_text(), re.M)[0])
    raise LookupError(f"{group} does not tell")


def test_f16_the_harness_itself_sees_a_bus_error(tmp_path: Path) -> None:
    # The tests above would be worth nothing if a SIGBUS could go unseen: a map of a file that was cut short gives one.
    with raises(pytest.fail.Exception):
        play(shared_memory.bus_error, path=str(tmp_path / "file"))
