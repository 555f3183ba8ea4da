"""Blocks of one length, cut from one long stream of tokens."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import validation
from ..display import array_words
from ..errors import ArgumentError
from ..memory.paging import file_name
from .base import check_out, checked_rows, rows_of, sample_name
from .ragged import check_values, checked_offsets, files_of_values


class TokenBlocks:
    """Blocks of `block` values from one long array; row i is ``values[i * stride : i * stride + block]``.

    To learn to predict the next token, take blocks of one token more than the network sees: inputs and targets overlap.
    The end that fills no block is left out. With `offsets`, the values are documents, and each has blocks of its own:
    none reaches into the next document, and the end of each document is left out.

    Args:
        values: An array, a memmap, or an accessor with ``shape`` and ``dtype`` that takes slices, such as
            :class:`~batchup_ng.NpyRows`: ``(total, ...)``.
        block: How many values a row has.
        stride: How many values after a row the next one begins. Default: `block`, so rows do not overlap.
        offsets: Where each document begins, and where the last ends: ``(d + 1,) int``, not decreasing. Values before
            the first offset and after the last belong to no document. Default: no borders.

    Attributes:
        shape: ``(n, block, ...)``.
        dtype: The dtype of the values.

    Raises:
        ArgumentError: a number is below 1, no document has `block` values, or the offsets decrease or exceed the number
            of values.
        ArgumentTypeError: an argument is of the wrong kind.

    >>> TokenBlocks(np.arange(10), block=4)[:]
    array([[0, 1, 2, 3],
           [4, 5, 6, 7]])
    >>> TokenBlocks(np.arange(10), block=4, stride=3)[:].tolist()
    [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    >>> TokenBlocks(np.arange(10), block=2, offsets=[0, 5, 6, 10])[:].tolist()
    [[0, 1], [2, 3], [6, 7], [8, 9]]
    """

    @validation.known_names({})
    def __init__(self, values: Any, block: int, stride: int | None = None, *, offsets: Any = None) -> None:
        check_values(values)
        if not values.shape:
            raise ArgumentError("values must have a first axis, and are a single value; pass an array of tokens")
        self.values = values
        self.block = validation.positive_int("block", block)
        self.stride = self.block if stride is None else validation.positive_int("stride", stride)
        self._offsets = np.array([0, len(values)]) if offsets is None else checked_offsets(offsets, len(values))
        per_document = np.maximum(np.diff(self._offsets) - self.block + self.stride, 0) // self.stride
        self._firsts = np.cumsum([0, *per_document])  # the first row of each document
        if not self._firsts[-1]:
            what = f"there are only {len(values)}" if offsets is None else "no document has as many"
            raise ArgumentError(f"block is {self.block} values, and {what}; pass a smaller one")
        self._n = int(self._firsts[-1])
        self.shape = (self._n, self.block, *values.shape[1:])
        self.dtype = values.dtype

    def __len__(self) -> int:
        return self._n

    @property
    def natural_block(self) -> int:
        """How many neighbouring rows are as cheap to read together as one, by the `natural_block` of the values."""
        return max(1, int(self.values.natural_block / self.stride))

    @property
    def natural_window(self) -> int:
        """How many such blocks a shuffle may mix and still read each block once."""
        return int(self.values.natural_window)

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Return one row for an int, ``(block, ...)``, else an array of rows, in the order asked for."""
        return np.asarray(rows_of(self, rows))

    def read_into(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write rows into `out`: ``(len(rows), block, ...)``. Rows that touch or overlap are read at once."""
        rows = checked_rows(np.asarray(rows), len(self))
        check_out(self, rows, out)
        starts = self._starts(rows)
        joins = (np.diff(starts) == self.stride) & (self.stride <= self.block)
        bounds = [0, *(np.flatnonzero(~joins) + 1).tolist(), len(starts)] if len(starts) else []
        for first, end in itertools.pairwise(bounds):
            start, last = int(starts[first]), int(starts[end - 1])
            read = np.asarray(self.values[start : last + self.block])
            blocks = np.lib.stride_tricks.sliding_window_view(read, self.block, axis=0)[:: self.stride]
            out[first:end] = np.moveaxis(blocks, -1, 1)

    def sample_name(self, row: int) -> str | None:
        """Return the values' name for the first value of the row, or the file that they are mapped from."""
        start = int(self._starts(np.array([row]))[0])
        return file_name(self.values) or sample_name(self.values, start)

    def file_paths(self, rows: Sequence[int]) -> list[str]:
        """Return the files that the values are read from."""
        return files_of_values(self.values)

    def __repr__(self) -> str:
        return f"TokenBlocks({len(self)} rows of {self.block}, every {self.stride}, of {array_words(self.values)})"

    def _starts(self, rows: np.ndarray) -> np.ndarray:
        """Return where in the values each of `rows` begins: ``(n,) int64``."""
        documents = np.searchsorted(self._firsts, rows, side="right") - 1
        return np.asarray(self._offsets[documents] + (rows - self._firsts[documents]) * self.stride)
