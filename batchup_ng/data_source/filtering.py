"""The node of the samples that a predicate keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import validation
from ..batch import as_batch
from ..columns import column_names, with_places
from ..display import progress_of
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.filtered import FilterNode, checked_predicate, decisions, in_places
from ..graph.node import Node, numbered_length
from ..graph.rearranged import SubsetNode
from .contents import contents_digest
from .filter_file import FilterFile
from .looking import read_in_order

SAMPLES_READ_AT_ONCE = 256
"""Number of samples to read together."""


def filtered(
    node: Node, predicate: Callable[..., Any], on: Any, cache: Any, lazy: Any, progress: Any
) -> SubsetNode | FilterNode:
    """Return a node with the samples of `node` that `predicate` keeps: see the method ``filter`` of a source."""
    checked_predicate(predicate)
    if validation.true_or_false("lazy", lazy):
        if cache is not None:
            raise ArgumentError(f"cache must be left out with lazy=True, which keeps no answer, not {cache!r:.80}")
        return FilterNode(node, predicate, on)
    if not node.is_random_access:
        raise ArgumentTypeError(
            f"filter reads samples by number, and this {node.name} only streams; pass lazy=True, or filter what is "
            f"handed to a pool before"
        )
    n = numbered_length("source", node)
    names = None if on is None else with_places(node.form(), column_names("on", on))
    narrow = None if names is None else node.only(names)
    read = node if narrow is None else narrow
    shown = progress_of(progress, "filter", " samples")
    file = None if cache is None else FilterFile(cache)
    if file is not None:
        digest = contents_digest(read, predicate, names)
        keep = file.read(digest, n)
        if keep is not None:
            return SubsetNode(node, np.flatnonzero(keep))
    if narrow is not None and isinstance(narrow.form(), tuple):
        names = list(range(len(narrow.form())))  # the places of the columns there
    decided = _decisions(read, n, predicate, names, on, node.form())
    keep = np.fromiter(shown(decided, total=n, leave=False), bool, n)
    if file is not None:
        file.write(digest, keep)
    return SubsetNode(node, np.flatnonzero(keep))


def _decisions(
    node: Node, n: int, predicate: Callable[..., Any], names: list[Any] | None, on: Any, form: Any
) -> Iterator[bool]:
    """Yield whether each of the `n` samples is kept. The predicate gets the columns `names`, or all.

    `node` may read these columns alone. For errors, `on` is what the user gave, and `form` that of the whole batches.
    """
    for start in range(0, n, SAMPLES_READ_AT_ONCE):
        positions = np.arange(start, min(start + SAMPLES_READ_AT_ONCE, n))
        batch = as_batch(read_in_order(node, positions))
        shown = batch if names is None else in_places(batch, names)
        kept = decisions(predicate, shown, on, batch if form is None else form)
        if len(kept) != len(positions):
            raise ArgumentError(
                f"the maps make {len(kept)} samples of {len(positions)}, so that they cannot be told apart; filter "
                f"before the map that changes their number"
            )
        yield from kept
