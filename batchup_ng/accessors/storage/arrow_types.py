"""Arrow types as NumPy arrays and Python values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ArgumentError, ArgumentTypeError
from ...extras import library
from .chunks import UnfitRow

BYTES_TYPES = {"binary", "large_binary", "binary_view"}
STRING_TYPES = {"string", "large_string", "string_view"}


def pyarrow() -> Any:
    """Return the library.

    Raises:
        ImportError: it is not installed.
    """
    return library("pyarrow", "Parquet and Arrow files need pyarrow", "parquet")


@dataclass(frozen=True)
class Numbers:
    """Rows that are arrays of one shape."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def numbers_form(kind: Any, shape: Any = None, fill: Any = None) -> Numbers | None:
    """Return the form of a type's values as arrays; None if they are not numbers, or differ in shape.

    Args:
        kind: The Arrow type.
        shape: The requested shape of lists, or bytes, of any length.
        fill: The value for nulls.
    """
    sizes: list[int] | None = []
    leaf = kind
    while (inner := _inner(leaf)) is not None:
        if not hasattr(leaf, "list_size") and _is_list(leaf):
            sizes = None
        elif sizes is not None and hasattr(leaf, "list_size"):
            sizes.append(leaf.list_size)
        leaf = inner
    if shape is not None and _is_bytes(leaf):
        sizes, leaf = None, pyarrow().uint8()
    if (shape is None and sizes is None) or not _is_number(leaf):
        told = type_words(kind)
        if shape is not None:
            raise ArgumentError(f"shape must be left out for a column of {told}, which are no numbers, not {shape!r}")
        if fill is not None:
            raise ArgumentError(f"fill must be left out for a column of {told}, whose nulls are None, not {fill!r}")
        return None
    wanted = tuple(sizes or ()) if shape is None else tuple(map(int, shape))
    if sizes is not None and math.prod(wanted) != math.prod(sizes):
        told = type_words(kind)
        raise ArgumentError(f"shape must have {math.prod(sizes)} numbers, as each row of {told} has, not {shape!r}")
    if fill is not None:
        try:
            stored = pyarrow().scalar(fill, leaf).as_py()
            if pyarrow().types.is_integer(leaf) and stored != fill:
                raise ValueError("a part of it would be lost")
        except Exception as error:
            raise ArgumentTypeError(f"fill must be a value of type {leaf}, not {fill!r}") from error
    return Numbers(wanted, pyarrow().array([], leaf).to_numpy(zero_copy_only=False).dtype)


def entries_form(kind: Any, shape: Sequence[int | None], fill: Any = None) -> Numbers:
    """Return the form of the entries of a type of lists, for rows of `shape` ``(None, ...)``, whose length differs.

    Raises:
        ArgumentError: the type is no list, or its entries are no numbers or not of that shape.
        ArgumentTypeError: `fill` is not a value of the numbers' type.
    """
    while isinstance(kind, pyarrow().BaseExtensionType):
        kind = kind.storage_type
    leaf = kind
    while (inner := _inner(leaf)) is not None:
        leaf = inner
    if not _is_list(kind) or not _is_number(leaf):
        raise ArgumentError(
            f"shape must begin with None only for lists of numbers, not be {shape!r} for a column of "
            f"{type_words(kind)}; leave it out"
        )
    form = numbers_form(kind.value_type, shape[1:], fill)
    assert form is not None  # of a shape
    return form


def as_numbers(array: Any, form: Numbers, fill: Any = None) -> np.ndarray:
    """Return an Arrow array as ``(len(array), *form.shape)``, without a copy where there is nothing to convert.

    Raises:
        UnfitRow: a row is null, and not a float or time; or has another number of entries.
    """
    n = len(array)
    if n == 0:
        return np.empty((0, *form.shape), form.dtype)
    while not _is_number(array.type):
        array = _flat(array, n)
    if len(array) != n * math.prod(form.shape):
        raise UnfitRow(0, f"has {len(array) // n} numbers, not those of shape {form.shape}; pass shape= to fit")
    if array.null_count and fill is not None:
        array = array.fill_null(fill)
    if array.null_count and form.dtype.kind not in "fmM":
        _refuse_null(array, n)
    numbers: np.ndarray = array.to_numpy(zero_copy_only=False).reshape(n, *form.shape)
    return numbers


def unwrapped(array: Any) -> Any:
    """Return an array in its storage type, if its type is an extension."""
    while isinstance(array.type, pyarrow().BaseExtensionType):
        array = array.storage
    return array


def type_words(kind: Any) -> str:
    """Return a type as text without control characters, which the names of fields may contain."""
    text = str(kind)
    return text if text.isprintable() else repr(text)


def check_values(kind: Any, column: str) -> None:
    """Refuse a type whose values have no plain Python type.

    Raises:
        ArgumentError: `kind` is such a type.
    """
    leaf = kind
    while (inner := _inner(leaf)) is not None:
        leaf = inner
    if not (_is_number(leaf) or _is_bytes(leaf) or str(leaf) in STRING_TYPES or pyarrow().types.is_struct(leaf)):
        raise ArgumentError(
            f"column must be one of numbers, times, strings, bytes, structs or lists of them, and {column!r} is of "
            f"type {type_words(kind)}; cast it when the file is written (decimals to float64 or string, say), or name "
            f"other columns"
        )


def python_value(scalar: Any, entries: Numbers | None = None, fill: Any = None) -> Any:
    """Return an Arrow scalar as a Python value: lists of numbers as arrays, nulls as None.

    `entries` is the form of the entries of a list, and `fill` their value for nulls, if the user gave the form.

    Raises:
        UnfitRow: a list of numbers, but not of floats or times, has a null.
    """
    kind = scalar.type
    if not _is_list(kind):
        return scalar.as_py()
    if scalar.values is None:
        return None
    form = numbers_form(kind.value_type) if entries is None else entries
    if form is None:
        return [python_value(one) for one in scalar.values]
    try:
        return as_numbers(scalar.values, form, fill).copy()
    except UnfitRow as error:
        raise UnfitRow(0, str(error)) from error


def _flat(array: Any, n: int) -> Any:
    """Return the values inside an array of `n` rows: of an extension or a dictionary, or the entries of lists."""
    pa = pyarrow()
    if isinstance(array.type, pa.BaseExtensionType):
        return array.storage
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode()
    if array.null_count:
        _refuse_null(array, n, "fill= does not stand for lists or bytes; write some there, or leave the row out")
    if hasattr(array.type, "list_size"):
        return array.flatten()
    if _is_list(array.type):
        _refuse_unequal(array.offsets.to_numpy(), n)
        return array.flatten()
    if str(array.type) != "binary":
        array = array.cast(pa.large_binary())
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32 if str(array.type) == "binary" else np.int64)
    ends = ends[array.offset : array.offset + len(array) + 1]
    _refuse_unequal(ends, n)
    return pa.Array.from_buffers(pa.uint8(), ends[-1] - ends[0], [None, data], 0, ends[0])


def _refuse_null(array: Any, n: int, remedy: str = "pass fill= to have a number instead of one") -> None:
    null = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
    raise UnfitRow(null * n // len(array), f"is null, or has a null; {remedy}")


def _refuse_unequal(ends: np.ndarray, n: int) -> None:
    lengths = np.diff(ends)
    if (lengths != lengths[0]).any():
        odd = int(np.flatnonzero(lengths != lengths[0])[0])
        raise UnfitRow(odd * n // len(lengths), f"has a list of {lengths[odd]} entries, where another has {lengths[0]}")


def _inner(kind: Any) -> Any:
    """Return the type inside an extension, a dictionary or a list; None for others."""
    pa = pyarrow()
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    return kind.value_type if pa.types.is_dictionary(kind) or _is_list(kind) else None


def _is_list(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_bytes(kind: Any) -> bool:
    return str(kind) in BYTES_TYPES or bool(pyarrow().types.is_fixed_size_binary(kind))


def _is_number(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_primitive(kind) and not types.is_time(kind) and not types.is_interval(kind))
