"""The plan of an epoch without some of its batches.

A user names the batches by steps of a training loop. They are kept as positions in the epoch, which another world or
batch size does not change. If such a position is in a batch, the whole batch is left out, on all ranks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from .epoch import BatchPlan, PlannedBatch, Reached


class Skipped(NamedTuple):
    """Positions of an epoch to leave out, from `first` to `end` (excluded).

    They count samples, or batches in a world of one if the epoch can only be cut into its own batches.
    """

    epoch: int
    first: int
    end: int


class ShortenedPlan(BatchPlan):
    """The batches of another plan that contain no position of `skipped`. They have consecutive numbers.

    Each batch has the rows and the random numbers that it has in the other plan.
    """

    def __init__(self, whole: BatchPlan, skipped: Iterable[Skipped]) -> None:
        self.whole, self.in_samples = whole, whole.in_samples
        for name in ("rows", "batch_size", "seed", "epoch", "drop_last", "shard", "start"):
            setattr(self, name, getattr(whole, name))
        unit, begun = _unit(whole), _position(whole, whole.start)
        before: set[int] = set()
        left_out: set[int] = set()
        for _, first, end in skipped:
            last = (end - 1) // unit
            before.update(range(first // unit, min(last + 1, whole.first)))
            if end > begun:
                at = (max(first, begun) - begun) // unit, (end - 1 - begun) // unit + 1
                left_out.update(range(whole.first + at[0], int(min(whole.first + at[1], whole.n_batches))))
        self._before = len(before)  # numbers of batches that an earlier run left out
        found = np.array(sorted(left_out), np.int64)
        self._thresholds = found - np.arange(len(found))  # without the batches left out before each
        self.first = whole.first - self._before
        self.n_batches = whole.n_batches - self._before - len(found)

    def _of_whole(self, number: int) -> int:
        """Return the number of a batch in the other plan."""
        number += self._before
        return int(number + np.searchsorted(self._thresholds, number, side="right"))

    def _planned(self, number: int) -> PlannedBatch:
        return self.whole._planned(self._of_whole(number))._replace(number=number)

    def reached(self, number: int) -> Reached:
        return self.whole.reached(self._of_whole(number))

    def other(self, draw: int, planned: PlannedBatch, place: int) -> Any:
        return self.whole.other(draw, planned, place)


def shortened(plan: BatchPlan, skipped: Iterable[Skipped]) -> BatchPlan:
    """Return the plan without the batches that `skipped` names in its epoch."""
    own = [each for each in skipped if each.epoch == plan.epoch]
    return ShortenedPlan(plan, own) if own else plan


def positions_of(plan: BatchPlan, number: int) -> Skipped:
    """Return the positions of a batch on all ranks."""
    whole, at = (plan.whole, plan._of_whole(number)) if isinstance(plan, ShortenedPlan) else (plan, number)
    first = _position(whole, whole.start) + (at - whole.first) * _unit(whole)
    return Skipped(plan.epoch, first, max(first + 1, _position(whole, whole.reached(at + 1))))


def _unit(plan: BatchPlan) -> int:
    """Return how many positions one batch on all ranks takes."""
    return plan.shard.world * (plan.batch_size if plan.in_samples else 1)


def _position(plan: BatchPlan, reached: Reached) -> int:
    return reached.samples if plan.in_samples else reached.batches
