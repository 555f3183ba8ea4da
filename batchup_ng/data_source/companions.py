"""The companions that ``companions=`` of a map asks for."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import validation
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.companions import rows_node
from ..graph.node import Node
from ..sampling.companions import ClassCompanions, Companions, rows_in_order, rows_of
from .labels import grouped, label_column, values_of
from .looking import column_values


def companions_of(node: Node, given: Any) -> Companions | None:
    """Return what draws the companions of the samples of `node`, as ``companions=`` asks for them. None for none.

    Raises:
        ArgumentError: there are too few samples; no labels, or labels that a map makes.
        ArgumentTypeError: `given` is no number and no request, or the samples have no row numbers.
    """
    if given is None:
        return None
    of_class = isinstance(given, ClassCompanions)
    if not of_class and not isinstance(given, (int, np.integer)):
        raise ArgumentTypeError(
            f"companions must be the number of other samples for each sample, or same_class(1) or other_class(1), not "
            f"{given!r:.80}"
        )
    sampler = rows_node(node).sampler
    n, rows = rows_of(sampler)
    if not of_class:
        made = Companions(validation.positive_int("companions", given), n, rows)
        if made.fewest < made.count:
            raise ArgumentError(
                f"companions={made!r} needs at least {made.count + 1} samples, and this source has {n}; ask for fewer"
            )
        return made
    values = _classes(node, given.labels, np.arange(n) if rows is None else rows)
    classes = grouped("labels", values)[0]
    made = Companions(given.count, n, rows, classes, given.same)
    if made.fewest < made.count:
        raise ArgumentError(
            f"companions={made!r} needs at least {made.count} other samples of {'its own' if made.same else 'another'} "
            f"class for each sample, and {_worst(made, values, classes)}; leave such samples out by subset(...), or "
            f"join classes: labels="
        )
    return made


def _worst(made: Companions, values: np.ndarray, classes: np.ndarray) -> str:
    """Return in words how many companions the class has that has the fewest."""
    if not len(values):
        return "there are no samples"
    sizes = np.bincount(classes)
    worst = int(np.argmin(sizes) if made.same else np.argmax(sizes))
    name = values[classes == worst][0]
    return f"the class {name} has {sizes[worst]} samples" + ("" if made.same else f" of {len(values)}")


def _classes(node: Node, given: Any, rows: np.ndarray) -> np.ndarray:
    """Return the class of each of the sorted `rows`: ``(n,)``."""
    if given is None:
        given = label_column(node)
        if given is None:
            raise ArgumentError(
                "labels must name the column of the classes, same_class(1, labels='kind'), because this source has no "
                "column of labels"
            )
    if isinstance(given, (str, int, np.integer)) and not isinstance(given, bool):
        values = column_values("labels", node, given, rows)
        return values_of("labels", "the class", node, values, len(rows))
    in_order = rows_in_order(rows_node(node).sampler)
    values = values_of("labels", "the class", node, given, len(in_order))
    return np.asarray(values[np.unique(in_order, return_index=True)[1]])
