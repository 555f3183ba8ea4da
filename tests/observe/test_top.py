"""``python -m batchup_ng top PID`` shows what the loops of another program do, and leaves no file."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import batchup_ng as bu
from batchup_ng import cli
from batchup_ng.observe import top as module
from batchup_ng.observe.top import COLUMNS, NoAnswer, plain, rows, top
from tests.messages import raises

PROGRAM = """
import sys, threading, time
import numpy as np
import batchup_ng as bu

def validate():
    with bu.Loader([np.arange(300)], 30, pool="serial") as val:
        for (x,) in val.epochs(None):
            time.sleep(0.02)

threading.Thread(target=validate, daemon=True).start()
with bu.Loader({"x": np.arange(1000)}, 10, shuffle=3, pool="threads", workers=2) as train:
    for number, batch in enumerate(train.epochs(None)):
        time.sleep(0.005)
        if number == 20:
            print("ready", flush=True)
"""

GONE = 2**22 + 1
"""A number that no process has: the largest on Linux is below it."""

PATIENCE = 100.0
"""Seconds that a busy machine may take for an answer."""


pytestmark = pytest.mark.in_turn


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A program with two loops, and the folder of its files, which only its environment names."""
    folder = tmp_path_factory.mktemp("running")
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder / "none"), "TMPDIR": str(folder)}
    environment["PYTHONPATH"] = str(Path(bu.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process, folder / f"batchup_ng-{os.getuid()}"
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folders that this process would use."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    monkeypatch.setattr(module, "READ_EVERY", 0.001)
    return tmp_path / "batchup_ng"


class Terminal(io.StringIO):
    """A terminal that calls `then` once it has shown a table."""

    def __init__(self, then: Any = None) -> None:
        super().__init__()
        self._then = then

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if "samples/s" in text and self._then is not None:
            self._then()
        return super().write(text)


def files(folder: Path) -> list[str]:
    """Return the names of the files in a folder, none if there is no folder."""
    try:
        return sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return []


def are_gone(folder: Path) -> None:
    """Wait until the folder is empty. A program that was about to answer takes the answer back at its next look."""
    until = time.monotonic() + PATIENCE
    while files(folder):
        assert time.monotonic() < until, files(folder)
        time.sleep(0.01)


def number(text: str) -> float:
    return float(text.replace(",", "").rstrip("%"))


def test_the_table_is_what_the_program_does(running: Any, capsys: pytest.CaptureFixture[str]) -> None:
    process, folder = running
    arguments = ["top", str(process.pid), "--once", "--timeout", str(PATIENCE)]
    assert cli.main(arguments) == 0
    first, *names, head, one, other = capsys.readouterr().out.splitlines()
    assert first.startswith(f"process {process.pid}: batchup_ng holds ")
    assert head.split() == [*COLUMNS[1:]]
    of_loaders = {}
    for name, row in zip(sorted(names), (one, other), strict=True):
        cells = dict(zip(["number", *COLUMNS[1:-1]], row.split()[: 1 + len(COLUMNS[1:-1]) + 1], strict=False))
        of_loaders["train" if "1000 samples, batches of 10, <WorkerThreadPool" in name else "val"] = cells, row
        assert name.startswith(f"{cells['number']}: ")
        assert row.endswith(" s ago")
    assert "300 samples, batches of 30, <SerialPool" in "".join(names)
    for of, n, size, most in (("train", 100, 10, 1 / 0.005), ("val", 10, 30, 1 / 0.02)):
        cells, _ = of_loaders[of]
        k, total = map(int, cells["batch"].split("/"))
        assert total == n
        assert 0 <= k <= n
        assert 0 < number(cells["batches/s"]) <= most
        assert number(cells["samples/s"]) == pytest.approx(size * number(cells["batches/s"]), rel=0.05, abs=2)
        assert 0 <= number(cells["waits"]) <= 100
    assert of_loaders["train"][0]["ready"].endswith("/20")
    assert " 2 " in of_loaders["train"][1]
    are_gone(folder)


def test_it_goes_on_until_it_is_stopped(
    running: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    process, folder = running
    monkeypatch.setattr(module, "DRAWN_EVERY", 0.01)
    told: list[str] = []

    def say(text: str) -> None:
        told.append(text)
        assert f"{process.pid}.ask" in files(folder)
        if len(told) == 3:
            raise KeyboardInterrupt

    def shown(**options: Any) -> None:
        top(**{**options, "say": say})

    monkeypatch.setattr(cli, "top", shown)
    assert cli.main(["top", str(process.pid), "--timeout", str(PATIENCE)]) == 130
    assert all(text.startswith(f"process {process.pid}: ") for text in told)
    are_gone(folder)


def test_a_terminal_shows_one_table_in_place_of_another_until_the_program_ends(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr(module, "DRAWN_EVERY", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    child = subprocess.Popen(["sleep", "1000"])
    try:
        told = {"version": bu.__version__, "pid": child.pid, "now": 0.0, "bytes": 12, "loaders": [entry()]}
        own_folders.mkdir(0o700)
        shown = Terminal(child.kill)

        def answer(program: module.Program) -> Any:
            return told if program.pid == child.pid else None

        monkeypatch.setattr(module.Program, "answer", answer)
        monkeypatch.setattr(sys, "stdout", shown)
        said: list[str] = []
        top(child.pid, say=said.append)
    finally:
        child.kill()
        child.wait()
    assert said == [f"process {child.pid} has ended"]
    text = shown.getvalue()
    assert "[red]not markup[/red]" in text
    assert "\\x1b[2J'" in text
    assert "\x1b[2J" not in text
    assert "12 bytes" in text
    assert files(own_folders) == []


def entry(**other: Any) -> dict[str, Any]:
    """Return the figures of a loader."""
    return {
        "number": 7, "name": "[red]not markup[/red]", "pool": "\x1b[2J", "epoch": 2, "batch": 5, "batches": 1563,
        "last": time.monotonic() - 12, "recent": {"batches_per_second": 46.7, "samples_per_second": 2988.8,
        "wait_share": 0.034}, "metrics": {"busy_share": 0.921}, "workers": 4, "buffer": 20, "ready": 3, "bytes": 34.5e6,
        **other,
    }  # fmt: skip


@pytest.mark.in_turn
def test_a_reader_that_goes_ends_it_without_a_traceback(running: Any) -> None:
    process, folder = running
    command = [sys.executable, "-m", "batchup_ng", "top", str(process.pid)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as shown:
        assert shown.stdout is not None
        assert shown.stderr is not None
        assert shown.stdout.readline().startswith(f"process {process.pid}: ")
        shown.stdout.close()
        assert (shown.stderr.read(), shown.wait(PATIENCE)) == ("", cli.OUTPUT_CLOSED)
    are_gone(folder)


def test_a_row_has_what_is_known_in_few_characters() -> None:
    few = {name: entry()[name] for name in ("name", "pool", "epoch", "batch", "last")} | {"recent": {}, "metrics": {}}
    told = {"pid": 1, "bytes": 0, "loaders": [entry(), few, entry(batches=None, batch=123456)]}
    head, one, other, endless = rows(told)
    assert head == COLUMNS
    assert one == ("0", "2", "5/1563", "46.7", "2,989", "3%", "3/20", "34.5 MB", "4", "92%", "12 s ago")
    assert other == ("1", "2", "5", "", "", "", "", "", "", "", "12 s ago")
    assert endless[2] == "123456"
    lines = plain(told).splitlines()
    assert len(lines) == 1 + 3 + 4
    assert len({len(line) for line in lines[4:]}) == 1
    assert len(lines[-1]) <= 90


def test_a_program_that_stands_still_does_not_answer(running: Any) -> None:
    process, folder = running
    process.send_signal(signal.SIGSTOP)
    try:
        with raises(NoAnswer):
            top(process.pid, once=True, timeout=0.01)
        assert cli.main(["top", str(process.pid), "--once", "--timeout", "0.01"]) == 1
    finally:
        process.send_signal(signal.SIGCONT)
    are_gone(folder)


def test_processes_that_cannot_be_asked_are_refused(
    running: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    process, _ = running
    with raises(bu.ArgumentError):
        top(GONE)
    for wrong in (str(GONE), "0", "-3"):
        with pytest.raises(SystemExit) as ended:
            cli.main(["top", "--once", "--", wrong])
        assert ended.value.code == 2
    with raises(bu.ArgumentError):
        top(process.pid, timeout=-1.0)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with raises(bu.ArgumentError):
        top(process.pid, once=True)
    assert files(tmp_path) == []


def test_a_process_that_ends_before_it_answers(monkeypatch: pytest.MonkeyPatch, own_folders: Path) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    program = module.Program(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not program.runs()  # though nobody has waited for it
    with program.asked(), raises(NoAnswer):
        module._first(program, PATIENCE)
    child.wait()
    assert not own_folders.exists(), "a folder that top has made is left"


def test_a_folder_of_others_is_refused(own_folders: Path, tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "1000"], env={})
    try:
        program = module.Program(child.pid)
        program._folders = [str(own_folders), str(tmp_path / "missing" / "batchup_ng")]
        own_folders.mkdir()
        own_folders.chmod(0o777)
        with raises(NoAnswer):
            program.ask()
        own_folders.rmdir()
        own_folders.symlink_to(tmp_path)
        with raises(NoAnswer):
            program.ask()
    finally:
        child.kill()
        child.wait()


def test_files_of_programs_that_have_ended_are_removed_and_no_others(own_folders: Path) -> None:
    program = module.Program(os.getpid())
    own_folders.mkdir(0o700)
    kept = ["notes.txt", f"{os.getppid()}.ask", f"{os.getppid()}.12.part", f"{GONE}.txt"]
    for name in [*kept, f"{GONE}.ask", f"{GONE}.json", f"{GONE}.12.part", f"{os.getpid()}.json"]:
        (own_folders / name).touch()
    with program.asked():
        assert files(own_folders) == sorted([*kept, f"{os.getpid()}.ask"])
        assert program.answer() is None
        for text in ("", "{", "\xff"):
            (own_folders / f"{os.getpid()}.json").write_bytes(text.encode("latin-1"))
            assert program.answer() is None
    assert files(own_folders) == sorted(kept)


def test_an_answer_of_another_version_is_refused(own_folders: Path) -> None:
    program = module.Program(os.getpid())
    with program.asked():
        (own_folders / f"{os.getpid()}.json").write_text(json.dumps({"version": "9.9"}))
        with raises(NoAnswer):
            program.answer()


def test_a_missing_library_is_named_with_its_extra(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    process, _ = running
    monkeypatch.setitem(sys.modules, "rich.live", None)
    monkeypatch.setattr(sys, "stdout", Terminal())
    with raises(ImportError):
        top(process.pid)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert module._live() is module._printed
