"""What runs out is told of, what is held stays as it is: F16, F17, F27."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .books import BATCHES, PROCESSES
from .scenes import memory
from .settings import Extent, only_full
from .stage import play

ONE_IS_ENOUGH = ["forkserver", only_full("spawn"), only_full("fork")]


def small_shm(options: str) -> list[str]:
    """Return a command that runs another with a /dev/shm of its own; skips the test where that is not allowed."""
    mount = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o {options} none /dev/shm && exec "$@"', "sh"]
    try:
        subprocess.run([*mount, "true"], check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    return mount


@pytest.mark.parametrize("how", ["small", "full", "filled"])
@pytest.mark.parametrize("kind", ONE_IS_ENOUGH)
def test_f16_little_shared_memory_costs_speed_and_no_batch(kind: str, how: str, extent: Extent) -> None:
    prefix = small_shm("size=16m")
    for _ in range(extent.times(1, 9)):
        figures = play(memory.shared_memory_short, prefix=prefix, kind=kind, how=how)
        assert figures["batches"] == 40
        assert len(figures["warnings"]) <= 1


@pytest.mark.parametrize("kind", ONE_IS_ENOUGH)
def test_f16_shared_memory_that_is_read_only_costs_speed_and_no_batch(kind: str) -> None:
    figures = play(memory.shared_memory_short, prefix=small_shm("size=16m,ro"), kind=kind, how="small")
    assert figures["batches"] == 40
    assert len(figures["warnings"]) <= 1


@pytest.mark.parametrize("kind", PROCESSES)
def test_f16_a_limit_on_the_size_of_files_costs_speed_and_no_batch(kind: str, extent: Extent) -> None:
    for _ in range(extent.times(1, 7)):
        figures = play(memory.shared_memory_short, kind=kind, how="file size")
        assert figures["batches"] == 40
        assert len(figures["warnings"]) <= 1


@pytest.mark.parametrize("kind", PROCESSES)
def test_f17_too_few_descriptors_are_told_of(kind: str) -> None:
    found = play(memory.few_descriptors, kind=kind)
    assert 40 in found["worked"]
    assert "0" in found["refused"]
    for free, error in found["refused"].items():
        assert error["typed"], (free, error)
        assert re.search(r"open files|RLIMIT_NOFILE|descriptor", error["says"]), (free, error)


@pytest.mark.parametrize("kind", PROCESSES)
def test_f17_a_worker_that_cannot_be_replaced_for_want_of_descriptors_is_told_of(kind: str) -> None:
    found = play(memory.no_descriptor_for_a_new_worker, kind=kind)
    assert found["typed"], found


@pytest.fixture
def pids_group() -> Iterator[str]:
    """A group of processes whose number can be limited; skips the test where none can be made."""
    group = memory.PIDS / f"batchup_ng-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no group can be made in {memory.PIDS}: {error}")
    yield str(group)
    with contextlib.suppress(OSError):
        group.rmdir()


@pytest.mark.parametrize("kind", PROCESSES)
def test_f17_too_few_processes_are_told_of(kind: str, pids_group: str) -> None:
    found = play(memory.no_more_processes, kind=kind, group=pids_group, environment={"OPENBLAS_NUM_THREADS": "1"})
    assert "0" in found["refused"]
    for more, error in found["refused"].items():
        assert error["typed"], (more, error)
        assert re.search(r"process|thread|Resource temporarily unavailable", error["says"]), (more, error)


@pytest.mark.parametrize("how", ["absurd", "none left to pack it"])
@pytest.mark.parametrize("kind", ["threads", *ONE_IS_ENOUGH])
def test_f17_a_worker_without_memory_is_told_of(kind: str, how: str) -> None:
    found = play(memory.no_memory_in_a_worker, kind=kind, how=how)
    if how == "none left to pack it" and found["says"] == "delivered":
        return  # it found a way with what there was
    assert found["row"] == 500
    assert found["memory"] or re.search("memory|allocate", found["message"], re.I), found


@pytest.mark.parametrize("width", [15_000, only_full(150_000)])
@pytest.mark.parametrize(
    ("kind", "mapped"),
    [
        ("threads", False), ("forkserver", False), ("forkserver", True),
        only_full("spawn", True), only_full("fork", False),
    ],
)
def test_f27_a_batch_that_is_held_is_never_overwritten(
    kind: str, mapped: bool, width: int, seed: int
) -> None:
    batches = 10_000 if width < 100_000 else 2_000
    found = play(memory.kept_and_written, kind=kind, batches=batches, width=width, seed=seed, mapped=mapped)
    assert found["batches"] == batches


@pytest.mark.parametrize("kind", ["threads", *PROCESSES])
def test_f27_a_consumer_that_keeps_everything_gets_everything(kind: str) -> None:
    found = play(memory.all_kept, kind=kind)
    assert (found["kept"], found["changed"]) == (BATCHES, 0)


@pytest.mark.parametrize("kind", ["threads", *PROCESSES])
def test_f27_batches_outlive_the_pool(kind: str) -> None:
    assert play(memory.after_the_pool, kind=kind)


def test_f16_the_harness_itself_sees_a_bus_error(tmp_path: Path) -> None:
    # The tests above would be worth nothing if a SIGBUS could go unseen: a map of a file that was cut short gives one.
    with pytest.raises(pytest.fail.Exception, match=r"ended with -7"):
        play(bus_error, path=str(tmp_path / "file"))


def bus_error(path: str) -> None:
    import numpy as np

    memory_map = np.memmap(path, np.uint8, "w+", shape=(1 << 20,))
    os.truncate(path, 0)
    memory_map[0] = 1
