"""Functions over nodes that compose them: parts of an epoch, repetitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import validation
from ..errors import ArgumentTypeError
from ..graph.node import Node, numbered_length
from ..graph.rearranged import SubsetNode
from ..graph.rounds import RoundsNode
from ..sampling.standard import row_numbers
from .error_list import excluded_positions


def subset_of(node: Node, rows: Any = None, exclude: Any = None) -> SubsetNode:
    """Return the node of the samples at positions `rows`, without those of `exclude`."""
    if exclude is None:
        if rows is None:
            raise ArgumentTypeError("rows must be positions of samples, not None; pass them, or exclude=")
        return SubsetNode(node, rows)
    n = numbered_length("source", node)
    left_out = excluded_positions(exclude, node, n)
    kept = np.arange(n) if rows is None else row_numbers("rows", rows)
    return SubsetNode(node, kept[~np.isin(np.where(kept < 0, kept + n, kept), left_out)])


def repeated(node: Node, times: int) -> Node:
    """Return the node whose epoch is `times` epochs of `node`."""
    times = validation.repeats(times)
    if node.permutes_rows() and node.num_samples() > 0:
        return SubsetNode(node, None, repeats=times)
    return RoundsNode(node, times)
