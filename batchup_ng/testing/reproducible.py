"""The check that a source gives the same batches in every setting."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import validation
from ..data_source import PlannedDataSource
from ..error_context import function_name, map_of, shortened
from ..errors import ArgumentTypeError, BatchError, BatchupError, NotReproducible
from ..graph.arrays import ArraysNode
from ..graph.map import MapNode
from ..graph.node import Node, nodes_of
from ..graph.rows import NO_USER_METHODS
from ..randomness.numpy_rng import globals_kept
from .settings import ORDER, POOL_KINDS, Setting, Subject, settings


def assert_reproducible(
    source: PlannedDataSource,
    batch_size: int = 8,
    *,
    shuffle: int | None = 0,
    max_batches: int = 8,
    pools: Sequence[str] = ("serial", "threads", "processes"),
    batch_sizes: Sequence[int] | None = None,
) -> None:
    """Assert that a source gives the same batches, byte for byte, in every setting. One line of a test suite.

    The first batches of two epochs are read again and again: a second time; from the last to the first; without every
    other batch; into leased memory, as large batches use it; cut into other batches; by several ranks; resumed from a
    saved state; by pools of threads and of processes. The error names the first difference and the map, accessor,
    source or sampler at fault: the first node of the graph that differs when read alone. If a map has ``rng="batch"``,
    other batch sizes need only give the same rows.

    Args:
        source: A source with random access: the source that is handed to a pool, not the source that a pool returns.
        batch_size: Samples per batch.
        shuffle: A seed; None for the order of the rows.
        max_batches: How many batches of each epoch are compared, from its beginning.
        pools: The pools to test: ``"serial"``, ``"threads"``, ``"processes"``. Leave out any that you never use.
        batch_sizes: Other batch sizes to compare; None for a smaller one, a larger one, and all these batches in one.
            Pass ``()`` if the result for a sample may depend on the other samples of its batch (for example, a map
            draws from a global generator), or if the sampler takes no other size.

    Raises:
        NotReproducible: batches differ; an ``AssertionError``.
        ArgumentError: an option has an invalid value.
        ArgumentTypeError: `source` has no random access, or cannot be sent to processes; an option is of a wrong kind.
    """
    if not isinstance(source, PlannedDataSource) or not source.is_random_access:
        raise ArgumentTypeError(
            f"source must be a data source with random access, not a {type(source).__name__}; check the sources that a "
            f"stream is made of, or the one that was given to a pool; wrap arrays in ArrayDataSource([...])"
        )
    positive = validation.positive_int
    size = positive("batch_size", batch_size)
    kinds = _each("pools", pools, lambda name, kind: validation.one_of(name, kind, POOL_KINDS))
    most = positive("max_batches", max_batches)
    others = (max(1, size // 2), size + 5, size * most) if batch_sizes is None else batch_sizes
    sizes = list(dict.fromkeys(_each("batch_sizes", others, positive)))
    seed = None if shuffle is None else validation.not_negative("shuffle", shuffle)
    with globals_kept(), contextlib.ExitStack() as stack:
        root = Subject(source.node, size, seed, most)
        for setting in settings(root, stack, kinds, sizes):
            _check(root, setting)


def _each(name: str, values: Any, check: Callable[[str, Any], Any]) -> list[Any]:
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise ArgumentTypeError(f"{name} must be a list, not {values!r}; pass ({values!r},) for one")
    return [check(name, value) for value in values]


def _check(root: Subject, setting: Setting) -> None:
    words, epoch = setting.words, setting.epoch
    try:
        found = root.difference(setting)
    except Exception as error:
        if isinstance(error, BatchupError) and not isinstance(error, BatchError):
            raise  # the request itself is impossible
        raise NotReproducible(
            f"epoch {epoch} cannot be made when it {words}, though it can in a plain loop: {type(error).__name__}: "
            f"{shortened(str(error), 1000)}", setting=words, epoch=epoch, culprit=map_of(error) or "",
        ) from error  # fmt: skip
    if found:
        (batch, row, leaf, what), of_rows = found
        culprit, cause = _culprit(root, setting)
        raise NotReproducible(
            f"{'' if batch is None else f'batch {batch} of '}epoch {epoch} is not the same when it {words}: "
            f"{'its row numbers differ: ' * (of_rows and batch is not None)}{what}. {cause}",
            setting=words, epoch=epoch, batch=batch, row=row, leaf=leaf, culprit=culprit,
        )  # fmt: skip


def _culprit(root: Subject, setting: Setting) -> tuple[str, str]:
    """Return the name of the first node that differs when read alone, and a sentence about it."""
    for node in nodes_of(root.node):
        with contextlib.suppress(Exception):  # alone, it may have no batches of this size, or in this order
            if found := dataclasses.replace(root, node=node).difference(setting):
                name, words = _named(node, found[1])
                why, remedy = ORDER if found[1] else setting.cause
                return name, f"The first to differ is {words}: {why}. Remedy: {remedy}"
    return "", f"No part of the source differs by itself; perhaps {setting.cause[0]}. Remedy: {setting.cause[1]}"


def _named(node: Node, of_rows: bool) -> tuple[str, str]:
    """Return the name of the culprit at a node (function, sampler, accessor or source), and the name with its kind."""
    if of_rows:
        sampler: Any = getattr(node, "sampler", None)
        own = sampler is not None and type(sampler).__module__.partition(".")[0] != __name__.partition(".")[0]
        name = type(sampler).__name__ if own else node.name
        return name, f"the order that {name} gives"
    if isinstance(node, MapNode):
        name = function_name(node.fn)
        return name, f"map {name!r}"
    if type(node) is not ArraysNode or node.own != NO_USER_METHODS:
        return node.name, f"the source {node.name}"
    accessors = [type(array).__name__ for array in node.data if not isinstance(array, np.ndarray)]
    name = ", ".join(dict.fromkeys(accessors)) or "ndarray"
    return name, f"the data of an ArrayDataSource ({name})"
