"""What runs in a worker process: reads tasks from its socket, writes results to it.

The worker owns its end of the socket and its reused buffers. It ends when the pool's end of the socket is closed, be
it on purpose or because the pool's process died: between tasks it reads the end of the stream; in a task a watching
thread sees the hang-up, gives the task :data:`GRACE` seconds, then ends the process.

Results and exceptions are pickled here, by the thread that ran the task, so that what cannot travel becomes an error
with a name. With ``threads`` above 1 that many tasks run at once, sharing the socket by a lock of this process.
"""

from __future__ import annotations

import collections
import concurrent.futures
import os
import pickle
import queue
import select
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Any

import cloudpickle
import numpy as np

from ...buffers import BufferPool
from ...errors import CannotTravel, RemoteTraceback
from . import asking, blas, channel
from .arena import SharedView
from .channel import Frame, Kind, Placed
from .constants import WORKER_CONSTANTS, ConstantRef

GRACE = 0.5
"""Seconds that a task may go on after the pool is gone."""


def main(fd: int, arena_fd: int, threads: int, blas_threads: int) -> None:
    """Serve on the socket `fd` until its other end is closed: the whole life of a worker process.

    Args:
        fd: The worker's end of its socket.
        arena_fd: The shared memory; -1 if there is none.
        threads: How many tasks to run at once.
        blas_threads: How many threads libraries for linear algebra may use; 0 is as many as they like.
    """
    ignore_interrupts()
    blas.limit(blas_threads)
    if arena_fd >= 0:
        WORKER_CONSTANTS.view = SharedView(arena_fd)
    with socket.socket(fileno=fd) as sock:
        threading.Thread(target=_leave_with, args=(sock.fileno(),), name="batchup_ng-watch", daemon=True).start()
        Worker(sock, threads).serve()
    sys.stdout.flush()
    sys.stderr.flush()


def ignore_interrupts() -> None:
    """Leave Ctrl-C, which reaches the whole group of processes, to the pool; it was held back until now."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _leave_with(fd: int) -> None:
    """End the process soon after the other end of the socket is closed."""
    poll = select.poll()
    poll.register(fd, 0)  # a hang-up is always reported
    while not any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poll.poll()):
        pass
    time.sleep(GRACE)
    os._exit(0)


class Worker:
    """Serves one socket.

    Args:
        sock: The worker's end.
        threads: How many tasks to run at once.
    """

    def __init__(self, sock: socket.socket, threads: int = 1) -> None:
        self._sock = sock
        self._threads = threads
        self._sending = threading.Lock()
        self._ahead: collections.deque[Frame] = collections.deque()
        self._answers: dict[int, queue.SimpleQueue[Frame]] = {}

    def serve(self) -> None:
        """Run tasks until the other end is closed."""
        self._send(channel.pieces(Kind.READY, os.getpid()))
        if self._threads == 1:
            self._serve(self._run)
            return
        with concurrent.futures.ThreadPoolExecutor(self._threads) as executor:
            self._serve(lambda frame: executor.submit(self._run, frame))

    def _serve(self, run: Any) -> None:
        while (frame := self._ahead.popleft() if self._ahead else channel.read_frame(self._sock)) is not None:
            if frame.kind is Kind.TASK:
                run(frame)
            elif frame.kind is Kind.ANSWER:
                self._answers[frame.number].put(frame)
            elif frame.kind is Kind.CONSTANT:
                WORKER_CONSTANTS.put(frame)
            elif frame.kind is Kind.FORGET:
                WORKER_CONSTANTS.forget(frame.number)
            del frame

    def ask(self, number: int, payload: Any) -> Frame:
        """Return the answer to what a task asks."""
        answers = self._answers.setdefault(number, queue.SimpleQueue())
        self._send(channel.encode(Kind.ASK, number, payload))
        while self._threads == 1 and answers.empty():
            frame = channel.read_frame(self._sock)
            if frame is None:
                os._exit(0)
            if frame.kind is Kind.ANSWER:
                return frame
            self._ahead.append(frame)
        return answers.get()

    def _run(self, frame: Frame) -> None:
        asking.CURRENT.task = _Task(self, frame.number)
        try:
            fn, args, kwargs = frame.load()
            args = [arg.value() if isinstance(arg, ConstantRef) else arg for arg in args]
            kwargs = {name: arg.value() if isinstance(arg, ConstantRef) else arg for name, arg in kwargs.items()}
            answer = encode_result(frame.number, fn(*args, **kwargs))
        except BaseException as error:
            answer = encode_error(frame.number, error)
        asking.CURRENT.task = None
        self._answers.pop(frame.number, None)
        self._send(answer)

    def _send(self, frame: list[channel.Piece]) -> None:
        try:
            with self._sending:
                channel.write_frame(self._sock, frame)
        except OSError:
            pass  # the pool is gone; the end of the stream is read next


class _Task:
    """What a task may ask of the pool."""

    def __init__(self, worker: Worker, number: int) -> None:
        self._worker = worker
        self._number = number

    def ask(self, payload: Any) -> Frame:
        return self._worker.ask(self._number, payload)

    def placed(self, array: np.ndarray) -> Placed | None:
        return None


def encode_result(number: int, result: Any) -> list[channel.Piece]:
    """Return the frame of a result.

    Raises:
        CannotTravel: it cannot be pickled.
    """
    try:
        pickled, buffers = channel.dump(result)
        if not _is_plain(result):
            pickle.loads(pickled, buffers=buffers)
        return channel.pieces(Kind.RESULT, number, pickled, buffers)
    except BaseException as error:
        raise CannotTravel(
            f"a result of type {type(result).__name__} cannot be sent back from a worker process: {error}"
        ) from error


def _is_plain(result: Any) -> bool:
    """Return whether `result` is made of nothing but arrays, numbers and text, which can be loaded wherever they go."""
    if isinstance(result, np.ndarray):
        return not result.dtype.hasobject
    if type(result) in (tuple, list):
        return all(_is_plain(part) for part in result)
    return result is None or type(result) in (bool, int, float, complex, str, bytes) or isinstance(result, np.generic)


def encode_error(number: int, error: BaseException) -> list[channel.Piece]:
    """Return the frame of an exception with the text of its traceback; what cannot travel goes as its text."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    error.__traceback__ = None
    try:
        pickled = cloudpickle.dumps(error)
        if type(pickle.loads(pickled)) is not type(error):
            raise TypeError("it is of another type when loaded")
    except BaseException:
        # Its own text may be what fails, so the last line of the traceback is taken.
        last = text.strip().splitlines()[-1]
        error = CannotTravel(f"an exception of type {type(error).__name__} that cannot be pickled was raised: {last}")
    return channel.encode(Kind.ERROR, number, (error, RemoteTraceback(text)))


_buffers = BufferPool()


def worker_buffers() -> BufferPool:
    """Return the reused buffers of this worker process."""
    return _buffers


class WorkerBuffers:
    """Stands for the buffers of whichever worker it is sent to."""

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return worker_buffers, ()
