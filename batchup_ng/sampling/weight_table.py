"""The weights of rows, kept for draws in proportion to them.

The table keeps one copy of the weights, in the dtype given, and the running sum after each run of 32 weights. A draw
finds its run among the sums, then adds up the weights of that run. Sums and logarithms are computed in a fixed order,
by operations that IEEE 754 rounds in only one way, so a draw is the same on each machine.

A draw is a number of 53 bits, sums are float64: the chance of a row is off by a few 2^-53, for any number of rows
(``torch.multinomial`` stops at 2^24).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from ..randomness import unit_floats, words_at
from ..randomness.portable_math import minus_log
from ..randomness.sample_rng import check_weights
from .base import array_fingerprint, given_array

RUN_WEIGHTS = 32
"""Weights that a draw adds up."""

CHUNK_WEIGHTS = 1 << 15
"""Weights processed in one go: 256 kB, which stay in cache from one step to the next."""

_SMALLEST = 2.0**-900
"""Below this total, products with it lose bits."""


class WeightTable:
    """A copy of the weights of `length` rows, with their sum, `total`. Refuses values that cannot be weights; errors
    call them `name`.
    """

    def __init__(self, name: str, weights: Any) -> None:
        given = _as_numbers(name, weights)
        self._name = name
        self.length = len(given)
        self._weights = np.zeros(-(-self.length // RUN_WEIGHTS) * RUN_WEIGHTS, given.dtype)
        self._ends = self._added_up(given)
        self.total = float(self._ends[-1]) if self.length else 0.0
        if self.total == 0.0:
            raise ArgumentError(f"{name} should not sum to 0; at least one must be above 0")
        if not _SMALLEST <= self.total < np.inf:
            raise ArgumentError(
                f"{name} sum to {self.total:g}, beyond what a float64 holds well; divide them by the largest"
            )

    def _added_up(self, given: np.ndarray) -> np.ndarray:
        """Copy and check the weights; return the sum of all weights up to the end of each run."""
        self._weights[: self.length] = given
        sums = np.empty(len(self._weights) // RUN_WEIGHTS)
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, self.length, CHUNK_WEIGHTS):
                part = self._weights[start : start + CHUNK_WEIGHTS].astype(np.float64, copy=False)
                for _ in range(RUN_WEIGHTS.bit_length() - 1):  # a tree of sums of neighbours
                    part = part[0::2] + part[1::2]
                sums[start // RUN_WEIGHTS : start // RUN_WEIGHTS + len(part)] = part
            if self.length and not (self._weights.min() >= 0 and sums.max() < np.inf):
                check_weights(self._name, self._weights)
            return np.cumsum(sums, out=sums)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("cdf", "normalised", "n_positive")}

    def fingerprint(self) -> list[Any]:
        """Return a fingerprint of these weights, for a saved state."""
        return [self.length, self.total.hex(), array_fingerprint(self._weights)]

    @functools.cached_property
    def normalised(self) -> np.ndarray:
        """The weights divided by their sum: ``(length,) float64``."""
        weights = self._weights[: self.length].astype(np.float64, copy=False)
        return np.asarray(weights / weights.sum())

    @functools.cached_property
    def cdf(self) -> np.ndarray:
        """The cumulative distribution as ``numpy.random.RandomState.choice`` makes it, to the bit: ``(length,)``."""
        cdf = np.cumsum(self.normalised)
        cdf /= cdf[-1]
        return cdf

    @functools.cached_property
    def n_positive(self) -> int:
        """How many rows have a weight above 0."""
        return int(np.count_nonzero(self._weights))

    def rows_at(self, uniform: np.ndarray) -> np.ndarray:
        """Return a row of weight above 0 for each number of `uniform`, ``(n,)`` in [0, 1): ``(n,) int64``."""
        wanted = uniform * self.total  # below the total: the largest uniform is 1 - 2^-53
        run = self._ends.searchsorted(wanted, side="right")
        wanted -= np.where(run > 0, self._ends[run - 1], 0.0)
        weights = self._weights.reshape(-1, RUN_WEIGHTS)[run].astype(np.float64, copy=False)
        place = (np.cumsum(weights, axis=1) <= wanted[:, None]).sum(axis=1)
        # If the sums of a run disagree in the last bit, a draw beyond the end takes the last row that has a weight.
        beyond = np.flatnonzero(place == RUN_WEIGHTS)
        place[beyond] = RUN_WEIGHTS - 1 - np.argmax(weights[beyond, ::-1] > 0, axis=1)
        return np.asarray(run * RUN_WEIGHTS + place)

    def drawn_in_turn(self, key: int, n: int) -> np.ndarray:
        """Return `n` rows drawn one by one, each in proportion to the weights of the rows left: ``(n,) int64``.

        Each row gets an exponential random number at the rate of its weight; the least come first (Efraimidis and
        Spirakis, "Weighted random sampling with a reservoir", Information Processing Letters 97, 2006; they write it as
        u^(1/w)). Rows of equal numbers keep their order; rows with a weight below 10^-307 of the largest come last.
        """
        times = np.empty(self.length)
        largest = float(self._weights.max())
        for start in range(0, self.length, CHUNK_WEIGHTS):
            stop = min(start + CHUNK_WEIGHTS, self.length)
            rates = self._weights[start:stop].astype(np.float64) / largest
            uniform = unit_floats(words_at(key, np.arange(start, stop)))
            with np.errstate(over="ignore"):
                times[start:stop] = minus_log(1.0 - uniform) / np.maximum(rates, np.finfo(float).tiny)
        if self.n_positive == self.length:
            return _least_first(times, n)
        rows = np.flatnonzero(self._weights[: self.length])
        return np.asarray(rows[_least_first(times[rows], n)])


def _as_numbers(name: str, weights: Any) -> np.ndarray:
    """Return `weights` as a one-dimensional array of float32, float64 or whole numbers, not a copy if it is one."""
    given = given_array(name, weights, "pass one weight a row")
    if given.dtype.kind == "O" or len(given) == 0:
        try:
            given = given.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ArgumentTypeError(f"{name} must be numbers: {error}") from error
    if given.dtype.kind not in "fiub":
        raise ArgumentTypeError(f"{name} must be numbers, not {given.dtype}; pass one weight a row")
    return given if given.dtype.kind != "f" or given.dtype.itemsize == 4 else given.astype(np.float64, copy=False)


def _least_first(numbers: np.ndarray, n: int) -> np.ndarray:
    """Return the places of the `n` least of `numbers`, the least first; equal numbers keep their order."""
    if n == len(numbers):
        return np.argsort(numbers, kind="stable")
    limit = np.partition(numbers, n - 1)[n - 1]
    some = np.flatnonzero(numbers <= limit)
    return np.asarray(some[np.argsort(numbers[some], kind="stable")[:n]])
