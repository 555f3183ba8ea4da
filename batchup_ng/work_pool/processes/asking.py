"""What code in a worker asks of the pool's process while a task runs.

Who owns what. The worker sets ``CURRENT.task`` on the thread that runs a task, for as long as it runs; what that code
reads from sources can then ask by :func:`ask`. What crosses the boundary is an ASK frame with the task's number, then
an ANSWER with the same; the worker's end of the socket stays the worker's. If the pool is gone no answer comes: the
worker ends, as it does at the end of its socket.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

import numpy as np

from ...errors import BatchupError
from .protocol import Frame, Placed


class AskingTask(Protocol):
    """A task that runs, as those see it who ask."""

    def ask(self, payload: Any) -> Frame:
        """Send `payload` to the pool's process and return the answer, waiting for it."""
        ...

    def placed(self, array: np.ndarray) -> Placed | None:
        """Return where `array` lies in the memory of the task's slot; None if it does not."""
        ...


class _Current(threading.local):
    task: AskingTask | None = None


CURRENT = _Current()
"""The task that this thread runs."""


def ask(payload: tuple[Any, ...], placed: Placed | None = None) -> Any:
    """Return what the pool's process answers.

    Args:
        payload: What is asked for, the first entry its kind.
        placed: Where in the shared memory the answer is to be written.

    Raises:
        Exception: what was raised there, as it is.
    """
    task = CURRENT.task
    if task is None:
        raise BatchupError(
            f"an array that stays with the consumer was read ({payload[0]}) on a thread that runs no task; read it on "
            f"the thread that calls the map, or pass arrays='shared' to parallel_data_source"
        )
    error, answer = task.ask((*payload, None if placed is None else tuple(placed))).load()
    if error is not None:
        raise error
    return answer


def placed_of(array: np.ndarray) -> Placed | None:
    """Return where `array` lies in the slot of the task that this thread runs; None if it does not."""
    task = CURRENT.task
    return None if task is None or not array.flags.c_contiguous else task.placed(array)
