"""Samplers that draw rows at random, in proportion to weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import validation
from ..errors import ArgumentError, InOrderNotSupported
from ..randomness import OrderKey, unit_floats, words_at
from ..randomness.numpy_rng import uniform_draws
from .base import AbstractSampler, RandomAccessSampler, array_fingerprint, whole_numbers
from .plans.drawn import DrawnKey
from .plans.even_interleave import latest
from .plans.rows import RowPlan
from .standard import check_row_numbers, row_numbers
from .weight_table import WeightTable


class WeightedSampler(RandomAccessSampler):
    """Draws rows at random, each with a chance in proportion to its weight.

    With replacement, a row may come any number of times, and an epoch has no end unless `num_samples` gives it one.
    Without replacement, each row comes at most once, drawn in proportion to the weights of the rows left. Rows of
    weight 0 are never drawn.

    The constructor copies and sums up the weights once; then a draw takes a binary search. Without replacement, the
    order of an epoch is a table of 8 bytes for each row handed out; the latest two tables are kept.

    Args:
        weights: One weight a row, finite, not negative, not all 0: ``(n,)``, any dtype of numbers, or a list.
        replacement: Whether a row may come more than once.
        num_samples: How many rows to draw an epoch. None: with replacement, no end; without, all rows of weight above
            0.

    Raises:
        ArgumentError: a weight is negative, infinite or NaN, or all are 0; more rows are to be drawn without
            replacement than have a weight above 0; `num_samples` is too small.
        ArgumentTypeError: an argument is of the wrong kind.

    >>> WeightedSampler([0.5, 0.0, 9.0], replacement=False).num_indices_generated()
    2
    """

    block = 512  # takes half a millisecond if there are so many weights that each draw misses every cache
    _name = "weights"

    @validation.known_names({})
    def __init__(self, weights: Any, *, replacement: bool = True, num_samples: int | None = None) -> None:
        self._table = WeightTable(self._name, weights)
        self.n_rows = self.length = self._table.length
        self.replacement = validation.true_or_false("replacement", replacement)
        most = None if self.replacement else self._table.n_positive
        self.num_samples = most if num_samples is None else validation.positive_int("num_samples", num_samples)
        if most is not None and self.num_samples is not None and self.num_samples > most:
            raise ArgumentError(
                f"num_samples must be at most {most}, the number of {self._name} above 0, with replacement=False, not "
                f"{num_samples}; pass fewer, or replacement=True"
            )
        self._orders: dict[int, np.ndarray] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_orders": {}}  # the copy makes the tables again

    @property
    def weights(self) -> np.ndarray:
        """The weights divided by their sum: ``(n,) float64``, computed on first use."""
        return self._table.normalised

    def fingerprint(self) -> list[Any]:
        return [type(self).__name__, self._table.fingerprint(), self.replacement, self.num_samples, 1]

    def num_indices_generated(self) -> Any:
        return np.inf if self.num_samples is None else self.num_samples

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        if key is None:
            self.rows_at(np.arange(0), None)  # raises
        if isinstance(key, DrawnKey) and self.replacement:
            return AbstractSampler.row_plan(self, batch_size, key, drop_last)
        return super().row_plan(batch_size, key, drop_last)

    def rows_at(self, positions: np.ndarray, key: OrderKey | None) -> np.ndarray:
        if key is None:
            raise InOrderNotSupported(
                f"In-order sampling not supported by {type(self).__name__}; pass shuffle=, best as an int seed"
            )
        if self.replacement:
            rows = self._table.rows_at(unit_floats(words_at(key.word("weighted"), positions)))
        else:
            rows = self._order(key)[positions]
        return np.asarray(self.map_indices(rows))

    def _order(self, epoch: OrderKey) -> np.ndarray:
        """Return the order of an epoch. It is kept until two other orders were asked for."""
        key = epoch.word("without replacement", 0)
        return latest(self._orders, key, 2, lambda: self._table.drawn_in_turn(key, self.num_samples or 0))

    def shuffled_indices_batch_iterator(self, batch_size: int, shuffle_rng: Any) -> Iterator[np.ndarray]:
        """Return an iterator of the rows of each batch.

        With replacement they are the draws of ``shuffle_rng.choice(n, size=batch_size, p=weights)``. Without
        replacement, a seed is drawn once and sets the order. It has the distribution of ``choice(..., replace=False)``.
        """
        if not self.replacement:
            return super().shuffled_indices_batch_iterator(batch_size, shuffle_rng)
        return self._drawn(validation.positive_int("batch_size", batch_size), shuffle_rng)

    def _drawn(self, batch_size: int, shuffle_rng: Any) -> Iterator[np.ndarray]:
        left = self.num_indices_generated()
        while left > 0:
            uniform = uniform_draws(shuffle_rng, int(min(batch_size, left)))
            yield self.map_indices(self._table.cdf.searchsorted(uniform, side="right"))
            left -= batch_size

    @staticmethod
    def class_balancing_sample_weights(y: Any, n_classes: int | None = None) -> np.ndarray:
        """Return weights that make each class that occurs in `y` equally likely: ``(n,) float64``, summing to 1.

        Args:
            y: Class of each sample: ``(n,) int``, not negative.
            n_classes: How many classes there are, to check `y` against; it does not change the weights.

        Raises:
            ArgumentError: `y` is empty, or a class is negative or not below `n_classes`.

        >>> WeightedSampler.class_balancing_sample_weights(np.array([0, 0, 3, 3, 3, 3]))
        array([0.25 , 0.25 , 0.125, 0.125, 0.125, 0.125])
        """
        _, which, counts = np.unique(class_numbers(y, n_classes), return_inverse=True, return_counts=True)
        return np.asarray((1.0 / (counts.astype(float) * len(counts)))[which])

    @staticmethod
    def class_balancing_sampler(y: Any, n_classes: int | None = None) -> WeightedSampler:
        """Return a sampler that draws each class that occurs in `y` equally often."""
        return WeightedSampler(WeightedSampler.class_balancing_sample_weights(y, n_classes))


class WeightedSubsetSampler(WeightedSampler):
    """Draws from the rows that `indices` lists, each in proportion to its weight.

    Args:
        sub_weights: One weight for each of `indices`: ``(n,)``.
        indices: Row numbers: ``(n,) int``.

    Other arguments and errors: see :class:`WeightedSampler`.
    """

    _name = "sub_weights"

    @validation.known_names({})
    def __init__(
        self,
        sub_weights: Any,
        indices: Any,
        *,
        replacement: bool = True,
        num_samples: int | None = None,
    ) -> None:
        self.indices: np.ndarray = row_numbers("indices", indices)
        super().__init__(sub_weights, replacement=replacement, num_samples=num_samples)
        if self.length != len(self.indices):
            raise ArgumentError(
                f"sub_weights and indices should have the same length; {self.length} != {len(self.indices)}"
            )

    @property
    def sub_weights(self) -> np.ndarray:
        """Same as `weights`; BatchUp's name."""
        return self.weights

    def fingerprint(self) -> list[Any]:
        return [*super().fingerprint(), array_fingerprint(self.indices)]

    def check_rows(self, length: int) -> None:
        check_row_numbers("sampler.indices", self.indices, length)

    @staticmethod
    def class_balancing_sampler(  # type: ignore[override]
        y: Any, indices: Any, n_classes: int | None = None
    ) -> WeightedSubsetSampler:
        """Return a sampler that draws from `indices` and makes each class that occurs there equally likely.

        Here `y` has the class of every sample of the data: ``(N,) int``.
        """
        # BatchUp's signature differs from the one in WeightedSampler, hence the ignored override.
        rows = row_numbers("indices", indices)
        weights = WeightedSampler.class_balancing_sample_weights(np.asarray(y)[rows], n_classes)
        return WeightedSubsetSampler(weights, rows)


def class_numbers(y: Any, n_classes: int | None = None) -> np.ndarray:
    """Return `y` as class numbers below `n_classes`, ``(n,) int64``; refuse anything else."""
    classes = whole_numbers("y", y, "pass the class of each row: numpy.unique(y, return_inverse=True)[1]", "iub")
    if len(classes) == 0:
        raise ArgumentError("y must be a one-dimensional, non-empty array of classes; pass the class of each row")
    least, greatest = int(classes.min()), int(classes.max())
    if least < 0:
        raise ArgumentError(f"y must not be negative, and its least class is {least}; number classes from 0")
    if n_classes is not None and greatest >= validation.integer("n_classes", n_classes):
        raise ArgumentError(f"y must be below n_classes, {n_classes}, and its greatest class is {greatest}")
    return classes
