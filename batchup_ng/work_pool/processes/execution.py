"""The execution of a task in a worker process: it runs the task and pickles the result.

The thread that ran the task prepares the result: arrays, in a tuple or a dict, are only described. Any other result is
pickled and loaded again, so that an error can name the part that cannot be sent. Other modules send the answer.
"""

from __future__ import annotations

import time
from typing import Any

from ...data_source.epoch.reading import MakeBatch
from ...error_context import map_of, traceback_of
from ...errors import RemoteTraceback, SerializationError
from ...faults.isolation import PartialBatch
from ...graph.node import Node
from ...memory.leases import FRESH, BufferPool, Buffers
from ...meters import stopwatch
from ...randomness import BatchKey
from ...randomness.numpy_rng import seed_globals
from .future import decoded_batch
from .output_buffers import TaskMemory, packed
from .protocol import Frame, Kind, Placed
from .serialization import culprit, dump, dumps, load_result
from .shared_constants import WORKER_CONSTANTS, ConstantRef
from .shared_memory import SharedView

Answer = tuple[Kind, int, bytes, list[Any]]
"""The kind, the number of the task, a pickle, and the memory of large arrays."""


class TaskRunner:
    """Runs tasks, in one or several threads. Owns the memory that they reuse.

    Args:
        view: The memory shared with the pool; None if there is none.
        threads: Number of tasks that run at once.
        where: The location of this worker, in words, for the tracebacks of errors.
    """

    def __init__(self, view: SharedView | None, threads: int, where: str = "") -> None:
        self._view = view
        self._threads = threads
        self._where = where
        self._scratch = BufferPool()

    def answer(self, frame: Frame) -> Answer:
        """Run the task of a TASK or BATCH frame. Return the answer with its result or its exception."""
        # The pool appends the slot for the result as the last buffer. Arguments are never in a slot.
        slot = frame.buffers.pop() if frame.buffers and type(frame.buffers[-1]) is Placed else None
        memory = TaskMemory(self._view, slot, self._scratch)
        try:
            if frame.kind is Kind.BATCH:
                return self._batch(frame, slot, memory)
            fn, args, kwargs = frame.load()
            args = [_resolved(arg, memory) for arg in args]
            kwargs = {name: _resolved(arg, memory) for name, arg in kwargs.items()}
            return answer_of(frame.number, fn(*args, **kwargs), memory)
        except BaseException as error:
            return Kind.ERROR, frame.number, *dump(self._portable(error))

    def _batch(self, frame: Frame, slot: Placed | None, memory: TaskMemory) -> Answer:
        """Return the answer with a batch, or with a :class:`PartialBatch` if samples fail or cannot be sent."""
        constant, rows, key, make = decoded_batch(frame.pickled)
        source = WORKER_CONSTANTS.get(constant)
        if make.types is not None:
            make = make._replace(types=WORKER_CONSTANTS.get(make.types))
        if not make.metered:
            return self._made(frame.number, source, rows, key, make, slot, memory)
        begun = stopwatch.begin()
        try:
            return self._made(frame.number, source, rows, key, make, slot, memory)
        finally:
            stopwatch.end(begun)

    def _made(
        self,
        number: int,
        source: Node,
        rows: Any,
        key: BatchKey,
        make: MakeBatch,
        slot: Placed | None,
        memory: TaskMemory,
    ) -> Answer:
        """Return the answer of :meth:`_batch`."""

        def read(rows: Any, key: BatchKey, buffers: Buffers = FRESH) -> Any:
            if make.seeded and self._threads == 1:  # threads share the global generators
                seed_globals(key)
            return make.read(source, rows, key, buffers)

        def sendable(rows: Any, key: BatchKey) -> Any:
            batch = read(rows, key)
            dump_loadable(batch)
            return batch

        try:
            batch = read(rows, key, memory)
            began = time.monotonic()
            answer = answer_of(number, batch, memory)
            stopwatch.note(stopwatch.PACKING, time.monotonic() - began)
            return answer
        except BaseException as error:
            if not make.catches(error, rows):
                raise
            failure = error
        try:
            made = make.isolated(sendable, rows, key, failure)
        finally:
            del failure  # its traceback holds this frame
        if type(made) is PartialBatch:
            made = made.with_errors(self._portable)
        memory = TaskMemory(self._view, slot, self._scratch)  # overwrites the data of the failed batch in the slot
        return answer_of(number, made, memory)

    def _portable(self, error: BaseException) -> tuple[BaseException, RemoteTraceback]:
        return portable(error, self._where)


class WorkerBuffers:
    """The stand-in for the task's memory, in the arguments of a task."""


def _resolved(argument: Any, memory: TaskMemory) -> Any:
    if type(argument) is WorkerBuffers:
        return memory
    return WORKER_CONSTANTS.get(argument.number) if type(argument) is ConstantRef else argument


def answer_of(number: int, result: Any, memory: TaskMemory) -> Answer:
    """Return the answer with a result. Large arrays go to the slot as far as there is room.

    Raises:
        SerializationError: the result cannot be pickled.
    """
    arrays = packed(result, memory)
    if arrays is not None:
        return Kind.ARRAYS, number, *arrays
    pickled, buffers = dump_loadable(result)
    return Kind.RESULT, number, pickled, [memory.place(buffer) for buffer in buffers]


def dump_loadable(result: Any) -> Any:
    """Return the pickle and the buffers of a result.

    Raises:
        SerializationError: the result cannot be pickled, or not loaded again. Names the part that fails.
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


def portable(error: BaseException, where: str = "") -> tuple[BaseException, RemoteTraceback]:
    """Return an exception and its traceback as text. A :class:`SerializationError` replaces one that cannot be sent."""
    text, op = traceback_of(error), map_of(error)
    BaseException.with_traceback(error, None)  # its own methods may fail, for example in a frozen dataclass
    try:
        pickled = dumps(error)
        if type(load_result(pickled)) is not type(error):
            raise TypeError("it is of another type when loaded")
        if len(pickled) > MAX_PICKLED_ERROR:
            raise TypeError(f"it has {len(pickled)} bytes")
    except BaseException:
        # Its own text may fail, so use the last line of the traceback.
        last = text.strip().splitlines()[-1]
        name = type(error).__name__
        error = SerializationError(f"an exception of type {name} that cannot be pickled was raised: {last}")
    return error, RemoteTraceback(f"{text}{where}", op)


MAX_PICKLED_ERROR = 1 << 20
"""Bytes of a pickled exception. If it is larger, its text is sent instead."""
