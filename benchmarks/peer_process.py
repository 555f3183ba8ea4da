"""One variant in a process group of its own.

The process leads its own session, hence a group with all workers that it makes; whatever happens, the whole group is
killed at the end. The protocol is told in ``child.py``. Children get a temporary folder inside the workload's
for their own temporary files, so that a killed peer leaves none. Only a SIGKILL of the parent itself can leave
the folder, not processes: a child kills its group when its stdin ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from benchmarks.case import Case
from benchmarks.outcome import Epoch
from benchmarks.peers.base import Variant
from benchmarks.workloads import Workload

ROOT = Path(__file__).resolve().parent.parent
POLL_SECONDS = 0.5
CLOSE_SECONDS = 5.0


class PeerFailed(RuntimeError):
    """A variant raised, died or took too long; the text is its last error line."""


class PeerProcess:
    """A running variant; used by one thread. ``close`` may be called twice.

    Args:
        variant: What to run.
        case: On what data, and what it does with them when it is its turn.
        workers: Threads or processes, for a variant that has any.
        timeout: Seconds that opening, or one turn, may take.
    """

    def __init__(self, variant: Variant, case: Case, *, workers: int, timeout: float) -> None:
        self._request: dict[str, Any] = {
            "module": variant.module,
            "variant": variant.name,
            "workers": workers,
            "workload": case.workload.to_json(),
            "trial": case.trial,
            "settings": dict(case.settings),
        }
        self._timeout = timeout
        self._errors = Path(case.workload.folder) / f"{variant.name}.stderr"
        self._pending = b""
        self._killed = False
        self._process = self._start(_environment(case.workload))

    def _start(self, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        with self._errors.open("wb") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "benchmarks.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                env=environment,
                start_new_session=True,
            )

    @property
    def group(self) -> int:
        """The id of its process group."""
        return self._process.pid

    def open(self) -> None:
        """Let it load the data and import its library; returns when it is ready."""
        self._ask(self._request)

    def turn(self, number: int) -> Epoch:
        """Let it do what it does for the time of this number."""
        return Epoch(**self._ask({"turn": number}))

    def close(self) -> None:
        """Ask it to leave, then kill what is left of the group."""
        if not self._killed:
            with contextlib.suppress(OSError, TimeoutExpired):
                self._send({"close": True})
                self._process.wait(CLOSE_SECONDS)
        self._kill()

    def _kill(self) -> None:
        if self._killed:  # the id may belong to somebody else by now
            return
        self._killed = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.group, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        _wait_for_end(self.group)

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Raises PeerFailed, after which the group is dead."""
        try:
            self._send(message)
            answer: dict[str, Any] = json.loads(self._line(time.monotonic() + self._timeout))
        except (OSError, EOFError, ValueError) as error:
            self._kill()
            raise PeerFailed(self._last_error() or f"ended without an answer: {error}") from error
        except TimeoutExpired as error:
            self._kill()
            raise PeerFailed(f"no answer within {self._timeout:g} s") from error
        if "error" in answer:
            self._kill()
            raise PeerFailed(" ".join(str(answer["error"]).split()))
        return answer

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def _line(self, deadline: float) -> bytes:
        """The next line. Workers may hold the pipe open after a crash, so that its end alone does not tell of one."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._pending:
            dead = self._process.poll() is not None
            readable, _, _ = select.select([descriptor], [], [], 0 if dead else POLL_SECONDS)
            piece = os.read(descriptor, 65536) if readable else b""
            self._pending += piece
            if not piece and (dead or readable):
                raise EOFError(f"exit code {self._process.wait(CLOSE_SECONDS)}")
            if time.monotonic() > deadline:
                raise TimeoutExpired(self._process.args, self._timeout)
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _last_error(self) -> str:
        lines = self._errors.read_text(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""


def _environment(workload: Workload) -> dict[str, str]:
    scratch = Path(workload.folder) / "t"
    scratch.mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(scratch), "JOBLIB_TEMP_FOLDER": str(scratch)}


def _wait_for_end(group: int) -> None:
    """Wait, not for ever, until the killed members of a group are gone."""
    deadline = time.monotonic() + CLOSE_SECONDS
    with contextlib.suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(0.01)
