"""The division of samples among several parts: at random, by classes, in whole groups, or in their order.

A split lays the samples of each class, or its groups, end to end in a random order. Each part takes a stretch, which
ends with a whole sample or group. If one class gives a part too few samples, the next class gives it more. Folds take
the samples in turn, or each group goes to the fold with the fewest samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .. import randomness, validation
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.map import MapNode
from ..graph.node import Node, nodes_of, numbered_length
from ..graph.rearranged import ConcatNode, SubsetNode
from .labels import grouped, values_of

ADVICE_ON_SPLIT_OPTIONS = {
    "random_state": "pass it as seed=",
    **dict.fromkeys(["test_size", "train_size"], "pass the share of each part, as (0.8, 0.2)"),
}
"""Remedies for options of scikit-learn's ``train_test_split``."""

ADVICE_ON_FOLDS_OPTIONS = {
    "random_state": "pass it as seed=",
    "n_splits": "pass it as k=",
    "shuffle": "leave it out: folds draws the samples of each part at random, and leaves them in their order",
}
"""Remedies for options of scikit-learn's ``KFold``."""


def split_nodes(
    node: Node,
    fractions: Sequence[float],
    seed: int | None,
    stratify: Any = None,
    groups: Any = None,
    shuffle: bool = True,
    gap: int = 0,
) -> list[SubsetNode]:
    """Return a node for each part of the samples of `node`: see :func:`~batchup_ng.split`."""
    shares = _checked_shares(fractions)
    n = _length_without_repeats(node)
    gap = validation.not_negative("gap", gap)
    ends = np.cumsum([0.0, *shares])
    if not validation.true_or_false("shuffle", shuffle, "; False keeps the samples in their order"):
        for name, value in (("seed", seed), ("stratify", stratify), ("groups", groups)):
            if value is not None:
                raise ArgumentError(f"{name} must be left out with shuffle=False, which draws nothing; pass only one")
        rows = _in_order(n, ends, gap)
    else:
        if gap:
            raise ArgumentError(f"gap must be 0 for parts drawn at random, not {gap}; pass shuffle=False with it")
        rng = randomness.generator("split", validation.integer("seed", seed))
        classes, of_samples = _classes_and_groups(node, n, len(shares), stratify, groups)
        if of_samples is None:
            rows = _by_samples(np.zeros(n, np.int64) if classes is None else classes, ends, rng)
        else:
            rows = _by_groups(of_samples, classes, ends, rng)
    for i, part_rows in enumerate(rows):
        if len(part_rows) == 0:
            without = f" without a gap of {gap}" if gap else ""
            raise ArgumentError(
                f"fractions[{i}] of {n} samples{without} is less than one {'sample' if groups is None else 'group'}; "
                f"raise it, or split more samples"
            )
    return [SubsetNode(node, part_rows) for part_rows in rows]


def folds_nodes(
    node: Node, k: int, seed: int, stratify: Any = None, groups: Any = None
) -> list[tuple[SubsetNode, SubsetNode]]:
    """Return the nodes of training and validation of each fold of `node`: see :func:`~batchup_ng.folds`."""
    n = _length_without_repeats(node)
    k = validation.integer("k", k)
    if not 2 <= k <= n:
        raise ArgumentError(f"k must be at least 2, and at most the number of samples, {n}, not {k}; pass another k")
    rng = randomness.generator("folds", validation.integer("seed", seed))
    classes, of_samples = _classes_and_groups(node, n, k, stratify, groups)
    if classes is None:
        classes = np.zeros(n, np.int64)
    if of_samples is None:
        fold_of = np.empty(n, np.int64)
        fold_of[np.concatenate([rng.permutation(members) for members in _members(classes)])] = np.arange(n) % k
    else:
        fold_of = _folds_of_groups(of_samples, classes, k, rng)[of_samples]
    return [
        (SubsetNode(node, np.flatnonzero(fold_of != i)), SubsetNode(node, np.flatnonzero(fold_of == i)))
        for i in range(k)
    ]


def _folds_of_groups(groups: np.ndarray, classes: np.ndarray, k: int, rng: Any) -> np.ndarray:
    """Return the fold of each group.

    The largest group is the first. Each goes to the fold with the fewest samples of its classes. That minimises, group
    by group, the sum over folds and classes of (samples of the class in the fold)² / (samples of the class).
    """
    n_classes = int(classes.max()) + 1
    pairs, counts = np.unique(groups * n_classes + classes, return_counts=True)
    sizes = np.bincount(groups)
    bounds = np.searchsorted(pairs, np.arange(len(sizes) + 1) * n_classes)
    weights = len(classes) // np.bincount(classes)  # whole numbers: sums of floats differ between machines
    shuffled = rng.permutation(len(sizes))
    fold_of = np.empty(len(sizes), np.int64)
    held, taken = np.zeros((k, n_classes), np.int64), np.zeros(k, np.int64)
    for group in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
        own = slice(bounds[group], bounds[group + 1])
        of_group = pairs[own] - group * n_classes
        fold = np.lexsort([taken, held[:, of_group] @ (weights[of_group] * counts[own])])[0]
        held[fold, of_group] += counts[own]
        taken[fold] += sizes[group]
        fold_of[group] = fold
    return fold_of


def _length_without_repeats(node: Node) -> int:
    """Return the number of samples. Raise if one may come to several parts: it comes twice, or with other samples."""
    if any(isinstance(each, MapNode) and each.companions is not None for each in nodes_of(node)):
        raise ArgumentError(
            "source must be split before a map with companions=, or the samples of one part would be companions in the "
            "others; split first, and map each part"
        )
    n = numbered_length("source", node)
    of_origins: dict[int, list[np.ndarray]] = {}
    for origin, rows in _origins(node.origin(), node.origin_rows(np.arange(n))):
        of_origins.setdefault(id(origin), []).append(rows)
    if any(_has_repeats(np.concatenate(rows)) for rows in of_origins.values()):
        raise ArgumentError(
            "source must have each sample once, or parts would share samples; split first, and repeat or sample a part"
        )
    return n


def _origins(origin: Any, rows: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield the data at the bottom of an origin, and its rows. There are several where sources were joined."""
    if isinstance(origin, ConcatNode):
        for each in origin.origins_of(rows):
            yield from _origins(*each)
    else:
        yield origin, rows


def _has_repeats(rows: np.ndarray) -> bool:
    seen = np.zeros(int(rows.max(initial=-1)) + 1, bool)
    seen[rows] = True
    return bool(np.count_nonzero(seen) < len(rows))


def _classes_and_groups(
    node: Node, n: int, n_parts: int, stratify: Any, groups: Any
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the numbers of the class and of the group of each of `n` samples, None without."""
    classes = None
    if stratify is not None:
        classes = _checked_classes(values_of("stratify", "the class", node, stratify, n))
    if groups is None or n == 0:
        return classes, None
    of_samples = _checked_groups(values_of("groups", "the group", node, groups, n))
    n_groups = int(of_samples.max()) + 1
    if n_groups < n_parts:
        raise ArgumentError(
            f"groups must hold at least as many groups as there are parts, {n_parts}, and has {n_groups}; pass fewer "
            f"fractions or folds, or another column"
        )
    return classes, of_samples


def _in_order(n: int, ends: np.ndarray, gap: int) -> list[np.ndarray]:
    """Return the positions of the samples of each part, which keep the order of the samples.

    Each part but the last ends `gap` samples early.
    """
    bounds = np.rint(ends * n).astype(int)
    gaps = [gap] * (len(ends) - 2) + [0]
    return [np.arange(bounds[i], bounds[i + 1] - left_out) for i, left_out in enumerate(gaps)]


def _by_samples(classes: np.ndarray, ends: np.ndarray, rng: Any) -> list[np.ndarray]:
    """Return the positions of the samples of each part. Each class is divided separately."""
    parts: list[list[np.ndarray]] = [[] for _ in ends[1:]]
    seen = 0
    # Halves round up. To the even number, 3.5 and 4.5 would both be 4, and a class of two samples between them would
    # give one part nothing. Without classes no sample is lost by that, and parts stay as they always were.
    rounded = _half_up if classes.any() else lambda values: np.rint(values).astype(int)
    for members in _members(classes):
        # Rounded over all classes so far: if one class rounds down, another rounds up.
        bounds = rounded(ends * (seen + len(members))) - rounded(ends * seen)
        bounds = np.maximum.accumulate(bounds)
        shuffled = rng.permutation(members)
        for i, part in enumerate(parts):
            part.append(shuffled[bounds[i] : bounds[i + 1]])
        seen += len(members)
    return [np.sort(np.concatenate(part)) for part in parts]


def _half_up(values: np.ndarray) -> np.ndarray:
    """Return the nearest integers. A half rounds up, also if an error of floating point is below it."""
    return np.floor(values + 0.5 + 1e-9).astype(int)


def _by_groups(groups: np.ndarray, classes: np.ndarray | None, ends: np.ndarray, rng: Any) -> list[np.ndarray]:
    """Return the positions of the samples of each part. The samples of a group go to one part."""
    sizes = np.bincount(groups)
    part_of = np.full(len(sizes), -1)
    taken, seen = np.zeros(len(ends)), 0  # the samples of earlier classes before each end; those in all
    for members in _members(_classes_of_groups(groups, classes, len(sizes))):
        shuffled = rng.permutation(members)
        until = np.cumsum(sizes[shuffled])
        seen += int(until[-1])
        # A group belongs before an end if most of its samples are.
        bounds = np.searchsorted(until - sizes[shuffled] / 2, ends * seen - taken)
        bounds = np.maximum.accumulate(bounds)
        taken += np.array([0, *until])[bounds]
        for i in range(len(ends) - 1):
            part_of[shuffled[bounds[i] : bounds[i + 1]]] = i
    return [np.flatnonzero(part_of[groups] == i) for i in range(len(ends) - 1)]


def _classes_of_groups(groups: np.ndarray, classes: np.ndarray | None, n_groups: int) -> np.ndarray:
    """Return the class of each group. Raise if a group has samples of several classes."""
    found = np.zeros(n_groups, np.int64)
    if classes is None:
        return found
    found[groups] = classes
    mixed = np.flatnonzero(found[groups] != classes)
    if len(mixed):
        of_group = np.flatnonzero(groups == groups[mixed[0]])
        raise ArgumentError(
            f"stratify with groups needs groups whose samples are all of one class, and samples {of_group[0]} and "
            f"{of_group[classes[of_group] != classes[of_group[0]]][0]} are of one group and of two classes; leave "
            f"stratify out, or take the first pair of folds(source, k, seed, stratify, groups), which takes such groups"
        )
    return found


def _checked_classes(values: np.ndarray) -> np.ndarray:
    """Return the number of the class of each sample. Refuse measured values, and classes of one sample each."""
    measured = values[np.isfinite(values) & (values != np.rint(values))] if values.dtype.kind == "f" else values[:0]
    if len(measured):
        raise ArgumentError(
            f"stratify must hold classes, and these are floats such as {measured[0]}; pass ranges of them: "
            f"numpy.digitize(values, numpy.quantile(values, [0.25, 0.5, 0.75])), or each value as a class: "
            f"numpy.unique(values, return_inverse=True)[1]"
        )
    classes, counts = grouped("stratify", values)
    if len(classes) > 1 and counts.max() < 2:
        raise ArgumentError(
            f"stratify must hold classes of several samples, and all {len(classes)} values differ; pass the column of "
            f"the classes, leave stratify out, or pass ranges of numbers: numpy.digitize(values, [10, 20, 30])"
        )
    return classes


def _checked_groups(values: np.ndarray) -> np.ndarray:
    """Return the number of the group of each sample."""
    missing = np.flatnonzero(values != values)  # NaN, NaT
    if len(missing):
        raise ArgumentError(
            f"groups must hold the group of each sample, and {len(missing)} have none (NaN), such as sample "
            f"{missing[0]}; give each of these a group of its own"
        )
    return grouped("groups", values)[0]


def _members(classes: np.ndarray) -> list[np.ndarray]:
    """Return the positions of the members of each class that has some, in the order of the classes."""
    counts = np.bincount(classes)
    return np.split(np.argsort(classes, kind="stable"), np.cumsum(counts[counts > 0])[:-1])


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
