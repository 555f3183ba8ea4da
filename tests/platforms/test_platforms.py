"""Both systems have the same names, and the calls for Windows do what those of Unix do, as far as they run here."""

from __future__ import annotations

import inspect
import math
import os
import signal
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from batchup_ng.memory import paging
from batchup_ng.platforms import system, windows
from tests.messages import raises

if not system.HAS_PROCESS_POOLS:
    pytest.skip("this compares with what Unix has", allow_module_level=True)

from batchup_ng.platforms import unix

SYSTEMS = [unix, windows]


def names(module: ModuleType) -> dict[str, Any]:
    """Return the parameters of each public function of a module, and the other public names that are its own."""
    found: dict[str, Any] = {}
    for name, own in vars(module).items():
        if inspect.isfunction(own) and own.__module__ == module.__name__ and not name.startswith("_"):
            found[name] = [*inspect.signature(own).parameters.values()]
        elif name.isupper() and not name.startswith("_") and name != "LOCKED_BYTE":
            found[name] = type(own)
    return found


def test_both_systems_have_the_same_names() -> None:
    assert names(unix) == names(windows)
    assert len(names(unix)) > 15
    assert system.__name__.endswith("windows" if sys.platform == "win32" else "unix")


@pytest.mark.parametrize("of", SYSTEMS)
def test_reads_and_writes_at_a_place_leave_other_threads_alone(of: Any, tmp_path: Path) -> None:
    fd = os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT | of.NOT_INHERITED)
    errors: list[str] = []

    def use(place: int) -> None:
        mine = bytes([place]) * 100
        for _ in range(200):
            written = of.pwrite(fd, mine, 100 * place)
            if written != 100 or of.pread(fd, 100, 100 * place) != mine:
                errors.append(f"thread {place}")

    threads = [threading.Thread(target=use, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    one, two = bytearray(150), bytearray(500)
    assert of.pread_into(fd, [one, two], 100) == 300
    assert bytes(one) + bytes(two) == b"\1" * 100 + b"\2" * 100 + b"\3" * 100 + b"\0" * 350
    assert of.pread(fd, 10, 395) == b"\3" * 5
    assert of.pread(fd, 10, 400) == b""
    os.close(fd)


@pytest.mark.parametrize("of", SYSTEMS)
def test_what_no_system_lacks(of: Any, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    of.synchronise(str(tmp_path))
    of.synchronise(str(tmp_path / "x"))
    with pytest.raises(FileNotFoundError):
        of.synchronise(str(tmp_path / "y"))
    assert of.memory_of_machine() > 1 << 20
    assert of.limit_on("RLIMIT_CORE") >= 0
    assert of.addresses_in_use() >= 0
    assert signal.SIGINT in of.HELD_SIGNALS
    assert of.voluntary_switches() >= 0 or math.isnan(of.voluntary_switches())
    of.block_interrupts() if threading.current_thread() is not threading.main_thread() else None
    of.advise_will_need([])


def test_a_lock_is_held_by_one_and_the_folder_is_the_one_of_that_name(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    one, two = (system.open_to_lock(str(folder)) for _ in range(2))
    system.lock_file(one)
    with pytest.raises(BlockingIOError):
        system.lock_file(two, wait=False)
    system.unlock_file(one)
    system.lock_file(two, wait=False)
    assert system.locks(one, str(folder))
    system.close_lock(one, str(folder))
    system.close_lock(two, str(folder))
    with pytest.raises(FileNotFoundError):
        windows.locks(0, str(tmp_path / "y"))


def test_windows_opens_a_file_beside_a_folder_to_lock_it(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    fd = windows.open_to_lock(str(tmp_path / "x"))
    assert windows.locks(fd, str(tmp_path / "x"))
    windows.close_lock(fd, str(tmp_path / "x"))
    assert os.listdir(tmp_path) == ["x"]
    (tmp_path / "y").symlink_to(tmp_path / "x")
    for name in ("y", "z"):
        with raises(OSError):
            windows.open_to_lock(str(tmp_path / name))


def test_windows_waits_for_a_lock_or_says_that_it_is_held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a stand-in for ``msvcrt``, whose lock is held at the first tries."""
    held = [True, True]

    class Stand(ModuleType):
        LK_NBLCK, LK_UNLCK = 2, 0

        @staticmethod
        def locking(fd: int, mode: int, nbytes: int) -> None:
            assert (nbytes, os.lseek(fd, 0, os.SEEK_CUR)) == (1, windows.LOCKED_BYTE)
            assert windows._seeking.locked()
            if mode == Stand.LK_NBLCK and held:
                held.pop()
                raise PermissionError(13, "Permission denied")

    monkeypatch.setitem(sys.modules, "msvcrt", Stand("msvcrt"))
    fd = os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT)
    with pytest.raises(BlockingIOError):
        windows.lock_file(fd, wait=False)
    monkeypatch.setattr(windows.time, "sleep", lambda seconds: waited.append(windows._seeking.locked()))
    waited: list[bool] = []
    windows.lock_file(fd)
    assert (held, waited) == ([], [False])  # other threads may read meanwhile
    windows.unlock_file(fd)
    os.close(fd)


def test_rows_of_a_mapped_file_are_copied_without_the_call_of_linux(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.arange(1000, dtype=np.int32).reshape(100, 10).tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", np.int32, "r", shape=(100, 10))
    rows, out = np.array([99, 0, 7]), np.empty((3, 10), np.int32)
    monkeypatch.setattr(system, "copy_segments", windows.copy_segments)
    assert paging.copy_rows(mapped, rows, out)
    assert out.tolist() == np.arange(1000).reshape(100, 10)[rows].tolist()


def test_calls_that_windows_lacks_say_so() -> None:
    assert not windows.HAS_PROCESS_POOLS
    with raises(OSError):
        windows.reserve_pages(0, 0, 1)
    with raises(OSError):
        windows.signal_at_end(0, 9)
    windows.after_fork_in_child(lambda: None)
    windows.block_interrupts()
