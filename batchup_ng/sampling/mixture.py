"""A sampler that mixes parts of the data in given proportions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import validation
from ..errors import ArgumentError
from ..randomness import OrderKey, pair_words, words_at
from .base import RandomAccessSampler, array_fingerprint, given_array
from .plans.batched_permutation import each_permuted
from .plans.permutation import check_length

MAX_PERIOD_OF_FRACTIONS = 1000
"""The most positions of a period, if proportions are not whole numbers."""

MAX_PERIOD = 1_000_000
"""The most positions of a period of whole numbers: it is kept as two tables, of 8 bytes a position each."""


class MixtureSampler(RandomAccessSampler):
    """Hands out rows of several parts of the data in given proportions.

    The rows lie part after part, as :func:`~batchup_ng.concat` puts sources: rows 0 to ``lengths[0] - 1`` are the first
    part. An epoch is made of periods. Each period has a whole number of rows of each part: proportions of 3 to 1 have a
    period of 4. Whole numbers are kept exactly if, without a common divisor, they add up to at most a million. Other
    weights have the shortest period below 1000 that fits them, or else are kept to a thousandth.

    With ``shuffle=`` each period is shuffled, and each part goes through its own rows in an order of its own, a new one
    each time. Each row of a part comes once before any comes again, except in the period in which the part begins
    again. In order, the parts are spread evenly over a period, and the rows of each part come as stored, over and over.

    Args:
        lengths: How many rows each part has.
        weights: How much of each part to hand out, not negative, in any unit; None for equal weights.
        length: Positions of an epoch; -1: no end. None: as many whole periods as it takes to hand out each row of each
            part; rows of a part that is small for its share come several times.

    Raises:
        ArgumentError: there are no parts, a part to hand out is empty, or the weights do not fit: not one for each
            part, not proportions, or too unlike each other.

    >>> MixtureSampler([3, 1]).rows_at(np.arange(6), None)
    array([0, 3, 1, 3, 2, 3])
    """

    @validation.known_names({})
    def __init__(self, lengths: Sequence[int], weights: Any = None, length: int | None = None) -> None:
        self.lengths = [validation.integer(f"lengths[{i}]", n) for i, n in enumerate(lengths)]
        self._counts = _whole_counts(_shares(self.lengths, weights))
        self.n_rows = sum(self.lengths)
        self.weights = None if weights is None else np.asarray(weights).tolist()
        self._sizes = np.array(self.lengths, dtype=np.int64)
        self._period = int(self._counts.sum())
        self._ends = np.cumsum(self._counts)
        self._schedule, self._earlier = _even_schedule(self._counts)
        self._starts = np.cumsum(self._sizes) - self._sizes
        if length is None:  # as many periods as the slowest part needs
            used = self._counts > 0
            length = int((-(-self._sizes[used] // self._counts[used])).max()) * self._period
        self.length = validation.integer("length", length)
        if self.length < 1 and self.length != -1:
            raise ArgumentError(
                f"length must be at least 1, or -1 for no end, not {self.length}; None goes once through all"
            )

    def fingerprint(self) -> list[Any]:
        parts = [array_fingerprint(self._sizes), array_fingerprint(self._counts)]
        return [type(self).__name__, self.length, *parts]

    def num_indices_generated(self) -> Any:
        return math.inf if self.length == -1 else self.length

    def rows_at(self, positions: np.ndarray, key: OrderKey | None) -> np.ndarray:
        periods, places = np.divmod(positions, self._period)
        if key is None:
            parts, earlier = self._schedule[places], self._earlier[places]
        else:
            words = words_at(key.word("mixed"), periods)
            places = each_permuted(places, np.full(len(places), self._period), words)
            parts = np.searchsorted(self._ends, places, side="right")
            earlier = places - (self._ends - self._counts)[parts]
        sizes = self._sizes[parts]
        repeats, own = np.divmod(periods * self._counts[parts] + earlier, sizes)
        if key is not None:
            own = each_permuted(own, sizes, pair_words(key.word("part"), parts, repeats))
        return np.asarray(self._starts[parts] + own)


def _shares(lengths: list[int], weights: Any) -> np.ndarray:
    """Return the proportions as an array, ``(n_parts,)``, checked."""
    if not lengths:
        raise ArgumentError("lengths must hold the number of rows of each part, and is empty")
    check_length("the sum of lengths", sum(lengths))
    shares = np.ones(len(lengths), np.int64)
    if weights is not None:
        shares = given_array("weights", weights, "pass one number a part")
    if shares.shape != (len(lengths),) or shares.dtype.kind not in "iuf":
        raise ArgumentError(f"weights must be {len(lengths)} numbers, one a part, not {weights!r}")
    for i, (share, n) in enumerate(zip(shares.tolist(), lengths, strict=True)):
        if not (math.isfinite(share) and share >= 0):
            raise ArgumentError(f"weights must be finite and not negative, but weights[{i}] is {share}")
        if n < 0 or (n == 0 and share > 0):
            raise ArgumentError(f"lengths[{i}] must be at least 1 for a part to be handed out, not {n}; leave it out")
    if not shares.any():
        raise ArgumentError("weights must not all be 0; at least one part must be handed out")
    return shares


def _whole_counts(shares: np.ndarray) -> np.ndarray:
    """Return how many rows of each part a period has, ``(n_parts,) int64``; refuse a share too small for one row.

    >>> _whole_counts(np.array([6, 2])), _whole_counts(np.array([1 / 3, 2 / 3]))
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
            f"weights[{lost[0]}] is {shares[lost[0]]:.2g} of all, less than can be told apart, a thousandth; pass "
            f"whole numbers that add up to at most {MAX_PERIOD}, which are kept exactly"
        )
    return counts.astype(np.int64)


def _even_schedule(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the part at each place of a period and how often it came earlier in it. The k-th of n rows of a part
    stands where ``(k + 1/2) / n`` of the period is over.
    """
    parts = np.repeat(np.arange(len(counts)), counts)
    earlier = np.arange(len(parts)) - np.repeat(np.cumsum(counts) - counts, counts)
    order = np.argsort((earlier + 0.5) / counts[parts], kind="stable")
    return parts[order], earlier[order]
