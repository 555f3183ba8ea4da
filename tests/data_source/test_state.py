"""A state that was changed in any way is refused; a file holds an old one or a new one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source.state import from_state, read_state, write_state
from batchup_ng.errors import StateError

SOURCE = bu.ArrayDataSource([np.arange(1000)])


def state_after(batches: int, shuffle: Any = 7) -> dict[str, Any]:
    iterator = SOURCE.batch_iterator(10, shuffle=shuffle, epoch=1)
    for _ in range(batches):
        next(iterator)
    return iterator.state_dict()


def test_a_state_is_small_and_plain() -> None:
    for shuffle in (None, 7, 1 << 200, np.random.RandomState(3), np.random.default_rng(3)):
        text = json.dumps(state_after(3, shuffle))
        assert len(text.encode()) <= 4096
        assert from_state(json.loads(text)).samples == 30


def test_what_is_no_state_is_refused_with_the_reason() -> None:
    state = state_after(3)
    with pytest.raises(StateError, match="must be the dict that state_dict"):
        from_state([1, 2])
    with pytest.raises(StateError, match="no state of a batch iterator"):
        from_state({"epoch": 3})
    with pytest.raises(StateError, match="of version 2 of the format, and this batchup_ng reads version 1"):
        from_state({**state, "version": 2})
    with pytest.raises(StateError, match="its digest is not that of what it says"):
        from_state({**state, "samples": 31})


def test_numbers_of_numpy_are_as_good() -> None:
    state = state_after(3)
    assert from_state({**state, "samples": np.int64(state["samples"])}) == from_state(state)


def test_files_are_read_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    state = state_after(3)
    write_state(path, state)
    assert read_state(path) == state
    assert [file.name for file in tmp_path.iterdir()] == ["state.json"]
    damaged = {"{": "holds no state", "[1]": "but a JSON list", "": "holds no state", "[" * 100_000: "holds no state"}
    for text, says in damaged.items():
        path.write_text(text)
        with pytest.raises(StateError, match=says):
            read_state(path)
    path.write_bytes(bytes(2 << 20))
    with pytest.raises(StateError, match="more than"):
        read_state(path)
    with pytest.raises(FileNotFoundError):
        read_state(tmp_path / "none")


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    write_state(path, {"old": 1})

    def fail(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space left"):
            write_state(path, {"new": 2})
    assert read_state(path) == {"old": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["state.json"]


SAVES = """
import itertools, sys
from batchup_ng.data_source.state import write_state
for n in itertools.count():
    write_state(sys.argv[1], {"n": n, "much": "x" * 200_000})
    if n == 0:
        print("begun", flush=True)
"""


def test_a_kill_in_mid_save_leaves_a_whole_state(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for delay in (0.005, 0.02, 0.05, 0.08, 0.13):
        with subprocess.Popen([sys.executable, "-c", SAVES, path], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
            process.wait(20)
        assert len(read_state(path)["much"]) == 200_000
