"""Measures how long the calling thread takes to make a batch, and how long each map takes of that.

:class:`~..data_source.epoch.reading.MakeBatch` calls :func:`begin` and :func:`end`. The maps call :func:`note` between
them. The pool then calls :func:`taken`. All of it is kept per thread, so nothing is locked.
"""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Callable
from time import monotonic, thread_time
from typing import Any, NamedTuple

from ..error_context import function_name
from .cpu import queued_seconds

QUICK = 0.001
"""Seconds below which a batch is quick. Of quick batches, the CPU time of only some is measured, because a system call
takes as long as the rest of a measurement."""

MEASURED_OF_QUICK = 16
"""The CPU time of one of so many quick batches is measured."""

SLOW = 0.005
"""Seconds above which a batch is slow. After a slow batch, the time in the queue for a CPU is measured too."""

MOST_MAPS = 200
"""Names of maps that are noted for one batch."""

SEPARATOR = "\0"

PACKING = "(packing)"
"""Name of the step that writes a batch to shared memory, among the maps of a measurement."""


class Made(NamedTuple):
    """How a worker made a batch.

    Attributes:
        began: Time of the begin in seconds, by the monotonic clock that all processes of a machine share.
        seconds: Duration.
        cpu: CPU time of the thread in seconds; NaN if it was not measured.
        queued: Seconds that the thread was ready to run, without a CPU; NaN if they were not measured.
        worker: Number of the worker in its pool; -1 is the thread of the loop.
        maps: Seconds of all calls of each map, by its name.
    """

    began: float
    seconds: float
    cpu: float
    queued: float
    worker: int
    maps: dict[str, float]

    @classmethod
    def of(cls, measured: Any) -> Made | None:
        """Return the times that :func:`taken` or :func:`packed` has returned; None if there are none."""
        if not measured:
            return None
        if not isinstance(measured, bytes):
            return cls(*measured)
        n, worker = struct.unpack_from("<Bq", measured)
        began, seconds, cpu, queued, *of_maps = struct.unpack_from(f"<{n + 4}d", measured, 9)
        names = measured[9 + 8 * (n + 4) :].decode("utf-8", "surrogatepass").split(SEPARATOR)
        return cls(began, seconds, cpu, queued, worker, dict(zip(names, of_maps, strict=False)))


Measured = tuple[float, float, float, float, int, dict[str, float]]
"""The values of a :class:`Made`; a plain tuple, which is made five times as fast."""


class Stopwatch:
    """Measures the batch that a thread is making."""

    __slots__ = ("made", "maps", "skipped", "slow", "worker")

    def __init__(self) -> None:
        self.maps: dict[str, float] | None = None  # None while the thread makes no batch
        self.made: Measured | None = None  # of the latest batch, until the pool takes it
        self.skipped = MEASURED_OF_QUICK  # batches since a CPU time was measured
        self.slow = False  # whether the latest batch was
        self.worker = -1


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.watch = Stopwatch()


_of_thread = _OfThread()

Begun = tuple[Stopwatch, dict[str, float] | None, float, float, float]


def begin() -> Begun:
    """Begin a batch. Return the argument of :func:`end`: a map may make batches of another source in between."""
    watch = _of_thread.watch
    outer, watch.maps = watch.maps, {}
    watch.skipped += 1
    queued = queued_seconds() if watch.slow else math.nan
    return watch, outer, queued, monotonic(), thread_time() if watch.skipped > MEASURED_OF_QUICK else math.nan


def end(begun: Begun) -> None:
    """End the batch that :func:`begin` began, also after an exception."""
    watch, outer, queued, began, cpu = begun
    seconds = monotonic() - began
    if cpu == cpu:
        cpu = thread_time() - cpu
        watch.skipped = 0
    if seconds >= QUICK:
        watch.skipped = MEASURED_OF_QUICK  # of the next batch
    watch.slow = seconds >= SLOW
    if queued == queued:
        queued = queued_seconds() - queued
    watch.made = began, seconds, cpu, queued, watch.worker, watch.maps or {}
    watch.maps = outer


def taken() -> Measured | None:
    """Return how this thread made its latest batch; None if it made none since the last call."""
    watch = _of_thread.watch
    made, watch.made = watch.made, None
    return made


def packed(measured: Measured | None) -> bytes:
    """Return times as bytes, for the message of a worker process."""
    if measured is None:
        return b""
    began, seconds, cpu, queued, worker, maps = measured
    names = SEPARATOR.join(maps).encode("utf-8", "surrogatepass")
    numbers = began, seconds, cpu, queued, *maps.values()
    return struct.pack(f"<Bq{len(numbers)}d", len(maps), worker, *numbers) + names


def note(name: str, seconds: float) -> None:
    """Add the duration of a call of a map."""
    maps = _of_thread.watch.maps
    if maps is not None and (name in maps or len(maps) < MOST_MAPS):
        maps[name] = maps.get(name, 0.0) + seconds


def name_this_thread(worker: int) -> None:
    """Set the number of the worker that this thread is."""
    _of_thread.watch.worker = worker


def map_name(function: Callable[..., Any]) -> str:
    """Return the name of a map among measurements. A lambda has its line, because others have its name, too."""
    name = function_name(function).replace(SEPARATOR, "")
    line = getattr(getattr(function, "__code__", None), "co_firstlineno", None)
    return f"{name}:{line}" if name.endswith("<lambda>") and line is not None else name
