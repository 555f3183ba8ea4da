"""What can be counted in orders of n positions, each as a number that is standard normal for random orders.

A statistic takes :class:`Orders` and returns deviates ("z"). They are standard normal, nearly, where the orders are
drawn independently and uniformly from all n!. Counts in cells are summed up as chi-squared, which becomes a deviate by
the cube root of Wilson and Hilferty (1931); counts of rare events are Poisson, made normal by the square root of
Anscombe (1948). Expected values are those of permutations, not of independent draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import sqrt

import numpy as np

Order = Callable[[np.ndarray], np.ndarray]
"""Sends positions to rows."""
Family = Callable[[int, int], Order]
"""Makes the order of n positions that belongs to a key."""

WHOLE = 1 << 20
"""Up to this many positions all of them are looked at."""
RUNS, RUN = 64, 512
"""Of more positions, this many runs of consecutive ones are looked at, then as many again at a distance."""


@dataclass(frozen=True)
class Orders:
    """Several orders of the same length.

    Attributes:
        n: The length.
        positions: Where they are looked at: ``(m,) int64``; all of them, or runs.
        run: How many consecutive positions make a run.
        rows: The rows there: ``(orders, m) int64``.
        pairs: By distance, places in `positions` of two positions so far apart: two ``(p,) int64``.
    """

    n: int
    positions: np.ndarray
    run: int
    rows: np.ndarray
    pairs: dict[int, tuple[np.ndarray, np.ndarray]]

    @property
    def whole(self) -> bool:
        return len(self.positions) == self.n


def look(n: int, family: Family, keys: Iterable[int]) -> Orders:
    """The orders of `keys`, whole or in part."""
    far = 1 << ((n - 1).bit_length() // 2)  # positions so far apart are alike in half of their bits
    if n <= WHOLE:
        positions = np.arange(n, dtype=np.int64)
        run = n
        pairs = {lag: (positions, (positions + lag) % n) for lag in (1, 2, far, far + 1)}
    else:
        starts = np.array([n // RUNS * k for k in range(RUNS)], dtype=np.int64)
        near = (starts[:, None] + np.arange(RUN)).reshape(-1)
        positions, run = np.concatenate([near, near + far]), RUN
        places = np.arange(len(positions))
        pairs = {1: (places[::2], places[1::2]), far: (places[: len(near)], places[len(near) :])}
    rows = np.stack([family(n, key)(positions) for key in keys])
    return Orders(n, positions, run, rows, pairs)


@dataclass(frozen=True)
class Classes:
    """A division of the numbers below n.

    Attributes:
        of: The class of each number.
        sizes: How many numbers each class has.
    """

    of: Callable[[np.ndarray], np.ndarray]
    sizes: np.ndarray


def ranges(n: int, count: int = 16) -> Classes:
    """Classes of consecutive numbers."""
    width = -(-n // count)
    return Classes(lambda x: x // width, np.array([min(width, n - low) for low in range(0, n, width)], dtype=float))


def residues(n: int, count: int) -> Classes:
    """Classes of numbers with the same remainder."""
    return Classes(lambda x: x % count, np.array([(n - c + count - 1) // count for c in range(count)], dtype=float))


def normal_of_chi_squared(chi_squared: float, dof: float) -> float:
    return ((chi_squared / dof) ** (1 / 3) - (1 - 2 / (9 * dof))) / sqrt(2 / (9 * dof))


def normal_of_poisson(count: float, mean: float) -> float:
    return 2 * (sqrt(count + 3 / 8) - sqrt(mean + 1 / 8))


def fit(counts: np.ndarray, expected: np.ndarray, dof: float, scale: float = 1.0) -> float:
    """How far counts are from what is expected of them."""
    return normal_of_chi_squared(float(((counts - expected) ** 2 / expected).sum()) * scale, dof)


def table(a: np.ndarray, b: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """How often classes meet: ``shape``."""
    return np.bincount((a * shape[1] + b).reshape(-1), minlength=shape[0] * shape[1]).reshape(shape)


def all_divisions(n: int) -> tuple[Classes, ...]:
    return ranges(n), residues(n, 16), residues(n, 15)


# -- one order -------------------------------------------------------------------------------------------------------


def places(orders: Orders) -> list[float]:
    """Whether positions of each class go to rows of each class."""
    return [crossed(orders, orders.positions, orders.rows, classes) for classes in all_divisions(orders.n)]


def crossed(orders: Orders, a: np.ndarray, b: np.ndarray, classes: Classes) -> float:
    """Whether what stands in `b` is independent of what stands in `a`, where either is a permutation or part of one."""
    count, n = len(classes.sizes), orders.n
    a, b = np.broadcast_arrays(classes.of(a), classes.of(b))
    counts = table(a, b, (count, count))
    if orders.whole:  # both margins are as they must be, which leaves so many degrees of freedom
        expected = np.outer(classes.sizes, classes.sizes) * (counts.sum() / n / n)
        return fit(counts, expected, (count - 1) ** 2, (n - 1) / n)
    expected = np.outer(counts.sum(axis=1), classes.sizes / n)
    met = expected[:, 0] > 0
    return fit(counts[met], expected[met], int(met.sum()) * (count - 1))


def steps(orders: Orders) -> list[float]:
    """The differences of the rows at positions that are 1, 2 or far apart."""
    classes = ranges(orders.n, 64 if orders.n >= 1024 else 8)
    possible = classes.sizes.copy()
    possible[0] -= 1  # no two rows are the same
    found = []
    for i, j in orders.pairs.values():
        difference = (orders.rows[:, j] - orders.rows[:, i]) % orders.n
        counts = np.bincount(classes.of(difference).reshape(-1), minlength=len(possible))
        found.append(fit(counts, possible * (counts.sum() / (orders.n - 1)), len(possible) - 1))
    return found


def pairs(orders: Orders) -> list[float]:
    """Which classes of rows stand at such positions."""
    found = []
    for classes in (ranges(orders.n), residues(orders.n, 16)):
        share, count = both(classes.sizes), len(classes.sizes)
        for i, j in orders.pairs.values():
            counts = table(classes.of(orders.rows[:, i]), classes.of(orders.rows[:, j]), (count, count))
            # Where every position is the first of one pair, the second of another, all margins are fixed.
            dof = (count - 1) ** 2 if orders.whole else count * count - 1
            found.append(fit(counts, share * counts.sum(), dof))
    return found


def neighbours(orders: Orders) -> list[float]:
    """How often neighbours are still neighbours: twice an order."""
    if not orders.whole:
        return []
    i, j = orders.pairs[1]
    count = np.count_nonzero(np.abs(orders.rows[:, i] - orders.rows[:, j]) == 1)
    return [normal_of_poisson(count, 2 * len(orders.rows))]


def fixed_points(orders: Orders) -> list[float]:
    """How many positions stay where they are, one an order; how many pairs change places, one in two orders."""
    if not orders.whole:
        return []
    fixed = orders.rows == orders.positions
    back = np.take_along_axis(orders.rows, orders.rows, axis=1) == orders.positions
    swapped = np.count_nonzero(back & ~fixed) // 2
    k = len(orders.rows)
    return [normal_of_poisson(np.count_nonzero(fixed), k), normal_of_poisson(swapped, k / 2)]


# -- an order and the next -------------------------------------------------------------------------------------------


def agreement(orders: Orders) -> list[float]:
    """At how many positions two orders agree: one."""
    if not orders.whole:
        return []
    return [normal_of_poisson(np.count_nonzero(orders.rows[:-1] == orders.rows[1:]), len(orders.rows) - 1)]


def next_order(orders: Orders) -> list[float]:
    """Whether the row in an order tells something of the row in the next."""
    before, after = orders.rows[:-1], orders.rows[1:]
    return [crossed(orders, before, after, classes) for classes in all_divisions(orders.n)]


STATISTICS: dict[str, Callable[[Orders], list[float]]] = {
    function.__name__: function
    for function in (places, steps, pairs, neighbours, fixed_points, agreement, next_order)
}


# -- a few positions in many orders ------------------------------------------------------------------------------------


def many_keys(n: int, family: Family, keys: Iterable[int]) -> list[float]:
    """Where single positions, and pairs of them, go in many orders.

    Positions are taken that a network of two halves might treat alike: neighbours, those with equal halves, the ends.
    """
    far = 1 << ((n - 1).bit_length() // 2)
    positions = np.array([0, 1, 2, 3, far - 1, far, far + 1, 2 * far, n // 2, n - 2, n - 1], dtype=np.int64)
    rows = np.stack([family(n, key)(positions) for key in keys]).T
    found = []
    for classes in (ranges(n, 8), residues(n, 8)):
        count, of = len(classes.sizes), classes.of(rows)
        single, joint = classes.sizes / n, both(classes.sizes)
        for j in range(len(of)):
            found.append(fit(np.bincount(of[j], minlength=count), single * rows.shape[1], count - 1))
            counts = [table(of[i], of[j], (count, count)) for i in range(j)]
            found += [fit(one, joint * rows.shape[1], count * count - 1) for one in counts]
    return found


def both(sizes: np.ndarray) -> np.ndarray:
    """The probability that one number is of one class and another of another."""
    ways = np.outer(sizes, sizes) - np.diag(sizes)
    return np.asarray(ways / ways.sum())
