"""One variant in a process group of its own.

The process leads its own session, and so a group with all its workers. The whole group is always killed at the end.
``child.py`` describes the protocol. Children write temporary files into a folder inside the workload's folder, so a
killed peer leaves none. A SIGKILL of the parent can leave the folder, but no processes: a child kills its group when
the parent's end of the pipe closes.

If a variant takes its library from another checkout, it runs in a folder with two links, to that checkout's package and
to this tree's ``benchmarks``. All its processes look for modules there first: the harness is the same for both.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.peers.base import Variant
from benchmarks.plan import Part
from benchmarks.records import Epoch
from benchmarks.workloads.base import Workload

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "batchup_ng"
POLL_SECONDS = 0.5
CLOSE_SECONDS = 5.0


class PeerFailed(RuntimeError):
    """A variant raised, died or took too long. The text is its last error line."""


class PeerProcess:
    """A running variant, used by one thread. ``close`` may be called twice.

    Args:
        variant: The variant to run.
        part: The part with its trial.
        workload: The data.
        workers: Threads or processes of a variant with workers.
        timeout: Most seconds of opening, or of one turn.
    """

    def __init__(self, variant: Variant, part: Part, workload: Workload, *, workers: int, timeout: float) -> None:
        self._request = variant.open, workload, workers, part.trial, dict(part.settings)
        self._timeout = timeout
        self._killed = False
        folder = Path(workload.folder)
        scratch = folder / "t"
        scratch.mkdir(exist_ok=True)
        self._errors = folder / f"{variant.name}.stderr"
        self._pipe, theirs = multiprocessing.Pipe()
        with self._errors.open("wb") as errors, theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.child", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                cwd=_overlay(folder / "before", variant.checkout) if variant.checkout else ROOT,
                env={**os.environ, "TMPDIR": str(scratch), "JOBLIB_TEMP_FOLDER": str(scratch)},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    @property
    def group(self) -> int:
        """Id of the process group."""
        return self._process.pid

    def open(self) -> None:
        """Make the process load the data and import its library; wait until it is ready."""
        self._ask(self._request)

    def turn(self, number: int) -> Epoch:
        """Make the process run turn `number`; return its result."""
        epoch: Epoch = self._ask(number)
        return epoch

    def close(self) -> None:
        """Ask the process to exit, then kill the rest of the group."""
        if not self._killed:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._pipe.send(None)
                self._process.wait(CLOSE_SECONDS)
        self._kill()

    def _kill(self) -> None:
        if self._killed:  # another process may have the id by now
            return
        self._killed = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.group, signal.SIGKILL)
        self._process.wait()
        self._pipe.close()
        deadline = time.monotonic() + CLOSE_SECONDS  # for its killed members to disappear
        with contextlib.suppress(ProcessLookupError, PermissionError):
            while time.monotonic() < deadline:
                os.killpg(self.group, 0)
                time.sleep(0.01)

    def _ask(self, message: Any) -> Any:
        """Send a message and return the answer; on failure kill the group and raise PeerFailed."""
        try:
            self._pipe.send(message)
            self._wait()
            answer = self._pipe.recv()
            error = " ".join(answer.split()) if isinstance(answer, str) else ""
        except TimeoutError:
            error = f"no answer within {self._timeout:g} s"
        except (OSError, EOFError):
            lines = self._errors.read_text(errors="replace").strip().splitlines()
            error = lines[-1].strip() if lines else f"ended without an answer, exit code {self._process.wait()}"
        if error:
            self._kill()
            raise PeerFailed(error)
        return answer

    def _wait(self) -> None:
        """Wait for an answer. Workers may hold the pipe open after a crash, so also watch the process itself."""
        deadline = time.monotonic() + self._timeout
        while not self._pipe.poll(POLL_SECONDS):
            if self._process.poll() is not None and not self._pipe.poll():
                raise EOFError
            if time.monotonic() > deadline:
                raise TimeoutError


def _overlay(folder: Path, checkout: str) -> Path:
    """Return a folder with the checkout's package and this tree's harness."""
    if not folder.exists():
        folder.mkdir()
        (folder / PACKAGE).symlink_to(Path(checkout, PACKAGE).resolve())
        (folder / "benchmarks").symlink_to(ROOT / "benchmarks")
    return folder
