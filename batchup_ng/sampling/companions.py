"""Draws the companions of each sample: other rows of the same source.

The companions of a sample are a function of the key of its position in the epoch, and of its row. So they do not depend
on the batch, the rank or the pool, nor on the order of the epoch.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .. import validation
from ..errors import ArgumentError, ArgumentTypeError
from ..randomness import BatchKey
from .base import AbstractSampler, PlannedSampler, RandomAccessSampler, array_fingerprint
from .standard import RepeatedSampler, StandardSampler
from .weighted import WeightedSampler


@dataclasses.dataclass(frozen=True)
class ClassCompanions:
    """The request of :func:`same_class` or :func:`other_class`, before the classes are known."""

    count: int
    labels: Any
    same: bool

    def __repr__(self) -> str:
        return f"{'same' if self.same else 'other'}_class({self.count})"


@validation.known_names({})
def same_class(count: int, labels: Any = None) -> ClassCompanions:
    """Return what to pass as ``companions=`` of ``map`` for other samples of the class of each sample.

    Args:
        count: Companions of each sample.
        labels: The class of each sample: the name or place of a column, or ``(n,) int`` or strings in the order of the
            unshuffled epoch. Default: the column of :attr:`~batchup_ng.AbstractDataSource.labels`. No other column is
            read for it.

    >>> import numpy as np, batchup_ng as bu
    >>> source = bu.ArrayDataSource([np.arange(4), np.array([0, 1, 0, 1])])
    >>> pairs = source.map(lambda x, y, others: (x, others[0][0], y), companions=same_class(1))
    >>> pairs[:]
    (array([0, 1, 2, 3]), array([2, 3, 0, 1]), array([0, 1, 0, 1]))
    """
    return ClassCompanions(validation.positive_int("count", count), labels, True)


@validation.known_names({})
def other_class(count: int, labels: Any = None) -> ClassCompanions:
    """Return what to pass as ``companions=`` of ``map`` for samples of other classes than each sample has.

    The arguments are those of :func:`same_class`. Each sample of another class is equally likely.

    >>> import numpy as np, batchup_ng as bu
    >>> source = bu.ArrayDataSource([np.arange(3), np.array([0, 0, 1])])
    >>> source.map(lambda x, y, others: (x, others[0][0]), companions=other_class(1))[:2]
    (array([0, 1]), array([2, 2]))
    """
    return ClassCompanions(validation.positive_int("count", count), labels, False)


class Companions:
    """Draws `count` different rows for each row, never the row itself. Each row that may come is equally likely.

    There must be enough rows: :attr:`fewest` is the least number of them that a row may draw from.

    Args:
        count: Companions of each row.
        n: How many rows there are.
        rows: The rows, in increasing order: ``(n,) int64``. None: 0 to ``n - 1``.
        classes: The number of the class of each row, ``(n,) int``, or None for any companion.
        same: Whether companions are of the same class; otherwise of any other class.
    """

    def __init__(
        self, count: int, n: int, rows: np.ndarray | None = None, classes: np.ndarray | None = None, same: bool = True
    ) -> None:
        self.count, self.same = count, same
        self._n, self._rows, self._classes = n, rows, classes
        self.fewest = n - 1
        if classes is not None:
            self._order = np.argsort(classes, kind="stable")  # the places, class after class
            self._sizes = np.bincount(classes, minlength=1)
            self._firsts = np.cumsum(self._sizes) - self._sizes
            self._ranks = np.empty(n, np.int64)  # the place of each row in the order
            self._ranks[self._order] = np.arange(n)
            present = self._sizes[self._sizes > 0]
            self.fewest = int(present.min(initial=n)) - 1 if same else n - int(present.max(initial=0))

    def __repr__(self) -> str:
        return str(self.count) if self._classes is None else repr(ClassCompanions(self.count, None, self.same))

    def fingerprint(self) -> list[Any]:
        """Return what the companions depend on, except the key."""
        rows, classes = (None if each is None else array_fingerprint(each) for each in (self._rows, self._classes))
        return ["companions", self.count, self._n, rows, classes, self.same]

    def drawn(self, key: BatchKey, rows: np.ndarray) -> np.ndarray:
        """Return the companions of the samples of a batch: ``(count, len(rows)) int64``."""
        draws = key.companion_rng(len(rows)).random(self.count)
        places = rows if self._rows is None else np.searchsorted(self._rows, rows).clip(max=self._n - 1)
        if self._classes is None:
            found = distinct(draws, np.full(len(rows), self._n), places[:, np.newaxis])
        else:
            found = self._order[self._ranks_of(draws, places)]
        found = found if self._rows is None else self._rows[found]
        return np.asarray(found.T)

    def _ranks_of(self, draws: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return the places of the companions in the order by class."""
        assert self._classes is not None
        classes = self._classes[places]
        firsts, sizes = self._firsts[classes], self._sizes[classes]
        if self.same:
            own = self._ranks[places] - firsts
            return np.asarray(distinct(draws, sizes, own[:, np.newaxis]) + firsts[:, np.newaxis])
        found = distinct(draws, self._n - sizes, np.empty((len(places), 0), np.int64))
        return np.asarray(found + np.where(found >= firsts[:, np.newaxis], sizes[:, np.newaxis], 0))


def distinct(draws: np.ndarray, sizes: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """Return different numbers for each sample: ``(n, count) int64``, each below its size and none of those taken.

    Args:
        draws: Floats in [0, 1): ``(n, count)``.
        sizes: The bound of the numbers of each sample: ``(n,) int``, at least the count and the taken numbers together.
        taken: Numbers below the size of each sample that must not come: ``(n, k) int``, all different.

    >>> distinct(np.array([[0.0, 0.0, 0.99]]), np.array([5]), np.array([[1]]))
    array([[0, 2, 4]])
    """
    found = np.empty(draws.shape, np.int64)
    for number in range(draws.shape[1]):
        free = sizes - taken.shape[1]
        drawn = np.minimum((draws[:, number] * free).astype(np.int64), free - 1)
        for each in np.sort(taken, axis=1).T:  # counts the numbers that are free
            drawn += drawn >= each
        found[:, number] = drawn
        taken = np.column_stack([taken, drawn])
    return found


def rows_of(sampler: AbstractSampler) -> tuple[int, np.ndarray | None]:
    """Return how many different rows a sampler may hand out, and the rows in increasing order; None for 0 to n - 1.

    Raises:
        ArgumentTypeError: the sampler does not say.
    """
    if type(sampler) is StandardSampler and sampler.indices is None:
        return sampler.length, None
    if isinstance(sampler, RepeatedSampler):
        rows = rows_in_order(sampler)
    elif isinstance(sampler, WeightedSampler):
        rows = np.asarray(sampler.map_indices(np.flatnonzero(sampler.weights > 0)))
    elif isinstance(sampler, PlannedSampler) and sampler.indices is not None:
        rows = sampler.indices
    elif isinstance(sampler, PlannedSampler) and sampler.n_rows is not None:
        return sampler.n_rows, None
    elif isinstance(sampler, RandomAccessSampler) and sampler.num_indices_generated() not in (None, np.inf):
        rows = sampler.rows_at(np.arange(sampler.num_indices_generated()), None)
    else:
        raise ArgumentTypeError(
            f"companions need the rows that a sampler may hand out, and a {type(sampler).__name__} does not say them; "
            f"set its n_rows, or its indices"
        )
    rows = np.unique(rows)
    if len(rows) and rows[0] < 0:  # a row may have two numbers then, and be its own companion
        raise ArgumentError(
            f"companions need rows that are counted from the start, and a row of the sampler is {rows[0]}; add the "
            f"number of rows to such indices"
        )
    plain = len(rows) == 0 or (rows[0] == 0 and rows[-1] == len(rows) - 1)
    return len(rows), None if plain else rows


def rows_in_order(sampler: AbstractSampler) -> np.ndarray:
    """Return the row of each sample of a repeat, in order: ``(n,) int64``.

    Raises:
        ArgumentTypeError: the samples have no order.
    """
    if not isinstance(sampler, RepeatedSampler):
        raise ArgumentTypeError(
            f"labels must name a column where a {type(sampler).__name__} draws the samples, because it gives them no "
            f"order for an array; add the column before: source.with_column('kind', labels)"
        )
    return np.asarray(sampler.map_indices(np.arange(sampler.length)))
