"""The dtypes and shapes of the columns of a source, read from one sample.

One sample does not show which axes differ from sample to sample. Lists of arrays may differ in all. For padding, the
sample is made a second time with wider padding: axes that change are those that the padding of a batch decides, also
after the maps that follow. A function or a data set of the user may return any shapes, and numbers of several dtypes.
Then some more samples are made, each alone. Axes along which they differ are None, and the dtype is their common one.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from .. import batch as nests
from ..accessors.base import gather
from ..batch import NOTHING_LEFT, as_text
from ..error_context import raise_if_of_signal_handler
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.arrays import ArraysNode
from ..graph.choice import ChoiceNode
from ..graph.composite import CompositeNode
from ..graph.indexed import with_rows
from ..graph.map import MapNode
from ..graph.node import Node, nodes_of
from ..graph.rearranged import SubsetNode
from ..memory.leases import FRESH
from ..padding import PadColumns
from ..randomness import BatchKey, OrderKey
from ..randomness.numpy_rng import globals_kept
from ..sampling.plans.rows import read_only
from .looking import read, read_in_order, with_changed

MOST_BATCHES = 1000
"""Batches to read until a lazy filter has left a sample."""


class Column(NamedTuple):
    """What a column holds. Its samples lie along the first axis; None is an axis along which they may differ.

    The dtype is that of the arrays in a batch. If a batch has a list, it is the dtype of the first sample as an array:
    ``dtype(str)`` or ``dtype(bytes)``, without a length, for text and bytes, ``dtype(object)`` for values that are
    neither numbers, text nor arrays of them, and for arrays with different numbers of axes. If the first sample is a
    list without a value, the dtype is None, and samples may have more axes.
    """

    dtype: np.dtype[Any] | None
    shape: tuple[int | None, ...]


MORE_SAMPLES = 3
"""Samples that are compared with the first one."""

NO_SAMPLE = "columns are read from a sample, and this source has none"


def columns_of(node: Node) -> Any:
    """Return the columns of a source in the structure of a batch, each as a :class:`Column`."""
    if not node.is_random_access:
        raise ArgumentTypeError(
            f"columns are read from a sample, and a {node.name} only streams, so a sample that was read would be "
            f"missing; look at a batch: next(source.batch_iterator(2))"
        )
    n = node.num_samples()
    if n == 0:
        node = _over_samples(node)
    first = _first_batch(node)
    others = [_widened(node, first), *_more(node, first)]
    known = n is not None and n != math.inf and not any(map(_has_any_number, nodes_of(node)))

    def told(leaf: Any, like: Sequence[Any]) -> Column:
        dtype, shape = _kind_of_all(leaf, like)
        # A collate function may make anything of the samples, a composite takes several of a part.
        counted = known and shape[:1] == (first.n,)
        return Column(dtype, (int(n) if counted else None, *shape[1:]))

    like = _side_by_side(first.batch, others)
    return nests.map_leaves(lambda leaf: told(leaf, next(like, ())), first.batch)


def columns_of_arrays(node: ArraysNode) -> Any:
    """Return the columns of `node` in the structure of a batch: those with dtype and shape as they are, others as a
    :class:`Column`, from their first row, or with the byte order of batches.
    """
    n = len(node.data[0])

    def known(array: Any) -> bool:
        return hasattr(array, "dtype") and hasattr(array, "shape")

    if n == 0 and not all(map(known, node.data)):
        raise ArgumentError(NO_SAMPLE)

    def read_one(row: int) -> Any:
        rows = read_only(np.arange(row, row + 1))
        with globals_kept(BatchKey()):
            batch = node.joined([each if known(each) else gather(each, rows, FRESH) for each in node.data])
        return with_rows(batch, np.arange(n)) if node.include_indices else batch

    batch = read_one(0)
    more: list[list[Any]] = []
    if node.stacks_samples(None):
        more = _leaves_made([functools.partial(read_one, row) for row in _places(n)])
    stay = {id(each) for each in node.data if known(each) and getattr(each.dtype, "isnative", True)}
    like = _side_by_side(batch, more)

    def told(leaf: Any, others: Sequence[Any]) -> Any:
        if id(leaf) in stay:
            return leaf
        dtype, shape = _kind_of_all(leaf, others)
        return Column(dtype, (n, *shape[1:]))

    return nests.map_leaves(lambda leaf: told(leaf, next(like, ())), batch)


def _side_by_side(batch: Any, others: Sequence[list[Any]]) -> Iterator[Sequence[Any]]:
    """Return an iterator that gives the parts of other batches for each part of `batch`."""
    n_leaves = len(list(nests.leaves(batch)))
    return zip(*[other for other in others if len(other) == n_leaves], strict=True)


def _kind_of_all(leaf: Any, like: Sequence[Any]) -> tuple[Any, tuple[int | None, ...]]:
    """Return dtype and shape of the part `leaf` of a batch, and of the parts `like` it of other batches."""
    dtype, shape = _kind(leaf)
    for other in like if hasattr(leaf, "shape") else ():
        if len(getattr(other, "shape", shape)) != len(shape):
            return np.dtype(object), shape[:1]
        if hasattr(other, "shape"):
            shape = tuple(axis if axis == length else None for axis, length in zip(shape, other.shape, strict=True))
        own = getattr(other, "dtype", None)
        if isinstance(own, np.dtype) and isinstance(dtype, np.dtype):
            numbers = own.kind in "biufc" and dtype.kind in "biufc"
            dtype = np.result_type(dtype, own) if numbers or as_text(dtype, own) else dtype
    return dtype, shape


def _has_any_number(node: Node) -> bool:
    """Return whether an epoch may have another number of samples of this node than ``num_samples`` says."""
    own = node.own_traits()
    uneven = isinstance(node, CompositeNode) and not node.trim
    return own.resizes or own.filters or uneven or isinstance(node, ChoiceNode)


class _First(NamedTuple):
    """The batch that the columns are read from, its rows, and the number of its samples."""

    batch: Any
    rows: Any
    n: int


def _first_batch(node: Node) -> _First:
    """Return a batch of the first sample in order. Samples without an order: the first batch of an epoch that has any.

    Samplers of whole batches, which have a batch size of their own, give such a batch.
    """
    if node.num_samples() == 0:
        raise ArgumentError(NO_SAMPLE)
    try:
        rows = node.rows_at(np.arange(1))
    except ArgumentTypeError:
        size = max(each.own_batch_size or 1 for each in nodes_of(node))
        plan = node.row_plan(size, OrderKey(seed=0, epoch=0), False)
        for number, rows in enumerate(plan.walk()):
            batch = read(node, rows, BatchKey())
            if batch is not NOTHING_LEFT:
                return _First(nests.as_batch(batch), rows, size)
            if number == MOST_BATCHES:
                break
        raise ArgumentError(NO_SAMPLE) from None
    return _First(nests.as_batch(read_in_order(node, np.arange(1))), rows, 1)


def _kind(leaf: Any) -> tuple[Any, tuple[int | None, ...]]:
    """Return dtype and shape of the part `leaf` of a batch. None is not known from one sample."""
    if hasattr(leaf, "dtype") and hasattr(leaf, "shape"):
        dtype = leaf.dtype.newbyteorder("=") if isinstance(leaf.dtype, np.dtype) else leaf.dtype  # as batches have it
        return dtype, (*leaf.shape[:1], *leaf.shape[1:])
    n = len(leaf) if isinstance(leaf, (list, tuple)) else 1
    first: Any = leaf[0] if isinstance(leaf, (list, tuple)) and n else None
    if isinstance(first, (str, bytes)):
        return np.dtype(type(first)), (n,)
    listed = isinstance(first, (list, tuple, bool, int, float, complex))
    if listed:
        try:
            first = np.asarray(first)
        except (ValueError, OverflowError):  # lists of different lengths
            first = None
    if hasattr(first, "dtype") and hasattr(first, "shape"):
        dtype = None if listed and not first.size else first.dtype
        return dtype, (n, *[None] * len(first.shape))
    return np.dtype(object), (n,)


def _over_samples(node: Node) -> Node:
    """Return an empty graph without its subsets: over all samples of their sources."""

    def whole(each: Node) -> Node:
        return each.children()[0] if isinstance(each, SubsetNode) else each

    try:
        return with_changed(node, whole)
    except ArgumentTypeError:
        raise ArgumentError(NO_SAMPLE) from None


def _widened(node: Node, first: _First) -> list[Any]:
    """Return the parts of the first batch with wider padding; none if no map pads to the longest sample."""

    def wider(each: Node) -> Node:
        fn = each.fn.wider() if isinstance(each, MapNode) and isinstance(each.fn, PadColumns) else None
        if fn is None:
            return each
        made = copy.copy(each)
        made.fn = fn  # type: ignore[attr-defined]  # of a MapNode
        return made

    try:
        changed = with_changed(node, wider)
        return [] if changed is node else list(nests.leaves(nests.as_batch(read(changed, first.rows, BatchKey()))))
    except Exception as error:  # a map that follows does not take another length
        raise_if_of_signal_handler(error)
        return []


def _more(node: Node, first: _First) -> list[list[Any]]:
    """Return the parts of some more batches of as many samples, if a function or a data set of the user makes arrays of
    several axes, or single samples.
    """
    in_batch = [len(getattr(leaf, "shape", ())) for leaf in nests.leaves(first.batch)]
    several_axes = max(in_batch, default=0) > 1 and any(map(_makes_any_shape, nodes_of(node)))
    if not several_axes and not node.stacks_samples(None):
        return []
    return _leaves_made(_reads(node, first, _places(node.num_samples())))


def _places(n: Any) -> Sequence[int]:
    """Return the positions of the samples that are compared with the first of `n`, which may be endless or unknown."""
    places = {1, int(n) // 2, int(n) - 1} if n is not None and n != math.inf else set(range(1, 1 + MORE_SAMPLES))
    return sorted(places - {0, n})


def _leaves_made(reads: Iterable[Callable[[], Any]]) -> list[list[Any]]:
    """Return the parts of the batches that these functions read. Samples that cannot be made do not count."""
    made = []
    for read_one in reads:
        try:
            batch = read_one()
        except Exception as error:
            raise_if_of_signal_handler(error)
            continue
        if batch is not NOTHING_LEFT:
            made.append(list(nests.leaves(nests.as_batch(batch))))
    return made


def _makes_any_shape(node: Node) -> bool:
    """Return whether a node runs a function whose results may have other axes for other samples."""
    return node.own_traits().runs_user_code and not (isinstance(node, MapNode) and isinstance(node.fn, PadColumns))


def _reads(node: Node, first: _First, positions: Sequence[int]) -> Iterator[Callable[[], Any]]:
    """Yield functions that read the samples at these positions in order. Samples without an order: the next batches."""
    try:
        node.rows_at(np.arange(1))
    except ArgumentTypeError:
        plan = node.row_plan(first.n, OrderKey(seed=0, epoch=0), False)
        for rows in islice(plan.walk(), 1, 1 + MORE_SAMPLES):
            yield functools.partial(read, node, rows, BatchKey())
        return
    for position in positions:
        yield functools.partial(read_in_order, node, np.array([position]))
