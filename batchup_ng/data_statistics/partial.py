"""The part of the statistics that the samples of one batch make.

A worker makes it, the consumer merges it. All of it is counts and exact sums, so the order of merging is free.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import batch as nests
from ..batch import refuse_masked
from ..errors import ArgumentError, ArgumentTypeError
from ..tensors import is_any_tensor
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

    def merge(self, name: Any, other: NumbersPartial) -> None:
        """Add the partial of other samples of the column `name`, with the same dtype."""
        self.check_groups(name, other)
        for field in ("count", "missing", "infinite", "total", "squares"):
            setattr(self, field, getattr(self, field) + getattr(other, field))
        for table, more in zip(self.tables, other.tables, strict=True):
            table.merge(more)

    def check_groups(self, name: Any, other: NumbersPartial) -> None:
        """Raise an error unless samples of the column `name` have the same groups in both."""
        if self.axis != other.axis:
            raise ArgumentError(
                f"column {name!r} must have samples with statistics of one kind, not by {self.axis}, then by "
                f"{other.axis}; pass axis='all'"
            )
        if self.shape != other.shape:
            raise ArgumentError(
                f"column {name!r} must have samples of one shape for statistics by {self.axis}, not {self.shape}, then "
                f"{other.shape}; pass axis='all'"
            )

    def converted(self, dtype: np.dtype[Any]) -> NumbersPartial:
        """Return the same numbers in a wider dtype. Sums have no dtype, so they stay exact."""
        return dataclasses.replace(
            self, dtype=dtype, tables=[table.converted(self.dtype, dtype) for table in self.tables]
        )


@dataclasses.dataclass
class StringsPartial:
    """Counts of the strings of one column.

    Attributes:
        count: How many there are.
        missing: Number of samples that are None or NaN.
        texts: How often each occurs; None if there are more than :data:`MOST_CLASSES`.
    """

    count: int
    missing: int
    texts: dict[str, int] | None

    def merge(self, other: StringsPartial) -> None:
        """Add the partial of other samples."""
        self.count, self.missing = self.count + other.count, self.missing + other.missing
        if self.texts is None or other.texts is None:
            self.texts = None
            return
        for text, count in other.texts.items():
            self.texts[text] = self.texts.get(text, 0) + count
        if len(self.texts) > MOST_CLASSES:
            self.texts = None


Partial = NumbersPartial | StringsPartial


@dataclasses.dataclass
class ColumnPartial:
    """The samples of one column so far, of any kinds.

    Only all samples together decide which kinds can be counted as one column. A batch alone must not decide it.

    Attributes:
        missing: Number of samples that are None or NaN, in lists and among objects.
        nan: Whether one of them is NaN.
        objects: Whether some samples were Python objects, whose dtypes may differ.
        refused: The kind of the samples that cannot be counted; None if there are none.
        strings: The strings; None for none.
        numbers: The numbers of each dtype.
    """

    missing: int = 0
    nan: bool = False
    objects: bool = False
    refused: str | None = None
    strings: StringsPartial | None = None
    numbers: dict[Any, NumbersPartial] = dataclasses.field(default_factory=dict)

    def merge(self, name: Any, other: ColumnPartial) -> None:
        """Add the partial of other samples of the column `name`."""
        self.missing, self.nan = self.missing + other.missing, self.nan or other.nan
        self.objects, self.refused = self.objects or other.objects, self.refused or other.refused
        if self.strings is None:
            self.strings = other.strings
        elif other.strings is not None:
            self.strings.merge(other.strings)
        for numbers in other.numbers.values():
            self.add_numbers(name, numbers)

    def add_numbers(self, name: Any, more: NumbersPartial) -> None:
        """Add numbers of the column `name`."""
        for known in self.numbers.values():
            known.check_groups(name, more)
        if more.dtype in self.numbers:
            self.numbers[more.dtype].merge(name, more)
        else:
            self.numbers[more.dtype] = more

    def check(self, name: Any) -> None:
        """Raise an error if samples of the column `name` are of kinds that no later sample can join."""
        if self.strings is not None and self.numbers:
            raise _other_kind(name, STRINGS, next(iter(self.numbers)))
        if self.refused is not None and (self.strings is not None or self.numbers):
            raise ArgumentError(
                f"column {name!r} must hold only numbers or only strings to have statistics, and has {self.refused} "
                f"among them; convert it in a map of the source, or name the other columns: columns=[...]"
            )

    def result(self, name: Any) -> Partial | None:
        """Return the partial of all samples of the column `name`; None if they are neither numbers nor strings."""
        self.check(name)
        if self.refused is not None:
            return None
        if self.strings is None and not self.numbers and not self.nan:
            return StringsPartial(0, self.missing, {})
        if self.strings is not None:
            return dataclasses.replace(self.strings, missing=self.strings.missing + self.missing)
        made = self._joined(name) if self.numbers else _of_numbers(np.zeros((0, 1)), "all", ())
        return dataclasses.replace(made, missing=made.missing + self.missing)

    def _joined(self, name: Any) -> NumbersPartial:
        """Return the numbers of all dtypes converted to a common dtype, as NumPy makes an array of a list."""
        parts = sorted(self.numbers.values(), key=lambda part: str(part.dtype))
        used = [part for part in parts if part.count.any() or part.missing.any()] or parts[:1]
        if len(used) == 1:
            return used[0]
        dtype = np.result_type(*(part.dtype for part in used))
        whole = [part for part in used if part.dtype.kind != "f"]
        signed = [table for part in whole if part.dtype.kind == "i" for table in part.tables]
        if dtype.kind == "f" and len(whole) == len(used) and all((table.lowest or 0) >= 0 for table in signed):
            dtype = np.dtype(np.uint64)
        cut = dtype.kind == "f" and any(table.level for part in whole for table in part.tables)
        if cut or not self.objects:  # the floats of integers that were cut are not known
            first, second = [kind for kind in self.numbers if kind in [part.dtype for part in used]][:2]
            raise _other_kind(name, first, second)
        joined, *others = [part.converted(dtype) for part in used]
        for other in others:
            joined.merge(name, other)
        return joined


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

    def __call__(self, /, *columns: Any, **by_name: Any) -> tuple[list[dict[Any, ColumnPartial] | None]]:
        batch: dict[Any, Any] = dict(by_name)
        if columns:
            batch = dict(zip(range(len(columns)) if self.names is None else self.names, columns, strict=True))
        found: dict[Any, ColumnPartial] = {}
        for name, column in batch.items():
            found[name] = column_partial(name, column, self.axis)
            if self.named and found[name].refused is not None:
                remedy = "leave it out of columns="
                if is_any_tensor(column):
                    remedy += f", or convert it, as by source.map(lambda x: x.float(), on={name!r})"
                raise ArgumentTypeError(
                    f"column {name!r} must hold real numbers or strings to have statistics, not {found[name].refused}; "
                    f"{remedy}"
                )
        n = nests.length(columns or by_name)
        return ([found, *[None] * (n - 1)],)


def column_partial(name: Any, column: Any, axis: str | None, counted: bool = True) -> ColumnPartial:
    """Return the partial of one column. If not `counted`, it has no table of floats and of integers above 8 bits."""
    if isinstance(column, (tuple, dict)):
        return ColumnPartial(refused=f"a {type(column).__name__}")
    if isinstance(column, list) or getattr(column, "dtype", None) == np.dtype(object):
        return _of_objects(name, list(column), axis, counted)
    refuse_masked(f"column {name!r}", column)
    try:
        values = np.asarray(column)
    except (ValueError, TypeError, RuntimeError):  # tensors of a dtype that NumPy lacks, with gradients, or sparse
        return ColumnPartial(refused=f"a {type(column).__name__} of {getattr(column, 'dtype', 'another kind')}")
    if values.dtype.kind in "UT" and values.ndim:
        return _of_objects(name, values.reshape(-1).tolist(), axis, counted)
    if values.dtype.kind not in "biuf" or not values.ndim:
        return ColumnPartial(refused=f"values of dtype {values.dtype}")
    if values.ndim == 1:
        numbers = _of_numbers(values.reshape(-1, 1), "all", (), counted)
    else:
        by = axis or ("elements", "all", "channels")[min(values.ndim, 4) - 2]
        numbers = _of_arrays(name, [values], by, 1, counted)
    return ColumnPartial(numbers={numbers.dtype: numbers})


def _of_objects(name: Any, items: list[Any], axis: str | None, counted: bool) -> ColumnPartial:
    """Return the partial of Python objects. Each is counted independently of the others."""
    made = ColumnPartial(objects=True)
    texts: list[str] = []
    numbers: dict[Any, list[np.ndarray]] = {}
    for item in items:
        if item is None or (isinstance(item, (float, np.floating)) and np.isnan(item)):
            made.missing, made.nan = made.missing + 1, made.nan or item is not None
        elif isinstance(item, str):
            texts.append(item)
        elif (array := _as_numbers(item)) is None:
            made.refused = f"a {type(item).__name__}"
        else:
            by = (axis or ("channels" if array.ndim > 2 else "all")) if array.ndim else "all"
            numbers.setdefault((np.dtype(np.float64) if array.dtype.kind == "f" else array.dtype, by), []).append(array)
    if texts:
        made.strings = _of_strings(texts)
    for (_, by), arrays in numbers.items():
        made.add_numbers(name, _of_arrays(name, arrays, by, counted=counted))
    return made


def _as_numbers(item: Any) -> np.ndarray | None:
    """Return an array of real numbers; None if `item` is something else."""
    refuse_masked("a sample", item)
    try:
        array = np.asarray(item)
    except (ValueError, TypeError):  # lists of different lengths in a list, say
        return None
    return array if array.dtype.kind in "biuf" else None


def _of_arrays(name: Any, arrays: list[np.ndarray], axis: str, first: int = 0, counted: bool = True) -> NumbersPartial:
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
    return _of_numbers(parts[0] if len(parts) == 1 else np.concatenate(parts), axis, shape, counted)


def _of_strings(items: list[str]) -> StringsPartial:
    texts = {str(text): count for text, count in collections.Counter(items).items()}
    return StringsPartial(len(items), 0, texts if len(texts) <= MOST_CLASSES else None)


def _of_numbers(values: np.ndarray, axis: str, shape: tuple[int, ...], counted: bool = True) -> NumbersPartial:
    """Return the partial of ``(n, groups)`` numbers."""
    n, groups = values.shape
    tables = [ValueCounts(room_for(groups)) for _ in range(groups)]
    missing, infinite = np.zeros(groups, np.int64), np.zeros((2, groups), np.int64)
    if values.dtype.kind != "f" and values.dtype.itemsize == 1:
        total, squares = _of_bytes(values, tables)
    elif values.dtype.kind != "f":
        total, squares = exact_sums(values)
        for table, column in zip(tables, values.T, strict=True):
            table.add(keys_of(column)) if counted else table.reach(keys_of(column))
    else:
        values = values.astype(np.float64)
        finite, is_nan = np.isfinite(values), np.isnan(values)
        missing = np.count_nonzero(is_nan, axis=0).astype(np.int64)
        infinite = np.stack([np.count_nonzero(values == each, axis=0) for each in (-np.inf, np.inf)]).astype(np.int64)
        total, squares = exact_sums(np.where(finite, values, 0.0))
        for table, column, nan in zip(tables, values.T, is_nan.T, strict=True):
            table.add(keys_of(column[~nan])) if counted else table.reach(keys_of(column[~nan]))
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
