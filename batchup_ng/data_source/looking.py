"""Single samples of a source, for inspection: ``len(source)``, ``source[i]``, ``source[i:j]``."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import batch as nests
from ..accessors.base import chosen_rows, gather
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.arrays import ArraysNode
from ..graph.indexed import with_rows
from ..graph.node import Node, numbered_length
from ..memory.leases import FRESH
from ..randomness import BatchKey
from ..randomness.numpy_rng import globals_kept
from ..sampling.plans.rows import read_only
from .epoch.reading import MakeBatch

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
    key = key_in_order(positions)._replace(path=path)
    with globals_kept(key) if node.traits.runs_user_code else contextlib.nullcontext():
        return MakeBatch().read(node, node.rows_at(positions), key, FRESH)


class Column(NamedTuple):
    """What a column holds. Its samples lie along the first axis; None is an axis along which they may differ.

    The dtype is that of the arrays in a batch. If a batch has a list, it is the dtype of the first sample as an array:
    ``dtype(str)`` or ``dtype(bytes)``, without a length, for text and bytes, ``dtype(object)`` for values that are
    neither numbers, text nor arrays of them.
    """

    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]


NO_SAMPLE = "columns are read from a sample, and this source has none"


def columns_of(length: int, in_order: Callable[[np.ndarray], Any]) -> Any:
    """Return the columns of `length` samples in the structure of a batch. `in_order` reads one, by its position."""
    if length == 0:
        raise ArgumentError(NO_SAMPLE)
    return nests.map_leaves(lambda leaf: _column(leaf, length), nests.as_batch(in_order(np.arange(1))))


def columns_of_arrays(node: ArraysNode) -> Any:
    """Return the columns of `node` in the structure of a batch: those with dtype and shape as they are, others as a
    :class:`Column`, from their first row, or with the byte order of batches.
    """
    n = len(node.data[0])

    def known(array: Any) -> bool:
        return hasattr(array, "dtype") and hasattr(array, "shape")

    if n == 0 and not all(map(known, node.data)):
        raise ArgumentError(NO_SAMPLE)
    batch = node.joined([each if known(each) else gather(each, read_only(np.arange(1)), FRESH) for each in node.data])
    if node.include_indices:
        batch = with_rows(batch, np.arange(n))
    stay = {id(each) for each in node.data if known(each) and getattr(each.dtype, "isnative", True)}
    return nests.map_leaves(lambda leaf: leaf if id(leaf) in stay else _column(leaf, n), batch)


def _column(leaf: Any, n: int) -> Column:
    """Return what a column of `n` samples holds, from a batch of one."""
    if hasattr(leaf, "dtype") and hasattr(leaf, "shape"):
        dtype = leaf.dtype.newbyteorder("=") if isinstance(leaf.dtype, np.dtype) else leaf.dtype  # as batches have it
        return Column(dtype, (n, *leaf.shape[1:]))
    first: Any = leaf[0] if isinstance(leaf, (list, tuple)) and len(leaf) else None
    if isinstance(first, (str, bytes)):
        return Column(np.dtype(type(first)), (n,))
    if isinstance(first, (list, tuple, bool, int, float, complex)):
        try:
            first = np.asarray(first)
        except (ValueError, OverflowError):  # lists of different lengths
            first = None
    if hasattr(first, "dtype") and hasattr(first, "shape"):
        return Column(first.dtype, (n, *[None] * len(first.shape)))
    return Column(np.dtype(object), (n,))


def column_values(name: str, node: Node, column: Any) -> np.ndarray:
    """Return the values of one column of all samples, in the order of the unshuffled epoch: ``(n, ...)``.

    `name` is the argument that named the column, for errors. Other columns are not read.

    Raises:
        ArgumentError: there is no such column, it comes out of a map, or its values differ in shape.
    """
    n = numbered_length("source", node)
    try:
        narrow = node.only([column])
    except ArgumentError as error:
        raise ArgumentError(f"{name}: {error}") from None
    if narrow is None:
        key = 0 if isinstance(column, int) or isinstance(node.form(), tuple) else column
        raise ArgumentError(
            f"{name} must be a column that can be read alone, and a {node.name} makes it, together with others; call "
            f"this before the map, pass on= to the map if it leaves this column as it is, or read the column once and "
            f"pass the array: source.select({column!r})[:][{key!r}]"
        )
    parts = [np.zeros(0)] if n == 0 else []
    for start in range(0, n, VALUES_READ_AT_ONCE):
        batch = nests.as_batch(read_in_order(narrow, np.arange(start, min(start + VALUES_READ_AT_ONCE, n))))
        (values,) = nests.leaves(batch)
        parts.append(values)
    try:
        return np.concatenate(parts)
    except ValueError:
        raise ArgumentError(f"{name} must be a column whose values are of one shape, and {column!r} is not") from None


def key_in_order(positions: np.ndarray) -> BatchKey:
    """Return the key of a batch of the samples at `positions` of the unshuffled epoch."""
    start = int(positions[0]) if len(positions) else 0
    return BatchKey(start=start, offsets=positions - start)
