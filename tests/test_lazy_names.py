"""What a program imports with the package, and what it imports when it first uses a name."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import batchup_ng as bu
from batchup_ng.platforms import system
from tests.libraries import OPTIONAL
from tests.messages import raises

needs_processes = pytest.mark.skipif(not system.HAS_PROCESS_POOLS, reason="no pools of processes here")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

AT_IMPORT = {
    "_version", "at_exit", "display", "error_context", "errors", "interpreter", "lazy_names", "live", "memory",
    "memory.budget", "memory.limits", "meters", "meters.batch_times", "meters.cpu", "meters.stopwatch", "platforms",
    "platforms.unix" if sys.platform != "win32" else "platforms.windows", "signals", "validation",
}  # fmt: skip
"""All modules of the package that `import batchup_ng` loads. Each more costs every program 0.2 to 1 ms."""

SLOW = (
    "PIL", "asyncio", "bz2", "cloudpickle", "concurrent.futures", "csv", "ctypes", "dataclasses", "decimal", "email",
    "fractions", "hashlib", "http", "importlib.metadata", "json", "joblib", "logging", "lzma", "multiprocessing",
    "numpy.random", "random", "secrets", "select", "shutil", "socket", "ssl", "statistics", "subprocess", "tempfile",
    "typing_extensions", "unittest", "urllib.request", "uuid",
)  # fmt: skip
"""Modules that the import does not load, unless NumPy has loaded them: some versions do."""

LATER_THAN_SERIAL = (
    "batchup_ng.work_pool.processes.pool",
    "batchup_ng.work_pool.processes.serialization", "batchup_ng.work_pool.tuning", "concurrent.futures", "ctypes",
    "http", "joblib", "multiprocessing", "select", "socket", "subprocess", "urllib.request",
)  # fmt: skip
"""Modules that a serial loader over arrays does not load, besides :data:`LATER`."""

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


def run(program: str) -> str:
    """Return what a program prints in a process of its own."""
    done = subprocess.run([sys.executable, "-c", program], timeout=600, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_import_loads_few_modules() -> None:
    program = "import sys, numpy; before = {*sys.modules}; import batchup_ng; print(*{*sys.modules} - before)"
    loaded = set(run(program).split())
    assert {name for name in loaded if name.startswith("batchup_ng.")} == {f"batchup_ng.{name}" for name in AT_IMPORT}
    assert [name for name in (*SLOW, *LATER) if name in loaded] == []


def test_a_serial_loader_loads_no_pool_of_processes() -> None:
    program = """import sys, numpy as np
before = {*sys.modules}
import batchup_ng as bu
with bu.Loader({"x": np.arange(8)}, 4, shuffle=1, pool="serial") as loader:
    assert sum(int(batch["x"].sum()) for batch in loader) == 28
print(*{*sys.modules} - before)"""
    loaded = set(run(program).split())
    assert "batchup_ng.loader" in loaded
    assert [name for name in (*LATER_THAN_SERIAL, *LATER) if name in loaded] == []


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.in_turn
def test_threads_that_use_different_names_first_wait_for_each_other(order: int) -> None:
    program = f"""import threading
import batchup_ng as bu
names = [name for name in bu.__all__ if name not in ("augment", "WorkerRayPool")][::{order}]
meeting, found = threading.Barrier(8), []

def use(first):
    meeting.wait()
    found.extend((name, getattr(bu, name)) for name in names[first::8])

threads = [threading.Thread(target=use, args=(first,)) for first in range(8)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
print(sorted(name for name, value in found if getattr(bu, name) is value) == sorted(names))"""
    assert run(program) == "True\n"


@pytest.mark.parametrize("kind", ["threads", pytest.param("processes", marks=needs_processes)])
@pytest.mark.in_turn
def test_a_pool_that_is_first_used_as_the_program_ends_is_ended_too(kind: str) -> None:
    if (3, 12, 0) <= sys.version_info < (3, 12, 3):
        pytest.skip("this Python starts no thread for what atexit calls")
    program = f"""import atexit, numpy as np
import batchup_ng as bu

@atexit.register
def use():
    global loader, batches
    loader = bu.Loader([np.arange(8)], 4, pool={kind!r}, workers=1)
    batches = iter(loader)
    print(next(batches)[0].tolist(), flush=True)

@atexit.register
def before():
    print("before", flush=True)"""
    if kind == "threads" and sys.version_info >= (3, 12):  # in which a program that ends starts no thread
        program = program.replace("atexit.register\ndef use", "atexit.register\ndef use")
    assert run(program) == "before\n[0, 1, 2, 3]\n"


def test_what_the_end_calls_is_called_in_reverse_and_though_another_raises() -> None:
    program = """import batchup_ng
from batchup_ng.at_exit import at_exit
at_exit(lambda: print("first"))
at_exit(lambda: 1 / 0)
at_exit(lambda: print("last"))"""
    done = subprocess.run([sys.executable, "-c", program], timeout=600, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["last", "first"]
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.in_turn
def test_no_module_uses_such_a_name_while_it_is_imported() -> None:
    """Or a thread that has the lock of first uses could wait for one that imports that module and wants the lock."""
    program = """import importlib, pkgutil, sys
import batchup_ng
from batchup_ng import lazy_names

def used(name, package):
    if any(getattr(each.__spec__, "_initializing", False) for other, each in [*sys.modules.items()]
           if other.startswith("batchup_ng.")):
        print(package, name)
    return importlib.import_module(name, package)

lazy_names.import_module = used
for each in pkgutil.walk_packages(batchup_ng.__path__, "batchup_ng."):
    if not each.name.endswith("__main__") and not each.name.startswith("batchup_ng.frameworks."):
        try:
            importlib.import_module(each.name)
        except ImportError:
            pass  # of an optional library, or another system
"""
    assert run(program) == ""


@needs_fork
@pytest.mark.in_turn
def test_a_fork_waits_for_a_first_use_of_another_thread(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import sys\nsys.begun.set(), sys.goes_on.wait(60)\nvalue = 7\n")
    program = f"""import os, sys, threading, warnings
sys.path.insert(0, {str(tmp_path)!r})
warnings.simplefilter("ignore")
from batchup_ng import lazy_names
sys.begun, sys.goes_on = threading.Event(), threading.Event()
first_use, _ = lazy_names.on_first_use("slow", {{"slow": ["value"]}})
user = threading.Thread(target=first_use, args=("value",))
user.start(), sys.begun.wait()
lazy_names._LOCK.acquire(blocking=False) and print("not held")
threading.Timer(0.2, sys.goes_on.set).start()
child = os.fork()
import slow
if not child:
    os._exit(slow.value)
user.join()
print(slow.value, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"""
    assert run(program) == "7 7\n"


@needs_fork
@pytest.mark.in_turn
def test_a_fork_before_the_first_use_has_all_names() -> None:
    program = """import os, numpy as np
import batchup_ng as bu
child = os.fork()
with bu.Loader([np.arange(8)], 4, pool="threads", workers=2) as loader:
    right = sum(int(x.sum()) for x, in loader) == 28
if not child:
    os._exit(7 if right else 1)
print(right, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"""
    assert run(program) == "True 7\n"


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
