"""A state that was changed in any way is refused; a file holds an old one or a new one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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


KILLS = int(os.environ.get("BATCHUP_NG_KILLS", "60"))
SAVES = """
import json, os, random, signal, sys, time
import numpy as np
import batchup_ng as bu
from batchup_ng.data_source.state import from_state, read_state

path, kills = sys.argv[1], int(sys.argv[2])
source = bu.ArrayDataSource([np.arange(100_000)])
rng = random.Random(kills)
source.batch_iterator(10, np.random.RandomState(3)).save_state(path)
reached = []
for _ in range(kills):
    child = os.fork()
    if not child:
        iterator = source.batch_iterator(10, np.random.RandomState(), state=read_state(path))
        while True:
            next(iterator)
            iterator.save_state(path)
    time.sleep(rng.uniform(0.005, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    saved = from_state(read_state(path))
    reached.append(saved.samples)
    expected = source.plan(10, np.random.RandomState(3))[saved.batches].rows
    iterator = source.batch_iterator(10, np.random.RandomState(), state=read_state(path))
    assert (next(iterator)[0] == expected).all()
print(json.dumps(reached))
"""


def test_a_kill_in_mid_save_leaves_a_whole_state(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    done = subprocess.run(
        [sys.executable, "-c", SAVES, str(path), str(KILLS)], capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
    reached = json.loads(done.stdout)
    assert len(reached) == KILLS
    assert reached == sorted(reached)  # what was saved once is never lost
    assert reached[-1] > reached[0]
    left = [file for file in tmp_path.iterdir() if file != path]
    assert len(left) > KILLS / 10  # so many were killed in the midst of writing
    assert all(file.suffix == ".tmp" for file in left)
