"""Single samples of a source, for inspection: ``len(source)``, ``source[i]``, ``source[i:j]``."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import batch as nests
from ..accessors.base import chosen_rows
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.arrays import ArraysNode
from ..graph.map import MapNode
from ..graph.node import Node, nodes_of, numbered_length
from ..memory.leases import FRESH
from ..randomness import BatchKey
from ..randomness.numpy_rng import globals_kept
from .epoch.reading import MakeBatch

LABELS = "labels"
"""The name of the argument for errors, if a source's own labels are read."""

VALUES_READ_AT_ONCE = 4096
"""Number of values of a column to read together."""


def length_of(node: Node) -> int:
    """Return the number of samples in an epoch; an error if it never ends, or the number is not known."""
    n = node.num_samples()
    if n is None or n == math.inf:
        why = "is not known" if n is None else "has no end; bound it with take(n)"
        raise ArgumentTypeError(f"the number of samples of this {node.name} {why}, so it has no len()")
    return int(n)


def looked_at(which: Any, length: int, in_order: Callable[[np.ndarray], Any]) -> Any:
    """Return the sample or the batch at `which` of an unshuffled epoch, which `in_order` reads by positions."""
    chosen = chosen_rows(which, length)
    if not isinstance(chosen, int):
        return in_order(chosen)
    batch = nests.as_batch(in_order(np.array([chosen])))
    try:
        samples = list(nests.samples_of(batch))
    except (ArgumentError, TypeError):  # arrays of different lengths, or no arrays
        samples = []
    if len(samples) != 1:
        raise ArgumentError(
            f"sample {chosen} is not one row of each array of its batch, for a map resizes it or parts of the "
            f"source have a batch_size of their own; look at a batch: source[i : i + 1]"
        )
    return samples[0]


def read_in_order(node: Node, positions: np.ndarray, path: tuple[int, ...] = ()) -> Any:
    """Return the batch of the samples at `positions` of the unshuffled epoch 0.

    `path` is the node's place in the graph.
    """
    return read(node, node.rows_at(positions), key_in_order(positions)._replace(path=path))


def read(node: Node, rows: Any, key: BatchKey) -> Any:
    """Return the batch of `rows` of a plan, and leave the global generators as they are."""
    with globals_kept(key) if node.traits.runs_user_code else contextlib.nullcontext():
        return MakeBatch().read(node, rows, key, FRESH)


def column_values(name: str, node: Node, column: Any, rows: np.ndarray | None = None) -> np.ndarray:
    """Return the values of one column of all samples, in the order of the unshuffled epoch: ``(n, ...)``.

    `name` is the argument that named the column, for errors. `rows` are the rows to read, ``(n,) int``, if these are
    not all. Other columns are not read.

    Raises:
        ArgumentError: there is no such column, it comes out of a map, or its values differ in shape.
    """
    n = numbered_length("source", node) if rows is None else len(rows)
    node = of_known_form(node)
    try:
        narrow = node.only([column])
    except ArgumentError as error:
        of_files = isinstance(column, str) and node.reader_report() is not None
        remedy = f"; a column of a table is kept by from_table(..., columns=[{column!r}])" if of_files else ""
        raise ArgumentError(f"{name}: {error}{remedy}") from None
    if narrow is None:
        raise ArgumentError(_read_with_others(name, node, column))
    parts = [np.zeros(0)] if n == 0 else []
    for start in range(0, n, VALUES_READ_AT_ONCE):
        positions = np.arange(start, min(start + VALUES_READ_AT_ONCE, n))
        own = narrow.rows_at(positions) if rows is None else rows[positions]
        batch = nests.as_batch(read(narrow, own, key_in_order(positions)))
        values = list(nests.leaves(batch))
        if len(values) > 1:
            raise ArgumentError(f"{name} must be a column of one value for each sample, and {column!r} is nested")
        parts += values
    try:
        return np.concatenate(parts)
    except ValueError:
        raise ArgumentError(f"{name} must be a column whose values are of one shape, and {column!r} is not") from None


def _read_with_others(name: str, node: Node, column: Any) -> str:
    """Return the message for a column that cannot be read alone."""
    form = node.form()
    if form is None and name == LABELS:  # batches may be tuples or dicts
        remedy = "source.select('label')[:]['label'] of dicts, source.select(place)[:][0] of tuples, with its place"
    else:
        key = 0 if isinstance(column, int) or isinstance(form, tuple) else column
        remedy = f"source.select({column!r})[:][{key!r}]"
    if any(isinstance(each, MapNode) for each in nodes_of(node)):
        advice = "call this before the map, pass on= to the map if it leaves this column as it is, or read"
    else:
        advice = "read"
    return (
        f"{name} must be a column that can be read alone, and this {node.name} reads it together with others; "
        f"{advice} the column once and pass the array: {remedy}"
    )


def with_changed(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return a graph whose nodes were changed, from the leaves up."""
    before = node.children()
    after = [with_changed(child, change) for child in before]
    same = all(new is old for new, old in zip(after, before, strict=True))
    return change(node if same else node.with_children(after))


def of_known_form(node: Node) -> Node:
    """Return the graph with the form of its batches, if a sample of each map-style data set shows it."""
    if node.form() is not None or not any(isinstance(each, ArraysNode) for each in nodes_of(node)):
        return node
    try:
        with globals_kept(BatchKey()):
            return with_changed(node, lambda each: each.of_known_form() if isinstance(each, ArraysNode) else each)
    except ArgumentTypeError:  # a node that cannot be had over others
        return node


def key_in_order(positions: np.ndarray) -> BatchKey:
    """Return the key of a batch of the samples at `positions` of the unshuffled epoch."""
    start = int(positions[0]) if len(positions) else 0
    return BatchKey(start=start, offsets=positions - start)
