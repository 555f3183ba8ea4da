"""The keys of rows of LMDB, held in little memory: as a rule where they are numbers, else packed."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ...errors import ArgumentError, ArgumentTypeError
from ..packed_paths import PackedPaths

NUMBERED = re.compile(rb"([\w./:-]*?)(\d+)", re.ASCII)
"""A key that ends with a number, and what stands before it."""


class Keys(ABC):
    """The key of each row."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def of(self, rows: np.ndarray) -> list[bytes]:
        """Return the keys of some rows, ``(n,) int``."""

    @abstractmethod
    def fingerprint(self) -> Any:
        """Return what tells these keys from others."""


class NumberedKeys(Keys):
    """Keys that are a number in a format, one for each of `count` numbers from `first` on.

    >>> NumberedKeys("{:04d}", 7, 3).of(np.array([2, 0]))
    [b'0009', b'0007']
    """

    def __init__(self, form: str, first: int, count: int) -> None:
        self.form, self.first, self.count = form, first, count

    def __len__(self) -> int:
        return self.count

    def of(self, rows: np.ndarray) -> list[bytes]:
        written = self.form.format
        return [written(self.first + row).encode() for row in rows.tolist()]

    def fingerprint(self) -> Any:
        return [self.form, self.first, self.count]


class PackedKeys(Keys):
    """Any keys, which take 8 bytes each beside their own.

    >>> PackedKeys([b"cat", b"dog"]).of(np.array([1]))
    [b'dog']
    """

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._packed = PackedPaths(key.decode("latin-1") for key in keys)  # which has a character for each byte

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
    """Return the keys of a database from its first and last, if these say that they are numbers of one width.

    Should others be among them, as many numbers are missing, and reading such a row is an error that names its key.

    >>> numbered(b"img-008", b"img-011", 4).of(np.arange(4))
    [b'img-008', b'img-009', b'img-010', b'img-011']
    >>> numbered(b"8", b"11", 4), numbered(b"008", b"011", 5)
    (None, None)
    """
    begin, end = NUMBERED.fullmatch(first), NUMBERED.fullmatch(last)
    if begin is None or end is None or begin[1] != end[1] or len(first) != len(last):
        return None
    if int(end[2]) - int(begin[2]) + 1 != count:
        return None
    return NumberedKeys(f"{begin[1].decode()}{{:0{len(begin[2])}d}}", int(begin[2]), count)


def formatted(form: str, holds: Callable[[bytes], bool]) -> NumberedKeys:
    """Return the keys of the numbers from 0 to the first for which a database holds no key of that format."""
    try:
        if form.format(0) == form.format(1):
            raise ValueError("it has no place for a number")
    except (ValueError, LookupError, AttributeError) as error:
        raise ArgumentError(f"keys must be a format of a number, such as '{{:08d}}', not {form!r} ({error})") from error
    if not holds(form.format(0).encode()):
        raise ArgumentError(f"keys={form!r} has the first key {form.format(0)!r}, which is not there")
    there, missing = 0, 1
    while holds(form.format(missing).encode()):
        there, missing = missing, 2 * missing
    while missing - there > 1:
        middle = (there + missing) // 2
        there, missing = (middle, missing) if holds(form.format(middle).encode()) else (there, middle)
    return NumberedKeys(form, 0, missing)


def listed(keys: Any) -> PackedKeys:
    """Return keys that a user lists, each ``bytes`` or ``str``."""
    if not isinstance(keys, Sequence) and not hasattr(keys, "__array__"):
        raise ArgumentTypeError(f"keys must be None, a format or a list of keys, not {type(keys).__name__}")
    return PackedKeys(_as_bytes(place, key) for place, key in enumerate(keys))


def _as_bytes(place: int, key: Any) -> bytes:
    if not isinstance(key, (bytes, str)) or not key:
        raise ArgumentTypeError(f"keys must hold bytes or str, none of them empty; at {place} it holds {key!r:.80}")
    return key.encode() if isinstance(key, str) else bytes(key)
