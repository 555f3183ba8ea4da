"""Reads samples together with their companions: other rows of the same node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import batch as nests
from ..batch import as_batch
from ..batch_layout import copied
from ..error_context import function_name
from ..errors import ArgumentError, ArgumentTypeError, MapResultError
from ..memory.leases import Buffers
from ..randomness import BatchKey
from ..sampling.companions import Companions
from ..sampling.plans.rows import read_only
from .node import Node
from .rows import RowsNode
from .wrapped import WrapperNode


def check_count(fn: Callable[..., Any], companions: Companions | None) -> None:
    """Raise :class:`~batchup_ng.errors.ArgumentError` if an operation of ours takes another number of companions."""
    counts = fn.companion_counts if hasattr(type(fn), "companion_counts") else None  # type: ignore[attr-defined]
    given = 0 if companions is None else companions.count
    if counts is not None and given not in counts:
        first = getattr(fn, "operations", (fn,))[:1] or (fn,)
        remedy = f"pass map(..., companions={counts[-1]})"
        if not counts[-1]:
            remedy = "leave companions= out; only the first operation of a chain takes them"
        raise ArgumentError(
            f"companions must be {' or '.join(map(str, counts))} for {function_name(first[0])}, not {given}; {remedy}"
        )


def rows_node(node: Node) -> RowsNode:
    """Return the node whose rows number the samples of `node`, for companions.

    Raises:
        ArgumentTypeError: the samples have no such rows.
        ArgumentError: a map or a filter changes their number.
    """
    traits = node.traits
    if traits.filters:
        raise ArgumentError(
            "companions must be samples that are there, and a lazy filter leaves some out as batches are made; filter "
            "without lazy=True, or apply the lazy filter after the map with companions="
        )
    if traits.resizes:
        raise ArgumentError(
            "companions need one sample for each row, and a map below changes the number of samples; apply that map "
            "after the map with companions="
        )
    below = node
    while isinstance(below, WrapperNode):
        below = below.source
    if not isinstance(below, RowsNode) or below.own.lister is not None:
        remedy = "apply the map to what is handed to the pool" if traits.of_pool else "apply the map to its parts"
        raise ArgumentTypeError(
            f"companions must be samples with row numbers, and the samples of a {below.name} have none; "
            f"{remedy if below.children() else 'use a source of arrays, accessors or files'}"
        )
    return below


def read_with(
    source: Node, companions: Companions, rows: np.ndarray, key: BatchKey, buffers: Buffers
) -> tuple[Any, list[Any]]:
    """Return the batch of `rows`, and a batch of the first companion of each, of the second, and so on.

    One read of `source` reads all of them. `key` is the key of the batch at the node that asks. The batch of `rows` has
    memory of its own.
    """
    n = len(rows)
    drawn = companions.drawn(key, rows)
    every = read_only(np.concatenate([rows, drawn.reshape(-1)]))
    batch = as_batch(source.read(every, key.with_companions(n, len(drawn)).child(0), buffers.scratch))
    if nests.lengths(batch) - {len(every)}:
        raise MapResultError(
            f"a {source.name} read {sorted(nests.lengths(batch))} samples for the {len(every)} rows of {n} samples "
            f"with {len(drawn)} companions each; let it return a row for each"
        )
    parts = [_between(batch, number * n, (number + 1) * n) for number in range(1 + len(drawn))]
    return nests.map_leaves(lambda leaf: leaf if type(leaf) is list else copied(leaf), parts[0]), parts[1:]


def _between(batch: Any, start: int, end: int) -> Any:
    """Return some samples of a batch, as views."""

    def cut(leaf: Any) -> Any:
        has_rows = type(leaf) is list or bool(getattr(leaf, "ndim", 0))
        return leaf[start:end] if has_rows else leaf

    return nests.map_leaves(cut, batch)
