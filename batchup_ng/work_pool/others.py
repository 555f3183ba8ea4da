"""Other rows of an epoch, to stand in for those that could not be made."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..randomness import word
from ..sampling.plan import BatchPlan, EpochPlan, PlannedBatch
from ..sampling.row_plan import same_form, take_rows, whole_samples

NEAR = 1000
"""Batches back from which another row is taken, where the plan only knows what was drawn lately."""


class Others:
    """Finds other rows of the epoch to stand in for those of one batch."""

    def __init__(self, plan: BatchPlan, planned: PlannedBatch) -> None:
        self._plan = plan
        self._planned = planned

    def another(self, place: int, attempt: int) -> Any:
        """Return the rows of one other sample, a function of seed, epoch, position and attempt; None if it is none."""
        key = self._planned.key
        draw = word("replace", key.seed, key.epoch, key.start + place, attempt)
        first, beyond = self._range()
        number = first + (draw >> 32) % (beyond - first)
        rows = self._planned.rows if number == self._planned.number else self._plan[number].rows
        n = whole_samples(rows)[0]
        where = (draw & 0xFFFFFFFF) % n if n else 0
        if not n or (number == self._planned.number and where == place):
            return None
        row = take_rows(rows, np.array([where]))
        return row if same_form(self._planned.rows, row) else None

    def _range(self) -> tuple[int, int]:
        """Return the numbers of the batches to take rows from: the first, and the one beyond the last.

        All of the epoch where its order is a function; else those up to this one, which have been drawn in any case.
        """
        own = self._planned.number
        if isinstance(self._plan, EpochPlan) and self._plan.n_batches != math.inf:
            return 0, int(self._plan.n_batches)
        return max(0, own - NEAR), own + 1
