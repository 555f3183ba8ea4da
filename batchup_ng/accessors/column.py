"""Checks the columns that a user gives to an array source, and converts some arrays of other libraries.

These would not keep their rows on every path through a source. When the source is made, they become plain arrays, or
are refused with the remedy.
"""

from __future__ import annotations

import array
import collections
import sys
from collections.abc import Sized
from typing import Any

import numpy as np

from ..batch import refuse_masked
from ..errors import ArgumentError, ArgumentTypeError
from ..tensors import is_any_tensor

_NOT_INDEXED_BY_ROWS = (
    str, bytes, bytearray, list, tuple, dict, set, frozenset, range, memoryview, array.array, collections.deque
)  # fmt: skip

WASTED_BYTES = 64 << 20
"""Bytes that an array of text may take if more than half of them only fill up shorter texts."""

_HELD_BY_DEVICES = ("jax", "jaxlib", "tensorflow")
"""Libraries whose arrays become plain arrays."""


def as_column(name: str, column: Any) -> Any:
    """Return `column` in the form that is read, itself or a plain array. Refuse, by its `name`, a column that cannot be
    indexed by an array of rows, or has missing values that NumPy cannot represent.
    """
    kind = type(column).__name__
    if isinstance(column, _NOT_INDEXED_BY_ROWS):
        raise ArgumentTypeError(
            f"{name} is a {kind}, which cannot be indexed by an array of rows; pass numpy.asarray(...) of it, or "
            f"MapStyle(...) of it if its rows are no arrays, lists or text"
        )
    if _library(column) in _HELD_BY_DEVICES:
        column = _of_device(name, column)
    check_indexed_by_rows(name, column)
    if not (isinstance(column, Sized) and hasattr(column, "__getitem__")) or getattr(column, "ndim", 1) == 0:
        raise ArgumentTypeError(
            f"data must be a list of array-like objects, but {name} is a {kind}, which lacks len() or indexing"
        )
    refuse_masked(name, column)
    if isinstance(column, (np.matrix, np.recarray)):
        return np.asarray(column)
    return _of_pandas(name, column) if "pandas" in sys.modules else column


def check_indexed_by_rows(name: str, column: Any) -> None:
    """Refuse, by its `name`, a column of another library that does not take an array of rows, or misunderstands it:
    a pandas series takes labels, and would silently give other rows after a shuffle.
    """
    kind, library = type(column).__name__, _library(column)
    if library == "tensorflow":
        raise ArgumentTypeError(
            f"{name} is a TensorFlow {kind}, which takes no array of rows; pass an array, x.numpy(), or of a "
            f"RaggedTensor Ragged(x.values.numpy(), x.row_splits.numpy())"
        )
    if hasattr(column, "toarray") and hasattr(column, "nnz"):
        raise ArgumentTypeError(
            f"{name} is a sparse {kind}, whose rows are no arrays; pass .toarray(), or MapStyle(...) of a data set "
            f"that makes arrays of its rows"
        )
    if is_any_tensor(column) and column.layout is not sys.modules["torch"].strided:
        raise ArgumentTypeError(f"{name} is a sparse tensor, which takes no array of rows; pass .to_dense()")
    if library == "h5py":
        raise ArgumentTypeError(
            f"{name} is an h5py {kind}, which takes row numbers only in rising order, each once, and cannot be sent to "
            f"another process; pass Hdf5Rows(path, name), whose rows come in any order and which each process opens "
            f"itself, or dataset[:] if it fits in memory"
        )
    if library == "pyarrow":
        raise ArgumentTypeError(
            f"{name} is a pyarrow {kind}, which is indexed by one row at a time; pass .to_numpy(), or .to_pylist() to "
            f"ImageBytes"
        )
    if "pandas" in sys.modules and hasattr(column, "iloc"):
        raise ArgumentTypeError(f"{name} is a pandas {kind}, which is indexed by label, not by row; pass .to_numpy()")


def _library(column: Any) -> str:
    return type(column).__module__.partition(".")[0]


def _of_device(name: str, column: Any) -> Any:
    """Return the plain array of a JAX array or a TensorFlow tensor; other objects as they are. Refuse a JAX key.

    JAX in a worker process would convert float64 to float32, unless it is set up as in this process.
    """
    if not hasattr(column, "__array__"):
        return column
    try:
        return np.asarray(column)
    except Exception as error:  # a JAX key, a tensor of a graph, an array held by other processes
        raise ArgumentTypeError(f"{name} is a {type(column).__name__}, which NumPy cannot hold: {error}") from error


def _of_pandas(name: str, column: Any) -> Any:
    """Return the plain array of a pandas array; refuse an index of several levels."""
    pandas: Any = sys.modules["pandas"]
    kind = type(column).__name__
    if isinstance(column, pandas.MultiIndex):
        raise ArgumentTypeError(f"{name} is a pandas {kind}, which is indexed by label, not by row; pass .to_numpy()")
    if not isinstance(column, (pandas.api.extensions.ExtensionArray, pandas.Index)):
        return column
    if bool(column.isna().any()) and np.asarray(column).dtype.kind not in "fcMm":
        raise ArgumentError(
            f"{name} is a pandas {kind} with missing values, for which an array of {column.dtype} has no place; pass "
            f".fillna(value).to_numpy() of the column"
        )
    plain = np.asarray(column)
    if plain.dtype != object:
        return plain
    lengths = [len(value) for value in plain if isinstance(value, str)]
    if 4 * max(lengths, default=0) * len(plain) > max(WASTED_BYTES, 8 * sum(lengths)):
        raise ArgumentError(
            f"{name} is a pandas {kind} of text, one of {max(lengths):,} characters, and an array of text gives each "
            f"row that width; pass MapStyle(column.tolist()), whose batches have lists of text"
        )
    found = np.array(plain.tolist())  # Python's strings, numbers or truth values
    if found.shape != plain.shape or found.dtype == object:
        raise ArgumentTypeError(f"{name} is a pandas {kind} of {column.dtype}; pass an array: .to_numpy(), or codes")
    return found
