"""Functions over nodes that compose them: parts of an epoch, divisions at random, repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import randomness, validation
from ..errors import ArgumentError, ArgumentTypeError
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


def split_nodes(node: Node, fractions: Sequence[float], seed: int, stratify: Any = None) -> list[SubsetNode]:
    """Return a node for each part of the samples of `node`, which are divided at random."""
    shares = _checked_shares(fractions)
    n = numbered_length("source", node)
    rng = randomness.generator("split", validation.integer("seed", seed))
    parts: list[list[np.ndarray]] = [[] for _ in shares]
    ends, seen = np.cumsum([0.0, *shares]), 0
    for group in _groups(n, stratify):
        # Rounded over all classes so far: if one class rounds down, another rounds up.
        bounds = np.rint(ends * (seen + len(group))).astype(int) - np.rint(ends * seen).astype(int)
        bounds = np.maximum.accumulate(bounds)
        shuffled = rng.permutation(group)
        for i, part in enumerate(parts):
            part.append(shuffled[bounds[i] : bounds[i + 1]])
        seen += len(group)
    rows = [np.sort(np.concatenate(part)) for part in parts]
    for i, part_rows in enumerate(rows):
        if len(part_rows) == 0:
            raise ArgumentError(
                f"fractions[{i}] of {n} samples is less than one sample; raise it, or split more samples"
            )
    return [SubsetNode(node, part_rows) for part_rows in rows]


def _checked_shares(fractions: Any) -> np.ndarray:
    try:
        shares = np.asarray(fractions, dtype=float)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"fractions must be numbers, not {fractions!r}; (0.8, 0.2) gives two parts") from None
    if shares.ndim != 1 or len(shares) == 0 or not (shares > 0).all() or shares.sum() > 1 + 1e-9:
        raise ArgumentError(
            f"fractions must be above 0, adding up to at most 1, not {fractions!r}; (0.8, 0.2) gives two parts"
        )
    return shares


def _groups(n: int, stratify: Any) -> list[np.ndarray]:
    """Return the positions of the samples of each class. Samples without a class (NaN) form a class too."""
    if stratify is None:
        return [np.arange(n)]
    classes = np.asarray(stratify)
    if classes.shape != (n,):
        raise ArgumentError(f"stratify must hold the class of each of the {n} samples, not be of shape {classes.shape}")
    try:
        _, which, counts = np.unique(classes, return_inverse=True, return_counts=True)
    except TypeError:
        raise ArgumentTypeError(
            "stratify must hold classes of one kind, numbers or strings, that can be sorted; give None, or what else "
            "is among them, a class of that kind"
        ) from None
    return np.split(np.argsort(which, kind="stable"), np.cumsum(counts)[:-1])
