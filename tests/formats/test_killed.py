"""Conversions that are killed, and go on: the result is that of a run that was not."""

from __future__ import annotations

import functools
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Any

import numpy as np
import pytest

from tests.extent import THOROUGH, quick

from . import killed
from .killed import PAGE, contents

TARGETS = {
    "x.npy": (), "contiguous.h5": ("h5py",), "chunked.h5": ("h5py",), "x.lmdb": ("lmdb", "msgpack"),
    "x.zarr": ("zarr",), "x.parquet": ("pyarrow",), "shards-{:03d}.tar": (),
}  # fmt: skip
SKIPPING = {"skip-contiguous.h5": ("h5py",), "skip-x.zarr": ("zarr",), "skip-x.tar": ()}
RUNS = 70 if THOROUGH else 1
"""Runs, of which most are killed."""

Host = Callable[..., Any]


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """Give what asks a process to convert in a child."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-W", "ignore", "-m", "tests.formats.killed"]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(
            target: Path, moment: int | None = None, seconds: float | None = None, file_bytes: int | None = None,
            disk_step: int | None = None, **options: Any,
        ) -> Any:  # fmt: skip
            options.setdefault("pool", "serial")
            request = [str(target), moment, seconds, file_bytes, disk_step, options]
            print(json.dumps(request), file=process.stdin, flush=True)
            return json.loads(process.stdout.readline())

        yield ask
        process.stdin.close()


def options_of(name: str) -> dict[str, Any]:
    options = {"shard_rows": 33} if name.startswith("shards") else {}
    return options | ({"on_error": "skip"} if "skip" in name else {})


@pytest.fixture(scope="module")
def whole(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Give what converts without a kill: what is in the folder then, how many calls there were, the largest file."""

    @functools.cache
    def made(name: str) -> Any:
        for library in (TARGETS | SKIPPING)[name]:
            pytest.importorskip(library)
        folder = tmp_path_factory.mktemp("whole")
        signal, error, events = host(folder / name, **options_of(name))
        assert (signal, error) == (0, "")
        return contents(folder), events, max(path.stat().st_size for path in folder.rglob("*") if path.is_file())

    return made


@pytest.mark.in_turn
@pytest.mark.parametrize("name", quick(["chunked.h5", "shards-{:03d}.tar"], [*TARGETS, *SKIPPING]))
def test_a_run_that_is_killed_goes_on_to_the_same_result(host: Host, whole: Any, tmp_path: Path, name: str) -> None:
    expected, events, _ = whole(name)
    draw = random.Random(name)
    reached = set()
    for run in range(RUNS):
        moment = None if run % 6 == 5 else draw.randrange(1, events)  # all moments of a run are then met
        signal, error, _ = host(tmp_path / name, moment=moment, overwrite=True, **options_of(name))
        assert error == ""
        if signal == 0:
            assert contents(tmp_path) == expected
            continue
        assert signal == SIGKILL
        journal = tmp_path / f"{name}.partial" / "journal.json"
        reached.add(json.loads(journal.read_text())["rows"] if journal.exists() else 0)
    assert len(reached) >= min(RUNS, 5)  # it went on from many places
    assert host(tmp_path / name, overwrite=True, **options_of(name))[:2] == [0, ""]
    assert contents(tmp_path) == expected


@pytest.mark.thorough
@pytest.mark.parametrize("pool", ["threads", "processes"])
@pytest.mark.parametrize("name", ["chunked.h5", "shards-{:03d}.tar"])
def test_a_run_that_is_killed_with_its_workers(host: Host, whole: Any, tmp_path: Path, name: str, pool: str) -> None:
    expected, events, _ = whole(name)
    how = {"pool": pool, "workers": 2, **options_of(name)}
    draw = random.Random(name)
    signals = [
        host(tmp_path / name, moment=draw.randrange(1, events // 2), overwrite=True, **how)[0] for _ in range(20)
    ]
    assert SIGKILL in signals
    assert host(tmp_path / name, overwrite=True, **how)[:2] == [0, ""]
    assert contents(tmp_path) == expected


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*TARGETS, *SKIPPING])
def test_a_run_that_is_killed_by_the_clock(host: Host, whole: Any, tmp_path: Path, name: str) -> None:
    expected, _, _ = whole(name)
    begin = time.monotonic()
    assert host(tmp_path / name, seconds=600, **options_of(name))[:2] == [0, ""]
    length = time.monotonic() - begin
    draw = random.Random(name)
    for _ in range(RUNS):  # anew where the last one came to its end, else from where it was killed
        signal, error, _ = host(tmp_path / name, seconds=draw.uniform(0, length), overwrite=True, **options_of(name))
        assert error == ""
        if signal == 0:
            assert contents(tmp_path) == expected
    assert host(tmp_path / name, overwrite=True, **options_of(name))[:2] == [0, ""]
    assert contents(tmp_path) == expected


@pytest.mark.parametrize("name", quick(["contiguous.h5", "chunked.h5"], list(TARGETS)))
def test_a_full_disk_leaves_what_the_next_run_goes_on_with(host: Host, whole: Any, tmp_path: Path, name: str) -> None:
    expected, _, largest = whole(name)
    signal, error, _ = host(tmp_path / name, file_bytes=largest // 2, **options_of(name))
    assert signal == 0
    assert error.startswith(f"WriteError: {str(tmp_path / name)!r} cannot be written")
    assert "of it are safe" in error
    assert host(tmp_path / name, **options_of(name))[:2] == [0, ""]
    assert contents(tmp_path) == expected


@pytest.mark.parametrize("name", quick(["chunked.h5"], [*TARGETS, *SKIPPING]))
def test_the_same_process_goes_on_when_a_full_disk_has_room(host: Host, tmp_path: Path, name: str) -> None:
    for library in (TARGETS | SKIPPING)[name]:
        pytest.importorskip(library)
    step = (1 if THOROUGH else 3) * PAGE * (10 if name.endswith(".tar") else 1)
    signal, told, disks = host(tmp_path / name, disk_step=step, **options_of(name))
    if "mounted" in told:
        pytest.skip(told)
    assert (signal, told) == (0, "")
    assert disks > 2


@pytest.mark.in_turn
def test_what_is_left_out_is_left_out_of_all(host: Host, tmp_path: Path) -> None:
    assert "row 3" in host(tmp_path / "skip-x.tar")[1]
    assert host(tmp_path / "skip-x.tar", on_error="skip")[:2] == [0, ""]
    assert [path.name for path in tmp_path.iterdir()] == ["skip-x.tar"]
    pytest.importorskip("h5py")
    import h5py

    host(tmp_path / "skip-contiguous.h5", on_error="skip")
    kept = np.delete(np.arange(killed.N), [3, 77])
    with h5py.File(tmp_path / "skip-contiguous.h5") as file:
        assert file["y"].chunks is None
        np.testing.assert_array_equal(file["y"], kept)
        np.testing.assert_array_equal(file["x"], killed.columns("contiguous.h5")["x"][kept])
