"""A worker as the dispatcher sees it: its process, its socket, what it was lent."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

from ...memory_pool import BufferPool
from . import protocol
from .job import Job
from .process import EXIT_UNKNOWN, WorkerProcess
from .protocol import Frame, FrameReader, FrameWriter, Kind, Placed
from .schedule import START_SECONDS, Worker
from .shared_arrays import SharedCopies
from .shared_memory import Slot, SlotPool


class WorkerHandle(Worker):
    """A worker process with all that belongs to it.

    Args:
        process: The process.
        started: When it was started.
        memory: Where large buffers that come over its socket are read to.
        slots: Where the slots that it is lent come from.
    """

    def __init__(self, process: WorkerProcess, started: float, memory: BufferPool, slots: SlotPool | None) -> None:
        super().__init__(started)
        self.process = process
        self.reader = FrameReader(process.sock, memory)
        self.writer = FrameWriter(process.sock)
        self.constants: set[int] = set()
        self.watched = False
        self.last_words = ""
        self._slots = slots
        self._numbers: dict[int, Job] = {}
        self._lent: dict[int, list[Slot]] = {}

    def send(self, job: Job, copies: SharedCopies | None) -> None:
        """Queue a job, after the constants that it needs and this worker has not.

        Args:
            job: The job.
            copies: Where the large arrays of constants are.
        """
        for constant in job.constants:
            if constant.number not in self.constants:
                self.constants.add(constant.number)
                self.loading += 1
                self.writer.add(constant.frame(copies))
        self._numbers[job.number] = job
        # Taken as late as this, so that few slots go round, the one that was freed last first: it is in the caches.
        slot = self._slots.take(room) if (room := job.room) and self._slots is not None else None
        kind, pickled, buffers, _ = job.task
        if slot is None:
            self._lent[job.number] = []
        else:
            self._lent[job.number] = [slot]
            buffers = [*buffers, _placed(slot)]  # type: ignore[list-item]  # that is what a frame may name
        self.writer.add(protocol.pieces(kind, job.number, pickled, buffers))

    def forget(self, number: int) -> None:
        """Tell the worker that a constant is no longer needed."""
        if number in self.constants:
            self.constants.discard(number)
            self.writer.put(protocol.pieces(Kind.FORGET, number))

    def lend(self, number: int, nbytes: int) -> Placed | None:
        """Lend the job of that number a slot of so many bytes; None if there is none to be had."""
        slot = None if self._slots is None or number not in self._lent else self._slots.take(nbytes)
        if slot is None:
            return None
        self._lent[number].append(slot)
        return _placed(slot)

    def began_at(self, number: int) -> float | None:
        """Return when the worker began the job of that number; None if it has not, or has none of it."""
        job = self._numbers.get(number)
        return None if job is None else self.began.get(job)

    def done(self, number: int) -> Job:
        """Return the job of that number, which the worker has no more."""
        return self._numbers.pop(number)

    def resolve(self, frame: Frame) -> None:
        """Put the memory of the slots that a result lies in the place of their offsets; the others are free again."""
        lent = self._lent.pop(frame.number)

        def find(placed: Placed) -> Any:
            for slot in lent:
                start = placed.offset - slot.offset
                if start >= 0 and start + placed.size <= slot.bytes.nbytes:
                    return slot.bytes[start : start + placed.size]
            raise ValueError(f"a worker says that it wrote to {placed}, which it was not lent")

        frame.place(find)

    def drop(self, number: int) -> None:
        """Take back the slots of a job whose result is not wanted."""
        del self._lent[number]

    def take_back_all(self) -> None:
        """Take back all slots: the process is gone, so nobody writes to them."""
        self._lent.clear()

    def describe_exit(self, code: int | None) -> str:
        """Return how the process ended, in words, from its exit code."""
        who = f"a worker process (pid {self.process.pid})"
        if not self.ready and self.killed:
            return f"{who} was not ready within {START_SECONDS:g} s of its start, for which it was ended"
        if self.last_words:
            return f"{who} could not start: {self.last_words}"
        return f"{who} {describe_exit(code)}"

    def kill(self) -> None:
        """Kill the process; its end is noticed as any other."""
        with contextlib.suppress(ProcessLookupError):
            if self.process.death is not None:
                signal.pidfd_send_signal(self.process.death, signal.SIGKILL)
            else:
                os.kill(self.process.pid, signal.SIGKILL)


def _placed(slot: Slot) -> Placed:
    return Placed(slot.offset, slot.bytes.nbytes)


def describe_exit(code: int | None) -> str:
    """Return how a process ended, in words."""
    if code is None:
        return "hung up and could not be ended"
    if code == EXIT_UNKNOWN:
        return "ended, nobody knows how, for who started it does not tell, or another has waited for it"
    if code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            hint = "; perhaps the system ran out of memory" if name == "SIGKILL" else ""
            return f"was ended by {name}{hint}"
    return f"ended with exit code {code} while it had work to do"
