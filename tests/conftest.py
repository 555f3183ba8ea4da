"""What all tests share: each is checked to leave no process, thread, descriptor or file behind."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

PATIENCE = 3.0
"""Seconds in which what a test used must be gone."""


def pytest_configure(config: pytest.Config) -> None:
    """Give the session, and what it starts, a folder of its own for temporary files, so that all in it is ours."""
    folder = tempfile.mkdtemp(prefix="batchup_ng-tests-")
    tempfile.tempdir = os.environ["TMPDIR"] = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


class Left:
    """What exists at one moment that a test could leave behind."""

    def __init__(self) -> None:
        self.processes = {process.pid for process in psutil.Process().children(recursive=True)}
        self.threads = {thread.ident for thread in threading.enumerate()}
        self.descriptors = dict(_descriptors())
        self.files = {*_entries(Path("/dev/shm")), *_entries(Path(tempfile.gettempdir()))}

    def beyond(self, before: Left) -> dict[str, list[str]]:
        """Return what is there now that was not there before, by kind."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        found = {
            "processes": [_describe(pid) for pid in self.processes - before.processes],
            "threads": [names.get(ident, "?") for ident in self.threads - before.threads],
            "descriptors": [
                f"{fd} -> {target}" for fd, target in self.descriptors.items() if before.descriptors.get(fd) != target
            ],
            "files": sorted(self.files - before.files),
        }
        return {kind: items for kind, items in found.items() if items}


def _entries(folder: Path) -> set[str]:
    # The folder in which pytest keeps each test's tmp_path is pytest's own.
    return {str(path) for path in folder.glob("*") if not path.name.startswith("pytest-of-")}


def _descriptors() -> Iterator[tuple[str, str]]:
    for name in os.listdir("/proc/self/fd"):
        try:
            yield name, os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the one that listed the folder


def _describe(pid: int) -> str:
    try:
        return f"{pid} {' '.join(psutil.Process(pid).cmdline())[:200]}"
    except psutil.Error:
        return str(pid)


@pytest.fixture(autouse=True)
def leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test after which a process, thread, descriptor, shared memory or temporary file is left."""
    before = Left()
    yield
    request.node.funcargs.clear()  # pytest would hold what other fixtures made for the test until after this check
    deadline = time.monotonic() + PATIENCE
    while left := Left().beyond(before):
        if time.monotonic() > deadline:
            pytest.fail(f"{request.node.nodeid} left behind: {left}")
        gc.collect()
        time.sleep(0.02)
