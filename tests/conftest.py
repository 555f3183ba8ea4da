"""What all tests share: each is checked to leave no process, thread, descriptor or file behind."""

from __future__ import annotations

import collections
import compileall
import gc
import inspect
import json
import math
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib  # noqa: F401  # now, for it sets a variable: later, new pools could not share the server of the tests
import pytest
from hypothesis import HealthCheck, settings

import batchup_ng as bu
from batchup_ng.meters import batch_times
from batchup_ng.platforms import system
from batchup_ng.work_pool import AbstractWorkerPool, prefetch_buffer
from batchup_ng.work_pool.processes import fork_server, serialization
from tests.left import Left, end_fsspec, end_zarr, left_since
from tests.libraries import OPTIONAL
from tests.turns import IN_TURN, TURNS, named

if "--thorough" in sys.argv:  # now: the files that read it may be imported before pytest is configured
    os.environ["BATCHUP_NG_TESTS_THOROUGH"] = "yes"

PATIENCE = 240.0
"""Seconds in which what a test used must be gone; it is gone at once, unless the machine is busy."""

# A busy machine is no fault; the tests of these limits set their own.
prefetch_buffer.STALL_SECONDS = 3600.0
fork_server.ANSWER_TIMEOUT = 60.0  # until it counts as unknown how a worker ended, which messages tell
fork_server.SERVER_TIMEOUT = 60.0  # until a pool that is closed in its start kills the server of all
serialization.MAX_SECONDS = 60.0  # of the search for the part that cannot be sent, which messages name
batch_times.look_due = math.inf  # a look for the files of `top` would come at another step of each run

LIBRARY = rf"\b(?:{'|'.join(OPTIONAL)})\b"
"""Matches the name of an optional library."""

MOST_REASONS = 20
"""Reasons why tests were skipped that have a line of their own."""

EXAMPLES = {"quick": 8, "thorough": 1000}
"""How many examples each property is tried with."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of ``faults/`` and ``sampling/``; pytest asks only this file, which it reads first."""
    parser.addoption("--faults-seed", type=int, default=None, help="replay the random choices of tests/faults")
    parser.addoption("--passed-without-libraries", type=Path, help="leave out tests that this file lists as passed")
    fifth = "of the tests marked in_turn, run only this fifth (default: that of the day, unless tests are named)"
    parser.addoption("--turn", type=int, choices=range(TURNS), help=fifth)
    parser.addoption("--thorough", action="store_true", help="run every test at full length (hours)")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Run all tests in two processes, and a part of them, named on the command line, in this one."""
    return 2 if config.args_source is pytest.Config.ArgsSource.TESTPATHS else 0


def pytest_configure_node(node: Any) -> None:
    """Choose the same turn in each process: the day may end now."""
    node.workerinput["turn"] = node.config.option.turn


def pytest_configure(config: pytest.Config) -> None:
    """Give the session, and what it starts, a folder of its own for temporary files, so that all in it is ours."""
    all_are_run = config.args_source is config.ArgsSource.TESTPATHS
    if hasattr(config, "workerinput"):
        config.option.turn = config.workerinput["turn"]
    elif all_are_run and config.option.turn is None and not config.option.thorough:
        config.option.turn = time.gmtime().tm_yday % TURNS
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell that runs the tests in the background has Ctrl-C ignored, and so would all that they start.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Beside that of the session, not in it, if this is one of several workers: names of sockets have 108 bytes at most.
    beside = os.path.dirname(tempfile.gettempdir()) if hasattr(config, "workerinput") else None
    folder = tempfile.mkdtemp(prefix="batchup_ng-tests-", dir=beside)
    tempfile.tempdir = os.environ["TMPDIR"] = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    if beside is None:
        config.pluginmanager.register(KeepsResults(config))
        # Hundreds of interpreters are started, which would all compile the package where none may write bytecode.
        for package in (Path(bu.__file__).parent, Path(__file__).parent):
            compileall.compile_dir(package, quiet=2)
    _set_examples("thorough" if config.getoption("--thorough") else "quick")
    gc.disable()  # until all is collected: nothing of that goes


class KeepsResults:
    """Names a failed test at once, and lists the tests that passed, for ``--passed-without-libraries``.

    pytest names a failed test at the end, which a run that is ended does not reach.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._passed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print the name of a test that has failed."""
        if report.passed and report.when == "call":
            self._passed.append(report.nodeid)
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.ensure_newline()
            terminal.write_line(f" failed now: {report.nodeid}, {report.when}")

    def pytest_sessionfinish(self) -> None:
        """Write the list into pytest's cache folder."""
        cache = getattr(self._config, "cache", None)  # none with -p no:cacheprovider, as the suites of frameworks run
        if cache is not None:
            cache.set("batchup_ng/passed", self._passed)


def _set_examples(profile: str) -> None:
    """Set how properties are tried: the same few examples in each quick run, others in each thorough one."""
    settings.register_profile(
        profile,
        max_examples=EXAMPLES[profile],
        derandomize=profile == "quick",
        deadline=None,  # a busy machine is no failure
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    settings.load_profile(profile)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests that run; with ``--thorough`` a test may take long.

    The tests of Ray come first: of several processes the first one runs them all, so that one cluster is started.
    """
    items.sort(key=lambda item: "/work_pool/ray/" not in item.nodeid)
    if config.getoption("--thorough"):
        for item in items:
            item.add_marker(pytest.mark.timeout(7200))
    if left_out := _left_out(config, items):
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _left_out(config: pytest.Config, items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the tests that the options leave out.

    Without ``--thorough``: those marked ``thorough``. With ``--turn``: of those marked ``in_turn``, the other four
    fifths. With ``--passed-without-libraries``: those listed there that do not themselves name a library.
    """
    left_out: set[pytest.Item] = set()
    if not config.getoption("--thorough"):
        left_out.update(item for item in items if item.get_closest_marker("thorough"))
    turn = config.getoption("--turn")
    if turn is not None:
        in_turn = [item for item in items if item not in left_out and item.get_closest_marker("in_turn")]
        config.stash[IN_TURN] = set(map(named, in_turn))
        left_out.update(item for number, item in enumerate(in_turn) if number % TURNS != turn)
    if listed := config.getoption("--passed-without-libraries"):
        passed = set(json.loads(listed.read_text()))
        left_out.update(item for item in items if item.nodeid in passed and not _names_a_library(item))
    return left_out


def _names_a_library(item: pytest.Item) -> bool:
    """Tell whether the code of a test names a library, which it may use only where it is installed."""
    function = getattr(item, "function", None)
    return function is not None and re.search(LIBRARY, inspect.getsource(function)) is not None


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Refuse a file of tests that cannot be imported, which the look for doctests would skip, tests and all."""
    if report.skipped and report.nodeid.startswith("tests/") and "unable to import module" in str(report.longrepr):
        raise pytest.UsageError(f"{report.nodeid} cannot be imported; run python -c 'import ...' of it to see why")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many tests were skipped for each of the most common reasons; ``-rs`` lists every test.

    Tests of libraries that are not installed have one line.
    """
    counts = collections.Counter(_why_skipped(report) for report in terminalreporter.getreports("skipped"))
    missing: collections.Counter[str] = collections.Counter()
    for reason in [reason for reason in counts if "not installed" in reason]:
        named = re.search(LIBRARY, reason, re.IGNORECASE)
        missing[named[0].lower() if named else "others"] += counts.pop(reason)
    reasons = counts.most_common()
    if missing or reasons:
        terminalreporter.section("skipped", "-")
    if missing:
        told = ", ".join(f"{library} {count}" for library, count in missing.most_common())
        terminalreporter.write_line(f"{sum(missing.values()):5}  a library is not installed: {told}")
    for reason, count in reasons[:MOST_REASONS]:
        terminalreporter.write_line(f"{count:5}  {reason}")
    if rest := reasons[MOST_REASONS:]:
        terminalreporter.write_line(f"{sum(count for _, count in rest):5}  {len(rest)} other reasons; -rs lists all")


def _why_skipped(report: Any) -> str:
    told = report.longrepr[-1] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    told = re.sub(r"could not import '([\w.]+)'.*", r"\1 is not installed", told.removeprefix("Skipped: "))
    return re.sub(r"unable to import module .*", "the library of a module with examples is not installed", told)


def pytest_collection_finish() -> None:
    """Let the collector look no more at what was imported and collected, which took it 0.3 s each time."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup() -> None:
    """Undo that pytest names the test in the environment, or each test's pools would start a fork server."""
    os.environ["PYTEST_CURRENT_TEST"] = "a test"


pytest_pyfunc_call = pytest_fixture_setup  # before the test itself pytest names it once more


@pytest.fixture(scope="session", autouse=True)
def fork_server_of_the_tests() -> Iterator[None]:
    """Hold a fork server for the pools of all tests: it takes a third of a second to start."""
    pytest_fixture_setup()  # pytest asks this file only before the fixtures of single tests
    if not system.HAS_PROCESS_POOLS:
        yield
        return
    server = fork_server.take(1)
    yield
    fork_server.give_back(server)


@pytest.fixture(autouse=True)
def leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test after which a process, thread, descriptor, shared memory or temporary file is left."""
    before = Left()
    yield
    end_zarr()
    end_fsspec()
    request.node.funcargs.clear()  # pytest would hold what other fixtures made for the test until after this check
    if left := left_since(before, PATIENCE):
        pytest.fail(f"{request.node.nodeid} left behind: {left}")


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder as pytest's own does, which counts its folders and makes a link each time: a millisecond."""
    return Path(tempfile.mkdtemp(dir=tmp_path_factory.getbasetemp()))


@pytest.fixture(scope="session")
def in_full(request: pytest.FixtureRequest) -> bool:
    """Whether the tests run at full length."""
    return bool(request.config.getoption("--thorough"))


@pytest.fixture(scope="session")
def pools() -> Iterator[list[AbstractWorkerPool]]:
    """A pool of threads and one of processes, for all tests that end neither of them nor a worker."""
    if not system.HAS_PROCESS_POOLS:
        with bu.WorkerThreadPool(3) as threads, bu.WorkerThreadPool(2) as others:
            yield [threads, others]
        return
    with bu.WorkerThreadPool(3) as threads, bu.WorkerProcessPool(2) as processes:
        processes.shared_constant("the first use starts the workers, which stay for all tests")
        yield [threads, processes]
