"""Objects that reach each worker once, kept there until the pool forgets them.

Who owns what. In the pool's process a :class:`SharedConstant` owns its value, its pickle, its number; tasks carry a
:class:`ConstantRef` in its place. A worker gets the pickle in a frame before the first task that needs it, on the same
socket, so that it is always there in time; it loads it when it is first used. When the last reference to the
:class:`SharedConstant` goes, the workers are told to forget the number.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import cloudpickle

from ...errors import ArgumentTypeError, CannotTravel
from . import channel
from .arena import SharedView
from .channel import Frame, Kind, Piece

_numbers = itertools.count(1)


class SharedConstant:
    """A value that reaches each worker once. Made by ``pool.shared_constant``.

    Args:
        value: The value; it must not change afterwards.

    Raises:
        CannotTravel: it cannot be pickled.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self.number = next(_numbers)
        self.room = 0  # bytes that a result made with it takes, as far as is known
        try:
            # Arrays are not copied: the frame refers to their memory.
            self.frame: list[Piece] = channel.encode(Kind.CONSTANT, self.number, value)
        except Exception as error:
            raise CannotTravel(
                f"{culprit('the ' + type(value).__name__, value)} cannot be sent to a worker process: {error}; use "
                f"WorkerThreadPool, or let the worker open such things itself"
            ) from error

    def __reduce__(self) -> Any:
        raise ArgumentTypeError("a shared constant may only stand among the arguments of a task, not inside one")


def culprit(name: str, value: Any, depth: int = 8) -> str:
    """Return the name of the innermost part of `value`, which cannot be pickled, that is to blame.

    >>> culprit("the task", {"x": 1, "guard": threading.Lock()})
    "the task['guard'], a lock,"
    """
    for part_name, part in _parts(value) if depth else ():
        try:
            cloudpickle.dumps(part, protocol=5, buffer_callback=lambda _: None)
        except Exception:
            return culprit(f"{name}{part_name}", part, depth - 1)
    return f"{name}, a {type(value).__name__},"


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what `value` is made of, each part with how it is reached."""
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{i}]", part) for i, part in enumerate(value))
    elif inspect.isfunction(value):
        found = inspect.getclosurevars(value)
        yield from ((f", which uses {name!r}", part) for name, part in {**found.nonlocals, **found.globals}.items())
    elif inspect.ismethod(value):
        yield ".__self__", value.__self__
    elif isinstance(value, functools.partial):
        yield ".args", (value.func, *value.args, value.keywords)
    else:
        yield from ((f".{name}", part) for name, part in getattr(value, "__dict__", {}).items())


class ConstantRef:
    """Stands for a shared constant among the arguments of a task."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[type[ConstantRef], tuple[int]]:
        return ConstantRef, (self.number,)

    def value(self) -> Any:
        """Return the constant's value; only in a worker."""
        return WORKER_CONSTANTS.get(self.number)


class WorkerConstants:
    """The constants that a worker holds; safe to use from several threads."""

    def __init__(self) -> None:
        self._frames: dict[int, Frame] = {}
        self._values: dict[int, Any] = {}
        self._lock = threading.RLock()

    def put(self, frame: Frame, view: SharedView | None) -> None:
        """Keep a constant that has arrived."""
        if view is not None:
            frame.place(lambda placed: view.private(placed.offset, placed.size))
        self._frames[frame.number] = frame

    def get(self, number: int) -> Any:
        """Return the value, loading it when it is first used."""
        with self._lock:
            if number not in self._values:
                # The frame stays until the load has worked, so that its error is the same for each task.
                self._values[number] = self._frames[number].load()
                del self._frames[number]
            return self._values[number]

    def forget(self, number: int) -> None:
        """Let go of a constant."""
        self._frames.pop(number, None)
        self._values.pop(number, None)


WORKER_CONSTANTS = WorkerConstants()
