"""A pool that notes which batches are submitted to it."""

from __future__ import annotations

from typing import Any

import batchup_ng as bu


class Submissions(bu.SerialPool):
    """A pool of one thread that notes the epoch and number of each batch when it is submitted."""

    own_thread = False  # otherwise no batches are submitted ahead

    def __init__(self) -> None:
        super().__init__()
        self.submitted: list[tuple[int, int]] = []

    def submit(self, task: Any, how: Any = None) -> Any:
        key = task[1][2]
        self.submitted.append((key.epoch, key.batch))
        return super().submit(task, *(() if how is None else (how,)))

    def of(self, epoch: int) -> int:
        """Return how many batches of an epoch were submitted."""
        return sum(e == epoch for e, _ in self.submitted)
