"""What is said between a stream and a pool: tasks, how to run them, futures of their results."""

from __future__ import annotations

import contextvars
import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, Protocol

Task = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""A function with its arguments and keywords."""


@dataclasses.dataclass(frozen=True, slots=True)
class Submission:
    """How a task is to be run.

    Attributes:
        again: Whether it may be run again if its worker dies: batches may, tasks of the user's may not.
        urgent: Whether it goes before what is queued.
        alone: Whether it is run on a worker that has nothing else: if that worker dies, and so does another, it is this
            task's fault.
        timeout: Seconds that it may run, beyond which it fails with :class:`~batchup_ng.errors.SampleTimeout`.
        lane: Number of its stream; the streams of a pool take turns.
        context: The context of the caller's that threads run it in a copy of (``numpy.errstate``, decimal); None is the
            one in which it is submitted.
    """

    again: bool = False
    urgent: bool = False
    alone: bool = False
    timeout: float | None = None
    lane: int = 0
    context: contextvars.Context | None = dataclasses.field(default=None, repr=False, compare=False)


_lanes = itertools.count(1)


def new_lane() -> int:
    """Return the number of a stream that was not there before."""
    return next(_lanes)


ONCE = Submission()
"""How a task of the user's is run."""


class Future(Protocol):
    """The result of a task, some time."""

    @property
    def road(self) -> str:
        """How the result came, once it was asked for: ``"slot"``, ``"pipe"``, ``"inline"``, ``"memory"`` or ``""``."""
        ...

    def result(self) -> Any:
        """Return the result once it is there, or raise what the task raised; for one caller, once."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait until there is a result, that long at most; return whether there is one."""
        ...

    def running_for(self) -> float | None:
        """Return for how many seconds the task has run, or ran; None if no worker has begun it."""
        ...

    def done(self) -> bool: ...

    def cancel(self) -> bool:
        """Keep the task from running if it has not begun; what it gives otherwise is dropped."""
        ...


class Submits(Protocol):
    """The part of a pool that a stream needs."""

    def submit(self, task: Task, how: Submission = ONCE) -> Future: ...
