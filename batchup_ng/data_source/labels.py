"""One value for each sample of a source, such as its label: out of a column, or as the user gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..batch import refuse_masked
from ..columns import Places
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.node import Node
from .looking import LABELS, column_values, of_known_form

LABEL = "label"
"""The name of the column of labels. In tuples whose columns have no names it is the second one."""


def labels_of(node: Node) -> np.ndarray | None:
    """Return the label of each sample, in the order of the unshuffled epoch: ``(n, ...)``. None without labels.

    Raises:
        ArgumentError: a map makes the columns, so the labels cannot be read alone.
        ArgumentTypeError: the samples have no numbers.
    """
    column = label_column(node)
    return None if column is None else column_values(LABELS, node, column)


def label_column(node: Node) -> Any:
    """Return the name or place of the column of labels. None if there is none."""
    form = of_known_form(node).form()
    named = form if isinstance(form, Mapping) else form.names if isinstance(form, Places) else None
    if form is not None and (LABEL not in named if named is not None else len(form) < 2):
        return None
    return LABEL if named is not None else 1


def values_of(name: str, noun: str, node: Node, given: Any, n: int) -> np.ndarray:
    """Return one value for each of the `n` samples of `node`: ``(n,)``.

    Args:
        name: The argument, for errors.
        noun: The noun for one value, for errors: ``"the class"``.
        given: The name or place of a column, or the values.

    Raises:
        ArgumentError: there is no such column, a map makes it, or there is not one value for each sample.
    """
    if isinstance(given, (str, int, np.integer)) and not isinstance(given, bool):
        given = column_values(name, node, given)
    refuse_masked(name, given)
    try:
        values = np.asarray(given)
    except ValueError:
        raise ArgumentTypeError(f"{name} must hold {noun} of each sample, not lists of different lengths") from None
    if values.ndim > 1 and len(values) == n:
        raise ArgumentError(
            f"{name} must hold {noun} of each of the {n} samples, and has several values for each, of shape "
            f"{values.shape}; join these to one value, such as the text of all tags of a sample ('cat|indoors'), and "
            f"pass the column of that text, or an array of shape ({n},)"
        )
    if values.shape != (n,):
        raise ArgumentError(
            f"{name} must hold {noun} of each of the {n} samples, not be of shape {values.shape}; pass the name of a "
            f"column, or an array with one value for each sample of this source"
        )
    return values


def grouped(name: str, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of the class of each sample, in the sorted order of the classes, and the size of each class.

    Samples without a class (NaN) form a class too.
    """
    try:
        _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    except TypeError:
        raise ArgumentTypeError(
            f"{name} must hold classes of one kind, numbers or strings, that can be sorted; give None, or what else "
            f"is among them, a class of that kind"
        ) from None
    return which, counts
