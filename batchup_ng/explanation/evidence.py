"""The measurements of a loader as arrays. An explanation is computed from them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from ..interpreter import values_of
from ..meters.batch_times import BatchTimes, Meter, Step, made_between
from ..meters.stopwatch import PACKING, Made, Slowest

ENOUGH_OF_AN_EPOCH = 30
"""Number of batches of the latest epoch from which the earlier epochs do not count."""

EPOCH, SETTLED, ASKED, TAKEN = map(BatchTimes._fields.index, ("epoch", "settled", "asked", "taken"))

FEWEST = 8
"""Least number of batches for an explanation."""

ALONE, FEWEST_ALONE, FEWEST_MEASURED = 0.05, 3, 2
"""Share of a step with a worker below which none is said to run; number of such steps from which they count, and of
those whose CPU time was measured."""


class Setting(NamedTuple):
    """Facts about a loader that are not times.

    Attributes:
        kind: ``"serial"``, ``"threads"``, ``"processes"`` or ``"ray"``.
        workers: How many batches its pool makes at once.
        cpus: How many CPUs are available to this process.
        buffer_asked: The most batches ahead that the user allows.
        buffer: How many may be ahead now, as memory allows.
        batch_bytes: Bytes of the largest batch.
        data_bytes: Bytes of the batches of an epoch, about; NaN if not known.
        free_bytes: Free memory.
        consumer_maps: Names of maps after the pool, which the loop's thread runs.
        can_cache: Whether ``cache()`` would keep the rows of the source.
    """

    kind: str
    workers: int
    cpus: int
    buffer_asked: int
    buffer: int
    batch_bytes: int = 0
    data_bytes: float = math.nan
    free_bytes: float = math.nan
    consumer_maps: tuple[str, ...] = ()
    can_cache: bool = True


class Alone(NamedTuple):
    """The times of a batch that one thread made of a copy of the source, while no worker did.

    Attributes:
        seconds: Duration, without the time in the queue for a CPU.
        cpu: CPU time in seconds.
        lock: Share of the duration with the interpreter's lock held; NaN if it is not known.
    """

    seconds: float
    cpu: float
    lock: float = math.nan


@dataclasses.dataclass(frozen=True)
class Evidence:
    """The times of the batches in seconds, one array element each, oldest first.

    Attributes:
        wait: Wait of the loop in ``next``, without `take` and `converted`.
        take: Time of the loop's thread in ``next`` for a batch that has arrived.
        converted: Time of functions after the pool, of a view or adapter, on the loop's thread.
        step: Time of the loop until it asked for the next batch.
        make, cpu, queued: How long a worker made the batch, ran on a CPU, and was ready without one; NaN if unknown.
        packing, transfer: Time to write the batch to shared memory; until it arrived.
        maps: Time of each map, by name.
        read: Time of the rest.
        ready: Finished batches at the request, where they were counted.
        epoch, number: Which batch it is.
        loop_cpu: CPUs that the loop uses in its steps, with threads that it starts and without those of a pool.
        loop_queued: Share of its steps for which the loop's thread was ready without a CPU.
        overlap: Number of workers that made one of the batches during each step, on average.
        earlier_wait: Share of the time that the loop waited in earlier epochs; NaN if there are none.
        first_wait: Wait for the first batch of all; NaN if it is not among the measured.
        begin, end: When the first of them was asked for and the last taken.
        setting: Facts that are not times.
        alone: The times of a batch of a copy; None if nothing was tried.
        headroom: Time of a step of the loop with one batch handed out again; NaN if that was not measured.
        slowest: The slowest sample of each batch in which samples were timed, by the place of the batch.
    """

    wait: np.ndarray
    take: np.ndarray
    converted: np.ndarray
    step: np.ndarray
    make: np.ndarray
    cpu: np.ndarray
    queued: np.ndarray
    packing: np.ndarray
    transfer: np.ndarray
    maps: dict[str, np.ndarray]
    read: np.ndarray
    ready: np.ndarray
    epoch: np.ndarray
    number: np.ndarray
    loop_cpu: float
    loop_queued: float
    earlier_wait: float
    first_wait: float
    begin: float
    end: float
    overlap: np.ndarray
    setting: Setting
    alone: Alone | None = None
    headroom: float = math.nan
    slowest: dict[int, Slowest] = dataclasses.field(default_factory=dict)

    @property
    def interval(self) -> float:
        """Seconds from one batch to the next, on average."""
        return float(np.mean(self.wait + self.take + self.converted + self.step))

    @property
    def wait_share(self) -> float:
        """Share of the time that the loop was in ``next``."""
        total = np.sum(self.wait + self.take + self.converted + self.step)
        return float(1.0 - np.sum(self.step) / total) if total > 0 else 0.0

    @property
    def batches_per_epoch(self) -> float:
        """How many of the batches belong to one epoch, on average."""
        return len(self.epoch) / len(np.unique(self.epoch))

    @property
    def busy_share(self) -> float:
        """Share of the time that the workers made batches."""
        span = max(self.end - self.begin, 1e-9)
        return min(1.0, float(np.sum(self.make)) / (span * max(1, self.setting.workers)))

    @property
    def ready_mean(self) -> float:
        """How many batches were finished when the loop asked; NaN if none were counted."""
        return float(np.mean(self.ready)) if len(self.ready) else math.nan


def gathered(
    meter: Meter, setting: Setting, alone: Alone | None = None, of: list[BatchTimes] | None = None
) -> Evidence | None:
    """Return the measurements of the latest batches, or of the batches `of`; None if there are too few."""
    kept, first, earlier_wait = _latest(meter, setting) if of is None else (of, None, math.nan)
    if len(kept) < FEWEST:
        return None
    made = [Made.of(times.made) or Made(0.0, 0.0, math.nan, math.nan, -1, {}) for times in kept]
    asked, taken = (np.array([each[name] for each in kept]) for name in (ASKED, TAKEN))
    wait, take, converted, step = _of_loop(meter, setting, kept)
    names = sorted({name for how in made for name in how.maps} - {PACKING})
    maps = {name: np.array([how.maps.get(name, 0.0) for how in made]) for name in names}
    packing = np.array([how.maps.get(PACKING, 0.0) for how in made])
    make = np.array([how.seconds for how in made])
    cpu = np.array([how.cpu for how in made])
    spans = [made_between(*each) for each in zip(kept, made, strict=True)]
    overlap = _overlap(taken, taken + step + converted, spans)
    since = -math.inf if of is None else kept[0].asked
    measured = [each for each in values_of(meter.steps) if each.seconds > 0 and each.began >= since]
    loop_cpu = _share([(each.cpu, each.seconds) for each in measured])
    if setting.kind == "threads" and not np.isnan(cpu).all():  # the process has the CPU time of both
        known = [each for each in measured if asked[0] <= each.began < taken[-1 - min(setting.buffer, len(taken) - 1)]]
        of_workers = float(overlap.mean() * np.nanmean(cpu) / max(make.mean(), 1e-9))
        alone_cpu = _cpu_alone(known, spans)
        loop_cpu = max(0.0, loop_cpu - of_workers) if math.isnan(alone_cpu) else alone_cpu / max(step.mean(), 1e-9)
    return Evidence(
        wait=wait,
        take=take,
        converted=converted,
        step=step,
        make=make,
        cpu=cpu,
        queued=np.array([how.queued for how in made]),
        packing=packing,
        transfer=_transfer(kept, made),
        maps=maps,
        read=np.maximum(0.0, make - packing - sum(maps.values(), np.zeros(len(kept)))),
        ready=np.array([times.ready for times in kept if times.ready >= 0]),
        epoch=np.array([times.epoch for times in kept]),
        number=np.array([times.number for times in kept]),
        loop_cpu=loop_cpu,
        loop_queued=_share([(each.queued, each.seconds) for each in measured if each.queued is not None]),
        earlier_wait=earlier_wait,
        first_wait=math.nan if first is None else first.taken - first.asked,
        begin=float(asked[0]),
        end=float(taken[-1]),
        overlap=overlap,
        setting=setting,
        alone=alone,
        headroom=meter.headroom,
        slowest={place: Slowest(*how.slowest) for place, how in enumerate(made) if how.slowest is not None},
    )


def _latest(meter: Meter, setting: Setting) -> tuple[list[BatchTimes], BatchTimes | None, float]:
    """Return the batches that the figures describe, the first batch of all if it is known, and the wait before them.

    The wait is the share of the time in earlier epochs; NaN if they do not count.
    """
    latest = [times for times in meter.latest() if Made.of(times.made) is not None]
    first = latest[0] if latest and meter.batches <= len(latest) else None
    kept = [times for times in latest if times.epoch == latest[-1].epoch]
    earlier = latest[: len(latest) - len(kept)]
    earlier_wait = math.nan
    if len(kept) < ENOUGH_OF_AN_EPOCH:
        kept, earlier = latest, []
    elif len(earlier) >= FEWEST:
        earlier_wait = sum(each.taken - each.asked for each in earlier) / (earlier[-1].taken - earlier[0].asked)
    if first is not None and not earlier and len(kept) > setting.workers + 1 + FEWEST:
        kept = kept[setting.workers + 1 :]  # workers may have to start for the first ones
    return kept, first, earlier_wait


def _of_loop(meter: Meter, setting: Setting, kept: list[BatchTimes]) -> tuple[np.ndarray, ...]:
    """Return for each batch how long the loop waited, received and converted it, and its step after it."""
    n, pauses = len(kept), values_of(meter.pauses)
    if len(handed_out := values_of(meter.handed_out)) > FEWEST:  # a thread ahead of the loop converted the batches
        loop = np.array(handed_out[-n:], np.float64)
        step = _steps(loop[:, 0], loop[:, 1], loop[1:, 2] > 0, pauses)
        return np.resize(loop[:, 1] - loop[:, 0], n), np.zeros(n), np.zeros(n), np.resize(step, n)
    asked, taken, settled, epoch = (np.array([each[name] for each in kept]) for name in (ASKED, TAKEN, SETTLED, EPOCH))
    step = _steps(asked, taken, np.diff(epoch) != 0, pauses)
    arrived = taken if setting.kind == "serial" else np.clip(settled, asked, taken)
    of_views = float(sum(np.mean(values_of(seconds)) for seconds in [*meter.converted.values()]))
    converted = np.minimum(np.full(n, of_views), step)
    return arrived - asked, taken - arrived, converted, step - converted


def _steps(asked: np.ndarray, taken: np.ndarray, ends_epoch: np.ndarray, pauses: list[tuple[float, float]]) -> Any:
    """Return the time from each batch to the request for the next.

    It is the median for the last one, and for steps with an explanation or with the user's work between epochs.
    """
    step = np.maximum(np.append(asked[1:] - taken[:-1], 0.0), 0.0)
    left_out = np.append(ends_epoch, True)
    for since, to in pauses:
        left_out[:-1] |= (taken[:-1] <= since) & (to <= asked[1:])
    step[left_out] = np.median(step[:-1] if left_out.all() else step[~left_out])
    return step


def _transfer(kept: list[BatchTimes], made: list[Made]) -> np.ndarray:
    """Return the time of each batch on its way; 0.0 where the worker has another clock."""
    seconds = [
        times.settled - how.began - how.seconds if times.submitted <= how.began else 0.0
        for times, how in zip(kept, made, strict=True)
    ]
    return np.asarray(np.maximum(0.0, np.array(seconds)))


def _share(of_all: list[tuple[float, float]]) -> float:
    total = sum(seconds for _, seconds in of_all)
    return sum(part for part, _ in of_all) / total if total > 0 else math.nan


def _cpu_alone(steps: list[Step], spans: list[tuple[float, float]]) -> float:
    """Return the CPU seconds of a step of the loop while no worker ran; NaN if there were too few."""
    if not steps:
        return math.nan
    begin, lasted = (np.array([step[place] for step in steps]) for place in (0, 1))
    alone = _overlap(begin, begin + lasted, spans) < ALONE
    cpu = np.array([step.cpu for step in steps])[alone]
    return float(cpu.mean()) if len(cpu) >= FEWEST_MEASURED else math.nan


def _overlap(begin: np.ndarray, end: np.ndarray, made: list[tuple[float, float]]) -> np.ndarray:
    """Return for each step the share of its time for which a worker made one of the batches, summed over workers."""
    edges = np.array(sorted([(since, 1.0) for since, _ in made] + [(to, -1.0) for _, to in made]))
    times, busy = edges[:, 0], np.cumsum(edges[:, 1])
    worked = np.concatenate([[0.0], np.cumsum(np.diff(times) * busy[:-1])])  # seconds of work up to each edge

    def until(at: Any) -> Any:
        return np.interp(at, times, worked)

    return np.asarray((until(end) - until(begin)) / np.maximum(end - begin, 1e-9))
