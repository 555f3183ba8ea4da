"""The statistics of one column."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from .exact_sums import mean_and_std
from .partial import MOST_CLASSES, STRINGS, NumbersPartial, Partial
from .table import table_of
from .value_counts import values_of

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
"""The quantiles of :attr:`ColumnStatistics.quantiles`."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ColumnStatistics:
    """The statistics of one column.

    A column of one number a sample, or of ``axis="all"``, has plain numbers. Otherwise each attribute is an array with
    one number for each channel, ``(channels,)``, or for each element of a sample. NaN is left out of all of them and
    counted as missing, as in ``numpy.nanmean``. A column of strings has only `count`, `missing` and classes.

    Attributes:
        name: Name or place of the column.
        dtype: dtype of the values, ``float64`` for all floats; ``"str"`` for strings.
        axis: The groups with numbers of their own: ``"channels"``, ``"elements"``, or ``"all"`` for no groups.
        count: Values that are there. For images these are pixels.
        missing: Values that are NaN, and samples that are None; in a column of strings, both.
        mean: Mean; NaN without values, None for strings.
        std: Standard deviation, divided by n as in ``numpy.std``; NaN without values, None for strings.
        min: Least value; NaN without values, None for strings.
        max: Greatest value; NaN without values, None for strings.
        quantile_error: 0 if quantiles are exact. If there were too many distinct values to keep, the largest error: a
            fraction of the value for floats, a difference for integers.
        classes: The distinct values of a column of one integer or string a sample, sorted; None if there are more than
            10,000, or for other columns.
        class_counts: How often each of them occurs: ``(classes,) int64``, or None.
        tables: For each channel or element the values kept, sorted, and how often each occurs.
    """

    name: Any
    dtype: str
    axis: str
    count: Any
    missing: Any
    mean: Any
    std: Any
    min: Any
    max: Any
    quantile_error: float
    classes: np.ndarray | None
    class_counts: np.ndarray | None
    tables: list[tuple[np.ndarray, np.ndarray]]

    def quantile(self, q: Any) -> Any:
        """Return quantiles by linear interpolation, as ``numpy.quantile`` of all samples along the first axis.

        Args:
            q: A number from 0 to 1, or several: ``(k,)``.

        Returns:
            A number; with several of `q` they are along a new first axis.

        Raises:
            ArgumentError: `q` is not from 0 to 1.
            ArgumentTypeError: this is a column of strings.
        """
        if self.dtype == STRINGS:
            raise ArgumentTypeError(f"quantile needs numbers, and column {self.name!r} holds strings; see class_counts")
        asked = np.asarray(q, np.float64)
        if asked.ndim > 1 or not ((asked >= 0) & (asked <= 1)).all():
            raise ArgumentError(f"q must be from 0 to 1, one number or a list of them, not {q!r:.80}")
        found = [[_quantile(*table, each) for table in self.tables] for each in asked.reshape(-1).tolist()]
        result = np.array(found, np.float64).reshape((*asked.shape, *np.shape(self.mean)))
        return result if result.ndim else float(result)

    @property
    def quantiles(self) -> dict[float, Any]:
        """The quantiles 0.01, 0.05, 0.25, 0.5, 0.75, 0.95 and 0.99 by their number."""
        return {q: self.quantile(q) for q in QUANTILES}

    def mean_and_std(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean, and the std with 1 in place of 0: the numbers to standardise by."""
        if self.dtype == STRINGS:
            raise ArgumentTypeError(f"column {self.name!r} holds strings, which have no mean; leave it out")
        mean, std = np.asarray(self.mean, np.float64), np.asarray(self.std, np.float64)
        return mean, np.where(std == 0, 1.0, std)

    def of_images(self) -> ColumnStatistics:
        """Return this column."""
        return self

    def for_images(self) -> tuple[Any, Any]:
        """Return mean and std as ``augment.normalize`` takes them: of `uint8` images, for values from 0 to 1."""
        mean, std = self.mean_and_std()
        if self.dtype == "uint8":
            std = np.where(np.asarray(self.std) == 0, 1.0, std / 255)
            mean = mean / 255
        return mean.tolist(), std.tolist()

    def __repr__(self) -> str:
        return table_of([self])


def column_statistics(name: Any, partial: Partial) -> ColumnStatistics:
    """Return the statistics of the column `name` whose samples are all in `partial`."""
    if not isinstance(partial, NumbersPartial):
        texts = partial.texts
        classes = None if texts is None else np.array(sorted(texts), np.str_)
        counts = None if texts is None else np.array([texts[text] for text in sorted(texts)], np.int64)
        return ColumnStatistics(
            name, STRINGS, "all", partial.count, partial.missing, None, None, None, None, 0.0, classes, counts, []
        )
    dtype, shape, tables = partial.dtype, partial.shape, partial.tables
    moments = [
        _mean_and_std(*each)
        for each in zip(
            partial.total, partial.squares, partial.count.tolist(), partial.infinite.T.tolist(), strict=True
        )
    ]
    ends = [(_end(table.lowest, dtype), _end(table.highest, dtype)) for table in tables]
    kept = [table.table() for table in tables]
    values = [
        (values_of(np.clip(keys, table.lowest, table.highest), dtype) if len(keys) else keys.astype(np.float64), counts)
        for table, (keys, counts) in zip(tables, kept, strict=True)
    ]
    level = max((table.level for table in tables), default=0)
    error = float(2**level - 1 if dtype.kind != "f" else 2.0 ** (level - 52) if level else 0)
    as_classes = dtype.kind in "biu" and shape == () and not level and len(kept[0][0]) <= MOST_CLASSES
    return ColumnStatistics(
        name,
        dtype.name,
        partial.axis,
        _shaped(partial.count, shape),
        _shaped(partial.missing, shape),
        _shaped([mean for mean, _ in moments], shape),
        _shaped([std for _, std in moments], shape),
        _shaped([low for low, _ in ends], shape),
        _shaped([high for _, high in ends], shape),
        error,
        values[0][0] if as_classes else None,
        values[0][1] if as_classes else None,
        values,
    )


def _mean_and_std(total: int, squares: int, count: int, infinite: list[int]) -> tuple[float, float]:
    if not any(infinite):
        return mean_and_std(total, squares, count)
    low, high = infinite
    return (np.nan if low and high else np.inf if high else -np.inf), np.nan


def _end(key: int | None, dtype: np.dtype[Any]) -> Any:
    """Return the value of a key; NaN for none."""
    return np.nan if key is None else values_of(np.array([key], np.int64), dtype)[0].item()


def _shaped(values: Any, shape: tuple[int, ...]) -> Any:
    made = np.asarray(values).reshape(shape)
    return made if shape else made.item()


def _quantile(values: np.ndarray, counts: np.ndarray, q: float) -> float:
    """Return one quantile of values that occur so often."""
    if not len(values):
        return float("nan")
    reached = np.cumsum(counts)
    place = (int(reached[-1]) - 1) * q
    below = int(place)
    t = place - below
    low, high = (values[min(int(np.searchsorted(reached, at, "right")), len(values) - 1)] for at in (below, below + 1))
    if not t or low == high:
        return float(low)
    low, high = float(low), float(high)
    if math.isinf(high - low) and math.isfinite(low) and math.isfinite(high):
        return low * (1 - t) + high * t
    return low + (high - low) * t if t < 0.5 else high - (high - low) * (1 - t)
