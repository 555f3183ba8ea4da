"""The length of each sample of a column, as samplers of similar lengths take it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import batch as nests
from ..columns import keys_in, with_places
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.map import MapNode
from ..graph.node import Node, numbered_length
from ..padding import PadColumns
from .looking import read_in_order

if TYPE_CHECKING:
    from .source import AbstractDataSource

SAMPLES_READ_AT_ONCE = 1024
"""Number of samples to read together."""


def lengths(source: AbstractDataSource, column: Any) -> np.ndarray:
    """Return the length of each sample in a column, in the order of the unshuffled epoch: ``(n,) int64``.

    The length is ``len(value)``: tokens of an array, characters of a text. This reads every sample once, with the maps
    before, on your thread; a source of arrays reads no other column. Random maps draw the numbers of epoch 0. A
    :class:`~batchup_ng.Ragged` has its lengths without reading: ``ragged.lengths``.

    Args:
        column: The name of the column, or its place if batches are tuples.

    Raises:
        ArgumentError: there is no such column, or a map or a lazy filter changes the number of samples.
        ArgumentTypeError: the values are single numbers, the source only streams, or its samples have no order (a
            choice, a draw by weight).

    >>> import batchup_ng as bu
    >>> words = bu.ArrayDataSource({"text": ["to be", "or", "not to be"]}).map(
    ...     lambda texts: [text.split() for text in texts], on="text")
    >>> words.lengths("text")
    array([2, 1, 3])
    """
    return sizes(source, column, numbers=False)


def sizes(source: AbstractDataSource, column: Any, *, numbers: bool) -> np.ndarray:
    """Return what :func:`lengths` returns; with `numbers`, a column of whole numbers may hold the lengths itself."""
    n, node = numbered_length("source", source.node), source.node
    try:
        alone = node.only([column])
    except ArgumentError as error:
        raise ArgumentError(f"column: {error}") from None
    form = node.form()
    read = _padded_alone(node) if alone is None else alone
    found = np.empty(n, np.int64)
    for start in range(0, n, SAMPLES_READ_AT_ONCE):
        positions = np.arange(start, min(start + SAMPLES_READ_AT_ONCE, n))
        batch = nests.as_batch(read_in_order(read, positions))
        if alone is None:
            (key,) = keys_in(batch, with_places(form, [column]))
            values = batch[key]
        else:
            (values,) = batch.values() if isinstance(batch, dict) else batch
        if len(values) != len(positions):
            raise ArgumentError(
                f"column {column!r} must have one value for each sample, not {len(values)} for {len(positions)}, for "
                f"a map or a lazy filter changes their number; call lengths before it"
            )
        if numbers and isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "iu":
            found[positions] = values
            continue
        try:
            found[positions] = [len(value) for value in values]
        except TypeError:
            raise ArgumentTypeError(
                f"column {column!r} must hold values that have a length, such as arrays or texts, not single values; "
                f"name another column, or pass the numbers themselves to the sampler"
            ) from None
    return found


def _padded_alone(node: Node) -> Node:
    """Return a node that pads columns of dicts without the columns that stay as they are; any other node itself."""
    if isinstance(node, MapNode) and isinstance(node.fn, PadColumns) and isinstance(node.source.form(), Mapping):
        narrow = node.source.only(node.fn.columns)
        return node if narrow is None else node.with_children([narrow])
    return node
