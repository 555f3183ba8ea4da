"""Lists of texts and of arrays as columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from .packed_texts import PackedTexts
from .ragged import Ragged


def of_list(name: str, column: Any) -> Any:
    """Return a list of texts, or of arrays or lists, as an accessor that workers share. Return other columns unchanged.

    Arrays of one shape become one array, others a :class:`~batchup_ng.Ragged`.

    Raises:
        ArgumentTypeError: the arrays differ in dtype, or in another axis than the first.
    """
    if not isinstance(column, (list, tuple)) or not column:
        return column
    if all(isinstance(row, str) for row in column) or all(isinstance(row, bytes) for row in column):
        return PackedTexts(column)
    if not all(isinstance(row, (np.ndarray, list, tuple)) for row in column):
        return column
    try:
        rows = Ragged.from_rows(column)
    except ArgumentError as error:
        raise ArgumentTypeError(f"{name} is a {type(column).__name__} of arrays, and {error}") from error
    n = len(rows.values) // len(rows)
    return rows.values.reshape(len(rows), n, *rows.values.shape[1:]) if (rows.lengths == n).all() else rows
