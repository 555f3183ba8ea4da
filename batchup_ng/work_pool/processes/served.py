"""Arrays that stay in the consumer's process, which gathers from them the rows that workers ask for.

    worker                                         consumer's process
    ServedArray.read_into(rows, out) ── ASK ─────► Server: array[rows] straight into `out`, which lies in the task's
                                     ◄── ANSWER ──         slot, or else into the answer

Who owns what. The consumer's process has the one copy of the array; an :class:`Offer`, owned by the constant whose
source has the array, makes it known under a number for as long as the constant lives. A :class:`Server` belongs to one
pool; its one thread, started with the first request, does the gathering, which lets go of the interpreter's lock. A
worker holds only number, shape and dtype.

What happens on a crash: the answer to a worker that died goes nowhere. The server may still be writing to that worker's
slot, so its owner calls :meth:`Server.settle` before the slot is used again.
"""

from __future__ import annotations

import itertools
import math
import os
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ...accessors.base import checked_rows, chosen_rows, fill_rows
from ...errors import ArgumentError, PoolClosed, SerializationError
from . import protocol
from .asking import ask, placed_of
from .protocol import Frame, Kind, Piece, Placed
from .shared_memory import Arena, Extent

ROWS = "rows"
"""The kind of request that asks for rows."""

AT_ONCE = 1 << 24
"""Bytes that are asked for at once where all of an array is read."""


class ServedArray:
    """An array in another process: an accessor, in a worker.

    Args:
        number: What it is offered under.
        shape: Its shape.
        dtype: Its dtype.
    """

    def __init__(self, number: int, shape: tuple[int, ...], dtype: Any) -> None:
        self._number = number
        self.shape = shape
        self.dtype = np.dtype(dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * int(self.dtype.itemsize)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        """Return a row, or an array of those rows: a copy, of whatever NumPy would return.

        Args:
            key: A whole number, a slice, a 1-D array or list of whole numbers, a mask; or a tuple that begins with one.
        """
        if isinstance(key, tuple) and key:
            first, *rest = key
            one = np.ndim(first) == 0 and not isinstance(first, slice)
            return self[first][tuple(rest) if one else (slice(None), *rest)]
        chosen = chosen_rows(key, len(self))
        rows = np.array([chosen]) if isinstance(chosen, int) else chosen
        out = np.empty((len(rows), *self.shape[1:]), self.dtype)
        self._fill(rows, out)
        return out[0] if isinstance(chosen, int) else out

    def read_into(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write `rows` into `out`: ``(len(rows), *shape[1:])`` of `dtype`, in C order.

        Raises:
            IndexError: a row is out of range.
            ArgumentError: `out` has another shape or dtype.
        """
        wanted = (len(rows), *self.shape[1:])
        if out.shape != wanted or out.dtype != self.dtype:
            raise ArgumentError(
                f"out must be {wanted} {self.dtype}, not {out.shape} {out.dtype}; allocate it from shape and dtype"
            )
        rows = checked_rows(rows, len(self))
        placed = placed_of(out)
        if placed is None:
            self._fill(rows, out)
        else:
            ask((ROWS, self._number, rows), placed)

    def _fill(self, rows: np.ndarray, out: np.ndarray) -> None:
        step = max(1, AT_ONCE * len(rows) // max(1, out.nbytes))
        for i in range(0, len(rows), step):
            out[i : i + step] = ask((ROWS, self._number, rows[i : i + step]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ArgumentError("an array in another process cannot be had without a copy; leave copy=False out")
        return np.asarray(self[:], dtype)

    def __reduce__(self) -> Any:
        raise SerializationError(
            "an array that stays with the consumer cannot be part of a result; return its rows, or pass "
            "arrays='shared' to parallel_data_source"
        )

    def __repr__(self) -> str:
        return f"ServedArray({self.shape} {self.dtype}, in the consumer's process)"


class Offer:
    """Makes an array known under a number, for as long as it lives."""

    __slots__ = ("__weakref__", "array", "number")

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.number = next(_numbers)
        _offers[self.number] = self


_numbers = itertools.count(1)
_offers: weakref.WeakValueDictionary[int, Offer] = weakref.WeakValueDictionary()


class Server:
    """Answers what workers ask, on a thread of its own.

    Args:
        arena: The memory in which slots lie; None if there is none.
    """

    def __init__(self, arena: Arena | None) -> None:
        self._arena = arena
        self._requests: queue.SimpleQueue[tuple[Frame, Callable[[list[Piece]], None]] | threading.Event | None]
        self._requests = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._pid = os.getpid()

    def submit(self, request: Frame, reply: Callable[[list[Piece]], None]) -> None:
        """Have a request answered; returns at once.

        Args:
            request: The frame that asked.
            reply: Called with the pieces of the ANSWER frame, on the server's thread; it must not raise.
        """
        with self._lock:
            if self._closed:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="batchup_ng-serve", daemon=True)
                self._thread.start()
            self._requests.put((request, reply))

    def settle(self, seconds: float = 60.0) -> bool:
        """Wait until what was submitted so far is written; return whether it is."""
        done = threading.Event()
        with self._lock:
            if self._thread is None:
                return True
            self._requests.put(done)
        return done.wait(seconds)

    def close(self) -> None:
        """End the thread when it has answered what was submitted; may be called again."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
            if thread is not None:
                self._requests.put(None)
        if thread is not None and os.getpid() == self._pid and thread is not threading.current_thread():
            thread.join()

    def _serve(self) -> None:
        while (request := self._requests.get()) is not None:
            if isinstance(request, threading.Event):
                request.set()
            else:
                frame, reply = request
                reply(self._answered(frame))
            del request

    def _answered(self, frame: Frame) -> list[Piece]:
        """Return the ANSWER frame, whatever happens: the worker waits for it."""
        try:
            return self._answer(frame)
        except BaseException as error:  # as want of memory for the error's own message
            return protocol.encode(Kind.ANSWER, frame.number, (RuntimeError(f"a {type(error).__name__}"), None))

    def _answer(self, frame: Frame) -> list[Piece]:
        """Return the ANSWER frame: ``(None, rows or None)`` or ``(error, None)``."""
        try:
            kind, number, rows, place = frame.load()
            if kind != ROWS:
                raise ArgumentError(f"a worker asked for {kind!r}; it may ask for {ROWS!r}")
            return protocol.encode(Kind.ANSWER, frame.number, (None, self._rows(number, rows, place)))
        except Exception as error:
            error.__traceback__ = None
            return protocol.encode(Kind.ANSWER, frame.number, (error, None))

    def _rows(self, number: int, rows: np.ndarray, place: tuple[int, int] | None) -> np.ndarray | None:
        """Return rows of an array; None if they were written to their place."""
        offer = _offers.get(number)
        if offer is None:
            raise PoolClosed("the parallel source whose rows were asked for is gone")
        array = offer.array
        rows = checked_rows(rows, len(array))
        shape = (len(rows), *array.shape[1:])
        if place is None:
            out = np.empty(shape, array.dtype)
            fill_rows(array, rows, out)
            return out
        fill_rows(array, rows, self._memory(Placed(*place), shape, array.dtype))
        return None

    def _memory(self, placed: Placed, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        if self._arena is None or math.prod(shape) * dtype.itemsize != placed.size:
            raise ArgumentError(f"rows of shape {shape} {dtype} do not go into {placed}")
        return np.ndarray(shape, dtype, self._arena.array(Extent(*placed)))
