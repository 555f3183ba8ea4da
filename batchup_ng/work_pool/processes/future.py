"""The future of a task in a worker process, with the encoded call and the room that the result needs."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ...data_source.epoch.reading import MakeBatch
from ...error_context import function_name, raise_if_of_signal_handler
from ...errors import SerializationError
from ...faults.isolation import PartialBatch
from ...memory.leases import ALIGNMENT, SMALLEST_LEASE
from ...randomness import BatchKey
from ..task import TASK_RAISED_STOP, Call, Submission, TaskFuture
from .protocol import Frame, Kind, Placed
from .serialization import can_travel, culprit, dump, load_result, remedy
from .shared_constants import ConstantRef, SharedConstant

REST_SECONDS = 0.002
"""Seconds until a thread checks again whether another thread reads the results."""

Encoded = tuple[Kind, bytes, list[memoryview], list[SharedConstant]]
"""The kind of a task's frame, the pickle of function and arguments, the memory of large arguments, the constants that
the task needs. Each worker gets a constant once."""

Serve = Callable[[TaskFuture, float], None]

NO_CALL: Encoded = Kind.TASK, b"", [], []
"""Placeholder for an encoded call that is no longer needed."""


def _no_turn(future: TaskFuture, deadline: float) -> None:
    """Do nothing: a waiting consumer cannot help."""


def _nothing() -> None:
    """Do nothing: no thread waits."""


class ProcessFuture(TaskFuture):
    """The future of a task in another process. The thread that waits for its result reads and unpickles it.

    `deaths` is the number of workers that died while they ran it. `finished` says whether it has a result or has
    failed, `unwanted` whether it was cancelled while under way.

    The dispatcher to which it is submitted gives it a `number`, and may set two functions. `serve` reads the messages
    of workers until a future is done or the time is up, unless another thread is reading. `wake` ends the wait of the
    thread that reads.
    """

    __slots__ = ("_claimed", "deaths", "encoded", "finished", "how", "number", "serve", "unwanted", "wake")

    def __init__(self, how: Submission, encoded: Encoded) -> None:
        super().__init__()
        self.number = 0
        self.serve: Serve = _no_turn
        self.wake: Callable[[], None] = _nothing
        self.how = how
        self.encoded = encoded
        self.deaths = 0
        self.finished = self.unwanted = self._claimed = False

    # -- the dispatcher's side ---------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Return whether the result is still wanted. After the first call the task cannot be cancelled.

        This method may be called again, and notes no time. The base class differs in both.
        """
        if self._claimed:
            return not self.unwanted
        self._claimed = self._claim.acquire(blocking=False)  # the schedule records the time at which it begins
        return self._claimed

    def fail(self, error: BaseException) -> None:
        """Hand over an exception instead of a result, unless the task was cancelled."""
        self.finished = True
        self.encoded = NO_CALL
        if self._claimed or super().begin():
            self.set_exception(error)

    # -- the consumer's side -----------------------------------------------------------------------------------

    def result(self) -> Any:
        try:
            frame = super().result()
        except BaseException:
            del self  # otherwise the exception's traceback and the future would refer to each other
            raise
        if frame.kind is Kind.ARRAYS:
            return frame.arrays()
        if frame.kind is Kind.RESULT:
            result = load_result(frame.pickled, frame.buffers)
            return _with_causes(result) if type(result) is PartialBatch else result
        error, remote = load_result(frame.pickled, frame.buffers)
        if isinstance(error, StopIteration):
            error = RuntimeError(TASK_RAISED_STOP)
        try:
            raise error from remote
        finally:
            del self, frame, error  # for the same reason

    def wait(self, seconds: float) -> bool:
        if self.done():
            return True
        deadline, pause = time.monotonic() + seconds, REST_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            self.serve(self, deadline)
            if super().wait(min(pause, left)):
                return True
            pause *= 2  # a reading thread wakes this one; the loop only checks that there is a reader
        return self.done()

    def cancel(self) -> bool:
        cancelled = super().cancel()
        self.unwanted = not cancelled
        if cancelled:
            self.wake()  # the thread that reads may wait for this result
        return cancelled


def _with_causes(made: PartialBatch) -> PartialBatch:
    """Return a partial batch with each exception's remote traceback as its cause."""

    def with_cause(sent: Any) -> BaseException:
        error: BaseException
        error, cause = sent
        BaseException.__setattr__(error, "__cause__", cause)
        return error

    return made.with_errors(with_cause)


def transport_and_room(frame: Frame, slot: int) -> tuple[str, int]:
    """Return the transport of a result's arrays, and the bytes that such a result needs in a slot.

    ``"slots"``: in the slot; ``"socket"``: a large array over the socket, next to the message; ``"message"``: small, in
    the message. If a buffer had no room in the slot, all bytes of the slot count as used.
    """
    transport = "message"
    placed = beside = 0
    for buffer in frame.buffers:
        if type(buffer) is Placed:
            placed += -(-buffer.size // ALIGNMENT) * ALIGNMENT
            if transport == "message":
                transport = "slots"
        else:
            beside += -(-len(buffer) // ALIGNMENT) * ALIGNMENT
            if len(buffer) >= SMALLEST_LEASE:
                transport = "socket"
    return transport, beside + max(placed, slot) if beside else placed


def encoded(call: Call) -> Encoded:
    """Return a task in the form that is sent.

    Tasks of batches are frequent and mostly consist of numbers and bytes. pickle packs and unpacks these ten times
    faster than cloudpickle.
    """
    fn, args, kwargs = call
    if type(fn) is MakeBatch and isinstance(args[0], SharedConstant):
        source, rows, key, _ = args
        if type(rows) is np.ndarray and rows.ndim == 1 and rows.dtype == np.int64:
            rows = rows.tobytes()
        make, constants = fn, [source]
        if make.types is not None:
            constants.append(make.types)
            make = make._replace(types=make.types.number)
        return Kind.BATCH, pickle.dumps((source.number, rows, tuple(key), tuple(make)), 5), [], constants
    constants = [value for value in (*args, *kwargs.values()) if isinstance(value, SharedConstant)]
    return Kind.TASK, *dump(referred(call) if constants else call), constants


def referred(call: Call) -> Call:
    """Return a task whose constant arguments are replaced by references."""
    fn, args, kwargs = call
    args = tuple([ConstantRef(a.number) if isinstance(a, SharedConstant) else a for a in args])
    return fn, args, {k: ConstantRef(v.number) if isinstance(v, SharedConstant) else v for k, v in kwargs.items()}


def decoded_batch(pickled: bytes) -> tuple[int, Any, BatchKey, MakeBatch]:
    """Return the contents of a BATCH frame: number of the source, rows, key, and the function that makes the batch.

    If that function has `types`, they are the number of a constant.
    """
    number, rows, key, make = pickle.loads(pickled)
    return number, np.frombuffer(rows, np.int64) if type(rows) is bytes else rows, BatchKey(*key), MakeBatch(*make)


def future_of(call: Call, how: Submission) -> ProcessFuture:
    """Pickle a task on the caller's thread and return its future, which has failed already if it cannot be pickled."""
    sent, failure = NO_CALL, None
    try:
        sent = encoded(call)
    except Exception as error:
        raise_if_of_signal_handler(error)
        named = culprit(f"task {function_name(call[0])}", referred(call), can_travel)
        hint = remedy(error)
        failure = SerializationError(f"{named} cannot be sent to a worker process: {error}{hint and '; '}{hint}")
        failure.__cause__ = error
    future = ProcessFuture(how, sent)
    if failure is not None:
        future.fail(failure)
    return future
