"""The rows of a source, named in a way that stays when rows are added or left out.

A source has one part or several. A part has the stored rows 0 to n - 1, without some that are left out. The address of
a row consists of the number of its part and its stored row. Row numbers count the rows that are there, part after part.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

PART_BITS = 44
"""Bits of an address for the stored row. The bits above are the number of the part."""

MAX_ROWS = 1 << PART_BITS
"""The most stored rows of a part."""

MAX_PARTS = 1 << 18
"""The most parts."""


class PartRows(NamedTuple):
    """The rows of a part: the stored rows from `first` to `end` without `left_out`, which ascend."""

    part: int
    end: int
    left_out: tuple[int, ...] = ()
    first: int = 0


class RowSet:
    """Rows of one or several parts, in the order of their addresses within each of `parts`."""

    def __init__(self, parts: Sequence[PartRows]) -> None:
        self.parts = tuple(parts)
        self._left_out = [np.array(each.left_out, np.int64) for each in self.parts]
        self._bounds = np.cumsum([0, *[each.end - each.first - len(each.left_out) for each in self.parts]])

    @property
    def size(self) -> int:
        """The number of rows."""
        return int(self._bounds[-1])

    @functools.cached_property
    def _places(self) -> dict[int, int]:
        return {each.part: place for place, each in enumerate(self.parts)}

    def addresses(self, rows: np.ndarray) -> np.ndarray:
        """Return the addresses of row numbers: ``(n,) int64``."""
        owners = np.searchsorted(self._bounds, rows, side="right") - 1
        found = np.empty_like(rows)
        for place in np.unique(owners):
            mine = np.flatnonzero(owners == place)
            part, left_out = self.parts[place], self._left_out[place] - self.parts[place].first
            own = rows[mine] - self._bounds[place]
            own += np.searchsorted(left_out - np.arange(len(left_out)), own, side="right")
            found[mine] = own + part.first + (part.part << PART_BITS)
        return found

    def rows(self, addresses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the row numbers of addresses, ``(n,) int64``, and which of them are there, ``(n,) bool``.

        An address that is not there gets the number of the next row that is there, or of the last.
        """
        owners, stored = addresses >> PART_BITS, addresses & (MAX_ROWS - 1)
        found, there = np.zeros_like(addresses), np.zeros(len(addresses), bool)
        for owner in np.unique(owners):
            place = self._places.get(int(owner))
            mine = np.flatnonzero(owners == owner)
            if place is None:
                continue
            part, left_out, own = self.parts[place], self._left_out[place], stored[mine]
            before = np.searchsorted(left_out, own)
            is_left_out = np.isin(own, left_out)
            found[mine] = self._bounds[place] + own - part.first - before
            there[mine] = (own >= part.first) & (own < part.end) & ~is_left_out
        return np.clip(found, 0, max(0, self.size - 1)), there

    def lacks_some_of(self, other: RowSet) -> bool:
        """Return whether a row of `other` is not here."""
        return any(self._added_to(part, mine) for part, mine in _pairs(other, self))

    def added_to(self, before: RowSet) -> RowSet:
        """Return the rows that are here and not in `before`."""
        return RowSet([each for part, earlier in _pairs(self, before) for each in self._added_to(part, earlier)])

    @staticmethod
    def _added_to(part: PartRows, earlier: PartRows) -> list[PartRows]:
        """Return the rows of `part` that are not in `earlier`. Both begin at the first stored row."""
        left_out = set(part.left_out)
        back = [row for row in earlier.left_out if row < part.end and row not in left_out]
        made = [PartRows(part.part, row + 1, (), row) for row in back]
        if part.end > earlier.end:
            new = tuple([row for row in part.left_out if row >= earlier.end])
            if part.end - earlier.end > len(new):
                made.append(PartRows(part.part, part.end, new, earlier.end))
        return made


def _pairs(one: RowSet, other: RowSet) -> list[tuple[PartRows, PartRows]]:
    """Return each part of `one` with the same part of `other`, or without rows there."""
    others = {each.part: each for each in other.parts}
    return [(part, others.get(part.part, PartRows(part.part, 0))) for part in one.parts]
