"""The columns of a table of any library, as Python objects or arrays."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence, Set, Sized
from typing import Any, TypeAlias

import numpy as np

from .. import validation
from ..accessors.listed_rows import of_list
from ..accessors.packed_texts import PackedTexts
from ..error_context import shortened
from ..errors import ArgumentError, ArgumentTypeError

Column: TypeAlias = "list[Any]"


def columns_of(table: Any) -> Callable[[str, str], Any]:
    """Return a function of an argument's name and a column's name. It returns the column's values as Python objects.

    If the argument is ``columns``, it returns an array of numbers unchanged.
    """
    if isinstance(table, (str, os.PathLike)):
        raise ArgumentTypeError(f"table must be a data frame or a dict of columns, not {table!r}; pass it to from_csv")
    frame: Any = table if isinstance(table, Mapping) else _narwhals_frame(table)
    names = list(frame) if isinstance(table, Mapping) else frame.columns
    for name in names if isinstance(table, Mapping) else ():
        if isinstance(frame[name], (str, bytes, Set, Mapping)) or not isinstance(frame[name], Sized):
            raise ArgumentTypeError(
                f"table must have columns that are lists or arrays, and {name!r} is a {type(frame[name]).__name__}; "
                f"pass list(...) of it, if it has an order"
            )
    lengths = {name: len(frame[name]) for name in names}
    if len(set(lengths.values())) > 1:
        raise ArgumentError(f"table must have columns of one length, not {lengths}")

    def column(argument: str, name: str) -> Any:
        values = frame[validation.one_of(argument, name, names)]
        if argument == "columns" and isinstance(values, np.ndarray) and values.dtype.kind in "biufcmM":
            return values
        values = values.to_list() if hasattr(values, "to_list") else getattr(values, "tolist", lambda: values)()
        return [value.item() if isinstance(value, np.generic) else value for value in values]

    return column


def _narwhals_frame(table: Any) -> Any:
    try:
        import narwhals
    except ImportError as error:
        raise ModuleNotFoundError(
            f"a {type(table).__name__} is read through narwhals, which is not installed: pip install "
            f"'batchup_ng[tables]'; a dict of lists needs nothing"
        ) from error
    try:
        return narwhals.from_native(table, eager_only=True)
    except TypeError as error:
        raise ArgumentTypeError(
            f"table must be a data frame of pandas, polars or pyarrow, or a dict of columns, not a "
            f"{type(table).__name__}; call .collect() of a lazy one"
        ) from error


def further_column(name: str, values: Column | np.ndarray, kept: np.ndarray) -> Any:
    """Return some rows of a column that is neither image nor label: texts packed, numbers as an array."""
    if isinstance(values, np.ndarray):
        return values[kept]
    for kind in (str, bytes):
        if any(isinstance(value, kind) for value in values):
            if not all(isinstance(value, kind) for value in values):
                raise _odd_column(name, values)
            return PackedTexts([values[row] for row in kept])
    if any(isinstance(value, (list, tuple, np.ndarray)) for value in values):
        return _column_of_lists(name, values, kept)
    if any(isinstance(value, float) for value in values):
        values = [math.nan if is_missing(value) else value for value in values]
    whole = all(isinstance(value, int) for value in values)
    try:
        array = np.array(values)
        if whole and array.dtype.kind == "f":  # floats would round integers from 2**63 on
            array = np.array(values, np.uint64)
    except (ValueError, OverflowError):  # numbers of more than 64 bits
        raise _odd_column(name, values) from None
    if array.dtype.kind in "OSU":
        raise _odd_column(name, values)
    return array[kept]


def _column_of_lists(name: str, values: Column, kept: np.ndarray) -> Any:
    """Return some rows of lists of numbers, or of lists of one length, as one array or a :class:`Ragged`."""
    lists = [_plain(value) for value in values]
    if not all(isinstance(value, (list, tuple, np.ndarray)) for value in lists):
        row = next(row for row, value in enumerate(lists) if not isinstance(value, (list, tuple, np.ndarray)))
        raise ArgumentTypeError(
            f"columns: {name!r} must hold a list in every row, as in others, and row {row} holds "
            f"{shortened(repr(values[row]), 80)}; put an empty list there"
        )
    try:
        column = of_list("it", lists)  # all rows, for the row numbers in errors
    except ArgumentTypeError as error:
        why = str(error).partition(";")[0]
        raise ArgumentTypeError(
            f"columns: {name!r} must hold lists of one kind of numbers, or of lists of one length, but {why}; write "
            f"1.0 for 1 among floats, pad the inner lists, or leave the column out"
        ) from error
    return column if len(kept) == len(lists) else of_list("it", [lists[row] for row in kept])


def _plain(value: Any) -> Any:
    """Return an array of arrays, as pandas reads nested lists, as a list of them. Others stay as they are."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        return [_plain(one) for one in value]
    return value


def names_of(columns: Any) -> list[str]:
    """Return the names that a user gave as `columns`: one, or several."""
    return [columns] if isinstance(columns, str) else list(columns)


def dict_names(known: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns of dicts. Raise if one comes twice."""
    names = (*known, *columns)
    if len(set(names)) < len(names):
        raise ArgumentError(
            f"columns must not name {sorted({name for name in names if names.count(name) > 1})} with as_dict=True, for "
            f"the images are 'image' and the labels 'label' there, and each name may come once; rename those columns"
        )
    return names


def _odd_column(name: str, values: Column) -> ArgumentTypeError:
    there = [value for value in values if not is_missing(value)]
    remedy = "fill or leave it out"
    if len(there) < len(values) and there and all(type(value) is int for value in there):
        remedy = (
            f"fill the missing values, or make them NaN among floats: table.astype({{{name!r}: 'float64'}}) in pandas, "
            f"table.cast({{{name!r}: float}}) in polars"
        )
    elif len(there) < len(values) and there and all(isinstance(value, str) for value in there):
        remedy = (
            f"fill the missing values: table.fillna({{{name!r}: ''}}) in pandas, "
            f"table.with_columns(table[{name!r}].fill_null('')) in polars"
        )
    return ArgumentTypeError(
        f"columns: {name!r} must hold numbers in every row, or text in every row, {odd_words(values)}; {remedy}"
    )


def is_missing(value: Any) -> bool:
    """Return whether a cell is empty: None, NaN, NA, NaT."""
    return value is None or (value == value) is not True


def row_words(rows: Sequence[int]) -> str:
    """Return the first ten row numbers, in words."""
    return f"{', '.join(map(str, rows[:10]))}{', …' if len(rows) > 10 else ''}"


def odd_words(values: Column) -> str:
    """Return in words the first value whose type differs from row 0."""
    first = type(values[0]) if values else None
    row = next((row for row, value in enumerate(values) if type(value) is not first), 0)
    return f"and row {row} holds {shortened(repr(values[row]), 80)}"
