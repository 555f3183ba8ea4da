"""What an accessor is, what the library asks of one.

An accessor is an array-like over storage: ``len(a)``, ``a[int]``, ``a[slice]``, ``a[1-D integer array]``, the
last two giving rows in the order asked for. An array of rows that the library hands to it is read-only. NumPy arrays
and memmaps are accessors as they are. One that can fill memory it is given is a :class:`ReadsInto` as well, which saves
a copy a batch; one that knows what its samples are called is a :class:`NamesSamples`, so that errors can tell.
"""

from __future__ import annotations

import contextlib
import operator
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ..batch_layout import finished
from ..errors import ArgumentTypeError
from ..memory_pool import SMALLEST_LEASE, Buffers
from ..tensors import is_any_tensor
from .paging import announce_rows, exceeds_memory


@runtime_checkable
class Accessor(Protocol):
    """An array-like over storage."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any) -> Any: ...


@runtime_checkable
class ReadsInto(Protocol):
    """An accessor whose rows are of one shape, that can read them into a given array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of all the data, the first axis the rows'."""
        ...

    @property
    def dtype(self) -> Any: ...

    def read_into(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write `rows` into `out`: ``(len(rows), *shape[1:])`` of `dtype`, in C order."""
        ...


@runtime_checkable
class NamesSamples(Protocol):
    """An accessor that knows where each of its rows lies, or what it is called."""

    def sample_name(self, row: int) -> str | None:
        """Return the path or key of a row, exactly as it was given; None if it has none."""
        ...


def sample_name(accessor: Any, row: int) -> str | None:
    """Return what `row` of `accessor` is called; None if it has no name."""
    return accessor.sample_name(row) if isinstance(accessor, NamesSamples) else None


def file_name(accessor: Any) -> str | None:
    """Return the file that an array is mapped from; None if it is from none."""
    while accessor is not None:
        if isinstance(accessor, np.memmap) and accessor.filename is not None:
            return str(accessor.filename)
        accessor = getattr(accessor, "base", None) if isinstance(accessor, np.ndarray) else None
    return None


def gather(accessor: Any, rows: np.ndarray | slice, buffers: Buffers) -> Any:
    """Return `rows` of an array or accessor, in memory from `buffers` where that spares an allocation.

    The rows are a 1-D integer array, whose negative entries count from the end, or a slice.
    """
    if isinstance(rows, np.ndarray) and rows.ndim == 1 and rows.dtype.kind in "iu":
        if isinstance(accessor, np.ndarray):
            return _gather_array(accessor, rows, buffers)
        if hasattr(accessor, "read_into") and hasattr(accessor, "shape"):
            out = buffers.empty((len(rows), *accessor.shape[1:]), np.dtype(accessor.dtype))
            accessor.read_into(rows, out)
            return out
        if is_any_tensor(accessor):
            return accessor[np.array(rows)]  # rows are read-only, of which PyTorch would warn
    if isinstance(rows, slice) and isinstance(accessor, np.ndarray):
        return accessor[rows].copy()  # a batch may be written to; the data may not
    return accessor[rows]


def _gather_array(array: np.ndarray, rows: np.ndarray, buffers: Buffers) -> Any:
    if array.dtype.hasobject:
        return finished(array[rows], buffers)  # the objects may be written to; those of the data may not
    if type(array) not in (np.ndarray, np.memmap) or array.ndim == 0:
        return array[rows]
    n = len(array)
    if n and array.nbytes // n * len(rows) < SMALLEST_LEASE and not exceeds_memory(array):
        return array[rows]
    rows = checked_rows(rows, n)
    out = buffers.empty((len(rows), *array.shape[1:]), array.dtype)
    fill_rows(array, rows, out)
    return out


def fill_rows(array: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    """Write the rows `rows`, which :func:`checked_rows` has passed, of `array` into `out`: in C order, no objects."""
    if array.flags.c_contiguous and array.dtype.isnative:
        announce_rows(array, rows)
        # mode="clip" writes straight into `out`; "raise" would go through a second buffer. The rows were checked.
        array.take(rows, 0, out, "clip")
    else:
        # np.take would first copy the whole array into C order.
        out[...] = array[rows]


def checked_rows(rows: np.ndarray, n: int) -> np.ndarray:
    """Return `rows` with negative entries counted from the end of `n` rows; ``IndexError`` beyond [-n, n)."""
    if len(rows) == 0:
        return rows.astype(np.intp)
    low, high = int(rows.min()), int(rows.max())
    if low < -n or high >= n:
        raise IndexError(f"row {high if high >= n else low} is out of range for {n} rows")
    if low < 0:
        rows = np.where(rows < 0, rows.astype(np.int64) + n, rows)
    return rows.astype(np.int64, copy=False)


def chosen_rows(key: Any, length: int) -> int | np.ndarray:
    """Return what an index asks for: an ``int`` for one row, a 1-D ``intp`` array for several; none negative.

    `key` is an integer, a slice, a 1-D array or list of integers, or a boolean mask of `length`; an ``IndexError`` says
    that a row is out of range, or that a mask has another length.
    """
    if isinstance(key, slice):
        return np.arange(*key.indices(length), dtype=np.intp)
    if not isinstance(key, bool) and getattr(key, "ndim", 0) == 0:  # nor is an array with one entry one row
        with contextlib.suppress(TypeError):
            return int(checked_rows(np.array([operator.index(key)]), length)[0])
    rows = np.asarray(key) if isinstance(key, (list, range)) or hasattr(key, "__array__") else np.empty((0, 0))
    if rows.ndim == 1 and rows.dtype == bool:
        if len(rows) != length:
            raise IndexError(f"a boolean mask must have one entry for each of the {length} rows, not {len(rows)}")
        return np.flatnonzero(rows)
    if rows.ndim == 1 and (rows.dtype.kind in "iu" or rows.size == 0):
        return checked_rows(rows, length).astype(np.intp, copy=False)
    raise ArgumentTypeError(
        f"an index must be a whole number, a slice, a 1-D array or list of whole numbers, or a boolean mask, "
        f"not {key!r:.80} of type {type(key).__name__}"
    )
