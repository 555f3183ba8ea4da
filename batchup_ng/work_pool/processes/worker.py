"""What runs in a worker process: reads tasks from its socket, writes results to it.

The worker owns its end of the socket and its reused buffers; the slots that it writes batches to are lent to it, task
by task. Between tasks it ends when the pool's end of the socket is closed; in a task the pool kills it soon after. If
the pool's process is gone the system kills it at once (:mod:`~.parent_death`). Tasks are run by :mod:`~.execution`.
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
from . import parent_death, protocol
from .execution import TaskRunner
from .protocol import Frame, FrameReader, Kind
from .serialization import dump
from .shared_constants import WORKER_CONSTANTS
from .shared_memory import SharedView


def main(fd: int, life_fd: int, arena_fd: int, threads: int) -> None:
    """Serve on the socket `fd` until its other end is closed, `threads` tasks at once: the whole life of a worker.

    At the end of the pipe `life_fd` the system kills this process; `arena_fd` is the shared memory, -1 for none.
    """
    ignore_interrupts()
    parent_death.hang_on(life_fd)
    with socket.socket(fileno=fd) as sock:
        try:
            view = WORKER_CONSTANTS.view = SharedView(arena_fd) if arena_fd >= 0 else None
        except OSError as error:
            # In words, for the pool sees nothing but an exit code otherwise.
            protocol.write_frame(sock, protocol.pieces(Kind.ERROR, 0, *dump(f"{error}; it may be the limit on memory")))
            os._exit(1)
        WorkerLoop(sock, view, threads).serve()


def ignore_interrupts() -> None:
    """Leave Ctrl-C, which reaches the whole group of processes, to the pool; it was held back until now."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


class WorkerLoop:
    """Serves one socket."""

    def __init__(self, sock: socket.socket, view: SharedView | None, threads: int) -> None:
        self._sock = sock
        self._threads = threads
        self._reader = FrameReader(sock)
        self._runner = TaskRunner(view, threads)
        self._sending = threading.Lock()

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
                elif frame.kind is Kind.FORGET:
                    WORKER_CONSTANTS.forget(frame.number)
                else:
                    run(frame)
                del frame

    def _lend(self) -> None:
        """Let this thread have those that wait for tasks take part in its reading."""
        lender.lend = lambda work, most: [self._executor.submit(work) for _ in range(min(most, self._threads - 1))]

    def _run(self, frame: Frame) -> None:
        self._send(protocol.pieces(*self._runner.answer(frame)))

    def _send(self, frame: list[protocol.Piece]) -> None:
        try:
            with self._sending:
                protocol.write_frame(self._sock, frame)
        except OSError:
            pass  # the pool is gone; the end of the stream is read next
