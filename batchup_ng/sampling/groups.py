"""Rows in groups of equal size: what stands for one sample of a composite whose parts have different batch sizes.

The rows of a part that gives `size` rows for each sample are ``(n, size) int``, so that all that cuts, joins and counts
the rows of batches does so by whole samples.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from ..errors import ArgumentError
from .plans.rows import ChoiceBatch, RowPlan, count_batches, rows_length


def grouped(rows: Any, size: int) -> Any:
    """Return rows, which may be a nest, in groups; those that fill none are left out.

    >>> grouped(np.arange(5), 2).tolist()
    [[0, 1], [2, 3]]
    """
    if isinstance(rows, ChoiceBatch):
        return ChoiceBatch(grouped(rows.sample_indices, size), rows.ds_index)
    if isinstance(rows, tuple):
        return tuple([grouped(part, size) for part in rows])
    rows = np.asarray(rows)
    n = len(rows) // size
    return rows[: n * size].reshape(n, size, *rows.shape[1:])


def ungrouped(rows: Any) -> Any:
    """Return the rows of all groups, one after the other: what :func:`grouped` put in groups."""
    if isinstance(rows, ChoiceBatch):
        return ChoiceBatch(ungrouped(rows.sample_indices), rows.ds_index)
    if isinstance(rows, tuple):
        return tuple([ungrouped(part) for part in rows])
    return rows.reshape(-1, *rows.shape[2:])


def group_positions(positions: np.ndarray, size: int) -> np.ndarray:
    """Return the positions of the rows of groups, one group after the other.

    >>> group_positions(np.array([0, 3]), 2).tolist()
    [0, 1, 6, 7]
    """
    return (positions[:, None] * size + np.arange(size)).reshape(-1)


def whole_groups(n_rows: float, size: int) -> float:
    """Return how many groups so many rows fill: an int, or ``math.inf``."""
    return math.inf if n_rows == math.inf else int(n_rows) // size


class GroupsPlan:
    """The rows of a plan in groups.

    Args:
        part: The plan of the rows.
        size: Rows of a group.
        batch_size: Groups of a whole batch.
        drop_last: Whether to leave out a last batch that is not whole.

    Raises:
        ArgumentError: batches are what is in order in the plan, so that groups would be torn.
    """

    regular: ClassVar[bool] = True

    def __init__(self, part: RowPlan, size: int, batch_size: int, drop_last: bool) -> None:
        if part.n_samples is None:
            raise ArgumentError(
                "batch_size of a CompositeDataSource is for parts whose samples are one sequence, not for a choice of "
                "sources, rounds of one, or buckets; give that part 1 and the others their sizes, or leave it out"
            )
        self._part = part
        self._size = size
        self._batch_size = batch_size
        self.n_samples = whole_groups(part.n_samples, size)
        self.n_batches = count_batches(self.n_samples, batch_size, drop_last)

    @property
    def steady(self) -> bool:
        return self._part.steady

    def samples_before(self, number: int) -> int:
        return int(min(number * self._batch_size, self.n_samples))

    def rows(self, number: int) -> Any:
        return self.rows_between(self.samples_before(number), self.samples_before(number + 1))

    def rows_between(self, start: int, stop: int) -> Any:
        return grouped(self._part.rows_between(start * self._size, stop * self._size), self._size)


def drawn_groups(drawn: Any, size: int, batch_size: int, drop_last: bool) -> Any:
    """Yield the rows of batch after batch in groups, until one has none."""
    for rows in drawn:
        groups = grouped(rows, size)
        if rows_length(groups) < (batch_size if drop_last else 1):
            return
        yield groups
