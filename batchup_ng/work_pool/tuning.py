"""Chooses the number of workers of a loader while it runs, from the times of its latest batches.

A :class:`Tuner` belongs to the node of a loader with ``workers="auto"``, whose own pool it resizes. It has no thread:
the runner calls :meth:`Tuner.look` in the consumer's ``next``, with the lock of its buffer. Most calls return at once.
A look takes some milliseconds, and at most :data:`SHARE_FOR_LOOKS` of the time is spent on looks. Batches and their
order depend on no worker, so a change of their number cannot change them.

The rules:

* While the loop waits, the number becomes that which the model of :mod:`..explanation.model` finds best, at most as
  many as CPUs are left beside the loop. Workers that wait for storage use no CPU, so they may be more. The same holds
  for workers that wait for a CPU that another program uses.
* While fewer workers would do, the number goes down after two looks that agree. While workers make the loop's steps
  longer and it does not wait, the number goes down by one.
* A change is judged by the time from one batch to the next. If it did not pay, it is undone, and not tried again for
  some seconds, and for twice as long after each failure, unless batches or steps take another time.
* A loader that chose between threads and processes itself tries the other kind once, from its next epoch on, if the
  loop waits, CPUs are idle and more threads are not faster, or if the loop spends its time on receiving batches from
  processes. If the other kind is not faster, the loader goes back, and stays.
"""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import log
from ..explanation import model
from ..explanation.evidence import FEWEST, Evidence, Setting, gathered
from ..explanation.verdict import slowed_by_workers
from ..meters.batch_times import BatchTimes, Meter
from ..meters.stopwatch import Made
from .base import worker_count
from .choice import Move
from .prefetch_buffer import ByteBound

BATCHES, SECONDS = 16, 0.25
"""Least number of batches between two looks; least seconds between two changes."""

SHARE_FOR_LOOKS = 0.01
"""Share of the time that looks may take."""

LATEST, WINDOW = 64, 2.0
"""Number of batches that a look considers at most; seconds after which older ones do not count, if there are enough."""

WAITS, PAYS, NEAR = 0.03, 0.03, 1.02
"""Share of its time from which a loop waits; share that a change must save, or may lose; factor of the least time
within which fewer workers would do."""

HEADROOM = 1.15
"""Factor of the time for a batch with which the number of workers is computed, so that the buffer fills."""

SLOWED = 0.04
"""Share by which workers may make steps longer."""

CROWDED, USED = 0.1, 0.8
"""Share of a worker's time without a CPU, and share of the CPUs that loop and workers use: if more of the first and
less of the second, other programs use the CPUs."""

BARRED_SECONDS, LONGEST_BARRED = 4.0, 60.0
"""Seconds for which a change that did not pay is not tried again, at first and at most."""

OTHER = 1.33
"""Factor by which batches or steps take another time than before, so that all may be tried again."""

MOVES, RECEIVES = 0.1, 0.3
"""Share of its time from which a loop that waits makes the loader try processes; share that it spends on receiving
batches from processes, from which the loader tries threads."""

OTHER_KIND = {"threads": "processes", "processes": "threads"}
"""The kind of pool that may be faster."""

START_SECONDS = 30.0
"""Seconds that additional workers may take to make their first batch."""


def wanted(evidence: Evidence, most: int) -> tuple[int, float]:
    """Return the number of workers that the model finds best, up to `most`, and the share of time that they save."""
    need, now = model.needs(evidence), model.pipeline(evidence)
    cpus = max(1, evidence.setting.cpus)
    used = (need.cpu + need.loop_cpu) / max(evidence.interval, 1e-9)
    queued, waits = model.mean(evidence.queued), need.wait
    if queued > CROWDED * model.mean(evidence.make) and used < USED * cpus:
        now = dataclasses.replace(now, make=evidence.make)  # workers go on to wait for CPUs
        waits += queued
    own_pace = max(float(np.mean(now.step + now.take)), now.floor, 1e-9)
    busy = need.cpu / max(need.cpu + waits, 1e-9)
    beside_loop = max(1.0, cpus - need.loop_cpu / own_pace) / max(busy, 0.02)
    most = max(1, min(most, math.ceil(beside_loop)))

    make_more_slowly = now.make * HEADROOM

    def seconds(workers: int) -> float:
        return dataclasses.replace(now, make=make_more_slowly, workers=workers).seconds_per_batch()

    least, fewest = seconds(most), 1
    best = most
    while fewest < best:
        middle = (fewest + best) // 2
        fewest, best = (fewest, middle) if seconds(middle) <= NEAR * least else (middle + 1, best)
    return best, 1.0 - least / seconds(evidence.setting.workers)


class _Change(NamedTuple):
    """A change of the number of workers that is not judged yet, with the times before it in seconds."""

    before: int  # number of workers
    interval: float  # from one batch to the next, in the loop
    pace: float  # the same, or from one batch that workers made to the next, if that is longer: the buffer gets empty
    make: float
    step: float
    makers: frozenset[int]  # numbers of the workers that made batches


class _Bar(NamedTuple):
    """Says until when the number is not changed in one direction again."""

    until: float
    seconds: float
    change: _Change


class Tuner:
    """Looks at the latest batches of a pool, and resizes it.

    Args:
        pool: Has ``at_once``, ``resize`` and ``room_for_more``.
        kind: ``"threads"`` or ``"processes"``.
        bound: How many batches may be ahead of the loop. More workers than that would be idle.
        buffer: How many the user allows.
        meter: Has the times of the batches.
        clock: Returns the present time in seconds.
        spent: Returns the CPU time of this thread in seconds.
        cpus: Number of CPUs. None: those available to this process.
        may_move: Whether the loader may take another kind of pool.
        came: The move that led to this pool, which is to be judged.

    Attributes:
        move: The move that the loader is to make before its next epoch, or None.
    """

    def __init__(
        self, pool: Any, kind: str, bound: ByteBound, buffer: int, meter: Meter,
        clock: Callable[[], float] = time.monotonic, spent: Callable[[], float] = time.thread_time,
        cpus: int | None = None, may_move: bool = False, came: Move | None = None,
    ) -> None:  # fmt: skip
        self.move: Move | None = None
        self._may_move, self._came = may_move, came
        self.why = "a CPU is left to the loop"
        self._pool = pool
        self._kind = kind
        self._bound = bound
        self._buffer = buffer
        self._meter = meter
        self._clock, self._spent = clock, spent
        self._cpus = cpus or worker_count(None)
        np.median([0.0])  # its first call imports numpy.ma, which takes ten times as long as a look
        self._lock = threading.RLock()  # two iterators may have batches made at once
        # Batches before this one do not count: workers had to start.
        self._since = meter.batches + min(pool.at_once + 1, FEWEST)
        self._next_batch, self._next_time = self._since + BATCHES, -math.inf
        self._changed_at = -math.inf
        self._change: _Change | None = None
        self._fewer: int | None = None  # what the last look found enough
        self._bars: dict[bool, _Bar] = {}  # True for more workers

    def __str__(self) -> str:
        return f"workers: {self._pool.at_once} (auto: {self.why})"

    def latest(self) -> list[BatchTimes] | None:
        """Return the times of the batches that the present workers made; None if these are too few, or all."""
        n = self._meter.batches - self._since
        return self._meter.latest(n) if self._changed_at > -math.inf and n >= FEWEST else None

    def look(self) -> None:
        """Look whether another number of workers would be better, if it is time for that, and change it."""
        if self._meter.batches < self._next_batch or self._clock() < self._next_time:
            return
        with self._lock:
            began, spent = self._clock(), self._spent()
            self._next_batch = self._meter.batches + BATCHES
            times = self._times(began)
            evidence = None if len(times) < FEWEST else gathered(self._meter, self._setting(), of=times)
            if evidence is not None:
                self._decide(evidence, times[-BATCHES:], began)
            self._next_time = max(self._next_time, began + (self._spent() - spent) / SHARE_FOR_LOOKS)
            self._meter.pauses.append((began, self._clock()))

    def _setting(self) -> Setting:
        bound = self._bound
        return Setting(self._kind, self._pool.at_once, self._cpus, self._buffer, bound.limit, bound.largest)

    def _times(self, now: float) -> list[BatchTimes]:
        """Return the times of the batches that count, none if it is too early to judge a change."""
        times = self._meter.latest(max(1, min(LATEST, self._meter.batches - self._since)))
        times = [each for each in times if each.made]  # not those that were made to choose the kind of pool
        change = self._change
        grew = change is not None and self._pool.at_once > change.before and now < self._changed_at + START_SECONDS
        if grew and change is not None and _makers(times) <= change.makers:
            return []  # no additional worker has made a batch yet
        recent = [each for each in times if each.taken >= now - WINDOW]
        return recent if len(recent) >= BATCHES else times[-BATCHES:]

    def _decide(self, evidence: Evidence, latest: list[BatchTimes], now: float) -> None:
        workers, n = self._pool.at_once, len(latest)
        wait, step, make = evidence.wait[-n:], evidence.step[-n:], evidence.make[-n:]
        interval = float(np.mean(wait + step + evidence.take[-n:] + evidence.converted[-n:]))
        waits = float(np.mean(wait)) / max(interval, 1e-9)
        settled = [each.settled for each in latest]
        pace = max(interval, (max(settled) - min(settled)) / (n - 1))
        times = float(np.median(make)), float(np.median(step))
        change = _Change(workers, interval, pace, *times, _makers(latest))
        judged, self._change = self._change, None
        if judged is not None:
            grew = workers > judged.before
            faster, slower = pace <= (1.0 - PAYS) * judged.pace, interval > (1.0 + PAYS) * judged.interval
            if (grew and not faster) or (not grew and slower):
                before = self._bars.get(grew)
                seconds = BARRED_SECONDS if before is None else min(2 * before.seconds, LONGEST_BARRED)
                self._bars[grew] = _Bar(now + seconds, seconds, judged)
                if grew and waits > MOVES:
                    self._try_processes(evidence, interval, waits)
                self._resize(judged.before, f"{workers} were {'not faster' if grew else 'slower'}", now)
                return
            self._bars.pop(grew, None)
        best, gain = wanted(evidence, self._most(workers))
        fewer, self._fewer = self._fewer, None
        if best > workers:
            if waits > WAITS and gain > PAYS and self._may(True, change, now):
                self._change = change
                self._resize(best, f"the loop waited for {waits:.0%} of its time", now)
            return
        self._judge_kind(interval, float(np.mean(evidence.take[-n:])))
        why = f"{best} make batches as fast"
        if best == workers > 1 and waits <= WAITS and (slowed := slowed_by_workers(evidence)) > SLOWED:
            best, why = workers - 1, f"workers made the loop's steps {slowed:.0%} longer"
        if best < workers and self._may(False, change, now):
            self._fewer = best
            if fewer is not None:
                self._change, self._fewer = change, None
                self._resize(max(best, fewer), why, now)

    def _try_processes(self, evidence: Evidence, interval: float, waits: float) -> None:
        """Have the loader try processes, if its threads leave CPUs idle."""
        need = model.needs(evidence)
        used = (need.cpu + need.loop_cpu) / max(interval, 1e-9)
        if self._may_move and self._kind == "threads" and used < USED * self._cpus:
            why = f"the loop waits for {waits:.0%} of its time, CPUs are idle, and more threads are not faster"
            self.move = Move(OTHER_KIND[self._kind], why, interval)

    def _judge_kind(self, interval: float, take: float) -> None:
        """Have the loader go back to the kind of pool before, if this one is not faster, or try threads."""
        came, self._came = self._came, None
        if came is not None and interval > (1.0 - PAYS) * came.interval:
            self.move = Move(OTHER_KIND[self._kind], f"{self._kind} were not faster", came.interval)
        elif self._may_move and self._kind == "processes" and take > RECEIVES * interval:
            why = f"the loop spends {take / interval:.0%} of its time on receiving batches"
            self.move = Move(OTHER_KIND[self._kind], why, interval)

    def _may(self, more: bool, present: _Change, now: float) -> bool:
        """Return whether a change in this direction may be tried."""
        bar = self._bars.get(more)
        if bar is None or now >= bar.until:
            return True
        pairs = (present.make, bar.change.make), (present.step, bar.change.step)
        return any(max(a, b) > OTHER * max(min(a, b), 1e-9) for a, b in pairs)

    def _most(self, workers: int) -> int:
        most = self._bound.limit
        return max(1, most if most <= workers else min(most, workers + self._pool.room_for_more()))

    def _resize(self, workers: int, why: str, now: float) -> None:
        before = self._pool.at_once
        self._pool.resize(workers)
        workers = self._pool.at_once
        if self._bound.first > 1:  # otherwise all threads make one batch together
            self._bound.first = workers + 1
        log.note("workers: %d in place of %d, because %s", workers, before, why)
        self.why = why
        # A full buffer hides for so long that workers are too few. More workers are at work after the next batch.
        self._since = self._meter.batches + (self._bound.limit if workers < before else 2)
        self._next_batch = self._since + BATCHES - 2
        self._next_time = now + SECONDS
        self._changed_at = now


def _makers(times: list[BatchTimes]) -> frozenset[int]:
    return frozenset(made.worker for each in times if (made := Made.of(each.made)) is not None)
