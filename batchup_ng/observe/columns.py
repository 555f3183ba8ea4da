"""Sums up each column of one batch, for :func:`batchup_ng.summary`.

A worker makes it, the consumer merges it. Numbers are counted and added up as for :func:`batchup_ng.statistics`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import batch as nests
from ..data_statistics.partial import ColumnPartial, column_partial
from .values import array_of


@dataclasses.dataclass
class ColumnPart:
    """The samples of one column so far.

    Attributes:
        n: How many there are.
        dtypes: How many have each dtype or type.
        shapes: For each number of axes, the least and the greatest length along each axis.
        lengths: Lengths of lists, arrays and texts along their first axis, if the batch is a list of them.
        values: The numbers and texts, all in one group.
    """

    n: int
    dtypes: dict[str, int]
    shapes: dict[int, tuple[tuple[int, ...], tuple[int, ...]]]
    lengths: ColumnPartial
    values: ColumnPartial

    def merge(self, name: Any, other: ColumnPart) -> None:
        """Add other samples of the column `name`."""
        self.n += other.n
        for dtype, count in other.dtypes.items():
            self.dtypes[dtype] = self.dtypes.get(dtype, 0) + count
        for least, most in other.shapes.values():
            _note_shape(self.shapes, least)
            _note_shape(self.shapes, most)
        self.lengths.merge(name, other.lengths)
        self.values.merge(name, other.values)

    def check(self, name: Any) -> None:
        """Do nothing: samples of any kinds can be summed up."""


class ColumnParts:
    """A map that sums up each column of a batch.

    Its result is one column: the :class:`ColumnPart` of each column by its name in the first row, None in the others.

    Args:
        form: The form of the batches: columns of tuples may have names.
    """

    def __init__(self, form: Any) -> None:
        self._names = {place: name for name, place in getattr(form, "names", {}).items()}

    def __call__(self, /, *columns: Any, **by_name: Any) -> tuple[list[Any]]:
        named = by_name or {self._names.get(place, place): column for place, column in enumerate(columns)}
        found = {name: _part(name, column) for name, column in _flat("", named)}
        return ([found, *[None] * (nests.length(columns or by_name) - 1)],)


def _flat(prefix: str, column: Any) -> Iterator[tuple[str, Any]]:
    """Yield the columns inside a column: of nests, and of lists of dicts with the same names."""
    if isinstance(column, tuple):
        column = dict(enumerate(column))
    elif isinstance(column, list) and _have_same_names(column):
        column = {name: [one[name] for one in column] for name in column[0]}
    if not isinstance(column, Mapping):
        yield prefix, column
        return
    for name, part in column.items():
        yield from _flat(f"{prefix}.{name}" if prefix else str(name), part)


def _have_same_names(items: Sequence[Any]) -> bool:
    """Return whether all items are dicts with the same names."""
    return bool(items) and all(isinstance(one, Mapping) and one.keys() == items[0].keys() for one in items)


def _part(name: str, column: Any) -> ColumnPart:
    """Return the part of one column of a batch."""
    array = None if isinstance(column, list) else array_of(column)
    if array is not None and array.ndim:
        counted = array.ndim == 1 or (array.ndim == 2 and array.dtype.kind in "biu")
        n, shape = len(array), array.shape[1:]
        values = column_partial(name, array, "all", counted)
        return ColumnPart(n, {str(array.dtype): n}, {len(shape): (shape, shape)}, _lengths([]), values)
    return _part_of_items(name, list(column))


def _part_of_items(name: str, items: Sequence[Any]) -> ColumnPart:
    """Return the part of a column that is a list. An array in it counts by its dtype, other samples by their type."""
    dtypes: dict[str, int] = {}
    shapes: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    lengths, values, largest = [], [], 0
    for item in items:
        array = array_of(item)
        kind = _type_name(item) if array is None else str(array.dtype)
        if item is not None:
            dtypes[kind] = dtypes.get(kind, 0) + 1
        if array is not None:
            _note_shape(shapes, array.shape)
            largest = max(largest, array.ndim if array.dtype.kind in "biu" else 2 * array.ndim)
        if array is not None and array.ndim:
            lengths.append(len(array))
        elif isinstance(item, (str, bytes, list, tuple)):
            lengths.append(len(item))
        values.append(item if array is None or not array.ndim else array)
    return ColumnPart(len(items), dtypes, shapes, _lengths(lengths), column_partial(name, values, "all", largest <= 1))


def _type_name(item: Any) -> str:
    """Return the type of a sample that is no number: ``str`` and ``bytes`` for NumPy's too, the dtype of its others."""
    if isinstance(item, np.generic) and not isinstance(item, (str, bytes)):
        return str(item.dtype)
    return next((kind.__name__ for kind in (str, bytes) if isinstance(item, kind)), type(item).__name__)


def _lengths(lengths: Sequence[int]) -> ColumnPartial:
    return column_partial("length", np.array(lengths, np.int64), "all") if lengths else ColumnPartial()


def _note_shape(shapes: dict[int, tuple[tuple[int, ...], tuple[int, ...]]], shape: tuple[int, ...]) -> None:
    """Widen the least and the greatest lengths to include `shape`."""
    least, most = shapes.get(len(shape), (shape, shape))
    shapes[len(shape)] = tuple(map(min, least, shape)), tuple(map(max, most, shape))
