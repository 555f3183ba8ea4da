"""Labels out of the cells of a column: numbers of classes, several classes a sample, or targets."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..display import counted
from ..errors import ArgumentError, ArgumentTypeError
from .files import checked_class_names
from .table_columns import Column, odd_words, row_words

SEPARATORS = ("|", ";", ",")
"""Possible separators between the classes of a label. If most labels contain one and none was given, the report says
so."""


def labels_of(
    name: str, values: Column, separator: str | None, class_names: Sequence[str] | None
) -> tuple[tuple[str, ...] | None, np.ndarray]:
    """Return the names of the classes (None if the labels are targets), and the label of each row."""
    if missing := [row for row, value in enumerate(values) if value is None or (value == value) is not True]:
        hint = "; give '' to those that are of no class" if separator else ""
        raise ArgumentError(
            f"label: {name!r} has no value in {counted(len(missing), 'row')}, {row_words(missing)}; leave those rows "
            f"out{hint}"
        )
    kinds = set(map(type, values))
    if separator is not None and kinds <= {str}:
        several = [[part.strip() for part in value.split(separator) if part.strip()] for value in values]
        names, ids = _numbered(name, several, class_names)
        labels = np.zeros((len(values), len(names)), np.float32)
        labels[np.repeat(np.arange(len(values)), list(map(len, several))), ids] = 1
        return names, labels
    if separator is None and any(kinds <= kind for kind in ({int}, {bool}, {str})):
        return _numbered(name, [[value] for value in values], class_names)
    if separator is None and kinds <= {int, float}:
        with np.errstate(over="ignore"):
            numbers = np.array(values, np.float64).astype(np.float32)
        if large := [row for row in np.flatnonzero(np.isinf(numbers)) if not math.isinf(values[row])]:
            raise ArgumentError(
                f"label: {name!r} has numbers that float32 cannot hold, as {values[large[0]]!r} in row {large[0]}; "
                f"scale them"
            )
        return None, numbers
    wanted = "text" if separator is not None else "text alone, or numbers alone"
    raise ArgumentTypeError(f"label: {name!r} must hold {wanted}, {odd_words(values)}; convert it first")


def _numbered(
    name: str, several: list[Column], class_names: Sequence[str] | None
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the names of the classes, and the class numbers of all rows, one row after the other."""
    found = sorted({value for values in several for value in values})
    names = tuple(map(str, found)) if class_names is None else checked_class_names(class_names)
    by_name = {each: number for number, each in enumerate(names)}
    numbers = {value: by_name.get(str(value), -1) for value in found}
    ids = np.array([numbers[value] for values in several for value in values], np.int64)
    if unknown := [value for value in found if numbers[value] < 0]:
        rows = [row for row, values in enumerate(several) if not set(unknown).isdisjoint(values)]
        raise ArgumentError(
            f"class_names must name every class in {name!r}, and lacks {unknown[:10]}, in rows {row_words(rows)}; add "
            f"them, or leave those rows out"
        )
    return names, ids


def separator_hint(cells: Column) -> str:
    """Return advice on `separator` if most labels look like several classes, else an empty text."""
    for mark in SEPARATORS:
        n = sum(isinstance(cell, str) and mark in cell for cell in cells)
        if 2 * n > len(cells):
            return f"{n:,} of {len(cells):,} labels hold {mark!r}; separator={mark!r} makes each several classes"
    return ""


def class_counts(names: tuple[str, ...] | None, labels: list[np.ndarray]) -> dict[str, int]:
    """Return the number of samples of each class, by its name. Targets have no classes."""
    if names is None:
        return {}
    several = labels[0].ndim == 2
    counts = np.count_nonzero(labels[0], axis=0) if several else np.bincount(labels[0], minlength=len(names))
    return dict(zip(names, counts.tolist(), strict=True))
