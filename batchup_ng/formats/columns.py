"""The columns of batches to write: the form of each, for all formats."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..accessors.ragged import Ragged
from ..errors import ArgumentError, ArgumentTypeError

Values = dict[str, Any]
"""The columns of a batch by name: an array for a fixed column, else a list with one value for each row."""


@dataclasses.dataclass(frozen=True)
class Column:
    """The form of a column.

    Attributes:
        name: Its name.
        kind: ``"fixed"``: rows of one shape and dtype; ``"ragged"``: arrays of one dtype and several shapes;
            ``"bytes"``, ``"text"``; ``"json"``: dicts, lists, Python's numbers.
        dtype: The dtype of the arrays; None if there are none.
        shape: The shape of a fixed row; for ragged rows ``(-1, ...)``, an entry for each axis.
    """

    name: str
    kind: str
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] = ()

    @property
    def row_bytes(self) -> int:
        """Bytes of a fixed row."""
        return 0 if self.dtype is None else self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))

    def __str__(self) -> str:
        if self.kind == "fixed":
            return f"{self.dtype} of shape {self.shape}"
        words = {"ragged": f"{self.dtype} arrays with {len(self.shape)} axes, of several shapes", "text": "strings"}
        return words.get(self.kind, {"json": "objects such as dicts or lists"}.get(self.kind, self.kind))

    def as_json(self) -> list[Any]:
        """Return this column as the argument of :meth:`from_json`."""
        descr = None if self.dtype is None else np.lib.format.dtype_to_descr(self.dtype)
        return [self.name, self.kind, descr, list(self.shape)]

    @classmethod
    def from_json(cls, parts: Any) -> Column:
        """Return the column that :meth:`as_json` described."""
        name, kind, descr, shape = parts
        return cls(name, kind, None if descr is None else np.lib.format.descr_to_dtype(_descr(descr)), tuple(shape))


def named_parts(batch: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return the parts of a batch by name: a dict has its own names, others have `names`, then ``x0``, ``x1``, ...

    >>> named_parts(([1], [2]), ["image"])
    {'image': [1], 'x1': [2]}
    """
    if not isinstance(batch, Mapping):
        parts = batch if isinstance(batch, (tuple, list)) else (batch,)
        batch = {names[i] if i < len(names) else f"x{i}": part for i, part in enumerate(parts)}
    for name, part in batch.items():
        if isinstance(part, (tuple, Mapping)):
            raise ArgumentTypeError(
                f"source must give batches of plain columns, and column {name!r} is a {type(part).__name__} of "
                f"columns; take it apart by a map: source.map(...)"
            )
    return dict(batch)


def columns_of(parts: Mapping[str, Any], holds: Callable[[Column], bool]) -> tuple[list[Column], Values]:
    """Return the columns of a batch's named parts, and the parts in the form to write.

    Args:
        holds: Whether the format can hold a column. Lists of numbers become arrays if it holds no lists.
    """
    found = {name: _column(name, part, holds) for name, part in parts.items()}
    return [column for column, _ in found.values()], {name: values for name, (_, values) in found.items()}


def fitting(
    columns: Sequence[Column], parts: Mapping[str, Any], row: int, holds: Callable[[Column], bool]
) -> Values:
    """Return the named parts of a batch in the form to write. Refuse columns that differ from the first batch's.

    Args:
        row: The number of the first row, for the error.
        holds: As for :func:`columns_of`.
    """
    found, values = columns_of(parts, holds)
    if [each.name for each in found] != [each.name for each in columns]:
        then, now = ([each.name for each in some] for some in (columns, found))
        raise ArgumentError(f"source must give the same columns in each batch, and gave {then}, then {now}; map it")
    for column, own in zip(columns, found, strict=True):
        if own == column:
            continue
        own_values = values[column.name]
        if column.kind == "ragged" and own.dtype == column.dtype and len(own.shape) == len(column.shape):
            values[column.name] = list(own_values)  # of one shape by chance
        elif column.kind == own.kind == "ragged" and own.shape == column.shape and not any(map(np.size, own_values)):
            values[column.name] = [value.astype(column.dtype) for value in own_values]  # empty lists have no dtype
        else:
            raise ArgumentError(
                f"column {column.name!r} of source must be the same in each batch, and is {column} in the first, {own} "
                f"from row {row} on; map it to one form"
            )
    return values


def check_keys(name: str, row: int, value: Any, kinds: tuple[type, ...], what: str) -> None:
    """Refuse a value of a column, in row `row`, with dicts that have keys of other types than `kinds`.

    Args:
        what: The reason, about such a key.
    """
    for key in _keys(value):
        if not isinstance(key, kinds):
            raise ArgumentError(
                f"column {name!r} of source must have dicts with text as keys, and row {row} has the key {key!r:.100}, "
                f"which {what}; map keys to text"
            )


def _keys(value: Any) -> Iterator[Any]:
    """Yield the keys of all dicts in a value."""
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for each in value:
            if isinstance(each, (dict, list, tuple)):
                yield from _keys(each)


def _column(name: str, part: Any, holds: Callable[[Column], bool]) -> tuple[Column, Any]:
    if hasattr(part, "__array__"):
        part = np.asarray(part)
        if part.dtype.kind not in "USO":
            return Column(name, "fixed", part.dtype, part.shape[1:]), part
        part = part.tolist() if part.ndim == 1 or part.dtype.kind == "O" else list(part)
    if not holds(Column(name, "json")):
        part = _with_arrays(part)
    forms = {_form(name, value): None for value in part}
    if len(forms) > 1:
        told = ", ".join(str(Column(name, *form)) for form in list(forms)[:3])
        raise ArgumentError(f"column {name!r} of source must hold values of one kind, not {told}; map it to one")
    ((kind, dtype, shape),) = forms
    return Column(name, kind, dtype, shape), [bytes(value) for value in part] if kind == "bytes" else list(part)


def _with_arrays(part: Any) -> Any:
    """Return lists of numbers, perhaps beside arrays, as arrays of one dtype; other values as they are."""
    kinds = {list if isinstance(value, (list, tuple)) else type(value) for value in part}
    if list in kinds and kinds <= {list, np.ndarray}:
        with contextlib.suppress(ArgumentError):  # of several kinds: refused as lists
            rows = Ragged.from_rows(list(part))
            return rows[:] if rows.values.dtype.kind in "biufc" else part
    return part


def _form(name: str, value: Any) -> tuple[str, np.dtype[Any] | None, tuple[int, ...]]:
    """Return kind, dtype and shape of the column for a value."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytes", None, ()
    if isinstance(value, str):
        return "text", None, ()
    if isinstance(value, np.ndarray) and value.dtype.kind not in "USO":
        return "ragged", value.dtype, (-1,) * value.ndim
    if value is None or isinstance(value, (dict, list, tuple, int, float)):
        return "json", None, ()
    raise ArgumentTypeError(
        f"column {name!r} of source holds a {type(value).__name__}, which no format can; map it to arrays, numbers, "
        f"strings, bytes or dicts"
    )


def _descr(descr: Any) -> Any:
    """Return NumPy's description of a dtype from JSON, where all tuples are lists."""
    if not isinstance(descr, list):
        return descr
    fields = ((tuple(name) if isinstance(name, list) else name, own, shape) for name, own, *shape in descr)
    return [(name, _descr(own), *map(tuple, shape)) for name, own, shape in fields]  # a title makes a pair of a name
