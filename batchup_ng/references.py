"""References to what a map returned: whether anything but the batch holds its arrays, lists and dicts.

Each array, list and dict is counted as often as the columns hold it, and the base of an array as often as arrays are
views of it. If Python counts more references, something else holds it: a constant of the map, a cache, a list of the
user. A base of another kind, as after ``numpy.from_dlpack``, may only point to the memory of an owner that Python does
not show. Such an array counts as held.
"""

from __future__ import annotations

import mmap
import sys
from collections import Counter, deque
from collections.abc import Collection, MutableMapping
from typing import Any

import numpy as np

from . import tensors
from .batch import PLAIN
from .interpreter import getrefcount
from .memory.leases import Lease


def _unshared(held: dict[int, Any]) -> int:
    for value in held.values():
        return getrefcount(value)
    return 0


_UNSHARED = _unshared({0: object()})
"""References to an object that only the dict of :class:`References` holds, in its loop."""


class References:
    """The references that the columns of batches hold."""

    def __init__(self) -> None:
        self._found: dict[int, Any] = {}  # arrays, lists, dicts and tuples of them, by identity
        self._counts: Counter[int] = Counter()  # how often each of them is held

    def add(self, value: Any) -> None:
        """Add a value that one place of a column holds, and all that it holds."""
        if type(value) in PLAIN:
            return
        self._counts[id(value)] += 1
        if id(value) not in self._found:
            self._found[id(value)] = value
            for part in _parts(value):
                self.add(part)

    def kept(self, buffers: frozenset[int] = frozenset()) -> set[int]:
        """Return the identities of the objects that anything else holds, too, directly or by another of them.

        Call it once all are added. Memory of an unknown owner may be held in other ways, too. `buffers` are the
        identities of owners whose memory is the batch's alone.
        """
        held = set()
        for value in self._found.values():
            more = getrefcount(value) - _UNSHARED > self._counts[id(value)]
            if type(value) is tuple:
                more = more and not PLAIN.issuperset(map(type, value))
            lent = isinstance(value, memoryview) or (_has_base(value) and not _owns_its_memory(value.base))
            if lent and buffers:
                lent = not buffers.intersection((id(value), id(value.base) if _has_base(value) else 0))
            if more or lent or (tensors.is_tensor(value) and not _is_alone(value)):
                held.add(id(value))
        for number in list(held):
            _add_parts(self._found[number], held)
        return held


def _add_parts(value: Any, held: set[int]) -> None:
    """Add the parts of a value that something else holds: it can write to them, too."""
    for part in _parts(value):
        if type(part) not in PLAIN and id(part) not in held:
            held.add(id(part))
            _add_parts(part, held)


def reaches(value: Any, kept: Collection[int]) -> bool:
    """Return whether a value is one of `kept`, or holds one, or is a view of one."""
    if type(value) in PLAIN:
        return False
    return id(value) in kept or any(reaches(part, kept) for part in _parts(value))


def _parts(value: Any) -> Collection[Any]:
    """Return what a value holds: the parts of a list, tuple or dict, the base of an array, the objects in an array."""
    if _has_base(value):
        if value.base is not None:
            return (value.base,)
        return value.ravel().tolist() if isinstance(value, np.ndarray) and value.dtype.hasobject else ()
    if isinstance(value, (tuple, list, deque)):
        return () if PLAIN.issuperset(map(type, value)) else value  # numbers and texts, which are many
    return list(value.values()) if isinstance(value, MutableMapping) else ()


def _has_base(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.void)) or type(value).__name__ == "DummyArray"  # the base of `as_strided`


def _owns_its_memory(base: Any) -> bool:
    """Return whether the base of an array owns the memory, or refers to its owner. Then references show every user."""
    known = base is None or _has_base(base) or isinstance(base, (Lease, mmap.mmap, memoryview)) or type(base) in PLAIN
    return known or tensors.is_tensor(base)


def _is_alone(tensor: Any) -> bool:
    """Return whether no other tensor or array is on the memory of a tensor, as far as PyTorch knows."""
    count = getattr(sys.modules["torch"]._C, "_storage_Use_Count", None)
    storage = tensor.untyped_storage()
    return count is not None and count(storage._cdata) <= 2 and bool(storage.resizable())
