"""The keys of LMDB rows in little memory: a rule for numbers, packed bytes for all others."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...errors import ArgumentTypeError
from ..packed_paths import PackedPaths

NUMBERED_KEY = re.compile(rb"([\w./:-]*?)(\d+)", re.ASCII)
"""A key that ends with a number: its first part and the number."""


class NumberedKeys:
    """Keys that end with a number of `digits` digits, one for each of `count` numbers from `first` on.

    >>> NumberedKeys(b"img-", 4, 7, 3).of(np.array([2, 0]))
    [b'img-0009', b'img-0007']
    """

    def __init__(self, prefix: bytes, digits: int, first: int, count: int) -> None:
        self.form, self.first, self.count = b"%b%%0%dd" % (prefix, digits), first, count

    def __len__(self) -> int:
        return self.count

    def of(self, rows: np.ndarray) -> list[bytes]:
        """Return the keys of some rows, ``(n,) int``."""
        form, first = self.form, self.first
        return [form % (first + row) for row in rows.tolist()]

    def fingerprint(self) -> Any:
        """Return a value that identifies these keys."""
        return [self.form.decode(), self.first, self.count]


class PackedKeys:
    """Any keys, with the methods of :class:`NumberedKeys`. Each takes 8 bytes in addition to its own.

    >>> PackedKeys([b"cat", b"dog"]).of(np.array([1]))
    [b'dog']
    """

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._packed = PackedPaths(key.decode("latin-1") for key in keys)  # latin-1 has a character for each byte

    def __len__(self) -> int:
        return len(self._packed)

    def of(self, rows: np.ndarray) -> list[bytes]:
        return [self._packed[row].encode("latin-1") for row in rows.tolist()]

    def fingerprint(self) -> Any:
        digest = hashlib.sha256()
        for array in (self._packed._joined, self._packed._ends):
            digest.update(array.data)
        return digest.hexdigest()


def numbered(first: bytes, last: bytes, count: int) -> NumberedKeys | None:
    """Return the keys of a database from its first and last, if the count shows that they are numbers of one width.

    If there are other keys between them, as many numbers are missing. Reading such a row is an error that names its
    key.

    >>> numbered(b"img-008", b"img-011", 4).of(np.arange(4))
    [b'img-008', b'img-009', b'img-010', b'img-011']
    >>> numbered(b"8", b"11", 4), numbered(b"008", b"011", 5)
    (None, None)
    """
    begin, end = NUMBERED_KEY.fullmatch(first), NUMBERED_KEY.fullmatch(last)
    if begin is None or end is None or begin[1] != end[1] or len(first) != len(last):
        return None
    if int(end[2]) - int(begin[2]) + 1 != count:
        return None
    return NumberedKeys(begin[1], len(begin[2]), int(begin[2]), count)


def listed(keys: Any) -> PackedKeys:
    """Return keys that a user lists, each ``bytes`` or ``str``."""
    if isinstance(keys, (str, bytes)) or not (isinstance(keys, Sequence) or hasattr(keys, "__array__")):
        raise ArgumentTypeError(
            f"keys must be None or a list of keys, not {keys!r:.80}; pass [f'image-{{n:05d}}' for n in range(9)]"
        )
    return PackedKeys(_as_bytes(place, key) for place, key in enumerate(keys))


def _as_bytes(place: int, key: Any) -> bytes:
    if not isinstance(key, (bytes, str)) or not key:
        raise ArgumentTypeError(f"keys must hold bytes or str, none of them empty; at {place} it holds {key!r:.80}")
    return key.encode() if isinstance(key, str) else bytes(key)
