"""The statistics of a column as values of JSON."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from .column import ColumnStatistics
from .partial import STRINGS

NUMBERS = ("count", "missing", "mean", "std", "min", "max")
"""The fields that are a number, or an array of them."""


def as_json(column: ColumnStatistics) -> dict[str, Any]:
    """Return a column as values of JSON. Floats are exact, since JSON has their ``repr``."""
    told: dict[str, Any] = {"name": column.name, "dtype": column.dtype, "axis": column.axis}
    for field in NUMBERS:
        value = getattr(column, field)
        told[field] = value.tolist() if isinstance(value, np.ndarray) else value
    told["quantile_error"] = column.quantile_error
    told["tables"] = [[_packed(values), _packed(counts)] for values, counts in column.tables]
    if column.classes is not None and column.class_counts is not None:
        told["classes"] = [column.classes.tolist(), column.class_counts.tolist()]
    return told


def from_json(told: dict[str, Any]) -> ColumnStatistics:
    """Return the column of a result of :func:`as_json`."""
    dtype = np.dtype(np.str_ if told["dtype"] == STRINGS else told["dtype"])
    shaped = {field: np.array(told[field]) if isinstance(told[field], list) else told[field] for field in NUMBERS}
    classes, counts = told.get("classes") or (None, None)
    tables = [(_unpacked(values), _unpacked(counted)) for values, counted in told["tables"]]
    return ColumnStatistics(
        told["name"],
        told["dtype"],
        told["axis"],
        **shaped,
        quantile_error=told["quantile_error"],
        classes=None if classes is None else np.array(classes, dtype),
        class_counts=None if counts is None else np.array(counts, np.int64),
        tables=tables,
    )


def _packed(values: np.ndarray) -> list[str]:
    little = values.astype(values.dtype.newbyteorder("<"))
    return [little.dtype.str, base64.b64encode(little.tobytes()).decode()]


def _unpacked(told: list[str]) -> np.ndarray:
    dtype = np.dtype(told[0])
    if dtype.kind not in "biuf":
        raise ValueError(f"no numbers: {dtype}")
    return np.frombuffer(base64.b64decode(told[1], validate=True), dtype).astype(dtype.newbyteorder("="))
