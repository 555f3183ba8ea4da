"""A file holds an old state or a new one, with its permissions, where it lies, and nothing lies beside it."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source.epoch import state_file
from batchup_ng.data_source.epoch.state_file import read_state, write_state
from batchup_ng.errors import StateError
from tests.messages import raises
from tests.threads import in_threads

SOURCE = bu.ArrayDataSource([np.arange(1000)])


def state_after(batches: int) -> dict[str, Any]:
    iterator = SOURCE.batch_iterator(10, shuffle=7)
    for _ in range(batches):
        next(iterator)
    return iterator.state_dict()


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_read_as_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    state = state_after(3)
    write_state(path, state)
    assert read_state(path) == state
    assert names(tmp_path) == ["state.json"]
    for text in ("{", "", "[" * 100_000):
        path.write_text(text)
        with raises(StateError):
            read_state(path)
    monkeypatch.setattr(state_file, "MAX_BYTES", 1000)
    path.write_bytes(bytes(1001))
    with raises(StateError):
        read_state(path)
    with pytest.raises(FileNotFoundError):
        read_state(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    loader = bu.Loader([np.arange(3)], 1, pool="serial")
    for load in (read_state, loader.load_state, bu.ArrayDataSource([np.arange(3)]).batch_iterator(1).load_state):
        with raises(StateError):
            load(tmp_path / "pipe")
    loader.close()


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    write_state(path, {"old": 1})

    def fail(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with raises(OSError) as caught:
            write_state(path, {"new": 2})
    assert caught.value.filename == os.path.realpath(path)
    with pytest.raises(FileNotFoundError) as missing:
        write_state(tmp_path / "missing" / "state.json", {"new": 2})
    assert missing.value.filename == os.path.realpath(tmp_path / "missing" / "state.json")
    assert read_state(path) == {"old": 1}
    assert names(tmp_path) == ["state.json"]


def test_a_file_that_cannot_be_closed_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """File systems on a network may tell of a write that failed only then."""
    path, fsync = tmp_path / "state.json", os.fsync
    write_state(path, {"old": 1})

    def close_too(handle: int) -> None:
        fsync(handle)
        os.close(handle)  # so that the file's own close fails

    monkeypatch.setattr(os, "fsync", close_too)
    with raises(OSError):
        write_state(path, {"new": 2})
    assert read_state(path) == {"old": 1}
    assert names(tmp_path) == ["state.json"]


@pytest.mark.parametrize("umask", [0o022, 0o027])
def test_a_new_file_has_the_permissions_that_the_umask_leaves(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        write_state(tmp_path / "state.json", {"a": 1})
    finally:
        os.umask(before)
    assert mode(tmp_path / "state.json") == 0o666 & ~umask


def test_a_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for wanted in (0o664, 0o600, 0o640):
        path.touch()
        path.chmod(wanted)
        write_state(path, {"a": wanted})
        assert mode(path) == wanted
        assert read_state(path) == {"a": wanted}


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "state.json", tmp_path / "latest.json"
    link.symlink_to(target)
    for value in range(2):  # at first there is nothing where it points
        write_state(link, {"a": value})
        assert link.is_symlink()
        assert read_state(target) == {"a": value}
    assert names(tmp_path) == ["far", "latest.json"]
    assert names(tmp_path / "far") == ["state.json"]


def test_a_link_that_leads_to_itself_is_refused_and_stays(tmp_path: Path) -> None:
    link = tmp_path / "state.json"
    link.symlink_to(link)
    with raises(OSError):
        write_state(link, {"a": 1})
    assert link.is_symlink()
    assert names(tmp_path) == ["state.json"]


def test_many_that_save_at_once_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    states = [{"who": who, "text": str(who) * (1000 * who + 1)} for who in range(4)]
    write_state(path, states[0])
    done = threading.Event()
    found: list[Any] = []

    def save(state: dict[str, Any]) -> None:
        for _ in range(15):
            write_state(path, state)

    def watch() -> None:
        while not done.is_set():
            found.append(read_state(path))

    watcher = threading.Thread(target=watch)
    watcher.start()
    in_threads([partial(save, state) for state in states])
    done.set()
    watcher.join(240)
    assert all(state in states for state in [*found, read_state(path)])
    assert names(tmp_path) == ["state.json"]


SAVES = """
import json, os, random, signal, sys
import numpy as np
import batchup_ng as bu
from batchup_ng.data_source.epoch.state import from_state
from batchup_ng.data_source.epoch.state_file import read_state

path, kills = sys.argv[1], int(sys.argv[2])
source = bu.ArrayDataSource([np.arange(100_000)])
rng = random.Random(kills)
source.batch_iterator(10, 3).save_state(path)
reached = []
for _ in range(kills):
    before = open(path, "rb").read()
    child = os.fork()
    if not child:
        iterator = source.batch_iterator(10, 3, state=read_state(path))
        while True:
            next(iterator)
            iterator.save_state(path)
    while open(path, "rb").read() == before:
        pass
    for _ in range(rng.randrange(20_000)):
        pass  # the kill comes anywhere in what follows
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    saved = from_state(read_state(path))
    reached.append(saved.samples)
    expected = source.plan(10, 3)[saved.batches].rows
    iterator = source.batch_iterator(10, 3, state=read_state(path))
    assert (next(iterator)[0] == expected).all()
print(json.dumps(reached))
"""


def test_a_kill_in_mid_save_leaves_a_whole_state(tmp_path: Path, in_full: bool) -> None:
    path, kills = tmp_path / "state.json", 200 if in_full else 10
    done = subprocess.run(
        [sys.executable, "-c", SAVES, str(path), str(kills)], capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr
    reached = json.loads(done.stdout)
    assert len(reached) == kills
    assert reached == sorted(reached)  # what was saved once is never lost
    assert reached[-1] > reached[0]
    left = [file.name for file in tmp_path.iterdir() if file != path]
    assert len(left) <= kills
    assert all(re.fullmatch(r"\.state\.json\.[0-9a-f]{8}\.tmp", name) for name in left)
