"""References to what a map returned: whether anything but the batch holds its arrays, lists and dicts.

Each array, list and dict is counted as often as the columns hold it, and the base of an array as often as arrays are
views of it. If Python counts more references, something else holds it: a constant of the map, a cache, a list of the
user.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, MutableMapping
from sys import getrefcount
from typing import Any

import numpy as np

from . import tensors
from .batch import PLAIN


def _unshared(held: dict[int, Any]) -> int:
    for value in held.values():
        return getrefcount(value)
    return 0


_UNSHARED = _unshared({0: object()})
"""References to an object that only the dict of :class:`References` holds, in its loop."""


class References:
    """The references that some columns hold.

    Args:
        roots: Roots of memory that belongs to the batch, of :func:`roots_of`. Views of it are not looked at.
    """

    def __init__(self, roots: Collection[int]) -> None:
        self._roots = roots
        self._found: dict[int, Any] = {}  # arrays, lists and dicts by identity
        self._counts: Counter[int] = Counter()  # how often each of them is held
        self._foreign: set[int] = set()  # memory whose references cannot be counted

    def add(self, value: Any) -> None:
        """Add a value that one place of a column holds, and all that it holds."""
        if type(value) in PLAIN:
            return
        identity = id(value)
        self._counts[identity] += 1
        if identity in self._found or identity in self._foreign:
            return
        if isinstance(value, np.ndarray) or _is_strided(value):
            base = value.base
            if base is not None and root_of(value) in self._roots:
                return
            self._found[identity] = value
            if base is not None:
                self.add(base)
        elif isinstance(value, memoryview) or tensors.is_tensor(value):
            if root_of(value) not in self._roots:
                self._foreign.add(identity)
        elif isinstance(value, (tuple, list, deque)):
            self._found[identity] = value
            if not PLAIN.issuperset(map(type, value)):  # numbers and texts, which are many
                for part in value:
                    self.add(part)
        elif isinstance(value, MutableMapping):
            self._found[identity] = value
            for name in value:
                self.add(value[name])
        elif not isinstance(value, (bytes, np.generic)):
            self._found[identity] = value

    def kept(self) -> set[int]:
        """Return the identities of the objects that anything else holds, too. Call it once all are added."""
        held = set(self._foreign)
        for value in self._found.values():
            if getrefcount(value) - _UNSHARED > self._counts[id(value)] and type(value) is not tuple:
                held.add(id(value))
        return held

    def reaches(self, value: Any, kept: Collection[int]) -> bool:
        """Return whether a value is one of `kept`, or holds one, or is a view of one."""
        if type(value) in PLAIN:
            return False
        if id(value) in kept:
            return True
        if isinstance(value, np.ndarray) or _is_strided(value):
            return id(value) in self._found and value.base is not None and self.reaches(value.base, kept)
        if isinstance(value, (tuple, list, deque)):
            if PLAIN.issuperset(map(type, value)):
                return False
            return any(self.reaches(part, kept) for part in value)
        if isinstance(value, MutableMapping):
            return any(self.reaches(value[name], kept) for name in value)
        return False


def _is_strided(value: Any) -> bool:
    """Return whether a value is the base of an array of ``as_strided``: it holds the array that this is a view of."""
    return type(value).__name__ == "DummyArray"


def root_of(array: Any) -> int:
    """Return a number for the memory of an array, tensor or memoryview: the identity of its owner, or an address."""
    while isinstance(array, (np.ndarray, memoryview)) or _is_strided(array):
        base = array.obj if isinstance(array, memoryview) else array.base
        if base is None:
            break
        array = base
    return int(array.untyped_storage().data_ptr()) if tensors.is_tensor(array) else id(array)


def roots_of(column: Any) -> set[int]:
    """Return the roots of the arrays and tensors in a column, or in the rows of a list.

    A tensor over an array has the address of the array for its root.
    """
    found: set[int] = set()
    for value in column if isinstance(column, (list, tuple)) else [column]:
        if isinstance(value, np.ndarray):
            found |= {root_of(value), int(value.__array_interface__["data"][0])}
        elif tensors.is_tensor(value):
            found.add(root_of(value))
    return found
