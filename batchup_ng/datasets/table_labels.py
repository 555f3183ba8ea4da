"""Labels out of the cells of a column: numbers of classes, several classes a sample, or targets."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..display import counted
from ..error_context import shortened
from ..errors import ArgumentError, ArgumentTypeError
from .files import checked_class_names
from .table_columns import Column, is_missing, odd_words, row_words

LISTS = (list, tuple, set, frozenset)
"""The types of a label that names several classes."""

SEPARATORS = ("|", ";", ",")
"""Possible separators between the classes of a label. If most labels contain one and none was given, the report says
so."""


def labels_of(
    name: str, values: Column, separator: str | None, class_names: Sequence[str] | None
) -> tuple[tuple[str, ...] | None, np.ndarray]:
    """Return the names of the classes (None if the labels are targets), and the label of each row."""
    values = [value.tolist() if isinstance(value, np.ndarray) else value for value in values]
    blank = separator is None  # else text without a name is of no class
    if missing := [
        row for row, value in enumerate(values)
        if is_missing(value) or (blank and isinstance(value, str) and not value.strip())
    ]:  # fmt: skip
        no_class = "''" if separator else "[]" if any(isinstance(value, LISTS) for value in values) else None
        hint = f"; give {no_class} to those that are of no class" if no_class else "; or name a class there, as 'none'"
        raise ArgumentError(
            f"label: {name!r} has no value in {counted(len(missing), 'row')}, {row_words(missing)}; leave those rows "
            f"out{hint}"
        )
    kinds = set(map(type, values))
    if separator is not None and kinds <= {str}:
        several = [[part.strip() for part in value.split(separator) if part.strip()] for value in values]
        return _several_hot(name, several, class_names)
    if values and all(isinstance(value, LISTS) for value in values):
        return _several_hot(name, _lists_of_text(name, values, separator), class_names)
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
    wanted = "text" if separator is not None else "text alone, numbers alone, or lists of text alone"
    raise ArgumentTypeError(f"label: {name!r} must hold {wanted}, {odd_words(values)}; convert it first")


def _several_hot(
    name: str, several: list[list[str]], class_names: Sequence[str] | None
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the names of the classes, and ``(n, n_classes) float32`` that is 1 for each class of a row."""
    names, ids = _numbered(name, several, class_names)
    labels = np.zeros((len(several), len(names)), np.float32)
    labels[np.repeat(np.arange(len(several)), list(map(len, several))), ids] = 1
    return names, labels


def _lists_of_text(name: str, values: Column, separator: str | None) -> list[list[str]]:
    if separator is not None:
        raise ArgumentError(f"separator is for labels of text, and {name!r} holds lists; leave separator= out")
    for row, value in enumerate(values):
        if not all(isinstance(each, str) for each in value):
            raise ArgumentTypeError(
                f"label: {name!r} must hold the names of classes as text in its lists, and row {row} holds "
                f"{shortened(repr(value), 80)}; pass [str(each) for each in ...] of each list, or lists of numbers as "
                f"columns=[{name!r}]"
            )
    return [[str(each) for each in value] for value in values]


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
    n = sum(isinstance(cell, str) and cell.startswith("[") and cell.endswith("]") for cell in cells)
    if 2 * n > len(cells):
        return (
            f"{n:,} of {len(cells):,} labels are lists that were written as text; from_table takes a table with lists, "
            f"and table[column].str.join('|') in pandas, before the file is written, makes text for separator='|'"
        )
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
