"""Maps that strike their process while it writes its result: half-way in the message, or half-way in the slot.

What a worker writes is cut where the mark of a row says, once; a file tells how much of how much had been written by
then, so that a test can assert that the fault happened, as often as it should. Where a message ends and what it is
shows in its first byte, so that one of a hundred bytes, whose arrays lie in a slot, is cut like one of 2 MB.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from batchup_ng.work_pool.processes.output_buffers import TaskMemory
from batchup_ng.work_pool.processes.protocol import Kind

from .mischief import first_time

SLOT_BYTES = 1 << 20
"""Bytes of the slot that is begun and never finished."""

WAYS = ("message", "slot", "full")
"""In the middle of a message; in the middle of filling a slot; where the socket is full, since nobody reads."""


@dataclasses.dataclass(frozen=True)
class Mark:
    """How a row strikes.

    Attributes:
        row: The row.
        way: One of :data:`WAYS`.
        part: How much of the message or the slot is written, from 0 to 1; at least a byte is, never all.
    """

    row: int
    way: str
    part: float = 0.5


class InItsWrite:
    """A map of row numbers that ends or stops its process in the middle of what the batch with a marked row writes.

    Args:
        marks: Which rows do so, each once.
        folder: Where the first time is told from the second, and where it is noted what happened.
        then: Number of the signal that the process sends itself; where the socket is full it is always SIGKILL.
        reader: The process that reads the messages, which stands still while a socket is filled.
    """

    def __init__(self, marks: list[Mark], folder: str, then: int, reader: int) -> None:
        self.marks = marks
        self.folder = folder
        self.then = then
        self.reader = reader

    def __call__(self, rows: np.ndarray) -> Any:
        for mark in self.marks:
            if mark.row in rows and first_time(self.folder, mark.row):
                self._strike(mark)
                break  # another of the same batch strikes when that is made again
        return (rows,)

    def _strike(self, mark: Mark) -> None:
        def end(written: int, of: int) -> None:
            note(self.folder, mark, written, of)
            os.kill(os.getpid(), signal.SIGKILL if mark.way == "full" else self.then)

        if mark.way == "slot":
            fill_in_part(mark.part, end)
        elif mark.way == "full":
            cut_next_result(lambda sock, data: self._fill(sock, data, end))
        else:
            cut_next_result(lambda sock, data: _write_in_part(sock, data, mark.part, end))

    def _fill(self, sock: socket.socket, data: memoryview, end: Callable[[int, int], None]) -> int:
        """Write as much as the socket takes while its reader stands still."""
        sock.sendall(data[:1])  # what was sent before is read first, as far as it must
        os.kill(self.reader, signal.SIGSTOP)
        written = 1
        try:
            while written < data.nbytes - 1:
                written += sock.send(data[written : data.nbytes - 1], socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
        finally:
            os.kill(self.reader, signal.SIGCONT)
        end(written, data.nbytes)
        return written


def _write_in_part(sock: socket.socket, data: memoryview, part: float, end: Callable[[int, int], None]) -> int:
    n = share(part, data.nbytes)
    sock.sendall(data[:n])
    end(n, data.nbytes)
    return n


def share(part: float, of: int) -> int:
    """Return how much of so many bytes is written: at least one, never all."""
    return min(max(1, int(part * of)), of - 1)


def fill_in_part(part: float, then: Callable[[int, int], None]) -> None:
    """Write garbage to a part of a slot of the task that runs, then do something else."""
    frame: Any = sys._getframe()
    while type(frame.f_locals.get("memory")) is not TaskMemory:  # until it is that of the worker's loop
        frame = frame.f_back
    memory = frame.f_locals["memory"]
    array = memory.empty((SLOT_BYTES,), np.dtype(np.uint8))
    assert memory.written().size >= SLOT_BYTES, "the task has no slot"
    n = share(part, array.nbytes)
    array[:n] = 0xEE
    then(n, array.nbytes)


def cut_next_result(cut: Callable[[socket.socket, memoryview], int]) -> None:
    """Let something else write the first part of the next result; the rest follows if the process still lives."""
    kind: Any = socket.socket
    whole, gathered, some = kind.sendall, kind.sendmsg, kind.send

    def cut_short(sock: socket.socket, data: Any, *flags: Any) -> Any:
        data = memoryview(data).cast("B")
        if data[0] < Kind.RESULT:
            return whole(sock, data, *flags)
        kind.sendall, kind.sendmsg, kind.send = whole, gathered, some
        whole(sock, data[cut(sock, data) :], *flags)
        return data.nbytes

    kind.sendall = kind.send = cut_short
    kind.sendmsg = lambda sock, parts, *rest: cut_short(sock, b"".join(parts))


# -- what happened -----------------------------------------------------------------------------------------------


def note(folder: str, mark: Mark, written: int, of: int) -> None:
    """Leave a file that says that this process is in the middle of its write."""
    path = Path(folder, f"{mark.row}.cut")
    path.with_suffix(".new").write_text(json.dumps({"pid": os.getpid(), "way": mark.way, "written": written, "of": of}))
    path.with_suffix(".new").rename(path)


def noted(folder: str) -> list[dict[str, Any]]:
    """Return what was left by :func:`note`: pid, way, bytes written, of how many."""
    notes = []
    for path in Path(folder).glob("*.cut"):
        with contextlib.suppress(FileNotFoundError):
            notes.append(json.loads(path.read_text()))
    return notes
