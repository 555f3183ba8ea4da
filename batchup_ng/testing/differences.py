"""The first difference of two batches, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .digests import digest_of, has_samples, layout_of, named_leaves

MOST = 60
"""Characters of a value that are shown."""


class Difference(NamedTuple):
    """Where two batches differ first.

    Attributes:
        leaf: The way to the array: ``"[1]"``; ``""`` where they differ as a whole.
        row: Number of the sample in its batch; None where they differ in form.
        words: What the one has and the other.
    """

    leaf: str
    row: int | None
    words: str


def first_difference(expected: Any, got: Any) -> Difference | None:
    """Return where two batches differ first; None if they are equal, byte for byte, and lie alike in memory.

    >>> first_difference((np.arange(3), np.zeros(3)), (np.arange(3), np.array([0.0, 2.0, 3.0])))
    Difference(leaf='[1]', row=1, words='0.0, and here 2.0')
    """
    ours, theirs = list(named_leaves(expected)), list(named_leaves(got))
    if [name for name, _ in ours] != [name for name, _ in theirs]:
        return Difference("", None, f"{len(ours)} arrays, and here {len(theirs)}, or others")
    found = [_of_leaf(name, one, other) for (name, one), (_, other) in zip(ours, theirs, strict=True)]
    real = [difference for difference in found if difference is not None]
    if not real and layout_of(expected) != layout_of(got):
        return _of_layout(expected, got, list(zip(ours, theirs, strict=True)))
    # What differs in form comes first, then what differs in the earliest sample.
    return min(real, key=lambda each: -1 if each.row is None else each.row, default=None)


def _of_layout(expected: Any, got: Any, leaves: list[Any]) -> Difference:
    """Return where two batches of the same values lie differently in memory, or are in other containers."""
    for (name, one), (_, other) in leaves:
        if layout_of(one) != layout_of(other):
            return Difference(name, None, f"{layout_of(one)}, and here {layout_of(other)}")
    return Difference("", None, f"{layout_of(expected)}, and here {layout_of(got)}")


def _of_leaf(name: str, one: Any, other: Any) -> Difference | None:
    if has_samples(one) and has_samples(other):
        if _form(one) != _form(other):
            return Difference(name, None, f"{_form(one)}, and here {_form(other)}")
        return rows_difference(name, list(one), list(other))
    return None if digest_of(one) == digest_of(other) else Difference(name, None, _values(one, other))


def rows_difference(name: str, ours: Sequence[Any], theirs: Sequence[Any]) -> Difference | None:
    """Return where the samples of a leaf differ first; as many are compared as both have."""
    for row, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if digest_of(one) != digest_of(other):
            return Difference(name, row, _values(one, other))
    return None


def _form(leaf: Any) -> str:
    return f"{len(leaf)} samples in a list" if isinstance(leaf, list) else f"{leaf.dtype} of shape {tuple(leaf.shape)}"


def _values(one: Any, other: Any) -> str:
    """Return the first value that differs of one thing and another."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and one.size:
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return f"{one.dtype} of shape {one.shape}, and here {other.dtype} of shape {other.shape}"
        flat, others = one.ravel(), other.ravel()
        at = next((i for i in range(len(flat)) if digest_of(flat[i]) != digest_of(others[i])), 0)
        place = "" if one.ndim == 0 else f" at {[int(i) for i in np.unravel_index(at, one.shape)]} of the sample"
        return f"{_shown(flat[at])}, and here {_shown(others[at])}{place}"
    return f"{_shown(one)}, and here {_shown(other)}"


def _shown(value: Any) -> str:
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= MOST else f"{text[: MOST - 1]}…"
