"""What may be a column of an array source: an array-like whose rows are NumPy's, whatever is done with them.

Libraries extend arrays in ways that not every path keeps: a mask, a matrix that stays two-dimensional, a pandas array
whose rows are indexed by label. These are refused with the remedy.
"""

from __future__ import annotations

import array
import collections
from collections.abc import Sized
from typing import Any

import numpy as np

from ..errors import ArgumentTypeError

_NOT_INDEXED_BY_ROWS = (
    str, bytes, bytearray, list, tuple, dict, set, frozenset, range, memoryview, array.array, collections.deque
)  # fmt: skip


def as_column(name: str, column: Any) -> Any:
    """Return `column` as it is read: itself, or a plain array.

    Raises:
        ArgumentTypeError: it is nothing that can be indexed by an array of rows; `name` says which it is.
    """
    kind = type(column).__name__
    sized = isinstance(column, Sized) and getattr(column, "ndim", 1) > 0
    if sized and isinstance(column, _NOT_INDEXED_BY_ROWS):
        raise ArgumentTypeError(
            f"{name} is a {kind}, which cannot be indexed by an array of rows; pass {_instead(column)}"
        )
    if not sized or not hasattr(column, "__getitem__"):
        raise ArgumentTypeError(
            f"data must be a list of array-like objects, but {name} is a {kind}, which lacks len() or indexing"
        )
    if isinstance(column, np.ma.MaskedArray):
        raise ArgumentTypeError(
            f"{name} is a masked array, whose mask would be lost on the way; pass x.filled(value), and x.mask as a "
            f"column of its own if it is needed"
        )
    if isinstance(column, (np.matrix, np.recarray)):
        return np.asarray(column)
    library = type(column).__module__.partition(".")[0]
    if library == "h5py":
        raise ArgumentTypeError(
            f"{name} is an h5py {kind}, which takes row numbers only in rising order, each once, and cannot be sent to "
            f"another process; pass dataset[:] if it fits in memory, else an accessor that holds the path, opens the "
            f"file on first use and sorts the rows, as that of examples/hdf5_file.py"
        )
    if library == "pandas":
        raise ArgumentTypeError(
            f"{name} is a pandas {kind}, whose rows are not always NumPy's; pass a plain array: .to_numpy()"
        )
    return column


def _instead(rows: Any) -> str:
    """Return what to pass in place of rows that are no array."""
    sized = [row for row in rows if isinstance(row, Sized)] if isinstance(rows, (list, tuple)) else []
    if len({row.shape if hasattr(row, "shape") else len(row) for row in sized}) > 1 and not isinstance(sized[0], str):
        return "MapStyle(...) of it, which takes rows of different lengths, or an array of dtype object that holds them"
    return "numpy.asarray(...) of it, or an accessor"
