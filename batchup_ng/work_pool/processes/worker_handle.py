"""A worker as the dispatcher sees it: its process, its socket, its slots."""

from __future__ import annotations

import contextlib
import signal
from typing import Any

from ...memory.leases import BufferPool
from . import protocol
from .job import ProcessJob
from .process import EXIT_UNKNOWN, WorkerProcess
from .protocol import Frame, FrameReader, FrameWriter, Kind, Placed
from .schedule import ScheduledWorker
from .shared_arrays import SharedCopies
from .shared_memory import Slot, SlotPool


class WorkerHandle(ScheduledWorker[ProcessJob]):
    """A worker process with its number in the pool.

    Large buffers from its socket are read into `memory`. Its slots come from `slots`.
    """

    def __init__(
        self, number: int, process: WorkerProcess, started: float, memory: BufferPool, slots: SlotPool | None
    ) -> None:
        super().__init__(started)
        self.number = number
        self.process = process
        self.reader = FrameReader(process.sock, memory)
        self.writer = FrameWriter(process.sock)
        self.writer.add(protocol.pieces(Kind.NUMBER, number))
        self.writer.write()
        self.constants: set[int] = set()
        self.watched = False
        self.start_error = ""
        self._slots = slots
        self.sent: dict[int, tuple[ProcessJob, Slot | None]] = {}

    def send(self, job: ProcessJob, copies: SharedCopies | None) -> None:
        """Queue a job. First queue the constants that it needs and this worker does not have."""
        kind, pickled, buffers, constants = job.task
        for constant in constants:
            if constant.number not in self.constants:
                self.constants.add(constant.number)
                self.loads(job)
                self.writer.add(constant.frame(copies))
        # Taken late, to use few slots. The slot that was freed last comes first, because it is in the CPU's caches.
        room = max([constant.slot_bytes for constant in constants], default=0)
        slot = self._slots.take(room) if room and self._slots is not None else None
        placed = [] if slot is None else [Placed(slot.offset, slot.bytes.nbytes)]
        self.sent[job.number] = job, slot
        self.writer.add(protocol.pieces(kind, job.number, pickled, [*buffers, *placed]))

    def forget(self, number: int) -> None:
        """Let the worker drop a constant."""
        if number in self.constants:
            self.constants.discard(number)
            self.writer.add(protocol.pieces(Kind.FORGET, number))
            self.writer.write()

    def describe_exit(self, code: int | None, start_timeout: float) -> str:
        """Return how the process ended, in words, from its exit code."""
        who = f"a worker process (pid {self.process.pid})"
        if not self.ready and self.killed:
            return f"{who} was not ready within start_timeout={start_timeout:g} s of its start, for which it was ended"
        if self.start_error:
            return f"{who} could not start: {self.start_error}"
        return f"{who} {describe_exit(code)}"

    def kill(self) -> None:
        """Kill the process. The dispatcher notices its end like any other."""
        self.process.kill()


def resolve(frame: Frame, slot: Slot | None) -> None:
    """Replace the offsets in a result by the memory of its slot."""

    def find(placed: Placed) -> Any:
        start = -1 if slot is None else placed.offset - slot.offset
        if slot is None or start < 0 or start + placed.size > slot.bytes.nbytes:
            raise ValueError(f"a worker says that it wrote to {placed}, which it was not lent")
        return slot.bytes[start : start + placed.size]

    frame.place(find)


def describe_exit(code: int | None) -> str:
    """Return how a process ended, in words."""
    if code is None:
        return "hung up and could not be ended"
    if code == EXIT_UNKNOWN:
        return "exited with unknown status"
    if code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            hint = "; perhaps the system ran out of memory" if name == "SIGKILL" else ""
            return f"was ended by {name}{hint}"
    return f"exited with code {code}"
