"""The generator that gives one row of draws per sample."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import validation
from ..errors import ArgumentError, ArgumentTypeError
from .hashing import WORD_MASK, generator, high_product, mix64, pair_words, unit_floats, word, words_at
from .portable_math import normal_deviates


class SampleRng:
    """Draws one row of random numbers per sample. Each row is keyed by the sample's position in the epoch.

    The rows do not depend on which samples share a batch: the batch size, the pool and the worker do not matter. Every
    method returns an array whose first axis is the samples'. The order of calls distinguishes them, so a map must make
    the same calls for each batch. If an earlier map made more samples of a batch than the n planned, row i is view
    ``i // n`` of the sample at place ``i % n``, and each view has its own draws.

    The bounds of a draw (`low`, `high`, `loc`, `scale`, `p`) are numbers, or arrays that broadcast to ``(n, *size)``.
    For one bound per sample, the shape is ``(n,)`` without `size`, and ``(n, 1)`` with a `size` of one axis.

    Args:
        key: 64-bit key of the seed, epoch and node.
        positions: Positions of the samples in the epoch: ``(n,) int64``, kept as ``.positions``.
        views: Numbers of their views: ``(n,) int64``. Default: all 0.
    """

    def __init__(self, key: int, positions: np.ndarray, views: np.ndarray | None = None) -> None:
        self._key = key
        self.positions = positions
        self._views = np.zeros(len(positions), dtype=np.int64) if views is None else views
        self._rows = words_at(key, positions)
        if views is not None:
            more = views > 0
            self._rows[more] = pair_words(word("views", key), positions[more], views[more])
        self._drawn = 0
        self._times = 0

    def __len__(self) -> int:
        return len(self._rows)

    def of_view(self, number: int) -> SampleRng:
        """Return the generator for view `number` of each sample. View 0 begins with the first draws of this one."""
        return SampleRng(word("view", self._key, number) if number else self._key, self.positions, self._views)

    def _words(self, size: Any, each: int = 1, **bounds: Any) -> np.ndarray:
        """Return ``(n, *size, each) uint64`` new words, if `bounds` fit them."""
        shape = _shape(size)
        for name, bound in bounds.items():
            _check_broadcast(name, bound, (len(self._rows), *shape))
        count = math.prod(shape) * each
        columns = np.arange(self._drawn, self._drawn + count, dtype=np.int64)
        self._drawn += count
        words = self._rows[:, None] ^ words_at(self._key ^ WORD_MASK, columns)[None, :]
        return mix64(words).reshape(len(self._rows), *shape, each)

    def random(self, size: int | tuple[int, ...] = ()) -> np.ndarray:
        """Return floats in [0, 1): ``(n, *size) float64``."""
        return unit_floats(self._words(size)[..., 0])

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: int | tuple[int, ...] = ()) -> np.ndarray:
        """Return floats in [low, high): ``(n, *size) float64``.

        If few floats lie between `low` and `high`, rounding may give `high` too.

        Raises:
            ArgumentError: a bound does not broadcast to ``(n, *size)``, or their difference is not finite.
        """
        words = self._words(size, low=low, high=high)
        low = np.asarray(low, np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            span = np.asarray(high, np.float64) - low
        if not np.isfinite(span).all():
            raise ArgumentError("low and high must be finite, with a finite difference; pass numbers below 2^1022")
        return np.asarray(low + span * unit_floats(words[..., 0]))

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: int | tuple[int, ...] = ()) -> np.ndarray:
        """Return normal deviates: ``(n, *size) float64``, the same to the last bit on every machine.

        Raises:
            ArgumentError: `loc` or `scale` does not broadcast to ``(n, *size)``, or `scale` is negative.
        """
        scales = _numbers("scale", scale)
        if (scales < 0).any():
            raise ArgumentError(f"scale must not be negative, and one is {scales.min()}; it is a standard deviation")
        u = unit_floats(self._words(size, each=2, loc=loc, scale=scale))
        return np.asarray(np.asarray(loc) + scales * normal_deviates(u[..., 0], u[..., 1]))

    def integers(self, low: int, high: int | None = None, size: int | tuple[int, ...] = ()) -> np.ndarray:
        """Return integers in [low, high), or in [0, low) without `high`: ``(n, *size) int64``.

        All samples have the same range. The relative error of a value's probability is below (high - low) / 2^64.

        For one range per sample, use ``low + numpy.floor(rng.random() * (high - low)).astype(int)``.

        Raises:
            ArgumentError: the range is empty.
            ArgumentTypeError: `low` or `high` is an array, or no whole number.
        """
        if high is None:
            low, high = 0, low
        low, high = validation.integer("low", low), validation.integer("high", high)
        if high <= low:
            raise ArgumentError(f"integers needs low < high, not [{low}, {high}); the range is empty")
        if low < -(2**63) or high > 2**63 or high - low > 2**63:
            raise ArgumentError(f"integers must fit int64 and span at most 2^63, not [{low}, {high})")
        return low + high_product(self._words(size)[..., 0], high - low).astype(np.int64)

    def bernoulli(self, p: Any = 0.5, size: int | tuple[int, ...] = ()) -> np.ndarray:
        """Return True with probability `p`: ``(n, *size) bool``.

        Raises:
            ArgumentError: `p` is no probability, or does not broadcast to ``(n, *size)``.
        """
        chances = np.asarray(p)
        if chances.dtype.kind not in "biuf":
            raise ArgumentTypeError(f"p must be a probability between 0 and 1, not {p!r}")
        bad = ~((chances >= 0.0) & (chances <= 1.0))
        if bad.any():
            raise ArgumentError(f"p must be a probability between 0 and 1, not {chances[bad].flat[0]}")
        return np.asarray(unit_floats(self._words(size, p=chances)[..., 0]) < chances)

    def choice(self, a: Any, size: int | tuple[int, ...] = (), p: Any = None) -> np.ndarray:
        """Return items of `a` (an array, or an int n for 0..n-1), with replacement: ``(n, *size)``.

        Args:
            a: The items to choose from, along the first axis.
            size: Shape of the choices of each sample.
            p: Weights of the items, not negative, not all 0. Default: equal weights.

        Raises:
            ArgumentError: there is nothing to choose from, or `p` cannot be the weights of so many items.
            ArgumentTypeError: `a` is neither a whole number nor an array, or `p` has no numbers.
        """
        items = None if np.ndim(a) == 0 else np.asarray(a)
        n = validation.positive_int("a", a) if items is None else len(items)
        if n == 0:
            raise ArgumentError("choice needs at least one item to choose from; a is empty")
        if p is None:
            places = self.integers(n, size=size)
        else:
            places = cumulative_weights("p", p, n).searchsorted(self.random(size=size), side="right")
        return np.asarray(places if items is None else items[places])

    def generators(self) -> Iterator[np.random.Generator]:
        """Return an iterator of one NumPy generator per sample, keyed like its row. Each call gives new ones."""
        times, self._times = self._times, self._times + 1
        return (
            generator("row", self._key, position, *(("again", view, times) if view or times else ()))
            for position, view in zip(self.positions.tolist(), self._views.tolist(), strict=True)
        )


def _shape(size: Any) -> tuple[int, ...]:
    """Return ``size=``, a whole number or several, as a tuple."""
    several = isinstance(size, (tuple, list)) or (isinstance(size, np.ndarray) and size.ndim == 1)
    shape = tuple([validation.integer("size", n) for n in size]) if several else (validation.integer("size", size),)
    if min(shape, default=0) < 0:
        raise ArgumentError(f"size must not be negative, and is {size!r}; it is the shape of the draws of each sample")
    return shape


def _numbers(name: str, bound: Any) -> np.ndarray:
    """Return a bound of draws as an array. Refuse a bound that is not made of numbers."""
    try:
        array = np.asarray(bound)
    except ValueError:  # lists of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise ArgumentTypeError(f"{name} must be a number, or an array of numbers, not {bound!r:.100}")
    return array


def _check_broadcast(name: str, bound: Any, shape: tuple[int, ...]) -> None:
    """Refuse a bound of draws that is not made of numbers, or does not broadcast to their shape."""
    own = _numbers(name, bound).shape
    if len(own) > len(shape) or any(n not in (1, wanted) for n, wanted in zip(own[::-1], shape[::-1], strict=False)):
        raise ArgumentError(
            f"{name} must broadcast to (samples, *size), which is {shape}, and is of shape {own}; for one value a "
            f"sample shape it {(shape[0], *[1] * (len(shape) - 1))}"
        )


def check_weights(name: str, weights: np.ndarray) -> None:
    """Raise :class:`ArgumentError` if one of `weights` is no valid weight."""
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        first = int(np.argmax(bad))
        raise ArgumentError(
            f"{name} must be finite and not negative, but {name}[{first}] is {weights[first]}; replace it by 0 "
            f"to leave the sample out"
        )


def cumulative_weights(name: str, weights: Any, length: int) -> np.ndarray:
    """Return the cumulative distribution of `length` weights, ending in exactly 1: ``(length,) float64``."""
    try:
        weights = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(f"{name} must be numbers: {error}") from error
    if weights.shape != (length,):
        raise ArgumentError(f"{name} must be {length} numbers, not of shape {weights.shape}")
    check_weights(name, weights)
    with np.errstate(over="ignore"):
        total = weights.sum()
    if total == 0.0 or total == np.inf:
        raise ArgumentError(f"{name} should not sum to {total:g}; at least one must be above 0, all far below 1e308")
    cdf: np.ndarray = (weights / total).cumsum()
    cdf /= cdf[-1]
    return cdf
