"""A long list of small objects as workers have it: the pickles of all items in one array, which they share.

A list of a million ``(path, label)`` takes each process that has it 150 bytes an item and more. As one array it lies in
memory once, however many workers there are; an item is unpickled when it is asked for. This is for lists of data sets
(:class:`~batchup_ng.MapStyle`) whose items hold nothing but what Python and NumPy bring: all else, such as instances of
the user's classes, may need to travel by value and goes with the rest.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

SHORTEST = 1000
"""Items below which a list travels as it is."""

LARGEST = 512
"""Bytes that an item may have on average. Larger ones gain little, and may share what packing would multiply."""

_KNOWN = sys.stdlib_module_names | {"numpy"}


class PackedList(Sequence[Any]):
    """A sequence that gives a new copy of an item each time.

    Args:
        pickles: The pickles of the items, one after the other: ``(n,) uint8``.
        ends: Where each ends: ``(items,) int64``.
    """

    def __init__(self, pickles: np.ndarray, ends: np.ndarray) -> None:
        self._pickles = pickles
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(f"list index {place} out of range")
        place %= len(self)
        start = self._ends[place - 1] if place else 0
        return pickle.loads(self._pickles[start : self._ends[place]].data)


def packed_list(items: Sequence[Any]) -> PackedList | None:
    """Return a list of small plain objects packed; None if it is short, or an item is something else."""
    if len(items) < SHORTEST:
        return None
    file, ends = io.BytesIO(), np.empty(len(items), np.int64)
    pickler = _PlainPickler(file, protocol=5)
    try:
        for place, item in enumerate(items):
            pickler.dump(item)
            pickler.clear_memo()
            ends[place] = file.tell()
            if ends[place] > LARGEST * (place + 1):
                return None
    except Exception:  # whatever it is, the pickling of the whole will tell
        return None
    return PackedList(np.frombuffer(file.getbuffer(), np.uint8), ends)


class _PlainPickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        """Refuse what a worker might not be able to import."""
        module = getattr(obj, "__module__", None) or type(obj).__module__
        if module.partition(".")[0] not in _KNOWN or isinstance(obj, np.memmap):
            raise pickle.PicklingError("not plain")
        return NotImplemented
