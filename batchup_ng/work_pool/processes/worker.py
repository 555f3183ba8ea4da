"""The loop of a worker process: it reads tasks from its socket and writes results to it.

The worker owns its end of the socket and its reused buffers. For each task it borrows a slot to write the batch to.
Between tasks, the worker ends when the pool's end of the socket is closed. In a task, the pool kills it soon after. If
the pool's process is gone, the system kills it at once (:mod:`~.parent_death`). :mod:`~.execution` runs the tasks.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

from ...accessors.spreading import lender
from ...interpreter import numbers
from ...memory.budget import BUDGET
from ...memory.shared_file import SharedFile
from ...meters import stopwatch
from ..scheduling import give_way
from . import parent_death, protocol
from .execution import TaskRunner
from .protocol import Frame, FrameReader, Kind
from .serialization import dump
from .shared_constants import WORKER_CONSTANTS
from .shared_memory import SharedView


def main(fd: int, life_fd: int, arena_fd: int, threads: int, memory: int = 0) -> None:
    """Serve on the socket `fd` until its other end is closed, `threads` tasks at once: the whole life of a worker.

    When the pipe `life_fd` ends, the system kills this process. `arena_fd` is the shared memory, -1 for none.
    `memory` is the limit on memory of this process's own in bytes, 0 for none.
    """
    ignore_interrupts()
    BUDGET.set_limit(memory or None)
    parent_death.hang_on(life_fd)
    give_way()
    with socket.socket(fileno=fd) as sock:
        try:
            view = WORKER_CONSTANTS.view = SharedView(SharedFile(arena_fd)) if arena_fd >= 0 else None
        except OSError as error:
            # In words, because the pool otherwise sees only an exit code.
            protocol.write_frame(sock, protocol.pieces(Kind.ERROR, 0, *dump(f"{error}; it may be the limit on memory")))
            os._exit(1)
        WorkerLoop(sock, view, threads).serve()


def ignore_interrupts() -> None:
    """Leave Ctrl-C to the pool: it reaches the whole group of processes. It was blocked until now."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


class WorkerLoop:
    """The loop that serves one socket."""

    def __init__(self, sock: socket.socket, view: SharedView | None, threads: int) -> None:
        self._sock = sock
        self._threads = threads
        self._reader = FrameReader(sock)
        self._runner = TaskRunner(view, threads)
        self._sending = threading.Lock()
        self._next_number = numbers()

    def serve(self) -> None:
        """Run tasks until the other end is closed."""
        self._send(protocol.pieces(Kind.READY, os.getpid()))
        with contextlib.ExitStack() as stack:
            run: Callable[[Frame], Any] = self._run
            if self._threads > 1:
                executor = concurrent.futures.ThreadPoolExecutor(self._threads, initializer=self._lend)
                self._executor = stack.enter_context(executor)
                run = lambda frame: executor.submit(self._run, frame)  # noqa: E731  # it has no other name
            while (frame := self._reader.next()) is not None:
                if frame.kind is Kind.CONSTANT:
                    WORKER_CONSTANTS.put(frame)
                    self._send(protocol.pieces(Kind.LOADED, frame.number))
                elif frame.kind is Kind.NUMBER:
                    WORKER_CONSTANTS.worker = frame.number
                    stopwatch.name_this_thread(frame.number)
                elif frame.kind is Kind.FORGET:
                    WORKER_CONSTANTS.forget(frame.number)
                else:
                    run(frame)
                del frame

    def _lend(self) -> None:
        """Let idle threads help this thread to read. Give it a number of its own in measurements."""
        stopwatch.name_this_thread(WORKER_CONSTANTS.worker * self._threads + self._next_number())
        lender.lend = lambda work, most: [self._executor.submit(work) for _ in range(min(most, self._threads - 1))]

    def _run(self, frame: Frame) -> None:
        answer = self._runner.answer(frame)
        self._send(protocol.pieces(*answer, stopwatch.packed(stopwatch.taken())))

    def _send(self, frame: list[protocol.Piece]) -> None:
        try:
            with self._sending:
                protocol.write_frame(self._sock, frame)
        except OSError:
            pass  # the pool is gone; the end of the socket is read next
