"""Rows in groups of equal size, ``(n, size) int``: the samples of composites whose parts have different batch sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ArgumentError
from .plans.rows import RowPlan, SequencePlan, count_batches, map_rows


def grouped(rows: Any, size: int) -> Any:
    """Return rows, perhaps a nest, in groups; rows that do not fill a group are left out. Groups of one are the rows.

    >>> grouped(np.arange(5), 2).tolist()
    [[0, 1], [2, 3]]
    """

    def of(leaf: Any) -> np.ndarray:
        whole = np.asarray(leaf)[: len(leaf) // size * size]
        return whole.reshape(-1, size, *whole.shape[1:])

    return rows if size == 1 else map_rows(of, rows)


def ungrouped(rows: Any, size: int) -> Any:
    """Return the rows of all groups, one after the other: the inverse of :func:`grouped`."""
    return rows if size == 1 else map_rows(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows)


def group_positions(positions: np.ndarray, size: int) -> np.ndarray:
    """Return the positions of the rows of groups, one group after the other.

    >>> group_positions(np.array([0, 3]), 2).tolist()
    [0, 1, 6, 7]
    """
    return positions if size == 1 else (positions[:, None] * size + np.arange(size)).reshape(-1)


def groups_plan(part: RowPlan, size: int, batch_size: int, drop_last: bool) -> RowPlan:
    """Return the rows of a plan in groups of `size`, in batches of `batch_size` groups.

    Raises:
        ArgumentError: the plan orders whole batches, and groups would be torn.
    """
    if size == 1:
        return part
    if part.n_samples is None:
        raise ArgumentError(
            "batch_size of a CompositeDataSource is for parts whose samples are one sequence, not for a choice of "
            "sources, rounds of one, or buckets; give that part 1 and the others their sizes, or leave it out"
        )
    n_groups = count_batches(part.n_samples, size, drop_last=True)
    return SequencePlan(
        n_groups, batch_size, drop_last, lambda *places: grouped(part.rows_between(*[at * size for at in places]), size)
    )
