"""The times of the latest batches of a pool, from the submission to the loop, and the figures computed from them."""

from __future__ import annotations

import collections
import functools
import itertools
import math
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from time import monotonic, process_time
from typing import Any, NamedTuple

import numpy as np

from ..interpreter import alone, numbers, values_of
from .cpu import queued_seconds
from .stopwatch import PACKING, SLOW, Made

LATEST = 1024
"""Number of batches whose times are kept."""

COUNTED_OF, TIMED_AT = 8, 6
"""At the request of one of so many batches, the finished ones are counted. After another one of them, the CPU time of
the loop's step is measured. By then the workers may rest since the count (``epoch_runner.RESTS_OF``)."""

RARELY_COUNTED_OF, BELOW = 32, 100e-6
"""One of so many while batches come faster than one in so many seconds: the measurements cost some 2 µs a batch."""


class BatchTimes(NamedTuple):
    """The times of one batch, in seconds of the monotonic clock.

    Attributes:
        epoch: Number of its epoch.
        number: Its number in the epoch.
        samples: Number of samples that were planned, without those left out as bad.
        submitted: When the pool got the task.
        settled: When the result arrived in the process of the loop.
        asked: When the loop requested it.
        taken: When ``next`` returned it.
        ready: Number of finished batches at the request; -1 if they were not counted.
        made: How a worker made it, for :meth:`Made.of`.
    """

    epoch: int
    number: int
    samples: int
    submitted: float
    settled: float
    asked: float
    taken: float
    ready: int
    made: Any


class Step(NamedTuple):
    """The work of a loop between two batches.

    Attributes:
        began: When it began, by the monotonic clock.
        seconds: Duration.
        cpu: CPU time of all threads of the process in seconds.
        queued: Seconds that the loop's thread was ready to run, without a CPU; None if they were not measured.
    """

    began: float
    seconds: float
    cpu: float
    queued: float | None


_next_number = numbers()

listeners: tuple[Callable[[Meter, tuple[Any, ...]], None], ...] = ()
"""Called with each batch that is handed out, on the thread of its loop."""

look: Callable[[float], None] | None = None
"""Called with the time of the first batch that is handed out from :data:`look_due` on, on the thread of its loop. It
sets the next time."""

look_due = math.inf
"""Time of the monotonic clock in seconds."""

living: weakref.WeakSet[Meter] = weakref.WeakSet()
"""The meters of this program."""


class Meter:
    """The times of the batches of a source over a pool.

    Threads that share an iterator add in turn: the runner holds its lock. Any thread may read.

    Args:
        maker: The pool that makes the batches.

    Attributes:
        number: Its number among the meters of this program.
        batches: Number of batches handed out since the first.
        samples: Number of their samples.
        waited: Seconds for which the loop waited for them.
        steps: The work of the loop between some of the batches.
        converted: Seconds that each function after the pool took for the latest batches, by name. They are part of a
            ``next`` of the loop, or of a thread ahead of it.
        handed_out: If a thread converts batches ahead of the loop: when the loop asked for a batch, when it got it, and
            whether it was the first of an iterator.
        pauses: Begin and end of explanations, and of steps with one batch again, which are no steps of the loop.
        headroom: Median seconds of such a step; NaN if none was measured.
    """

    def __init__(self, maker: object = "") -> None:
        self.number = _next_number()
        self._maker = maker
        self.batches = self.samples = 0
        self.waited = 0.0
        self._adding = threading.RLock()  # two iterators of one source may add at once
        self._latest: collections.deque[tuple[Any, ...]] = collections.deque(maxlen=LATEST)
        self.steps: collections.deque[Step] = collections.deque(maxlen=LATEST)
        self.converted: dict[str, collections.deque[float]] = {}
        self.handed_out: collections.deque[tuple[float, float, bool]] = collections.deque(maxlen=LATEST)
        self.pauses: collections.deque[tuple[float, float]] = collections.deque(maxlen=LATEST)
        self.headroom = math.nan
        self._step: tuple[int, float, float, float | None] | None = None  # thread, and its times as a step began
        self._counted, self._counted_of = -math.inf, COUNTED_OF  # when batches were counted; of how many to count them
        living.add(self)

    @functools.cached_property
    def name(self) -> str:
        """What makes the batches, in words."""
        return str(self._maker)

    def asked(self) -> bool:
        """Note the request for a batch. Return whether to count the finished ones."""
        place = self.batches % self._counted_of
        if place == TIMED_AT:
            began, self._step = self._step, None
            if began is not None and began[0] == threading.get_ident():
                seconds, queued = monotonic() - began[1], None if began[3] is None else queued_seconds() - began[3]
                self.steps.append(Step(began[1], seconds, process_time() - began[2], queued))
        if place:
            return False
        since, self._counted = self._counted, monotonic()
        self._counted_of = RARELY_COUNTED_OF if self._counted - since < BELOW * self._counted_of else COUNTED_OF
        return True

    @alone("_adding")
    def add(self, samples: int, times: tuple[Any, ...]) -> None:
        """Add the :class:`BatchTimes` of a batch of `samples` that is about to be handed out, as a plain tuple."""
        self.batches = batches = self.batches + 1
        self.samples += samples
        taken = times[6]
        self.waited += taken - times[5]
        self._latest.append(times)
        if listeners:
            for listener in listeners:
                listener(self, times)
        if batches % self._counted_of == TIMED_AT:
            slow = bool(self.steps) and self.steps[-1].seconds >= SLOW
            queued = queued_seconds() if slow else None
            self._step = threading.get_ident(), monotonic(), process_time(), queued
        if taken >= look_due and look is not None:
            look(taken)

    def note_headroom(self, seconds: float, since: float, to: float) -> None:
        """Note how long a step takes with a batch that is there, and when that was measured."""
        self.headroom, self._step = seconds, None
        self.pauses.append((since, to))

    def add_converted(self, name: str, seconds: float) -> None:
        """Add the time that a function after the pool took for a batch."""
        if (of_name := self.converted.get(name)) is None:
            of_name = self.converted.setdefault(name, collections.deque(maxlen=LATEST))
        of_name.append(seconds)

    def latest(self, n: int = LATEST) -> list[BatchTimes]:
        """Return the times of the latest batches, `n` at most, oldest first."""
        return [BatchTimes(*times) for times in values_of(self._latest)[-n:]]


def metrics(meter: Meter, workers: int) -> dict[str, float]:
    """Return the measurements of the latest batches: see ``metrics`` of a loader."""
    told: dict[str, float] = {"batches": meter.batches, "samples": meter.samples, "workers": workers}
    latest = meter.latest()
    if not latest:
        return told
    told["wait_seconds"] = meter.waited
    asked, taken = (np.array([getattr(times, name) for times in latest]) for name in ("asked", "taken"))
    begin, end = float(asked[0]), float(taken[-1])
    span = max(end - begin, 1e-9)
    waited = taken - asked
    told |= {
        "epoch": latest[-1].epoch,
        "batches_per_second": len(latest) / span,
        "samples_per_second": sum(times.samples for times in latest) / span,
        "wait_share": float(waited.sum()) / span,
    }
    if counted := [times.ready for times in latest if times.ready >= 0]:
        told["ready_mean"] = float(np.mean(counted))
    told |= _in_ms("wait", waited) | _in_ms("step", asked[1:] - taken[:-1])
    made = [(times, how) for times in latest if (how := Made.of(times.made)) is not None]
    if not made:
        return told
    seconds = np.array([how.seconds for _, how in made])
    of_maps: dict[str, float] = collections.defaultdict(float)
    for _, how in made:
        for name, of_map in how.maps.items():
            of_maps[name] += of_map
    packing = of_maps.pop(PACKING, 0.0)
    busy = sum(max(0.0, min(end, to) - max(begin, since)) for since, to in itertools.starmap(made_between, made))
    told |= {"busy_share": busy / (span * workers), **_in_ms("make", seconds)}
    told |= _in_ms("cpu", [how.cpu for _, how in made if how.cpu == how.cpu], percentiles=())
    told["read_ms_mean"] = 1e3 * max(0.0, float(seconds.sum()) - sum(of_maps.values()) - packing) / len(made)
    told["packing_ms_mean"] = 1e3 * packing / len(made)
    told |= {f"map_ms_mean/{name}": 1e3 * of_map / len(made) for name, of_map in sorted(of_maps.items())}
    told |= _in_ms("queue", _on_this_machine(made, lambda times, how: how.began - times.submitted))
    return told | _in_ms("transfer", _on_this_machine(made, lambda times, how: times.settled - how.began - how.seconds))


def _in_ms(name: str, seconds: Any, percentiles: Iterable[int] = (50, 99)) -> dict[str, float]:
    """Return the mean and percentiles in milliseconds, by name; nothing without values."""
    values = 1e3 * np.asarray(seconds, np.float64)
    if not len(values):
        return {}
    return {f"{name}_ms_mean": float(values.mean())} | {
        f"{name}_ms_p{percent}": float(np.percentile(values, percent)) for percent in percentiles
    }


def made_between(times: BatchTimes, made: Made) -> tuple[float, float]:
    """Return when a worker began a batch and when it was done. A worker with another clock was done as it arrived."""
    began = made.began
    if not times.submitted <= began <= times.settled - made.seconds:
        began = times.settled - made.seconds
    return began, began + made.seconds


def _on_this_machine(made: Iterable[tuple[BatchTimes, Made]], difference: Any) -> list[float]:
    """Return the difference for each batch whose worker has the clock of this process."""

    def kept() -> Iterator[float]:
        for times, how in made:
            if times.submitted <= how.began <= how.began + how.seconds <= times.settled:
                yield difference(times, how)

    return list(kept())
