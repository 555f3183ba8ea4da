"""The first difference of batches, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from .digests import digest_of, layout_of


class Difference(NamedTuple):
    """Where batches differ first, and in what."""

    batch: int | None  # None where there are more batches, or fewer
    row: int | None  # None where they differ in form
    leaf: str  # the way to the array, as "[1]"; "" where they differ as a whole
    words: str


def first_difference(expected: Sequence[Any], got: Sequence[Any], cut: bool = False) -> Difference | None:
    """Return where two lists of batches differ first; None if they are equal, byte for byte, and lie alike in memory.

    With `cut` the two may be cut otherwise: only samples are compared, as many as both have.

    >>> first_difference([(np.arange(3), np.zeros(3))], [(np.arange(3), np.array([0.0, 2.0, 3.0]))])
    Difference(batch=0, row=1, leaf='[1]', words='row 1 of array [1] is 0.0, and here 2.0')
    """
    if layout_of(expected) == layout_of(got) and digest_of(expected) == digest_of(got):
        return None
    theirs = {part: value for part, _, value in _parts(got, cut)}
    found = [
        (place, part[0], value, theirs[part])
        for part, place, value in _parts(expected, cut)
        if part in theirs and digest_of(value) != digest_of(theirs[part])
    ]
    if found:
        (batch, row), leaf, one, other = min(found, key=lambda each: each[0])
        where = f"row {row} of " * (row >= 0) + (f"array {leaf}" if leaf else "all of it")
        return Difference(batch, None if row < 0 else row, leaf, f"{where} is {_values(one, other)}")
    if not cut and len(expected) != len(got):
        return Difference(None, None, "", f"it has {len(expected)} batches, and here {len(got)}")
    return None


def _parts(batches: Sequence[Any], cut: bool) -> Iterator[tuple[tuple[Any, ...], tuple[int, int], Any]]:
    """Yield what is compared: a name that it has in any such list, its batch and row, its value. These are the samples
    of each leaf, counted over all batches; unless `cut`, what is no array, and how all lies in memory, too, as rows
    below 0.
    """
    counts: Counter[str] = Counter()
    for number, batch in enumerate(batches):
        leaves = dict(named_leaves(batch))
        for row, (name, part) in enumerate({} if cut else {**leaves, "": batch}.items(), -len(leaves) - 1):
            yield (name, "layout", number), (number, row), layout_of(part)
        for name, leaf in leaves.items():
            if isinstance(leaf, list) or (hasattr(leaf, "__array__") and np.ndim(leaf) > 0):
                for row, sample in enumerate(leaf):
                    yield (name, counts[name]), (number, row), sample
                    counts[name] += 1
            elif not cut:
                yield (name, "value", number), (number, -1), leaf


def named_leaves(batch: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a batch, each with the way to it.

    >>> [name for name, _ in named_leaves((1, {"mask": 2}, (3,)))]
    ['[0]', "[1]['mask']", '[2][0]']
    """
    if isinstance(batch, (tuple, dict)):
        for key, part in batch.items() if isinstance(batch, dict) else enumerate(batch):
            yield from named_leaves(part, f"{path}[{key!r}]")
    else:
        yield path, batch


def _values(one: Any, other: Any) -> str:
    """Return the first value that differs of one thing and another."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and one.shape == other.shape != ():
        at = next((i for i in np.ndindex(one.shape) if digest_of(one[i]) != digest_of(other[i])), (0,) * one.ndim)
        return f"{_values(one[at], other[at])} at {[*at]} of the sample"
    one, other = (value.item() if isinstance(value, np.generic) else value for value in (one, other))
    return f"{one!r:.120}, and here {other!r:.120}"
