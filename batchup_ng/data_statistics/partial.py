"""The part of the statistics that the samples of one batch make.

A worker makes it, the consumer merges it. All of it is counts and exact sums, so the order of merging is free.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import batch as nests
from ..errors import ArgumentError, ArgumentTypeError
from .exact_sums import UNIT, exact_sums
from .value_counts import ValueCounts, keys_of, room_for

MOST_CLASSES = 10_000
"""Distinct values of a column of integers or strings that are listed as classes."""

STRINGS = "str"
"""The dtype of columns of strings."""


@dataclasses.dataclass
class NumbersPartial:
    """Counts and sums of the numbers of one column. A group has its own: all values, an element or a channel.

    Attributes:
        dtype: Of the values; ``float64`` for all floats.
        axis: ``"all"``, ``"elements"`` or ``"channels"``.
        shape: Shape of the groups; ``()`` for one.
        count: Numbers without NaN, also infinite ones: ``(groups,) int64``.
        missing: How many are NaN: ``(groups,) int64``.
        infinite: How many are the negative and the positive infinity: ``(2, groups) int64``.
        total: Exact sums of the finite numbers: ``(groups,) object``.
        squares: Exact sums of their squares: ``(groups,) object``.
        tables: How often each value occurs in each group.
    """

    dtype: np.dtype[Any]
    axis: str
    shape: tuple[int, ...]
    count: np.ndarray
    missing: np.ndarray
    infinite: np.ndarray
    total: np.ndarray
    squares: np.ndarray
    tables: list[ValueCounts]

    def merge(self, name: Any, other: Any) -> None:
        """Add the partial of other samples of the column `name`."""
        alike = isinstance(other, NumbersPartial) and (self.dtype, self.axis) == (other.dtype, other.axis)
        if not alike:
            raise _other_kind(name, self, other)
        if self.shape != other.shape:
            raise ArgumentError(
                f"column {name!r} must have samples of one shape for statistics by {self.axis}, not {self.shape}, then "
                f"{other.shape}; pass axis='all'"
            )
        for field in ("count", "missing", "infinite", "total", "squares"):
            setattr(self, field, getattr(self, field) + getattr(other, field))
        for table, more in zip(self.tables, other.tables, strict=True):
            table.merge(more)

    def __str__(self) -> str:
        return str(self.dtype)


@dataclasses.dataclass
class StringsPartial:
    """Counts of the strings of one column.

    Attributes:
        count: How many there are.
        missing: Number of samples that are None.
        texts: How often each occurs; None if there are more than :data:`MOST_CLASSES`.
    """

    count: int
    missing: int
    texts: dict[str, int] | None

    def merge(self, name: Any, other: Any) -> None:
        """Add the partial of other samples of the column `name`."""
        if not isinstance(other, StringsPartial):
            raise _other_kind(name, self, other)
        self.count, self.missing = self.count + other.count, self.missing + other.missing
        if self.texts is None or other.texts is None:
            self.texts = None
            return
        for text, count in other.texts.items():
            self.texts[text] = self.texts.get(text, 0) + count
        if len(self.texts) > MOST_CLASSES:
            self.texts = None

    def __str__(self) -> str:
        return STRINGS


Partial = NumbersPartial | StringsPartial


class PartialStatistics:
    """A map that makes the partial statistics of a batch.

    Its result is one column: the partials of the columns by name in the first row, None in the other rows.

    Args:
        names: The names of the columns of a tuple; the places of those without.
        named: Whether the user named the columns. Then none may be left out.
        axis: See :func:`batchup_ng.statistics`.
    """

    def __init__(self, names: Sequence[Any] | None, named: bool, axis: str | None) -> None:
        self.names, self.named, self.axis = names, named, axis

    def __call__(self, /, *columns: Any, **by_name: Any) -> tuple[list[dict[Any, Partial] | None]]:
        batch: dict[Any, Any] = dict(by_name)
        if columns:
            batch = dict(zip(range(len(columns)) if self.names is None else self.names, columns, strict=True))
        found: dict[Any, Partial] = {}
        for name, column in batch.items():
            partial = _partial(name, column, self.axis)
            if partial is not None:
                found[name] = partial
            elif self.named:
                raise ArgumentTypeError(
                    f"column {name!r} must hold real numbers or strings to have statistics; leave it out of columns="
                )
        n = nests.length(columns or by_name)
        return ([found, *[None] * (n - 1)],)


def _partial(name: Any, column: Any, axis: str | None) -> Partial | None:
    """Return the partial of one column, or None if it holds neither numbers nor strings."""
    if isinstance(column, (tuple, dict)):
        return None
    if isinstance(column, list) or getattr(column, "dtype", None) == np.dtype(object):
        items = list(column)
        if all(item is None or isinstance(item, str) for item in items):
            return _of_strings(items)
        arrays = [np.asarray(item) for item in items]
        if any(each.dtype.kind not in "biuf" or each.ndim != arrays[0].ndim for each in arrays):
            return None
        if arrays[0].ndim:
            return _of_arrays(name, arrays, axis or ("channels" if arrays[0].ndim > 2 else "all"))
        values = np.asarray(items)
    else:
        values = np.asarray(column)
    if values.dtype.kind in "UT":
        return _of_strings(values.tolist())
    if values.dtype.kind not in "biuf":
        return None
    if values.ndim == 1:
        return _of_numbers(values.reshape(-1, 1), "all", ())
    return _of_arrays(name, [values], axis or ("elements", "all", "channels")[min(values.ndim, 4) - 2], 1)


def _of_arrays(name: Any, arrays: list[np.ndarray], axis: str, first: int = 0) -> NumbersPartial:
    """Return the partial of arrays whose first `first` axes number samples."""
    shape: tuple[int, ...] = ()
    if axis != "all":
        shapes = {array.shape[first:] if axis == "elements" else array.shape[-1:] for array in arrays}
        if len(shapes) > 1:
            raise ArgumentError(
                f"column {name!r} must have samples of one shape for statistics by {axis}, not of "
                f"{sorted(shapes)[0]} and {sorted(shapes)[1]}; pass axis='all'"
            )
        (shape,) = shapes
    groups = math.prod(shape)
    parts = [array.reshape(array.size // groups if groups else 0, groups) for array in arrays]
    return _of_numbers(parts[0] if len(parts) == 1 else np.concatenate(parts), axis, shape)


def _of_strings(items: list[str | None]) -> StringsPartial:
    texts: dict[str, int] = {}
    for item in items:
        if item is not None:
            texts[str(item)] = texts.get(str(item), 0) + 1
    missing = sum(item is None for item in items)
    return StringsPartial(len(items) - missing, missing, texts if len(texts) <= MOST_CLASSES else None)


def _of_numbers(values: np.ndarray, axis: str, shape: tuple[int, ...]) -> NumbersPartial:
    """Return the partial of ``(n, groups)`` numbers."""
    n, groups = values.shape
    tables = [ValueCounts(room_for(groups)) for _ in range(groups)]
    missing, infinite = np.zeros(groups, np.int64), np.zeros((2, groups), np.int64)
    if values.dtype.kind != "f" and values.dtype.itemsize == 1:
        total, squares = _of_bytes(values, tables)
    elif values.dtype.kind != "f":
        total, squares = exact_sums(values)
        for table, column in zip(tables, values.T, strict=True):
            table.add(keys_of(column))
    else:
        values = values.astype(np.float64)
        finite, is_nan = np.isfinite(values), np.isnan(values)
        missing = np.count_nonzero(is_nan, axis=0).astype(np.int64)
        infinite = np.stack([np.count_nonzero(values == each, axis=0) for each in (-np.inf, np.inf)]).astype(np.int64)
        total, squares = exact_sums(np.where(finite, values, 0.0))
        for table, column, nan in zip(tables, values.T, is_nan.T, strict=True):
            table.add(keys_of(column[~nan]))
    return NumbersPartial(values.dtype, axis, shape, n - missing, missing, infinite, total, squares, tables)


def _of_bytes(values: np.ndarray, tables: list[ValueCounts]) -> tuple[np.ndarray, np.ndarray]:
    """Return the exact sums of numbers of 8 bits, and count them in `tables`."""
    total, squares = np.zeros(len(tables), object), np.zeros(len(tables), object)
    lowest = -128 if values.dtype == np.int8 else 0
    for group, table in enumerate(tables):
        counts = np.bincount(values[:, group].astype(np.intp) - lowest)
        keys = np.flatnonzero(counts)
        counts = counts[keys]
        keys = keys + lowest
        table.add(keys, counts)
        total[group] = int((keys * counts).sum()) << UNIT
        squares[group] = int((keys * keys * counts).sum()) << 2 * UNIT
    return total, squares


def _other_kind(name: Any, one: Any, other: Any) -> ArgumentError:
    return ArgumentError(
        f"column {name!r} must hold values of one kind, not {one}, then {other}; convert it in a map of the source"
    )
