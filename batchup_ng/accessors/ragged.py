"""Sequences of different lengths, one after the other in one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..batch import refuse_masked
from ..display import array_words
from ..errors import ArgumentError, ArgumentTypeError
from ..memory.paging import file_name
from ..row_arrays import holds
from .base import chosen_rows, sample_name
from .storage.base import StoredArray, runs


class Ragged:
    """Rows of different lengths: row i is ``values[offsets[i]:offsets[i + 1]]``; several are a list.

    Arrow, PyTorch's nested tensors and most corpora of tokens keep sequences in this form.

    >>> words = Ragged(np.array([1, 2, 3, 4, 5, 6]), offsets=[0, 2, 2, 6])
    >>> words[[2, 0]], words.lengths
    ([array([3, 4, 5, 6]), array([1, 2])], array([2, 0, 4]))

    Batches of rows of about one length, padded to the longest:

    >>> import batchup_ng as bu
    >>> source = bu.ArrayDataSource([words], sampler=bu.BucketSampler(words.lengths, boundaries=[3]))
    >>> for batch in source.map(bu.PadColumns(0)).batch_iterator(2):
    ...     print(batch[0].tolist())
    [[0, 0], [1, 2]]
    [[3, 4, 5, 6]]

    Args:
        values: An array, a memmap, or an accessor with ``shape`` and ``dtype`` that takes slices, such as
            :class:`~batchup_ng.NpyRows`: ``(total, ...)``.
        offsets: Where each row begins, and where the last ends: ``(n + 1,) int``, not decreasing. Values before the
            first offset and after the last belong to no row.

    Raises:
        ArgumentError: the offsets decrease, or exceed the number of values.
        ArgumentTypeError: they are not whole numbers in one dimension, or `values` is not an array.
    """

    def __init__(self, values: Any, offsets: Any) -> None:
        check_values(values)
        self.values = values
        self.offsets = checked_offsets(offsets, len(values))

    @classmethod
    def from_rows(cls, rows: Sequence[Any]) -> Ragged:
        """Return the rows, arrays or lists ``(length, ...)`` of one dtype, copied to one array.

        Empty rows may have any dtype.

        Raises:
            ArgumentError: there are none, or they differ in dtype or in any axis but the first.

        >>> Ragged.from_rows([[1, 2], [], [3]]).lengths
        array([2, 0, 1])
        """
        if not len(rows):
            raise ArgumentError("rows must hold at least one row; pass values and offsets of none")
        arrays = [_row(number, row) for number, row in enumerate(rows)]
        filled = [array for array in arrays if array.size] or arrays[:1]
        first = filled[0]
        if first.ndim == 0:
            raise ArgumentError("row 0 is a single value; pass numpy.asarray(...) of the rows")
        for number, array in enumerate(arrays):
            of_text = array.dtype.kind in "US" and array.dtype.kind == first.dtype.kind  # may differ in width
            alike = (of_text or array.dtype == first.dtype) and array.shape[1:] == first.shape[1:]
            if array.size and (array.ndim == 0 or not alike):
                raise ArgumentError(
                    f"row {number} is {array_words(array)}, and another row {array_words(first)}: all must be of one "
                    f"dtype, and differ only along their first axis; pass MapStyle(...) of rows of any kind"
                )
        counts = [len(array) if array.ndim and array.shape[1:] == first.shape[1:] else 0 for array in arrays]
        pairs = zip(arrays, counts, strict=True)
        kept = [array if array.size else array.astype(first.dtype) for array, n in pairs if n]
        return cls(np.concatenate(kept or [first[:0]]), np.cumsum([0, *counts]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """The length of each row: ``(n,) int64``."""
        return np.diff(self.offsets)

    @property
    def natural_block(self) -> int:
        """How many neighbouring rows are as cheap to read together as one, by the `natural_block` of the values."""
        mean = (self.offsets[-1] - self.offsets[0]) / max(1, len(self))
        return max(1, int(self.values.natural_block / max(1, mean)))

    @property
    def natural_window(self) -> int:
        """How many such blocks a shuffle may mix and still read each block once."""
        return int(self.values.natural_window)

    def __getitem__(self, rows: Any) -> Any:
        """Return one row for an int, ``(length, ...)``, else a list of rows, in the order asked for.

        Raises:
            IndexError: a row is out of range, or a mask has another length.
        """
        chosen = chosen_rows(rows, len(self))
        if isinstance(chosen, int):
            return self._between(self.offsets[chosen], self.offsets[chosen + 1])
        several: list[np.ndarray] = []
        for first, n, _ in runs(chosen):
            bounds = self.offsets[first : first + n + 1]
            several += np.split(self._between(bounds[0], bounds[-1]), bounds[1:-1] - bounds[0])
        return several

    def sample_name(self, row: int) -> str | None:
        """Return the values' name for the first value of the row, or the file that they are mapped from."""
        start = min(int(self.offsets[row]), len(self.values) - 1)
        return file_name(self.values) or (sample_name(self.values, start) if start >= 0 else None)

    def file_paths(self, rows: Sequence[int]) -> list[str]:
        """Return the files that the values are read from."""
        return files_of_values(self.values)

    def __repr__(self) -> str:
        return f"Ragged({len(self)} rows of {array_words(self.values)})"

    def _between(self, start: Any, end: Any) -> np.ndarray:
        """Return some of the values, in their own memory."""
        return np.array(self.values[int(start) : int(end)])


def _row(number: int, row: Any) -> np.ndarray:
    """Return a row as an array. Refuse lists of which NumPy would make text of numbers, or objects."""
    refuse_masked(f"row {number}", row)
    try:
        array = np.asarray(row)
    except ValueError as error:
        raise ArgumentError(f"row {number} is a list whose own lists differ in length; pad these first") from error
    if array.dtype.kind == "O" or not (isinstance(row, np.ndarray) or holds(array, row)):
        raise ArgumentError(
            f"row {number} holds values that an array of {array.dtype} would change, or of several kinds; pass arrays, "
            f"or MapStyle(...) of rows of any kind"
        )
    return array


def check_values(values: Any) -> None:
    """Raise unless `values` are an array, or an accessor that has the members of one."""
    if not (hasattr(values, "shape") and hasattr(values, "dtype") and hasattr(values, "__getitem__")):
        raise ArgumentTypeError(
            f"values must be an array, or an accessor with shape and dtype, not {type(values).__name__}; pass "
            f"numpy.concatenate(rows)"
        )
    refuse_masked("values", values)


def files_of_values(values: Any) -> list[str]:
    """Return the files that an array, or an accessor, is read from."""
    own = getattr(values, "file_paths", None)
    name = file_name(values)
    return own([]) if own is not None else [] if name is None else [name]


def checked_offsets(offsets: Any, total: int) -> np.ndarray:
    """Return the offsets of rows of `total` values, ``(n + 1,) int64``, as an array of its own."""
    given = np.asarray(offsets[:] if isinstance(offsets, StoredArray) else offsets)  # at once, not row by row
    if given.ndim != 1 or given.dtype.kind not in "iu" or not len(given):
        raise ArgumentTypeError(
            f"offsets must be whole numbers in one dimension, one more than rows, not {given.dtype} of shape "
            f"{given.shape}; pass numpy.concatenate([[0], numpy.cumsum(lengths)])"
        )
    checked = given.astype(np.int64)
    falls = np.flatnonzero(checked[1:] < checked[:-1])
    if len(falls):
        row = int(falls[0])
        raise ArgumentError(f"offsets must not decrease, and go from {given[row]} to {given[row + 1]} at row {row}")
    if checked[0] < 0 or checked[-1] > total:
        raise ArgumentError(
            f"offsets must lie between 0 and {total}, the number of values, and reach from {given[0]} to {given[-1]}"
        )
    return checked
