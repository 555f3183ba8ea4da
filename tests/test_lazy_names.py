"""What a program imports with the package, and what it imports when it first uses a name."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import batchup_ng as bu
from tests.libraries import OPTIONAL
from tests.messages import raises

LATER = (
    "PIL", "asyncio", "ssl", "xml.etree.ElementTree", "html", "statistics", "tarfile", "zipfile", "difflib",
    "batchup_ng.accessors.crops", "batchup_ng.accessors.image_files", "batchup_ng.accessors.mask_files",
    "batchup_ng.accessors.pictures", "batchup_ng.accessors.storage.file_bytes", "batchup_ng.accessors.storage.npy",
    "batchup_ng.augment", "batchup_ng.data_statistics", "batchup_ng.datasets", "batchup_ng.explanation",
    "batchup_ng.formats", "batchup_ng.image", "batchup_ng.observe", "batchup_ng.targets", "batchup_ng.testing",
    "batchup_ng.waiting", "batchup_ng.work_pool.explaining", "batchup_ng.work_pool.ray",
)  # fmt: skip
"""Modules that a program without a name of theirs never imports."""

PROGRAM = f"""
import json, sys
import batchup_ng as bu

def loaded():
    return [name for name in {LATER!r} if name in sys.modules]

def in_worker(x):
    return x, [[name for name in {LATER!r} if name in sys.modules]] * len(x)

said = {{"import": loaded()}}
import threading
import numpy as np
with bu.Loader([np.arange(8)], 4, pool="threads", workers=2) as loader:
    said["sum"] = sum(int(x.sum()) for x, in loader)
with bu.WorkerProcessPool(1) as pool:
    source = pool.parallel_data_source(bu.ArrayDataSource([np.arange(4)]).map(in_worker))
    said["early worker"] = next(source.batch_iterator(4))[1][0]
said["epochs"], said["dir"] = loaded(), dir(bu)
found, meeting = [], threading.Barrier(4)

def use():
    meeting.wait()
    found.append(bu.convert)

threads = [threading.Thread(target=use) for _ in range(4)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
said["threads"] = [each is bu.convert for each in found]
bu.augment, bu.ImageFiles
with bu.WorkerProcessPool(1) as pool:
    source = pool.parallel_data_source(bu.ArrayDataSource([np.arange(4)]).map(in_worker))
    said["late worker"] = next(source.batch_iterator(4))[1][0]
said["names"] = [getattr(bu, name).__name__ for name in bu.__all__ if name[0] != "_"]
said["optional"] = [name for name in {(*OPTIONAL, "joblib", "pytest")!r} if name in sys.modules]
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    """What a program finds that uses the package step by step."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=600, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def test_the_import_and_epochs_over_arrays_import_only_what_they_need(said: dict[str, Any]) -> None:
    assert (said["import"], said["sum"], said["epochs"], said["early worker"]) == ([], 28, [], [])


def test_all_names_are_listed_before_they_are_used(said: dict[str, Any]) -> None:
    assert {*bu.__all__, "datasets", "observe", "zip"} <= set(said["dir"])
    assert "KeepState" not in said["dir"]  # or a search through all attributes would import Keras


def test_each_name_is_there_when_it_is_used(said: dict[str, Any]) -> None:
    expected = [getattr(bu, name).__name__ for name in bu.__all__ if name[0] != "_"]
    assert said["names"] == expected
    assert said["threads"] == [True] * 4


def test_no_name_imports_an_optional_library(said: dict[str, Any]) -> None:
    assert said["optional"] == []


def test_a_server_imports_what_the_program_has_imported(said: dict[str, Any]) -> None:
    assert {"batchup_ng.augment", "batchup_ng.accessors.pictures", "PIL"} <= set(said["late worker"])


def test_a_name_is_there_after_a_first_use_that_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "rooms_on_use"
    package.mkdir()
    names = "{'.room': ['room', 'value', 'missing']}, hidden={'.other': ['Hidden']}"
    (package / "__init__.py").write_text(
        "from batchup_ng.lazy_names import on_first_use\n"
        f"__getattr__, __dir__ = on_first_use(__name__, {names})\n"
    )
    (package / "room.py").write_text(
        "import pathlib\nbegun = pathlib.Path(__file__).with_name('begun')\n"
        "if not begun.exists():\n    begun.touch()\n    raise KeyboardInterrupt\nvalue = 7\n"
    )
    (package / "other.py").write_text("class Hidden: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    rooms: Any = importlib.import_module("rooms_on_use")
    try:
        assert {"room", "value"} <= set(dir(rooms)) - {"Hidden"} == set(dir(rooms))
        with pytest.raises(KeyboardInterrupt):
            _ = rooms.value
        assert (rooms.value, rooms.room.value, rooms.Hidden.__name__) == (7, 7, "Hidden")
        assert "value" in vars(rooms)
        for name in ("missing", "unknown"):
            with raises(AttributeError):
                getattr(rooms, name)
    finally:
        for name in [name for name in sys.modules if name.startswith("rooms_on_use")]:
            del sys.modules[name]
