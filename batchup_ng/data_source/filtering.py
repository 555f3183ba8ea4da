"""The node of the samples that a predicate keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import batch as nests
from ..batch import as_batch
from ..columns import column_names, picked
from ..error_context import function_name
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.map import call
from ..graph.node import Node, numbered_length
from ..graph.rearranged import SubsetNode
from .looking import read_in_order

SAMPLES_READ_AT_ONCE = 256
"""Number of samples to read together."""


def filtered(node: Node, predicate: Callable[..., Any], columns: Any = None) -> SubsetNode:
    """Return a node with the samples of `node` that `predicate` keeps: see the method ``filter`` of a source."""
    if not callable(predicate):
        raise ArgumentTypeError(f"predicate must be a function of a sample, not a {type(predicate).__name__}")
    if not node.is_random_access:
        raise ArgumentTypeError(
            f"filter reads samples by number, and this {node.name} only streams; filter what is handed "
            f"to a pool before, or leave samples out in the function that makes the batches"
        )
    n = numbered_length("source", node)
    names = None if columns is None else column_names("columns", columns)
    narrow = None if names is None else node.only(names)
    keep = np.zeros(n, dtype=bool)
    for start in range(0, n, SAMPLES_READ_AT_ONCE):
        positions = np.arange(start, min(start + SAMPLES_READ_AT_ONCE, n))
        batch = read_in_order(node if narrow is None else narrow, positions)
        if names is not None and narrow is None:
            batch = picked(as_batch(batch), names)
        kept = [_decided(predicate, sample) for sample in nests.samples_of(batch)]
        if len(kept) != len(positions):
            raise ArgumentError(
                f"the maps make {len(kept)} samples of {len(positions)}, so that they cannot be told apart; filter "
                f"before the map that changes their number"
            )
        keep[positions] = kept
    return SubsetNode(node, np.flatnonzero(keep))


def _decided(predicate: Callable[..., Any], sample: Any) -> bool:
    answer = call(predicate, sample, chooses="columns")
    if isinstance(answer, (bool, np.bool_)) or (getattr(answer, "ndim", -1) == 0 and "bool" in str(answer.dtype)):
        return bool(answer)
    raise ArgumentTypeError(
        f"predicate {function_name(predicate)!r} must return True or False for one sample, not a "
        f"{type(answer).__name__}; it is called with the parts of a sample, as map_samples calls its function"
    )
