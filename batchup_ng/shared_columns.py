"""Which columns of a batch share memory.

Two columns share memory if the addresses of arrays, tensors or buffers in them overlap, or if they hold the same list,
dict or other object. Of objects of a user's own classes only the identity counts.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from . import tensors
from .batch import PLAIN

FEW = 16
"""Number of pairs of arrays up to which each is compared with each."""


def sharing(
    columns: Mapping[Any, Any], arrays: Sequence[Any], others: Sequence[Any], old: Collection[Any]
) -> list[Any]:
    """Return the keys of the columns that have to be copied. Then no two columns share memory.

    Args:
        columns: Columns by key.
        arrays: Keys of columns that share no memory with each other. They are not copied.
        others: Keys of the other columns. If two columns share memory, the second has to be copied.
        old: Keys among `others`. Only the rows of these columns count: the map before has checked the contents of rows.
    """
    held = {key: Held(columns[key], None if key in others and key not in old else 1) for key in [*arrays, *others]}
    owns = all(each.owns for each in held.values())  # then arrays are on one memory only if they are the same
    identities: set[int] = set()
    taken = Spans()
    found = []
    for key, each in held.items():
        spans = [] if owns else each.spans()
        if key in others and (not identities.isdisjoint(each.identities) or taken.overlap(spans)):
            found.append(key)
        else:
            identities |= each.identities
            taken.add(spans)
    return found


def rows_share(column: Any) -> bool:
    """Return whether two rows of a list or an array of objects share memory, as in ``[default] * n``.

    In a column that is a dict or a tuple, the lists in it are looked at.
    """
    if isinstance(column, (tuple, Mapping)):
        return any(map(rows_share, column.values() if isinstance(column, Mapping) else column))
    if isinstance(column, np.ndarray):
        rows = column.ravel().tolist() if column.dtype == object else []
    else:
        rows = column if isinstance(column, list) else []
    if PLAIN.issuperset(map(type, rows)):
        return False
    if all(type(row) is np.ndarray and row.base is None and not row.dtype.hasobject for row in rows):
        return len(set(map(id, rows))) < len(rows)  # nearly always
    held = [Held(row, None) for row in rows]
    if len(set().union(*[each.identities for each in held])) < sum(len(each.identities) for each in held):
        return True
    if all(each.owns for each in held):
        return False
    spans = sorted(span for each in held for span in set(each.spans()))
    return any(begin < end for (_, end), (begin, _) in itertools.pairwise(spans))


class Held:
    """The parts of a column that a map can write to, down to so many levels of lists and dicts; None for all.

    Attributes:
        identities: Of lists, dicts, arrays and other objects in it.
        memory: Arrays and tensors in it.
        owns: Whether each of them is an array with memory of its own.
    """

    def __init__(self, column: Any, levels: int | None) -> None:
        self.identities: set[int] = set()
        self.memory: list[Any] = []
        self.owns = True
        self._add(column, levels)

    def _add(self, value: Any, levels: int | None) -> None:
        """Add a value, and what it holds down to so many levels; None for all."""
        if type(value) in PLAIN:
            return
        if not isinstance(value, tuple):
            self.identities.add(id(value))
        if isinstance(value, np.ndarray):
            self._add_memory(value, value.base is None)
            if value.dtype.hasobject:
                self._add_all(value.ravel().tolist(), levels)
        elif isinstance(value, np.void):  # a row of a structured array
            self._add_memory(value if value.base is None else value.base, value.base is None)
        elif isinstance(value, (tuple, list, deque)):
            self._add_all(value, levels)
        elif isinstance(value, Mapping):
            self._add_all(list(value.values()), levels)
        elif tensors.is_tensor(value):
            self._add_memory(value, False)
        elif isinstance(value, (memoryview, bytearray)) and len(value):
            self._add_memory(np.asarray(value), False)

    def _add_all(self, values: Any, levels: int | None) -> None:
        if levels != 0 and not PLAIN.issuperset(map(type, values)):  # numbers and texts, which are many
            for value in values:
                self._add(value, levels and levels - 1)

    def spans(self) -> list[tuple[int, int]]:
        """Return the ranges of addresses of its arrays and tensors, without empty ones."""
        return [span for span in map(span_of, self.memory) if span[0] < span[1]]

    def _add_memory(self, memory: Any, owns: bool) -> None:
        self.memory.append(memory)
        self.owns = self.owns and owns


def span_of(memory: Any) -> tuple[int, int]:
    """Return the addresses of the first byte of an array or tensor and of the byte after its last one."""
    if isinstance(memory, (np.ndarray, np.void)):
        begin, size, strides = memory.__array_interface__["data"][0], memory.itemsize, memory.strides
    else:
        begin, size = memory.data_ptr(), memory.element_size()
        strides = tuple([size * stride for stride in memory.stride()])
    if 0 in memory.shape:
        return begin, begin
    reach = [(n - 1) * stride for n, stride in zip(memory.shape, strides, strict=True)]
    return begin + sum(min(0, of) for of in reach), begin + sum(max(0, of) for of in reach) + size


class Spans:
    """Ranges of addresses."""

    def __init__(self) -> None:
        self._all: list[tuple[int, int]] = []

    def add(self, spans: list[tuple[int, int]]) -> None:
        """Add some."""
        self._all += spans

    def overlap(self, others: list[tuple[int, int]]) -> bool:
        """Return whether one of them overlaps one of the others."""
        if len(self._all) * len(others) <= FEW:
            return any(begin < to and since < end for begin, end in self._all for since, to in others)
        begin, end = np.array(sorted(self._all)).T
        reached = np.concatenate([[0], np.maximum.accumulate(end)])  # the largest end of the first ones
        since, to = np.array(others).T
        return bool(np.any(reached[np.searchsorted(begin, to)] > since))
