"""Plays one fault in a program of its own, within a limit.

Each program is the leader of a new session and carries a mark in its environment, which all that it starts inherits:
by that mark whatever is left of it is found in /proc, also what has lost its parent. It has its own folder for
temporary files. Python's fault handler is on in all of its interpreters, so that SIGABRT makes each of them write the
stacks of all its threads: a program that is not done within its limit fails the test with these stacks, then
everything of it is killed. Nothing here waits without a deadline.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ..left import used_by_others

ROOT = Path(__file__).resolve().parents[2]
MARK = "BATCHUP_NG_STAGE"
RESULT = "BATCHUP_NG_RESULT"

LIMIT = float(os.environ.get("BATCHUP_NG_STAGE_LIMIT", 30.0))
"""Seconds that a program may take: a hang is a failure, never a retry."""

GONE_WITHIN = 1.0
"""Seconds within which nothing may be left of a program that has ended."""

_SHM = Path("/dev/shm")


class Stage:
    """A program that is to suffer a fault; to be used by ``with``, at whose end nothing of it is left.

    Args:
        command: What to run.
        environment: What to add to the environment.
        limit: Seconds that it may take in all.
    """

    def __init__(
        self, command: Sequence[str], *, environment: dict[str, str] | None = None, limit: float = LIMIT
    ) -> None:
        self.mark = uuid.uuid4().hex
        self.folder = Path(tempfile.mkdtemp(prefix="stage-"))
        self.scratch = self.folder / "tmp"
        self.scratch.mkdir()
        self._named_before = set(_SHM.iterdir())
        self._began = time.monotonic()
        self._limit = limit
        with (self.folder / "out").open("ab") as out, (self.folder / "err").open("ab") as err:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=self.folder,
                env=self._environment(environment or {}), start_new_session=True,
            )  # fmt: skip

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        path = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        return {
            **os.environ,
            MARK: self.mark,
            RESULT: str(self.folder / "result.json"),
            "TMPDIR": str(self.scratch),
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "PYTHONFAULTHANDLER": "1",
            "PYTHONUNBUFFERED": "1",
            **more,
        }

    # -- what it says ------------------------------------------------------------------------------------------

    @property
    def out(self) -> str:
        """What it has written to its standard output."""
        return (self.folder / "out").read_text(errors="replace")

    @property
    def err(self) -> str:
        """What it has written to its standard error."""
        return (self.folder / "err").read_text(errors="replace")

    def verdict(self) -> Any:
        """Return what the scene returned; fails the test with the scene's traceback if it raised."""
        try:
            result = json.loads((self.folder / "result.json").read_text())
        except FileNotFoundError:
            self.fail(f"ended with {self.process.returncode} before it had a result")
        if "failed" in result:
            self.fail(f"failed:\n{result['failed']}")
        return result["value"]

    def fail(self, what: str) -> Any:
        """Fail the test, with all that is known of the program."""
        took = time.monotonic() - self._began
        text = f"{self}, after {took:.1f} s, {what}\n--- its output\n{self.out[-4000:]}\n--- its errors\n"
        pytest.fail(text + self.err[-16000:], pytrace=False)

    def __str__(self) -> str:
        command = self.process.args
        assert isinstance(command, (list, tuple))
        return f"the program {' '.join(map(str, command[1:]))!r:.500}"

    # -- waiting -----------------------------------------------------------------------------------------------

    def wait(self, seconds: float | None = None) -> int:
        """Return its exit code; a program that is not done in time fails the test, with the stacks of all it runs."""
        left = self._began + self._limit - time.monotonic() if seconds is None else seconds
        try:
            return self.process.wait(max(0.0, left))
        except subprocess.TimeoutExpired:
            running = "\n".join(self.processes().values())
            self.dump_stacks()
            return self.fail(f"hangs: it should have ended within {left:.1f} s. It ran:\n{running}")

    def wait_for(self, line: str, seconds: float = LIMIT, times: int = 1) -> None:
        """Wait until it has written `line`, so many times."""
        deadline = time.monotonic() + seconds
        while self.out.splitlines().count(line) < times:
            if self.process.poll() is not None:
                self.fail(f"ended with {self.process.returncode} and never said {line!r}")
            if time.monotonic() > deadline:
                self.dump_stacks()
                self.fail(f"hangs: it did not say {line!r} within {seconds:.1f} s")
            time.sleep(0.002)

    def dump_stacks(self) -> None:
        """Let every interpreter of the program write its stacks to its standard error, of which they die."""
        for pid, command in self.processes().items():  # one after the other, or they would write at once
            with (self.folder / "err").open("a") as err:
                err.write(f"\n--- stacks of {pid}, {command}\n")
            for number in (signal.SIGCONT, signal.SIGABRT):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            deadline = time.monotonic() + 1
            while pid in self.processes() and time.monotonic() < deadline:
                time.sleep(0.01)

    # -- what is left ------------------------------------------------------------------------------------------

    def processes(self) -> dict[int, str]:
        """Return the processes of the program, each with its command line."""
        return dict(_marked(self.mark))

    def left(self, within: float = GONE_WITHIN) -> dict[str, list[str]]:
        """Return what is left of it, processes, named shared memory, temporary files, `within` seconds from now."""
        deadline = time.monotonic() + within
        while found := self._left_now():
            if time.monotonic() > deadline:
                break
            time.sleep(0.005)
        return found

    def _left_now(self) -> dict[str, list[str]]:
        processes = self.processes()
        named = {str(path) for path in set(_SHM.iterdir()) - self._named_before}
        found = {
            "processes": [f"{pid} {command}" for pid, command in processes.items()],
            "shared memory": sorted(named - used_by_others(named, set(processes))),
            "temporary files": sorted(str(path) for path in self.scratch.rglob("*")),
        }
        return {kind: items for kind, items in found.items() if items}

    def assert_nothing_left(self, within: float = GONE_WITHIN) -> None:
        """Fail the test if something is left of the program, which has ended."""
        if left := self.left(within):
            self.dump_stacks()
            self.fail(f"ended with {self.process.returncode} and left {left} for more than {within:.1f} s")

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *exc: object) -> None:
        while pids := self.processes():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _marked(mark: str) -> Iterator[tuple[int, str]]:
    needle = f"{MARK}={mark}".encode()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if needle in Path("/proc", name, "environ").read_bytes():
                    yield int(name), Path("/proc", name, "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]


def play(
    scene: Callable[..., Any], /, *, limit: float = LIMIT, prefix: Sequence[str] = (),
    environment: dict[str, str] | None = None, leaves: Sequence[str] = (), **arguments: Any,
) -> Any:  # fmt: skip
    """Run a function of ``scenes/`` in a program of its own and return what it returned.

    The test fails if the scene raises, if the program is not done within the limit, if it ends in another way than by
    returning, or if anything is left of it.

    Args:
        scene: A function that can be imported; its arguments and its result go through JSON.
        limit: Seconds that it may take.
        prefix: A command that runs the rest of its command line.
        environment: What to add to the environment.
        leaves: Kinds of things that may be left in the program's own process until it ends: ``threads``.
        arguments: What the scene is called with.
    """
    name = f"{scene.__module__}:{scene.__qualname__}"
    command = [*prefix, sys.executable, "-m", "tests.faults.actor", name, json.dumps(arguments), *leaves]
    with Stage(command, environment=environment, limit=limit) as stage:
        code = stage.wait()
        value = stage.verdict()
        if code != 0:
            stage.fail(f"returned {value!r} and yet ended with {code}")
        stage.assert_nothing_left()
        return value
