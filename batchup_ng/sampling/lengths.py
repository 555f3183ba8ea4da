"""The lengths of rows, for samplers that use them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ArgumentError
from .base import whole_numbers
from .standard import row_numbers


def row_lengths(lengths: Any) -> np.ndarray:
    """Return a user's lengths of rows, ``(n,) int64``, none negative."""
    sizes = whole_numbers("lengths", lengths, "pass [len(row) for row in rows]")
    if len(sizes) and int(sizes.min()) < 0:
        row = int(np.argmin(sizes))
        raise ArgumentError(f"lengths must not be negative, but lengths[{row}] is {sizes[row]}; pass the true one")
    return sizes


def chosen_rows(indices: Any, n_rows: int) -> np.ndarray:
    """Return the rows that a user chose of `n_rows`, ``(m,) int64``, as an array of its own."""
    rows = row_numbers("indices", indices)
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < n_rows:
        raise ArgumentError(
            f"indices must be row numbers from 0, below {n_rows}, and reach from {rows.min()} to {rows.max()}"
        )
    return rows


def check_longest(sizes: np.ndarray, rows: np.ndarray | None, most: int, remedy: str) -> None:
    """Raise unless all `sizes` are at most `most`, the ``max_tokens`` of a batch; None for `rows` means all of them."""
    if len(sizes) and int(sizes.max()) > most:
        first = int(np.argmax(sizes > most))
        raise ArgumentError(
            f"max_tokens is {most}, and row {first if rows is None else rows[first]} alone is longer: {sizes[first]}; "
            f"raise it, {remedy}or leave such rows out with indices=numpy.flatnonzero(lengths <= {most})"
        )
