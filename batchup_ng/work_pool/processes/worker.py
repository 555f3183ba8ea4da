"""What runs in a worker process: reads tasks from its socket, writes results to it.

The worker owns its end of the socket and its reused buffers; the slots that it writes batches to are lent to it, task
by task. Between tasks it ends when the pool's end of the socket is closed; in a task the pool kills it soon after. If
the pool's process is gone the system kills it at once (:mod:`~.parent_death`). Results and exceptions are pickled here,
by the thread that ran the task, so that what cannot travel becomes an error with a name.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

from ...accessors.spreading import lender
from ...error_context import map_of, traceback_of
from ...errors import RemoteTraceback, SerializationError
from ...faults.isolation import PartialBatch
from ...memory_pool import FRESH, BufferPool, Buffers
from ...randomness import BatchKey
from ...randomness.numpy_rng import seed_globals
from . import parent_death, protocol
from .job import batch_task
from .output_buffers import TaskMemory, packed
from .protocol import Frame, FrameReader, Kind, Placed
from .serialization import culprit, dump, dumps, encode, load_result
from .shared_constants import WORKER_CONSTANTS, ConstantRef
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
            protocol.write_frame(sock, encode(Kind.ERROR, 0, f"{error}; it may be the limit on memory"))
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
        self._view = view
        self._threads = threads
        self._reader = FrameReader(sock)
        self._scratch = BufferPool()
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
                elif frame.kind is Kind.FORGET:
                    WORKER_CONSTANTS.forget(frame.number)
                else:
                    run(frame)
                del frame

    def _lend(self) -> None:
        """Let this thread have those that wait for tasks take part in its reading."""
        lender.lend = lambda work, most: [self._executor.submit(work) for _ in range(min(most, self._threads - 1))]

    def _run(self, frame: Frame) -> None:
        slot = frame.buffers.pop() if frame.buffers and type(frame.buffers[-1]) is Placed else None
        memory = TaskMemory(self._view, slot, self._scratch)
        try:
            if frame.kind is Kind.BATCH:
                answer = self._batch(frame, slot, memory)
            else:
                fn, args, kwargs = frame.load()
                args = [_resolved(arg, memory) for arg in args]
                kwargs = {name: _resolved(arg, memory) for name, arg in kwargs.items()}
                answer = encode_answer(frame.number, fn(*args, **kwargs), memory)
        except BaseException as error:
            answer = encode(Kind.ERROR, frame.number, portable(error))
        self._send(answer)

    def _batch(self, frame: Frame, slot: Placed | None, memory: TaskMemory) -> list[protocol.Piece]:
        """Return the answer of a batch: the batch, or a :class:`PartialBatch` if samples fail or cannot be sent."""
        constant, rows, key, make = batch_task(frame.pickled)
        source = WORKER_CONSTANTS.get(constant)

        def read(rows: Any, key: BatchKey, buffers: Buffers = FRESH) -> Any:
            if make.seeded and self._threads == 1:  # threads share the global generators
                seed_globals(key)
            return make.read(source, rows, key, buffers)

        def sendable(rows: Any, key: BatchKey) -> Any:
            batch = read(rows, key)
            dump_loadable(batch)
            return batch

        try:
            return encode_answer(frame.number, read(rows, key, memory), memory)
        except BaseException as error:
            if not make.catches(error, rows):
                raise
            failure = error
        try:
            made = make.isolated(sendable, rows, key, failure)
        finally:
            del failure  # its traceback holds this frame
        if type(made) is PartialBatch:
            failures: Any = {place: portable(error) for place, error in made.failures.items()}
            whole: Any = None if made.error is None else portable(made.error)
            made = dataclasses.replace(made, failures=failures, error=whole)
        memory = TaskMemory(self._view, slot, self._scratch)  # what the failed batch wrote to the slot is of no use
        return encode_answer(frame.number, made, memory)

    def _send(self, frame: list[protocol.Piece]) -> None:
        try:
            with self._sending:
                protocol.write_frame(self._sock, frame)
        except OSError:
            pass  # the pool is gone; the end of the stream is read next


class WorkerBuffers:
    """Stands for the memory of the task among whose arguments it is."""


def _resolved(argument: Any, memory: TaskMemory) -> Any:
    if type(argument) is WorkerBuffers:
        return memory
    return WORKER_CONSTANTS.get(argument.number) if type(argument) is ConstantRef else argument


def encode_answer(number: int, result: Any, memory: TaskMemory) -> list[protocol.Piece]:
    """Return the frame of a result, its large arrays in the slot as far as there is room.

    Raises:
        SerializationError: it cannot be pickled.
    """
    arrays = packed(result, memory)
    if arrays is not None:
        return protocol.pieces(Kind.ARRAYS, number, *arrays)
    pickled, buffers = dump_loadable(result)
    return protocol.pieces(Kind.RESULT, number, pickled, [memory.place(buffer) for buffer in buffers])


def dump_loadable(result: Any) -> Any:
    """Return the pickle and the buffers of a result.

    Raises:
        SerializationError: it cannot be pickled, or not be loaded again; names what is to blame.
    """
    try:
        pickled, buffers = dump(result)
        load_result(pickled, buffers)
        return pickled, buffers
    except MemoryError:
        raise
    except BaseException as error:
        named = culprit("the result", result, _comes_back)
        said = str(error) or type(error).__name__
        raise SerializationError(f"{named} cannot be sent back from a worker process: {said}") from error


def _comes_back(value: Any) -> bool:
    """Return whether `value` can be sent and loaded."""
    try:
        load_result(*dump(value))
    except BaseException:
        return False
    return True


def portable(error: BaseException) -> tuple[BaseException, RemoteTraceback]:
    """Return an exception and its traceback as text; one that cannot be sent becomes a :class:`SerializationError`."""
    text, op = traceback_of(error), map_of(error)
    error.__traceback__ = None
    try:
        pickled = dumps(error)
        if type(load_result(pickled)) is not type(error):
            raise TypeError("it is of another type when loaded")
        if len(pickled) > MAX_PICKLED_ERROR:
            raise TypeError(f"it has {len(pickled)} bytes")
    except BaseException:
        # Its own text may be what fails, so the last line of the traceback is taken.
        last = text.strip().splitlines()[-1]
        name = type(error).__name__
        error = SerializationError(f"an exception of type {name} that cannot be pickled was raised: {last}")
    return error, RemoteTraceback(text, op)


MAX_PICKLED_ERROR = 1 << 20
"""Bytes of a pickled exception beyond which its text is sent in its place."""
