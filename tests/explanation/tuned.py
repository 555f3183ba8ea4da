"""A simulated machine on which a tuner chooses the number of workers."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from batchup_ng.meters.batch_times import Meter
from batchup_ng.work_pool.choice import Move
from batchup_ng.work_pool.tuning import Tuner

from .world import World, _Series


@dataclasses.dataclass
class FakePool:
    at_once: int

    def resize(self, workers: int) -> None:
        self.at_once = workers

    def room_for_more(self) -> int:
        return 100


@dataclasses.dataclass
class FakeBound:
    limit: int
    first: int
    largest: int = 100_000


class Tuned(NamedTuple):
    """What became of two epochs."""

    asked: np.ndarray  # when the loop asked for each batch
    steps: np.ndarray  # how long its step before that took
    workers: np.ndarray  # how many there were then
    reasons: list[tuple[int, int, str]]  # of each change: after which batch, how many workers, why
    move: Move | None  # to another kind of pool, before the next epoch

    def interval(self, first: int, end: int | None = None) -> float:
        """Return the time from one batch to the next, from batch `first` to `end`."""
        asked = self.asked[first:end]
        return float(asked[-1] - asked[0]) / (len(asked) - 1)

    def between(self, begin: float, end: float) -> tuple[float, int]:
        """Return the same for the batches between two times, and the number of workers at the end."""
        inside = (begin <= self.asked) & (self.asked < end)
        asked = self.asked[inside]
        return float(asked[-1] - asked[0]) / (len(asked) - 1), int(self.workers[inside][-1])


def run(world: World, auto: bool = True, may_move: bool = False, came: Move | None = None) -> Tuned:
    """Run a world, with a tuner or with a fixed number of workers."""
    meter, pool = Meter(), FakePool(world.workers)
    bound: Any = FakeBound(world.buffer, world.workers + 1)
    clocks: Any = (lambda: series.now), (lambda: 0.0)
    tuner = Tuner(pool, world.kind, bound, world.asked, meter, *clocks, world.cpus, may_move, came)
    workers: list[int] = []
    reasons: list[tuple[int, int, str]] = []

    def tune() -> int:
        before = pool.at_once
        if auto:
            tuner.look()
        if pool.at_once != before:
            reasons.append((meter.batches, pool.at_once, tuner.why))
        workers.extend([pool.at_once] * 8)
        return pool.at_once

    series = _Series(world, meter, tune)
    series.run()
    times = meter.latest()
    asked, taken = np.array([each.asked for each in times]), np.array([each.taken for each in times])
    steps = asked[1:] - taken[:-1]
    return Tuned(asked, steps, np.array(workers[: len(asked)]), reasons, tuner.move)
