"""Other rows of an epoch, to stand in for those that could not be made."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..randomness import word
from ..sampling.plans.epoch import BatchPlan, PlannedBatch
from ..sampling.plans.rows import one_row, take_rows


class Replacements:
    """Finds other rows of the epoch to stand in for those of one batch."""

    def __init__(self, plan: BatchPlan, planned: PlannedBatch) -> None:
        self._plan = plan
        self._planned = planned

    def another(self, place: int, attempt: int) -> Any:
        """Return the rows of one other sample, a function of seed, epoch, position and attempt; None if it is none."""
        key = self._planned.key
        draw = word("replace", key.seed, key.epoch, key.position(place), attempt)
        row = self._plan.other(draw, self._planned, place)
        own = one_row(take_rows(self._planned.rows, np.array([place])))
        return None if row is None or one_row(row) == own else row
