"""The weights of a mixture as a function of the position in the epoch: constant, in steps, or along ramps."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from .. import validation
from ..errors import ArgumentError, ArgumentTypeError
from .base import given_array

MAX_PERIOD_OF_FRACTIONS = 1000
"""The most positions of a period, if proportions are not whole numbers."""

MAX_PERIOD = 1_000_000
"""The most positions of a period of whole numbers: it is kept as two tables, of 8 bytes a position each."""

STAIRS = 100
"""Number of stairs of a ramp by default."""

MAX_STAIRS = 100_000
"""The most stairs of a ramp: each has tables of its own."""

Step = tuple[int, np.ndarray]
"""A position, and the number of samples of each part in a period from there on, ``(n_parts,) int64``."""


class WeightSchedule(NamedTuple):
    """The weights of a mixture in the course of an epoch, made by :func:`steps` and :func:`ramp`.

    Attributes:
        points: Positions with the weights there, by ascending position; the first is 0.
        every: Samples of a stair of a ramp; 0 for steps.
    """

    points: tuple[tuple[int, tuple[float, ...]], ...]
    every: int = 0

    def __str__(self) -> str:
        known = ", ".join(f"({position}, {list(weights)})" for position, weights in self.points)
        if not self.every:
            return str(list(self.points[0][1])) if len(self.points) == 1 else f"steps({known})"
        return f"ramp({known}, every={self.every})"

    def plain(self) -> list[Any]:
        """Return this schedule as a JSON value."""
        return [self.every, [[position, list(weights)] for position, weights in self.points]]


@validation.known_names()
def steps(*points: Any) -> WeightSchedule:
    """Return weights of :func:`~batchup_ng.mix` that change at given positions of the epoch.

    Args:
        points: Pairs of a position and the weights from there on: ``(0, [7, 2, 1]), (100_000, [4, 4, 2])``. Positions
            count the samples that all ranks hand out in the epoch. They ascend, and the first is 0.

    Raises:
        ArgumentError: positions do not ascend from 0, or weights are not proportions.
        ArgumentTypeError: a point is no such pair.

    >>> import numpy as np, batchup_ng as bu
    >>> easy, hard = bu.ArrayDataSource([np.arange(10)]), bu.ArrayDataSource([np.arange(100, 110)])
    >>> source = bu.mix(easy, hard, weights=bu.steps((0, [1, 0]), (3, [1, 2])), length=9)
    >>> [x.tolist() for (x,) in source.batch_iterator(3)]
    [[0, 1, 2], [100, 3, 101], [102, 4, 103]]
    """
    return WeightSchedule(_checked(points))


@validation.known_names()
def ramp(*points: Any, every: int | None = None) -> WeightSchedule:
    """Return weights of :func:`~batchup_ng.mix` that change linearly between given positions of the epoch.

    The weights change in stairs, each with a whole number of samples of each part. A stair has the weights in its
    middle, rounded so that the sum over all stairs is exact to two samples. After the last point the weights stay.

    Args:
        points: At least two pairs of a position and the weights there, as for :func:`~batchup_ng.steps`.
        every: Samples of a stair, at most a million. Default: a hundredth of the ramp.

    Raises:
        ArgumentError: there are fewer than two points, `every` is out of range, or as for :func:`~batchup_ng.steps`.
        ArgumentTypeError: a point is no such pair.

    >>> weights = ramp((0, [1, 0]), (400, [0, 1]), every=100)
    >>> [(position, counts.tolist()) for position, counts in stairs_of(weights)]
    [(0, [88, 12]), (100, [62, 38]), (200, [38, 62]), (300, [12, 88]), (400, [0, 1])]
    """
    checked = _checked(points)
    if len(checked) < 2:
        raise ArgumentError("ramp needs at least two points, such as (0, [7, 2, 1]), (100_000, [4, 4, 2])")
    length = checked[-1][0]
    every = min(MAX_PERIOD, -(-length // STAIRS)) if every is None else validation.positive_int("every", every)
    if every > MAX_PERIOD:
        raise ArgumentError(f"every must be at most {MAX_PERIOD}, the most samples of a period, not {every}; pass less")
    if length // every > MAX_STAIRS:
        raise ArgumentError(
            f"every must be at least a {MAX_STAIRS}th of the ramp of {length} samples, not {every}; each stair has "
            f"tables of its own"
        )
    return WeightSchedule(checked, every)


def _checked(points: Any) -> tuple[tuple[int, tuple[float, ...]], ...]:
    """Return the points of a schedule, checked."""
    if not points:
        raise ArgumentError("points must be pairs of a position and weights, and there are none; pass (0, [7, 2, 1])")
    made: list[tuple[int, tuple[float, ...]]] = []
    for i, point in enumerate(points):
        if not isinstance(point, (tuple, list)) or len(point) != 2:
            raise ArgumentTypeError(
                f"points[{i}] must be a pair of a position and weights, such as (0, [7, 2, 1]), not {point!r:.80}"
            )
        position = validation.not_negative(f"points[{i}][0], a position,", point[0])
        if made and position <= made[-1][0]:
            raise ArgumentError(f"positions must ascend, and {position} comes after {made[-1][0]}; sort the points")
        weights = tuple(shares_of(point[1], None, f"points[{i}][1], weights,").tolist())
        if made and len(weights) != len(made[0][1]):
            raise ArgumentError(
                f"points[{i}] has {len(weights)} weights, and the first point {len(made[0][1])}; pass one weight for "
                f"each part, 0 for a part that is left out"
            )
        made.append((position, weights))
    if made[0][0] != 0:
        raise ArgumentError(f"the first position must be 0, not {made[0][0]}; the first weights count from there")
    return tuple(made)


def schedule_of(weights: Any, n_parts: int) -> WeightSchedule:
    """Return the schedule of a user's `weights`: a schedule, numbers, or None for equal weights."""
    if isinstance(weights, WeightSchedule):
        if len(weights.points[0][1]) != n_parts:
            raise ArgumentError(
                f"weights must be {n_parts} numbers at each point, one a part, not {len(weights.points[0][1])}"
            )
        return weights
    shares = np.ones(n_parts, np.int64) if weights is None else shares_of(weights, n_parts)
    return WeightSchedule(((0, tuple(shares.tolist())),))


def schedule_from(plain: Any, n_parts: int) -> WeightSchedule:
    """Return the schedule of a JSON value. Raise an :class:`ArgumentError` or a ``ValueError`` if it is none."""
    every, points = plain
    made = _checked([(position, weights) for position, weights in points])
    return schedule_of(WeightSchedule(made, validation.not_negative("every", every)), n_parts)


def stairs_of(schedule: WeightSchedule) -> list[Step]:
    """Return each position at which the weights change, with the samples of each part in a period from there on."""
    points = [(position, np.asarray(weights)) for position, weights in schedule.points]
    if not schedule.every:
        return [(position, whole_counts(weights)) for position, weights in points]
    made: list[Step] = []
    owed = np.zeros(len(points[0][1]))  # by rounding in the stairs before
    for (start, before), (end, after) in itertools.pairwise(points):
        first, last = _normalised(before), _normalised(after)
        for position in range(start, end, schedule.every):
            stop = min(position + schedule.every, end)
            share = ((position + stop) / 2 - start) / (end - start)
            due = owed + (first * (1 - share) + last * share) * (stop - position)
            counts = _rounded(due, stop - position)
            owed = due - counts
            made.append((position, counts))
    return [*made, (points[-1][0], whole_counts(points[-1][1]))]


def _normalised(weights: np.ndarray) -> np.ndarray:
    """Return weights as shares of 1."""
    scaled = np.asarray(weights, np.float64) / weights.max()  # keeps the sum finite
    shares: np.ndarray = scaled / math.fsum(scaled)
    return shares


def _rounded(due: np.ndarray, total: int) -> np.ndarray:
    """Return whole numbers of this total that are within one of `due`: ``(n_parts,) int64``."""
    counts: np.ndarray = np.floor(np.maximum(due, 0) + 1e-9)
    while (short := total - int(counts.sum())) != 0:
        by_need = np.argsort(counts - due if short > 0 else due - counts, kind="stable")
        usable = by_need if short > 0 else by_need[counts[by_need] > 0]
        counts[usable[: abs(short)]] += np.sign(short)
    return counts.astype(np.int64)


def shares_of(weights: Any, n_parts: int | None, name: str = "weights") -> np.ndarray:
    """Return proportions as an array, ``(n_parts,)``, checked."""
    shares = given_array(name, weights, "pass one number a part")
    if shares.dtype.kind not in "iuf" or not len(shares) or n_parts not in (None, len(shares)):
        many = "" if n_parts is None else f"{n_parts} "
        raise ArgumentError(f"{name} must be {many}numbers, one a part, not {weights!r}")
    for i, share in enumerate(shares.tolist()):
        if not (math.isfinite(share) and share >= 0):
            raise ArgumentError(f"{name} must be finite and not negative, but {name.split(',')[0]}[{i}] is {share}")
    if not shares.any():
        raise ArgumentError(f"{name} must not all be 0; at least one part must be handed out")
    return shares


def whole_counts(shares: np.ndarray) -> np.ndarray:
    """Return how many rows of each part a period has, ``(n_parts,) int64``; refuse a share too small for one row.

    >>> whole_counts(np.array([6, 2])), whole_counts(np.array([1 / 3, 2 / 3]))
    (array([3, 1]), array([1, 2]))
    """
    if shares.dtype.kind in "iu":
        counts = np.asarray(shares // np.gcd.reduce(shares), np.float64)
        if counts.sum() <= MAX_PERIOD:
            return counts.astype(np.int64)
    shares = shares / shares.max()  # keeps the sum finite
    shares /= math.fsum(shares)  # exact; the last bit of NumPy's sum may depend on the machine
    fits = (
        period
        for period in range(1, MAX_PERIOD_OF_FRACTIONS)
        if np.abs(np.rint(shares * period) - shares * period).max() < 1e-9
    )
    period = next(fits, MAX_PERIOD_OF_FRACTIONS)
    counts = np.floor(shares * period + 1e-9)
    short = np.argsort(counts - shares * period, kind="stable")[: period - int(counts.sum())]
    counts[short] += 1  # the counts that lost most by rounding
    lost = np.flatnonzero((counts == 0) & (shares > 0))
    if len(lost):
        raise ArgumentError(
            f"weights[{lost[0]}] is {shares[lost[0]]:.2g} of all, less than a thousandth, the least share; pass "
            f"whole numbers that add up to at most {MAX_PERIOD}, which are kept exactly"
        )
    return counts.astype(np.int64)
