"""Columns of a batch, chosen by name or place.

A batch is a tuple of columns, which have places from 0, or a dict, whose columns have names. A negative place counts from
the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import validation
from .errors import ArgumentError, ArgumentTypeError


def column_names(name: str, columns: Any) -> list[Any]:
    """Return the names or places that a user gave as the argument `name`: one, or a list or tuple of them."""
    listed = list(columns) if isinstance(columns, (list, tuple)) else [columns]
    for column in listed:
        if not isinstance(column, str):
            try:
                validation.integer(name, column)
            except ArgumentTypeError:
                raise ArgumentTypeError(
                    f"{name} must be names of columns, or their places from 0, not {column!r}; pass 'age', or a list"
                ) from None
    if not listed or len(set(listed)) < len(listed):
        raise ArgumentError(f"{name} must be at least one column, each once, not {columns!r}")
    return listed


def place_in(batch: Any, column: Any) -> int:
    """Return the place of a column in a batch. Raise :class:`~batchup_ng.errors.ArgumentError` if there is none."""
    if isinstance(batch, Mapping):
        names = list(batch)
        return names.index(validation.one_of("columns", column, names))
    if isinstance(column, str):
        raise ArgumentError(
            f"columns must be places from 0 to {len(batch) - 1} here, for this batch is a tuple and its columns have no "
            f"names, not {column!r}; a source over a dict of arrays has names"
        )
    if not -len(batch) <= column < len(batch):
        raise ArgumentError(f"columns must be places of the {len(batch)} columns, from 0 on, not {column}")
    return int(column) % len(batch)


def picked(batch: Any, columns: Sequence[Any]) -> Any:
    """Return a batch of some columns of `batch`, in this order."""
    if isinstance(batch, Mapping):
        names = list(batch)
        return {names[place]: batch[names[place]] for place in [place_in(batch, column) for column in columns]}
    return tuple([batch[place_in(batch, column)] for column in columns])
