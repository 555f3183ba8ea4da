"""What these tests share: a task on a worker, a program, the way to a worker and back without one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import batchup_ng as bu
from batchup_ng.work_pool.processes import protocol
from batchup_ng.work_pool.processes.shared_arrays import SharedCopies
from batchup_ng.work_pool.processes.shared_constants import SharedConstant, WorkerConstants
from batchup_ng.work_pool.processes.shared_memory import Arena, SharedView

MB = 1 << 20

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(bu.__file__).parents[1])}

PATIENT = "from batchup_ng.work_pool import prefetch_buffer; prefetch_buffer.STALL_SECONDS = 3600.0"
"""A line of a program that is to print nothing but what it says, also where the machine is busy for half a minute."""


def one(pool: Any, fn: Any, *args: Any) -> Any:
    """Return the result of one task."""
    with pool.work_stream(iter([(fn, args)])) as stream:
        return next(stream)


def ran(*arguments: str, env: dict[str, str] = ENVIRONMENT, **how: Any) -> subprocess.CompletedProcess[str]:
    """Return what a program of this interpreter printed."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False, **how)


def ended(pid: int) -> bool:
    """Return whether a process runs no more, though its parent may not have waited for it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the second if it goes while it is read
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def wait_until(true: Callable[[], object]) -> None:
    """Wait until a condition holds, 240 seconds at most."""
    deadline = time.monotonic() + 240
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Crossing:
    """Both sides of a pool's shared memory in one process."""

    def __init__(self, span: int, spill: str | None) -> None:
        self.arena = Arena(span)
        self.copies = SharedCopies(self.arena, spill)

    def share(self, value: Any) -> SharedConstant:
        """Return the constant of `value`, shared."""
        constant = SharedConstant(value)
        constant.share(self.copies)
        return constant

    def arrived(self, constant: SharedConstant) -> Any:
        """Return the value as a new worker has it."""
        worker = WorkerConstants()
        worker.view = SharedView(self.arena.file)
        worker.put(sent(constant.frame(self.copies)))
        return worker.get(constant.number)


@contextmanager
def crossing(span: int = 256 * MB, spill: str | None = None) -> Iterator[Crossing]:
    """Give a :class:`Crossing` that ends with the block."""
    made = Crossing(span, spill)
    try:
        yield made
    finally:
        made.arena.close()


def sent(frame: list[Any]) -> protocol.Frame:
    """Return a frame that went through a socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        writer = threading.Thread(target=protocol.write_frame, args=(ours, frame))
        writer.start()
        try:
            read = protocol.FrameReader(theirs).next()
        finally:
            writer.join()
    assert read is not None
    return read


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two arrays agree in all that can be seen of them, NaNs included."""
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
