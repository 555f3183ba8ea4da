"""Known bugs, each as code that replaces a function of the package, with the test that must notice it.

A bug is planted in a copy of the package, so that it is there in every process: its code is appended to the module, in
whose namespace it runs. The named test then runs in a pytest of its own. A bug names functions and classes, no lines of
the source; if one of them is renamed or moved, the bug has to follow, since the mistake is still possible.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

from .stage import ROOT

REPORT = "report.xml"
LIMIT = 60.0
"""Seconds after which a program of a planted bug counts as hanging, and what is left of it as left."""

HANGS = r"hangs: it should have ended within [\d.]+ s(?s:.*)"
"""What is said of a program that does; its stacks follow, and tell where the dispatcher stands and who waits for it."""


@dataclasses.dataclass(frozen=True)
class Bug:
    """A mistake.

    Attributes:
        name: What is wrong.
        file: The module, below the package.
        code: What is run at the end of the module.
        test: The test, below ``tests/``, that must fail.
        expect: A pattern of what that test must say; a failure that says something else is another's.
    """

    name: str
    file: str
    code: str
    test: str
    expect: str

    def __str__(self) -> str:
        return self.name


BUGS = [
    Bug(
        "a lease is free from the start", "memory/leases.py",
        """
made = Lease.__init__
def free_at_once(self, block, shape, kind, free):
    made(self, block, shape, kind, free)
    free.append(self._returned)
Lease.__init__ = free_at_once
""",
        "faults/test_machines.py::test_m5_memory_that_is_free_is_nobodys[threads]",
        r"AssertionError: a batch (that is held was overwritten|arrived wrong)",
    ),
    Bug(
        "random numbers depend on the process", "randomness/hashing.py",
        """
import os
right = words_at
def words_at(key, positions):
    return right(key, positions + os.getpid())
""",
        "faults/test_streams.py::test_f22_three_iterators_at_once_are_whole[forkserver-2-64 kB]",
        r"AssertionError: iterator \d: part 2 has other contents",
    ),
    Bug(
        "the system does not kill workers whose program has ended", "work_pool/processes/parent_death.py",
        """
def hang_on(fd):
    os.close(fd)
""",
        "faults/test_endings.py::test_f15_workers_that_cannot_run_python_do_not_outlive_a_program_that_is_killed"
        "[forkserver-lock---pause=0.01]",
        r"ended with -9 and left \{'processes': .*tests\.faults\.host.* for more than",
    ),
    Bug(
        "a fork of the user's keeps workers alive", "work_pool/processes/parent_death.py",
        """
class Unseen(weakref.WeakSet):
    def __iter__(self):
        return iter(())
_open = Unseen()
""",
        "faults/test_endings.py::test_f15_a_fork_of_the_users_keeps_no_worker_alive",
        r"the fork has the pipe's end that keeps workers alive",
    ),
    Bug(
        "workers do not ignore Ctrl-C", "work_pool/processes/worker.py",
        """
def ignore_interrupts():
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
""",
        "faults/test_endings.py::test_f13_workers_that_are_idle_do_not_notice_an_interrupt[forkserver]",
        r"^AssertionError: idle, group: ended with -2 and said(?s:.*)worker\.py(?s:.*)KeyboardInterrupt",
    ),
    Bug(
        "half a message is waited for", "work_pool/processes/protocol.py",
        """
right = FrameReader.read
def patient(self):
    frames = right(self)
    while frames is not None and (self._frame is not None or self._first < self._last):
        self._sock.setblocking(True)
        frames += right(self) or []
    return frames
FrameReader.read = patient
""",
        "faults/test_crashes.py::test_f2_a_worker_that_stops_in_a_write_holds_up_nobody_else[forkserver]",
        HANGS + r'protocol\.py", line \d+ in read(?s:.*)in stopped_in_write',
    ),
    Bug(
        "a result is loaded by the thread that reads", "work_pool/processes/future.py",
        """
right = ProcessFuture.set_result
def loaded(self, frame):
    frame.load()
    right(self, frame)
ProcessFuture.set_result = loaded
""",
        "faults/test_exceptions.py::test_f9_a_result_that_kills_or_cannot_be_loaded_costs_one_error[forkserver]",
        r"in _receive(?s:.*)in refuse_here",
    ),
    Bug(
        "a reader that an exception ends keeps the turn", "work_pool/processes/turn.py",
        """
right = Turn.serve
def kept(self, future, deadline):
    try:
        right(self, future, deadline)
    except BaseException:
        self._lock.acquire(blocking=False)
        raise
Turn.serve = kept
""",
        "work_pool/processes/test_turn.py::test_an_exception_at_any_line_of_serve_leaves_the_turn_free",
        r"^AssertionError: (nobody reads|a thread that has ended has the turn)",
    ),
    Bug(
        "exit code 0 is no crash", "work_pool/processes/workers.py",
        """
right = Workers._describe_exit
def forgiving(self, worker, code):
    worker.tasks = worker.tasks if code else []
    return right(self, worker, code)
Workers._describe_exit = forgiving
""",
        "faults/test_crashes.py::test_f6_an_exit_with_code_0_is_a_crash[forkserver-2-64 kB]",
        HANGS + r'wire\.py", line \d+ in wait(?s:.*)in exit_zero',
    ),
    Bug(
        "a dead worker is not replaced", "work_pool/processes/schedule.py",
        """
right = Schedule.died
def died(self, worker, now):
    actions = right(self, worker, now)
    self._processes = len(self.workers)
    return actions
Schedule.died = died
""",
        "faults/test_crashes.py::test_f1_workers_killed_while_idle_are_replaced[forkserver]",
        HANGS + r'wire\.py", line \d+ in wait(?s:.*)in dead_before_it_was_asked',
    ),
    Bug(
        "a slot is lent to two at once", "work_pool/processes/shared_memory.py",
        """
right = SlotPool.take
def taken(self, nbytes):
    free = self._free.get(size_class(nbytes))
    return Slot(free[0].block.offset, on_lease(free[0].block, free)) if free else right(self, nbytes)
SlotPool.take = taken
""",
        "faults/test_machines.py::test_m5_memory_that_is_free_is_nobodys[forkserver]",
        r"AssertionError: a batch (that is held was overwritten|arrived wrong)",
    ),
    Bug(
        "the shared memory has a name", "memory/shared_file.py",
        """
os.memfd_create = lambda name, flags: os.open(
    os.environ["TMPDIR"] + "/batchup_ng", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
)
""",
        "faults/test_endings.py::test_f15_long_tasks_do_not_outlive_a_program_that_is_killed[spawn---thread]",
        r"ended with -9 and left \{'temporary files': \['[^']*/batchup_ng'\]\}",
    ),
    Bug(
        "results are not loaded where they are made", "work_pool/processes/execution.py",
        """
dump_loadable = dump
""",
        "work_pool/processes/test_pool.py::test_nothing_that_a_task_gives_harms_the_worker_or_the_consumer",
        r"^SystemExit: 5",
    ),
    Bug(
        "what cannot be pickled is dropped in silence", "work_pool/processes/worker.py",
        """
right = protocol.pieces
def pieces(kind, number, pickled=b"", buffers=()):
    return [] if kind is Kind.ERROR and b"SerializationError" in pickled else right(kind, number, pickled, buffers)
protocol.pieces = pieces
""",
        "work_pool/processes/test_pool.py::test_a_result_that_cannot_travel_is_told_of[forkserver]",
        r"^Failed: Timeout \(>[\d.]+s\) from pytest-timeout",
    ),
    Bug(
        "a task that raises StopIteration ends the stream", "work_pool/processes/future.py",
        """
RuntimeError = StopIteration
""",
        "work_pool/processes/test_pool.py::test_nothing_that_a_task_gives_harms_the_worker_or_the_consumer",
        r"^StopIteration",
    ),
    Bug(
        "a broken loop leaves its tasks queued", "work_pool/prefetch_buffer.py",
        """
right = PrefetchBuffer.close
def forgetful(self):
    self._entries.clear()
    right(self)
PrefetchBuffer.close = forgetful
""",
        "faults/test_endings.py::test_f12_what_a_broken_loop_had_queued_is_not_done[forkserver]",
        r"^AssertionError: assert \d+ <= 6\n.*made_after_a_break",
    ),
]  # fmt: skip


def copy_of_the_package(folder: Path) -> None:
    """Copy what a test run needs."""
    for name in ("batchup_ng", "tests"):
        # What Python has compiled comes along, and fits but for the bug; what it is writing now, it renames meanwhile.
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.pyc.*"))
    shutil.copy(ROOT / "pyproject.toml", folder)


def with_bug(bug: Bug) -> str:
    """Return the text of the module with a bug at its end."""
    return (ROOT / "batchup_ng" / bug.file).read_text() + bug.code


def run_tests(folder: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    """Run tests of the copy in a pytest of their own, which leaves a report for :func:`failures`."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "BATCHUP_NG_STAGE_LIMIT": str(LIMIT)}
    environment.pop("PYTEST_ADDOPTS", None)
    environment.pop("PYTEST_CURRENT_TEST", None)
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # it rewrites all modules of each, which takes half a second
    options = ["-q", "-rA", "-p", "no:cacheprovider", "-p", "pytest_timeout", "-p", "xdist.plugin"]
    options += [f"--junitxml={REPORT}", f"--timeout={3 * LIMIT:.0f}", "--timeout-method=signal"]
    command = [sys.executable, "-m", "pytest", *options, *[f"tests/{test}" for test in tests]]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )


def failures(folder: Path) -> list[str]:
    """Return what the tests that failed in the last run said, without the text of their code."""
    report = xml.etree.ElementTree.parse(folder / REPORT)
    return [_said(found.text or "") for kind in ("failure", "error") for found in report.iter(kind)]


def _said(text: str) -> str:
    lines = text.splitlines()
    said = [line[1:].strip() for line in lines if line.startswith("E ")]  # where pytest shows the code as well
    return "\n".join(said or lines)
