"""What a test could leave behind: processes, threads, descriptors, files.

Shared by the check after every test (``conftest.py``) and by the programs of ``faults/``, each of which is checked in
its own process. Imports no pytest, so that those programs start fast.
"""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil


class Left:
    """What exists at one moment that a test could leave behind."""

    def __init__(self) -> None:
        self.processes = _processes()
        self.threads = {thread.ident for thread in threading.enumerate()}
        self.descriptors = dict(_descriptors())
        self.files = {*_entries("/dev/shm"), *_entries(tempfile.gettempdir())}

    def beyond(self, before: Left) -> dict[str, list[str]]:
        """Return what is there now that was not there before, by kind."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        found = {
            "processes": [_describe(pid) for pid in self.processes - before.processes],
            "threads": [names.get(ident, "?") for ident in self.threads - before.threads],
            "descriptors": [
                f"{fd} -> {target}" for fd, target in self.descriptors.items() if before.descriptors.get(fd) != target
            ],
            "files": sorted(self.files - before.files - used_by_others(self.files - before.files, self.processes)),
        }
        return {kind: items for kind, items in found.items() if items}


def left_since(before: Left, patience: float) -> dict[str, list[str]]:
    """Return what is there that was not there before, once `patience` seconds have passed; empty as soon as it is."""
    deadline = time.monotonic() + patience
    while left := Left().beyond(before):
        if time.monotonic() > deadline:
            break
        gc.collect()
        time.sleep(0.02)
    return left


def used_by_others(files: set[str], ours: set[int]) -> set[str]:
    """Return those of `files` that a process has mapped that is neither this one nor one of `ours`.

    /dev/shm is for all of the machine: what another program put there meanwhile is not left by us.
    """
    used: set[str] = set()
    if not any(file.startswith("/dev/shm/") for file in files):
        return used
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in ours and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                maps = Path("/proc", name, "maps").read_text()
                used |= {file for file in files if file in maps}
    return used


def _processes() -> set[int]:
    """Return the children of this process, and theirs."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return set()  # found without a look at every process of the machine
    return {process.pid for process in psutil.Process().children(recursive=True)}


def _entries(folder: str) -> set[str]:
    # The folder in which pytest keeps each test's tmp_path is pytest's own.
    return {f"{folder}/{name}" for name in os.listdir(folder) if not name.startswith("pytest-of-")}


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
