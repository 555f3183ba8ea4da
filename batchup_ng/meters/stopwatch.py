"""Measures how long the calling thread takes to make a batch, and how long each map takes of that.

:class:`~..data_source.epoch.reading.MakeBatch` calls :func:`begin` and :func:`end`. The maps call :func:`note` between
them. The pool then calls :func:`taken`. All of it is kept per thread, so nothing is locked.

Steps that make one sample after the other time them, too: they loop over :func:`in_groups`. If samples take less than
:data:`WORTH`, several are timed together, so that looks at the clock cost less than 1 % of the work between them. Only
the slowest of a batch is kept, with its name.
"""

from __future__ import annotations

import functools
import itertools
import math
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic, thread_time
from typing import Any, NamedTuple, TypeVar

from ..error_context import function_name, shortened, unless_of_signal_handler
from .cpu import queued_seconds

QUICK = 0.001
"""Seconds below which a batch is quick. Of quick batches, the CPU time of only some is measured, because a system call
takes as long as the rest of a measurement."""

MEASURED_OF_QUICK = 16
"""The CPU time of one of so many quick batches is measured."""

SLOW = 0.005
"""Seconds above which a batch is slow. After a slow batch, the time in the queue for a CPU is measured too."""

WORTH = 100e-6
"""Seconds of work that are worth two looks at the clock, which take some 0.6 µs with the loop around them."""

READ = "read"
"""Name of the step that reads samples, among the steps of the slowest sample."""

LONGEST_NAME = 500
"""Characters of the names of the slowest sample that are kept."""

MOST_MAPS = 200
"""Names of maps that are noted for one batch."""

SEPARATOR = "\0"

NAN = math.nan

PACKING = "(packing)"
"""Name of the step that writes a batch to shared memory, among the maps of a measurement."""


Item = TypeVar("Item")


class Slowest(NamedTuple):
    """The sample of a batch that took a step longest, or a few quick ones that were timed together.

    Attributes:
        seconds: Duration.
        typical: Mean duration of the other samples in the same step, or of as many together; NaN if there are none.
        step: The step, in words: :data:`READ` or the name of a map.
        names: The name of the sample, or its row, in words.
    """

    seconds: float
    typical: float
    step: str
    names: str


class Made(NamedTuple):
    """How a worker made a batch.

    Attributes:
        began: Time of the begin in seconds, by the monotonic clock that all processes of a machine share.
        seconds: Duration.
        cpu: CPU time of the thread in seconds; NaN if it was not measured.
        queued: Seconds that the thread was ready to run, without a CPU; NaN if they were not measured.
        worker: Number of the worker in its pool; -1 is the thread of the loop.
        maps: Seconds of all calls of each map, by its name.
        slowest: The values of a :class:`Slowest`; None if no sample was timed, or none took :data:`QUICK`.
    """

    began: float
    seconds: float
    cpu: float
    queued: float
    worker: int
    maps: dict[str, float]
    slowest: tuple[float, float, str, str] | None = None

    @classmethod
    def of(cls, measured: Any) -> Made | None:
        """Return the times that :func:`taken` or :func:`packed` has returned; None if there are none."""
        if not measured:
            return None
        if not isinstance(measured, bytes):
            return cls(*measured)
        n, worker = struct.unpack_from("<Bq", measured)
        began, seconds, cpu, queued, longest, typical, *of_maps = struct.unpack_from(f"<{n + 6}d", measured, 9)
        names = measured[9 + 8 * (n + 6) :].decode("utf-8", "surrogatepass").split(SEPARATOR)
        slowest = (longest, typical, names[-2], names[-1]) if longest > 0 else None
        return cls(began, seconds, cpu, queued, worker, dict(zip(names, of_maps, strict=False)), slowest)


Measured = tuple[float, float, float, float, int, dict[str, float], Any]
"""The values of a :class:`Made`; a plain tuple, which is made five times as fast."""


class Stopwatch:
    """Measures the batch that a thread is making."""

    __slots__ = ("made", "maps", "seconds", "skipped", "slow", "slowest", "worker")

    def __init__(self) -> None:
        self.maps: dict[str, float] | None = None  # None while the thread makes no batch
        self.slowest: tuple[float, float, str, Any] | None = None  # of the batch; places until it has names
        self.made: Measured | None = None  # of the latest batch, until the pool takes it
        self.seconds = math.inf  # duration of the latest batch
        self.skipped = MEASURED_OF_QUICK  # batches since a CPU time was measured
        self.slow = False  # whether the latest batch was
        self.worker = -1


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.watch = Stopwatch()


_of_thread = _OfThread()
_NO_MAPS: dict[str, float] = {}  # until the first map is noted; nobody writes to it

_NO_OUTER = None, None

Begun = tuple[Stopwatch, Any, float, float, float]


def begin() -> Begun:
    """Begin a batch. Return the argument of :func:`end`: a map may make batches of another source in between."""
    watch = _of_thread.watch
    watch.skipped += 1
    if watch.maps is None and not watch.slow and watch.skipped <= MEASURED_OF_QUICK:  # as most quick batches
        watch.maps = _NO_MAPS
        return watch, _NO_OUTER, NAN, monotonic(), NAN
    outer = watch.maps, watch.slowest
    watch.maps, watch.slowest = _NO_MAPS, None
    queued = queued_seconds() if watch.slow else NAN
    return watch, outer, queued, monotonic(), thread_time() if watch.skipped > MEASURED_OF_QUICK else NAN


def end(begun: Begun) -> None:
    """End the batch that :func:`begin` began, also after an exception."""
    watch, outer, queued, began, cpu = begun
    watch.seconds = seconds = monotonic() - began
    slowest = watch.slowest
    if cpu == cpu:
        cpu = thread_time() - cpu
        watch.skipped = 0
    if seconds >= QUICK or watch.slow or slowest is not None:
        watch.skipped = MEASURED_OF_QUICK if seconds >= QUICK else watch.skipped  # of the next batch
        watch.slow = seconds >= SLOW
        if queued == queued:
            queued = queued_seconds() - queued
        if slowest is not None and type(slowest[3]) is tuple:
            slowest = None  # nobody knows its name
    watch.made = began, seconds, cpu, queued, watch.worker, watch.maps or _NO_MAPS, slowest
    watch.maps, watch.slowest = outer


def taken() -> Measured | None:
    """Return how this thread made its latest batch; None if it made none since the last call."""
    watch = _of_thread.watch
    made, watch.made = watch.made, None
    return made


def packed(measured: Measured | None) -> bytes:
    """Return times as bytes, for the message of a worker process."""
    if measured is None:
        return b""
    began, seconds, cpu, queued, worker, maps, slowest = measured
    longest, typical, *named = slowest or (0.0, 0.0)
    form, names = _form((*maps, *named), len(maps))
    return form.pack(len(maps), worker, began, seconds, cpu, queued, longest, typical, *maps.values()) + names


@functools.lru_cache(maxsize=64)
def _form(names: tuple[str, ...], n_maps: int) -> tuple[struct.Struct, bytes]:
    return struct.Struct(f"<Bq{n_maps + 6}d"), SEPARATOR.join(names).encode("utf-8", "surrogatepass")


def note(name: str, seconds: float) -> None:
    """Add the duration of a call of a map."""
    watch = _of_thread.watch
    maps = watch.maps
    if maps is _NO_MAPS:
        watch.maps = {name: seconds}
    elif maps is not None and (name in maps or len(maps) < MOST_MAPS):
        maps[name] = maps.get(name, 0.0) + seconds


def is_running() -> bool:
    """Return whether this thread makes a batch that is measured."""
    return _of_thread.watch.maps is not None


def in_groups(items: Iterable[Item], n: int, step: str) -> Iterable[Iterable[Item]]:
    """Return `items`, one for each of `n` samples, in groups. Time the work of the caller on each group.

    ``for group in in_groups(...) for item in group`` is a loop over the items. The caller then names the slowest of
    them: :func:`name_slowest`.
    """
    watch = _of_thread.watch
    if watch.maps is None:
        return (items,)
    size = 1 if watch.seconds >= WORTH * n else math.ceil(WORTH * n / max(watch.seconds, 1e-9))
    return (items,) if 2 * size > n else _timed(items, n, size, step)


def _timed(items: Iterable[Item], n: int, size: int, step: str) -> Iterator[Iterable[Item]]:
    iterator, seconds = iter(items), []
    for end in range(size, n + size, size):
        began = monotonic()
        yield itertools.islice(iterator, size) if end < n else iterator  # the last one ends it
        seconds.append(monotonic() - began)
    note_slowest(step, seconds, n, size)


def note_slowest(step: str, seconds: Sequence[float], n: int, size: int = 1) -> None:
    """Note the longest of the durations of groups of `size` samples of a batch of `n`, in their order."""
    watch, longest = _of_thread.watch, max(seconds, default=0.0)
    if watch.maps is None or longest < QUICK or (watch.slowest is not None and longest <= watch.slowest[0]):
        return
    first = size * seconds.index(longest)
    typical = (math.fsum(seconds) - longest) / (len(seconds) - 1) if len(seconds) > 1 else math.nan
    watch.slowest = longest, typical, step.replace(SEPARATOR, ""), (first, min(first + size, n), n)


def name_slowest(names: Callable[[int, int, int], str]) -> None:
    """Name the slowest sample if it has no name yet.

    `names` gets its places in the batch of its step, from and to, and the number of samples there. It returns ``""`` if
    it does not know them.
    """
    watch = _of_thread.watch
    if watch.slowest is None or type(watch.slowest[3]) is not tuple:
        return
    with unless_of_signal_handler():  # a name may come from the user's code
        named = shortened(names(*watch.slowest[3]).replace(SEPARATOR, ""), LONGEST_NAME)
        watch.slowest = (*watch.slowest[:3], named) if named else None
        return
    watch.slowest = None


def slowest_so_far() -> Any:
    """Return the slowest sample of the batch until now, for :func:`name_part`."""
    return _of_thread.watch.slowest


def name_part(before: Any, number: int) -> None:
    """If the slowest sample is another than `before`, and its name is its row in a source of several, add which one."""
    watch = _of_thread.watch
    slowest = watch.slowest
    if slowest is not before and slowest is not None and str(slowest[3]).startswith("row"):
        watch.slowest = (*slowest[:3], f"{slowest[3]} of sources[{number}]")


def name_this_thread(worker: int) -> None:
    """Set the number of the worker that this thread is."""
    _of_thread.watch.worker = worker


def map_name(function: Callable[..., Any]) -> str:
    """Return the name of a map among measurements. A lambda has its line, because others have its name, too."""
    name = function_name(function).replace(SEPARATOR, "")
    line = getattr(getattr(function, "__code__", None), "co_firstlineno", None)
    return f"{name}:{line}" if name.endswith("<lambda>") and line is not None else name
