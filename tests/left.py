"""What a test could leave behind: processes, threads, descriptors, files.

All of it is found by way of the test's own processes and of the folder for temporary files that they alone use. What
is new in a folder of the whole machine, such as ``/dev/shm``, may be another program's: it is left behind only where
one of the test's processes has it open or mapped.

Shared by the check after every test (``conftest.py``) and by the programs of ``faults/``, each of which is checked in
its own process. Imports no pytest, so that those programs start fast.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from batchup_ng.accessors.storage import remote


class Left:
    """What exists at one moment that a test could leave behind."""

    def __init__(self) -> None:
        self.processes = _processes()
        # Beside those that a library such as TensorFlow started by itself, which Python meets when they call it.
        own_threads = [thread for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)]
        self.threads = {thread.ident for thread in own_threads}
        self.descriptors = dict(_descriptors(os.getpid()))
        if sys.version_info >= (3, 14) and (tracker := sys.modules.get("multiprocessing.resource_tracker")) is not None:
            self.descriptors.pop(str(tracker._resource_tracker._fd), None)
        self.files = _entries(Path(tempfile.gettempdir()))
        self.shared = {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")}

    def beyond(self, before: Left) -> dict[str, list[str]]:
        """Return what is there now that was not there before, by kind."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        shared = self.shared - before.shared
        if shared:  # seldom: the maps of all processes take a millisecond each
            shared &= named_shared_memory([os.getpid(), *self.processes])
        found = {
            "processes": [_describe(pid) for pid in self.processes - before.processes],
            "threads": [names.get(ident, "?") for ident in self.threads - before.threads],
            "descriptors": [
                f"{fd} -> {target}" for fd, target in self.descriptors.items() if before.descriptors.get(fd) != target
            ],
            "files": sorted((self.files - before.files) | shared),
        }
        return {kind: items for kind, items in found.items() if items}


def left_since(before: Left, patience: float, *but: str) -> dict[str, list[str]]:
    """Return what is there that was not there before, once `patience` seconds have passed; empty as soon as it is.

    Args:
        before: What was there before.
        patience: Seconds.
        but: Kinds of things that may be left.
    """
    deadline, pause = time.monotonic() + patience, 0.001
    while left := {kind: items for kind, items in Left().beyond(before).items() if kind not in but}:
        end_zarr()  # which a thread of a pool may have begun to use once more
        if time.monotonic() > deadline:
            break
        gc.collect(1)  # among what is new, which takes a millisecond: errors that tests caught hold files and memory
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
        if pause > 0.01:  # what only ends in its own time needs no collection, which takes a tenth of a second
            gc.collect()
    return left


def end_zarr() -> None:
    """End the thread that zarr 3 started for the whole program, once what a pool's thread still reads is there."""
    sync = sys.modules.get("zarr.core.sync")
    if sync is None or sync.loop[0] is None:
        return
    loop = sync.loop[0]

    async def idle() -> None:
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)

    asyncio.run_coroutine_threadsafe(idle(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    if sync.iothread[0] is not None:
        sync.iothread[0].join()  # zarr waits 0.2 s for it, then closes the loop, which is an error while it runs
    sync.cleanup_resources()


def end_fsspec() -> None:
    """End what fsspec started to read files at URLs: its thread, the connections of its sessions."""
    asyn = sys.modules.get("fsspec.asyn")
    if asyn is None or asyn.loop[0] is None:
        return
    loop, thread = asyn.loop[0], asyn.iothread[0]

    async def idle() -> None:  # a thread of a pool waits for ever for what it asked of a loop that was stopped
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=60)

    asyncio.run_coroutine_threadsafe(idle(), loop).result()
    ends = [fs._session.close() for fs in remote._kept.values() if getattr(fs, "_session", None)]
    for end in [*ends, loop.shutdown_default_executor()]:
        asyncio.run_coroutine_threadsafe(end, loop).result()
    for fs in remote._kept.values():
        fs.clear_instance_cache()
    remote._kept.clear()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    asyn.loop[0] = asyn.iothread[0] = None


def named_shared_memory(pids: Iterable[int]) -> set[str]:
    """Return the files in ``/dev/shm`` that one of the processes has open or mapped and that have a name there."""
    used: set[str] = set()
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended since
            used.update(re.findall(r"/dev/shm/.*", Path(f"/proc/{pid}/maps").read_text()))
            used.update(target for _, target in _descriptors(pid) if target.startswith("/dev/shm/"))
    return {path for path in used if not path.endswith(" (deleted)")}


def _entries(folder: Path) -> set[str]:
    # The folder in which pytest keeps each test's tmp_path is pytest's own.
    return {f"{folder}/{name}" for name in os.listdir(folder) if not name.startswith("pytest-of-")}


def _descriptors(pid: int) -> Iterator[tuple[str, str]]:
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):  # the one that listed the folder
            yield name, os.readlink(f"/proc/{pid}/fd/{name}")


def _processes() -> set[int]:
    """Return the children of this process, and theirs."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return set()  # without a look at every process of the machine
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return {process.pid for process in psutil.Process().children(recursive=True)}
    found, parents = set(), [os.getpid()]
    while parents:
        parent = parents.pop()
        with contextlib.suppress(OSError):  # it, or a thread of it, has ended since
            for thread in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{thread}/children", "rb", buffering=0) as children:
                    parents += map(int, children.read().split())
        found.add(parent)
    return found - {os.getpid(), *_of_multiprocessing()}


def _of_multiprocessing() -> set[int | None]:
    """Return the processes that Python 3.14 starts once, to start others and to look after what they share."""
    if sys.version_info < (3, 14):
        return set()
    server, tracker = (sys.modules.get(f"multiprocessing.{name}") for name in ("forkserver", "resource_tracker"))
    return {
        None if server is None else server._forkserver._forkserver_pid,
        None if tracker is None else tracker._resource_tracker._pid,
    }


def _describe(pid: int) -> str:
    try:
        return f"{pid} {' '.join(psutil.Process(pid).cmdline())[:200]}"
    except psutil.Error:
        return str(pid)
