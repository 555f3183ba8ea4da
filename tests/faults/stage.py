"""Plays one fault in a program of its own, within a limit.

A scene or a program is played by a fork of a process that has imported everything (``host.py``), or, where that would
change what is measured, by an interpreter of its own. Each is the leader of a new session and carries a
mark in its environment, both of which all that it starts inherits: by these whatever is left of it is found in /proc,
also what has lost its parent. It has its own folder for temporary files. Python's fault handler is on in all of its
interpreters, so that SIGABRT makes each of them write the stacks of all its threads: a program that is not done within
its limit fails the test with these stacks, then everything of it is killed. Nothing here waits without a deadline.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
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

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"
MARK = "BATCHUP_NG_STAGE"
RESULT = "BATCHUP_NG_RESULT"

LIMIT = float(os.environ.get("BATCHUP_NG_STAGE_LIMIT", 240.0))
"""Seconds that a program may take, and then, anew, until nothing is left of it: a hang is a failure, never a retry.

The goal is 30 s, and that nothing is left after one. On a machine that is busy everything takes ten times as long, so a
limit tells a program that hangs from one that ends, and nothing else.
"""


def unmeasured() -> dict[str, str]:
    """Return the environment of a program whose coverage is not measured.

    An interrupt that came while that holds its lock would have it wait for the lock for ever.
    """
    return {name: value for name, value in os.environ.items() if name != "COVERAGE_PROCESS_CONFIG"}


class Host:
    """A process that forks the programs of scenes; see ``host.py``."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.host"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
            cwd=ROOT, env={**unmeasured(), "PYTHONFAULTHANDLER": "1", "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
        assert self.line() == "ready", "the host of scenes ended"

    def ask(self, request: dict[str, Any]) -> int:
        """Fork the program of a scene; return its pid."""
        self._process.stdin.write(f"{json.dumps(request)}\n".encode())
        return int(self.line())

    def line(self, timeout: float | None = None) -> str:
        """Return the next line of its answers; an empty text if none comes in time."""
        answers = self._process.stdout
        if timeout is not None and not select.select([answers], [], [], timeout)[0]:
            return ""
        line = answers.readline().decode().strip()
        assert line, "the host of scenes ended"
        return line

    def close(self) -> None:
        """End it."""
        with self._process:
            self._process.stdin.close()


class Forked:
    """A program that a host has forked, with those methods of ``Popen`` that are used here."""

    def __init__(self, host: Host, request: dict[str, Any]) -> None:
        self._host = host
        self.args = ["tests.faults.host", *request["arguments"]]
        self.pid = host.ask(request)
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code.

        Raises:
            subprocess.TimeoutExpired: it has not ended in time.
        """
        if self.returncode is None:
            if not (line := self._host.line(timeout)):
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = os.waitstatus_to_exitcode(int(line))
        return self.returncode

    def kill(self) -> None:
        """Kill it."""
        os.kill(self.pid, signal.SIGKILL)

    def poll(self) -> int | None:
        """Return its exit code, None if it still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None


class Stage:
    """A program that is to suffer a fault; to be used by ``with``, at whose end nothing of it is left.

    Args:
        command: What to run; for a host, the arguments of ``actor.main``, or a file with its options.
        environment: What to add to the environment.
        limit: Seconds that it may take in all.
        host: Who is to fork it; without one it is an interpreter of its own.
    """

    def __init__(
        self, command: Sequence[str], *, environment: dict[str, str] | None = None, limit: float = LIMIT,
        host: Host | None = None,
    ) -> None:  # fmt: skip
        self.mark = uuid.uuid4().hex
        self.folder = Path(tempfile.mkdtemp(prefix="stage-"))
        self.scratch = self.folder / "tmp"
        self.scratch.mkdir()
        self._began = time.monotonic()
        self._limit = limit
        env = self._environment(environment or {})
        with (self.folder / "out").open("ab") as out, (self.folder / "err").open("ab") as err:
            self.process: Any = (
                Forked(host, {"arguments": command, "environment": env, "folder": str(self.folder)})
                if host
                else subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=self.folder, env=env,
                    start_new_session=True,
                )
            )  # fmt: skip

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        path = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        return {
            **unmeasured(),
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
        return f"the program {' '.join(map(str, self.process.args[1:]))!r:.500}"

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
        while True:
            ended = self.process.poll() is not None  # before the look: it may say so and end between the two
            if self.out.splitlines().count(line) >= times:
                return
            if ended:
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
            deadline = time.monotonic() + 30
            while pid in self.processes() and time.monotonic() < deadline:
                time.sleep(0.01)

    # -- what is left ------------------------------------------------------------------------------------------

    def processes(self) -> dict[int, str]:
        """Return the processes of the program, each with its command line."""
        return dict(_found(self.mark, self.process.pid))

    def left(self, within: float = LIMIT) -> dict[str, list[str]]:
        """Return what is left of it, processes and temporary files, `within` seconds from now at the latest."""
        deadline = time.monotonic() + within
        while found := self._left_now():
            if time.monotonic() > deadline:
                break
            time.sleep(0.005)
        return found

    def _left_now(self) -> dict[str, list[str]]:
        walk = os.walk(self.scratch)  # which passes over what goes meanwhile
        found = {
            "processes": [f"{pid} {command}" for pid, command in self.processes().items()],
            "temporary files": sorted(f"{path}/{name}" for path, folders, files in walk for name in folders + files),
        }
        return {kind: items for kind, items in found.items() if items}

    def assert_nothing_left(self, within: float = LIMIT) -> None:
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


def _found(mark: str, leader: int) -> Iterator[tuple[int, str]]:
    """Yield the processes that have that mark or are of the session of that leader, with their command lines.

    A process that has ended and waits to be reaped has neither environment nor command line, and does not count.
    """
    needle = f"{MARK}={mark}".encode()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                words = Path("/proc", name, "cmdline").read_bytes()[:200]
                command = words.replace(b"\0", b" ").decode(errors="replace")
                if command and (
                    needle in Path("/proc", name, "environ").read_bytes() or os.getsid(int(name)) == leader
                ):
                    yield int(name), command


_host: Host | None = None


@contextlib.contextmanager
def hosted() -> Iterator[None]:
    """Let scenes be played by forks of one process within."""
    global _host
    _host = Host()
    try:
        yield
    finally:
        _host.close()
        _host = None


def start(program: str, *options: object, alone: bool = False) -> Stage:
    """Start a file of ``programs/`` with options, in an interpreter of its own if it is to be `alone`."""
    command = [str(PROGRAMS / program), *map(str, options)]
    return Stage([sys.executable, *command]) if alone else Stage(command, host=_host)


def play(
    scene: Callable[..., Any], /, *, limit: float = LIMIT, environment: dict[str, str] | None = None,
    leaves: Sequence[str] = (), alone: bool = False, **arguments: Any,
) -> Any:  # fmt: skip
    """Run a function of ``scenes/`` in a program of its own and return what it returned.

    The test fails if the scene raises, if the program is not done within the limit, if it ends in another way than by
    returning, or if anything is left of it.

    Args:
        scene: A function that can be imported; its arguments and its result go through JSON.
        limit: Seconds that it may take.
        environment: What to add to the environment, of an interpreter of its own.
        leaves: Kinds of things that may be left in the program's own process until it ends: ``threads``.
        alone: Whether it needs an interpreter of its own, as one whose memory is measured does.
        arguments: What the scene is called with.
    """
    command = [f"{scene.__module__}:{scene.__qualname__}", json.dumps(arguments), *leaves]
    host = None if environment or alone else _host
    if host is None:
        command = [sys.executable, "-m", "tests.faults.actor", *command]
    with Stage(command, environment=environment, limit=limit, host=host) as stage:
        code = stage.wait()
        value = stage.verdict()
        if code != 0:
            stage.fail(f"returned {value!r} and yet ended with {code}")
        stage.assert_nothing_left()
        return value
