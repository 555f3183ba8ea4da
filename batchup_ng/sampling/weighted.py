"""Samplers that draw rows at random, in proportion to weights, for ever."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import checks
from ..errors import ArgumentError, ArgumentTypeError, InOrderNotSupported
from ..randomness import OrderKey, cumulative_weights, uniform_draws, unit_floats, words_at
from .base import RandomAccessSampler, array_outline
from .standard import check_row_numbers, row_numbers


class WeightedSampler(RandomAccessSampler):
    """Draws rows with replacement, each with a probability in proportion to its weight.

    The weights are summed up once; a batch of m rows then costs m binary searches. Rows of weight 0 are never drawn.

    Args:
        weights: One weight a row, finite, not negative, not all 0: ``(n,)``.

    Raises:
        ArgumentError: a weight is negative, infinite or NaN, or all are 0.
    """

    block = 4096

    def __init__(self, weights: Any) -> None:
        self._cdf = cumulative_weights("weights", weights)
        given = np.asarray(weights, dtype=np.float64)
        with np.errstate(over="ignore"):
            total = given.sum()
        self.weights = given / total if np.isfinite(total) else np.diff(self._cdf, prepend=0.0)
        self.length = len(self.weights)

    def outline(self) -> list[Any]:
        return [type(self).__name__, array_outline(self.weights)]

    def num_indices_generated(self) -> Any:
        return np.inf

    def check_rows(self, length: int) -> None:
        if self.length != length:
            raise ArgumentError(f"sampler has {self.length} weights for {length} rows; pass one weight for each row")

    def check_in_order(self) -> None:
        raise InOrderNotSupported(
            f"In-order sampling not supported by {type(self).__name__}; pass shuffle= to batch_iterator"
        )

    def rows_at(self, positions: np.ndarray, key: OrderKey | None) -> np.ndarray:
        if key is None:
            self.check_in_order()
            raise AssertionError("check_in_order did not raise")
        return self._rows_of(unit_floats(words_at(key.word("weighted"), positions)))

    def shuffled_indices_batch_iterator(self, batch_size: int, shuffle_rng: Any) -> Iterator[np.ndarray]:
        """Return an endless iterator of the rows of each batch, the draws of ``shuffle_rng.choice(..., p=weights)``."""
        return self._drawn(checks.positive_int("batch_size", batch_size), shuffle_rng)

    def _drawn(self, batch_size: int, shuffle_rng: Any) -> Iterator[np.ndarray]:
        while True:
            yield self._rows_of(uniform_draws(shuffle_rng, batch_size))

    def _rows_of(self, uniform: np.ndarray) -> np.ndarray:
        return np.asarray(self._cdf.searchsorted(uniform, side="right"))

    @staticmethod
    def class_balancing_sample_weights(y: Any, n_classes: int | None = None) -> np.ndarray:
        """Return weights that make each class that occurs in `y` equally likely: ``(n,) float64``, summing to 1.

        A class number that does not occur takes no part: it gets no share, it takes none from the others.

        Args:
            y: Class of each sample: ``(n,) int``, not negative.
            n_classes: How many classes there are, for a check that none is beyond; it does not change the weights.

        Raises:
            ArgumentError: `y` is empty, or a class is negative or not below `n_classes`.

        >>> WeightedSampler.class_balancing_sample_weights(np.array([0, 0, 3, 3, 3, 3]))
        array([0.25 , 0.25 , 0.125, 0.125, 0.125, 0.125])
        """
        y = class_numbers(y, n_classes)
        counts = np.bincount(y)
        present = np.count_nonzero(counts)
        class_weights = np.zeros(len(counts))
        np.divide(1.0, counts.astype(float) * present, out=class_weights, where=counts > 0)
        return np.asarray(class_weights[y])

    @staticmethod
    def class_balancing_sampler(y: Any, n_classes: int | None = None) -> WeightedSampler:
        """Return a sampler that draws each class that occurs in `y` equally often."""
        return WeightedSampler(WeightedSampler.class_balancing_sample_weights(y, n_classes))


class WeightedSubsetSampler(WeightedSampler):
    """Draws from the rows that `indices` lists, each in proportion to its weight.

    Args:
        sub_weights: One weight for each of `indices`: ``(n,)``.
        indices: Row numbers: ``(n,) int``.

    Raises:
        ArgumentError: the lengths differ, a weight is negative, infinite or NaN, or all are 0.
    """

    def __init__(self, sub_weights: Any, indices: Any) -> None:
        self.indices = row_numbers("indices", indices)
        if len(sub_weights) != len(self.indices):
            raise ArgumentError(
                f"sub_weights and indices should have the same length; {len(sub_weights)} != {len(self.indices)}"
            )
        super().__init__(sub_weights)
        self.sub_weights = self.weights

    def outline(self) -> list[Any]:
        return [*super().outline(), array_outline(self.indices)]

    def check_rows(self, length: int) -> None:
        check_row_numbers("sampler.indices", self.indices, length)

    def map_indices(self, indices: Any) -> Any:
        return self.indices[indices]

    def _rows_of(self, uniform: np.ndarray) -> np.ndarray:
        return np.asarray(self.indices[super()._rows_of(uniform)])

    @staticmethod
    def class_balancing_sampler(  # type: ignore[override]
        y: Any, indices: Any, n_classes: int | None = None
    ) -> WeightedSubsetSampler:
        """Return a sampler that draws from `indices`, each class that occurs there equally often.

        Args:
            y: Class of every sample of the data: ``(N,) int``.
            indices: Row numbers: ``(n,) int``.
            n_classes: How many classes there are, for a check that none is beyond.
        """
        # BatchUp's signature, which differs from that of WeightedSampler: hence the ignored override.
        rows = row_numbers("indices", indices)
        weights = WeightedSampler.class_balancing_sample_weights(np.asarray(y)[rows], n_classes)
        return WeightedSubsetSampler(weights, rows)


def class_numbers(y: Any, n_classes: int | None = None) -> np.ndarray:
    """Return `y` as class numbers below `n_classes`: ``(n,) int64``.

    Raises:
        ArgumentError: it is empty, or a class is negative or not below `n_classes`.
        ArgumentTypeError: it has no whole numbers.
    """
    y = np.asarray(y)
    if y.ndim != 1 or len(y) == 0:
        raise ArgumentError(f"y must be a one-dimensional, non-empty array of classes, not of shape {y.shape}")
    if y.dtype.kind not in "iub":
        raise ArgumentTypeError(f"y must be class numbers, not {y.dtype}; use numpy.unique(y, return_inverse=True)[1]")
    if int(y.min()) < 0:
        raise ArgumentError(f"y must not be negative, and its least class is {int(y.min())}; number classes from 0")
    if n_classes is not None and int(y.max()) >= checks.integer("n_classes", n_classes):
        raise ArgumentError(f"y must be below n_classes, {n_classes}, and its greatest class is {int(y.max())}")
    classes: np.ndarray = y.astype(np.int64)
    return classes
