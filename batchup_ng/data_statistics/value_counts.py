"""How often each value occurs, in bounded memory.

A value has a key, an int64 with the same order. If more keys occur than there is room for, their lowest bits are left
out, as few as possible. How many are left out depends on the values alone: a part of the values never needs to leave
out more than all of them. So the result depends neither on the order of the values nor on how they are divided into
batches.
"""

from __future__ import annotations

import numpy as np

MOST_KEYS = 2**18
"""Distinct values to keep for all groups of a column together: each takes 16 bytes."""

LEAST_KEYS = 4096
"""Distinct values to keep for each group. All signs and exponents of float64 are as many keys."""

SIGN = np.int64(2**63 - 1)


def room_for(groups: int) -> int:
    """Return how many distinct values of each group are kept."""
    return max(LEAST_KEYS, MOST_KEYS // max(groups, 1))


def keys_of(values: np.ndarray) -> np.ndarray:
    """Return an int64 for each value, with the order of the values. They are integers, or floats without NaN."""
    if values.dtype.kind == "f":
        bits = (values.astype(np.float64) + 0.0).view(np.int64)  # the sum makes 0.0 of -0.0
        return np.where(bits < 0, bits ^ SIGN, bits)
    if _is_uint64(values.dtype):
        return (values.astype(np.uint64, copy=False) ^ np.uint64(2**63)).view(np.int64)
    return values.astype(np.int64)


def values_of(keys: np.ndarray, dtype: np.dtype[np.generic]) -> np.ndarray:
    """Return the values of `keys`, as float64 or in the integer `dtype`."""
    if dtype.kind == "f":
        return np.where(keys < 0, keys ^ SIGN, keys).view(np.float64)
    if _is_uint64(dtype):
        return keys.view(np.uint64) ^ np.uint64(2**63)
    return keys.astype(dtype)


def _is_uint64(dtype: np.dtype[np.generic]) -> bool:
    """Return whether a dtype is uint64 in any byte order."""
    return dtype.kind == "u" and dtype.itemsize == 8


class ValueCounts:
    """Keys of values and how often each occurs, for at most `room` keys.

    Attributes:
        level: How many of the lowest bits of the keys are left out.
        lowest: The least key that was added, whole; None before the first.
        highest: The greatest one.
    """

    def __init__(self, room: int) -> None:
        self.room, self.level = room, 0
        self.lowest: int | None = None
        self.highest: int | None = None
        self._parts: list[tuple[np.ndarray, np.ndarray]] = []
        self._n_pending = 0

    def add(self, keys: np.ndarray, counts: np.ndarray | None = None) -> None:
        """Add keys, each as often as `counts` says, by default once: both ``(n,) int64``."""
        if len(keys):
            self._span(int(keys.min()), int(keys.max()))
            if counts is None:
                keys, counts = np.unique(keys, return_counts=True)
            self._append(keys, counts)

    def reach(self, keys: np.ndarray) -> None:
        """Note the least and the greatest of some keys, ``(n,) int64``, without counting them."""
        if len(keys):
            self._span(int(keys.min()), int(keys.max()))

    def merge(self, other: ValueCounts) -> None:
        """Add all that was added to `other`."""
        if other.lowest is not None and other.highest is not None:
            self._span(other.lowest, other.highest)
            self.level = max(self.level, other.level)
            self._append(*other.table())

    def converted(self, before: np.dtype[np.generic], after: np.dtype[np.generic]) -> ValueCounts:
        """Return the counts with the keys that the values have in another dtype, which has the same order."""
        made = ValueCounts(self.room)
        if self.lowest is not None:
            keys, counts = self.table()
            made.level = self.level
            ends = keys_of(values_of(np.array([self.lowest, self.highest], np.int64), before).astype(after))
            made._span(int(ends[0]), int(ends[1]))
            keys = keys_of(values_of(keys, before).astype(after))
            if len(keys):
                starts = _starts(keys)  # large integers may be the same float
                made._append(keys[starts], np.add.reduceat(counts, starts))
        return made

    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the keys, sorted, each cut at :attr:`level`, and how often each occurs."""
        self._compress()
        return self._parts[0] if self._parts else (np.zeros(0, np.int64), np.zeros(0, np.int64))

    def _span(self, lowest: int, highest: int) -> None:
        self.lowest = lowest if self.lowest is None else min(self.lowest, lowest)
        self.highest = highest if self.highest is None else max(self.highest, highest)

    def _append(self, keys: np.ndarray, counts: np.ndarray) -> None:
        if not len(keys):
            return
        self._parts.append((keys, counts))
        self._n_pending += len(keys)
        if self._n_pending > 2 * self.room:
            self._compress()

    def _compress(self) -> None:
        """Join the parts, and leave out as many bits as needed."""
        if not self._parts or (len(self._parts) == 1 and len(self._parts[0][0]) <= self.room):
            return  # a part alone is sorted, and cut at the level
        keys = np.concatenate([part[0] for part in self._parts])
        counts = np.concatenate([part[1] for part in self._parts])
        order = np.argsort(keys, kind="stable")
        keys, counts = keys[order], counts[order]
        while len(starts := _starts(keys >> self.level)) > self.room:
            self.level += 1
        keys, counts = keys[starts] >> self.level << self.level, np.add.reduceat(counts, starts)
        self._parts, self._n_pending = [(keys, counts)], len(keys)


def _starts(keys: np.ndarray) -> np.ndarray:
    """Return the places where a new key begins in sorted keys."""
    return np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
