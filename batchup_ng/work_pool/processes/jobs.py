"""A task on its way to a worker process, the future of its result."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from ...buffers import ALIGNMENT, SMALLEST_LEASE
from ...randomness import BatchKey
from ..future import STOPPED, TaskFuture
from ..submission import Submission, Task
from . import channel
from .channel import Frame, Kind, Placed
from .constants import ConstantRef, SharedConstant
from .worker import WorkerBuffers


class ResultFuture(TaskFuture):
    """The future of a task in another process; its result is unpickled when it is asked for, by who asks.

    Attributes:
        unwanted: Whether it was cancelled when the task was under way.
        clock: Returns for how many seconds the task has run.
        took: How many seconds it took, once it is done.
    """

    __slots__ = ("clock", "took", "unwanted")

    def __init__(self) -> None:
        super().__init__()
        self.unwanted = False
        self.took: float | None = None
        self.clock: Callable[[], float | None] = _not_begun

    def result(self) -> Any:
        frame = super().result()
        if frame.kind is Kind.RESULT:
            return frame.load()
        error, remote = frame.load()
        if isinstance(error, StopIteration):
            error = RuntimeError(STOPPED)
        raise error from remote

    def running_for(self) -> float | None:
        return self.clock() if self.took is None else self.took

    def cancel(self) -> bool:
        cancelled = super().cancel()
        self.unwanted = not cancelled
        return cancelled


def _not_begun() -> float | None:
    return None


class Job:
    """A task with what became of it.

    Attributes:
        number: By which its frames name it.
        future: For its result.
        how: How it is to be run.
        pickled: The pickle of function and arguments, with the memory of large ones.
        constants: What it needs that each worker gets once.
        deaths: How many workers died while they ran it.
        finished: Whether it has a result or has failed.
    """

    __slots__ = ("_claimed", "constants", "deaths", "finished", "future", "how", "number", "pickled")

    def __init__(
        self, number: int, how: Submission, pickled: tuple[bytes, list[memoryview]], constants: list[SharedConstant]
    ) -> None:
        self.number = number
        self.future = ResultFuture()
        self.how = how
        self.pickled = pickled
        self.constants = constants
        self.deaths = 0
        self.finished = False
        self._claimed = False

    @property
    def room(self) -> int:
        """Bytes of a slot that the result may take, as far as is known."""
        return max([constant.room for constant in self.constants], default=0)

    def begin(self) -> bool:
        """Return whether somebody wants the result; from the first time on the task cannot be cancelled."""
        if self._claimed:
            return not self.future.unwanted
        self._claimed = self.future.begin()
        return self._claimed

    def fail(self, error: BaseException) -> None:
        """Hand over an exception instead of a result, unless the task was cancelled."""
        self.finished = True
        if self._claimed or self.future.begin():
            self.future.set_error(error)


def road_of(frame: Frame) -> str:
    """Return how the arrays of a result came: by ``"slot"``; by ``"pipe"`` if a large one did; ``"inline"``, small."""
    if any(type(buffer) is not Placed and len(buffer) >= SMALLEST_LEASE for buffer in frame.buffers):
        return "pipe"
    return "slot" if frame.placed else "inline"


def room_for(frame: Frame) -> int:
    """Return the bytes of a slot that a result like this one takes."""
    sizes = [buffer.size if type(buffer) is Placed else len(buffer) for buffer in frame.buffers]
    return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)


def pickled(task: Task) -> tuple[bytes, list[memoryview]]:
    """Return the pickle of a task, with the memory of its large arguments."""
    fn, args, kwargs = task
    if getattr(fn, "__module__", "").startswith(_PACKAGE) and not kwargs and all(_is_ours(arg) for arg in args):
        return pickle.dumps(task, protocol=5), []  # ten times as fast as what can send any function
    return channel.dump(task)


def _is_ours(value: Any) -> bool:
    """Return whether `value` is of a kind that every worker can import."""
    if type(value) is np.ndarray:
        return not value.dtype.hasobject
    return type(value) in (ConstantRef, BatchKey, WorkerBuffers)


_PACKAGE = __name__.partition(".")[0] + "."
