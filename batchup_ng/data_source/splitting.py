"""The division of samples at random among several parts, by classes or in whole groups.

The samples of each class, or its groups, are laid end to end in a random order. Each part takes a stretch, which ends
with a whole sample or group. If one class gives a part too few samples, the next class gives it more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import randomness, validation
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.node import Node, numbered_length
from ..graph.rearranged import SubsetNode
from .labels import grouped, values_of

ADVICE_ON_SPLIT_OPTIONS = {
    "random_state": "pass it as seed=",
    **dict.fromkeys(["test_size", "train_size"], "pass the share of each part, as (0.8, 0.2)"),
    "shuffle": "leave it out: split draws the samples of each part at random, and leaves them in their order",
}
"""Remedies for options of scikit-learn's ``train_test_split``."""


def split_nodes(
    node: Node, fractions: Sequence[float], seed: int, stratify: Any = None, groups: Any = None
) -> list[SubsetNode]:
    """Return a node for each part of the samples of `node`: see :func:`~batchup_ng.split`."""
    shares = _checked_shares(fractions)
    n = numbered_length("source", node)
    _refuse_repeated(node.origin_rows(np.arange(n)))
    rng = randomness.generator("split", validation.integer("seed", seed))
    classes = None
    if stratify is not None:
        classes = _checked_classes(values_of("stratify", "the class", node, stratify, n))
    ends = np.cumsum([0.0, *shares])
    if n == 0:
        rows = [np.zeros(0, np.int64)] * len(shares)
    elif groups is None:
        rows = _by_samples(np.zeros(n, np.int64) if classes is None else classes, ends, rng)
    else:
        of_samples = _checked_groups(values_of("groups", "the group", node, groups, n))
        n_groups = int(of_samples.max()) + 1
        if n_groups < len(shares):
            raise ArgumentError(
                f"groups must hold at least as many groups as there are parts, {len(shares)}, and has {n_groups}; pass "
                f"fewer fractions, or another column"
            )
        rows = _by_groups(of_samples, classes, ends, rng)
    for i, part_rows in enumerate(rows):
        if len(part_rows) == 0:
            raise ArgumentError(
                f"fractions[{i}] of {n} samples is less than one {'sample' if groups is None else 'group'}; raise it, "
                f"or split more samples"
            )
    return [SubsetNode(node, part_rows) for part_rows in rows]


def _refuse_repeated(rows: np.ndarray) -> None:
    """Raise if a sample comes more than once, for then it could come to several parts."""
    seen = np.zeros(int(rows.max(initial=-1)) + 1, bool)
    seen[rows] = True
    if np.count_nonzero(seen) < len(rows):
        raise ArgumentError(
            "source must have each sample once, or parts would share samples; split first, and repeat or sample a part"
        )


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
            f"stratify out, or pass the rows of scikit-learn's StratifiedGroupKFold to subset"
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
