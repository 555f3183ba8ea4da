"""Many paths in two arrays. All worker processes share one copy, while a list would be sent to each worker.

A ``str`` of 60 characters takes 109 bytes, 8 more in a list, and as much again in every worker. Packed, it takes 68,
once.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, overload

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError

PATHS_ENCODED_AT_ONCE = 1 << 16
"""Paths that are encoded at once; if paths come one by one, no more of them are in memory as objects."""


class PackedPaths(Sequence[str]):
    """A sequence of paths. It may be made from an iterable that would exceed memory as a list.

    Raises:
        ArgumentTypeError: an entry is not a ``str`` or an ``os.PathLike`` of one.

    >>> paths = PackedPaths(f"{number}.png" for number in range(3))
    >>> len(paths), paths[1], list(paths[1:])
    (3, '1.png', ['1.png', '2.png'])
    """

    _errors = "surrogatepass"
    """How bytes that are not UTF-8 are decoded."""

    def __init__(self, paths: Iterable[str | os.PathLike[str]] = ()) -> None:
        self._pack(("", piece) for piece in _pieces(paths))

    @classmethod
    def of_folders(cls, folders: Iterable[tuple[str, Sequence[str]]]) -> PackedPaths:
        """Return the paths of files, given as ``(common beginning, names)``."""
        made = cls.__new__(cls)
        made._pack(folders)
        return made

    def _pack(self, folders: Iterable[tuple[str, Sequence[str]]]) -> None:
        joined, lengths = bytearray(), [np.zeros(1, np.int64)]
        for prefix, names in folders:
            text = prefix.join(["", *names])  # one call makes it fast
            raw = _encoded(text)
            one_byte_each = len(raw) == len(text)
            counted = map(len, names if one_byte_each else [_encoded(prefix + name) for name in names])
            lengths.append(np.fromiter(counted, np.int64, len(names)) + (len(prefix) if one_byte_each else 0))
            joined += raw
        self._joined = np.asarray(joined, np.uint8)  # over the same memory
        self._ends = np.concatenate(lengths)
        np.cumsum(self._ends, out=self._ends)

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [self[each] for each in range(len(self))[row]]
        row = range(len(self))[row]
        return self._joined[self._ends[row] : self._ends[row + 1]].tobytes().decode("utf-8", self._errors)

    def __repr__(self) -> str:
        return f"<{len(self)} paths: {', '.join(map(repr, self[:3]))}{', ...' if len(self) > 3 else ''}>"


def packed_paths(paths: Any) -> PackedPaths:
    """Return `paths`, a sequence of at least one path, packed. Packed paths are returned as they are.

    Raises:
        ArgumentError: it is empty.
        ArgumentTypeError: it is one path, has no order, or holds anything but paths.
    """
    if isinstance(paths, (str, bytes, os.PathLike)):
        pattern = isinstance(paths, str) and glob.has_magic(paths)
        options = ", recursive=True" if pattern and "**" in str(paths) else ""
        remedy = f"sorted(glob.glob({paths!r}{options}))" if pattern else f"[{paths!r}]"
        raise ArgumentTypeError(
            f"paths must be a sequence of paths, not the one {'pattern' if pattern else 'path'} {paths!r}; pass "
            f"{remedy}"
        )
    ordered = hasattr(paths, "__len__") and hasattr(paths, "__getitem__") and not isinstance(paths, Mapping)
    if not ordered or getattr(paths, "ndim", 1) != 1:
        raise ArgumentTypeError(
            f"paths must be a sequence (a list, a 1-D array, one column of a table), not {type(paths).__name__}; "
            f"pass list(paths), or sorted(paths) where they have no order, as those of glob.iglob and Path.glob"
        )
    packed = paths if isinstance(paths, PackedPaths) else PackedPaths(paths)
    if not len(packed):
        raise ArgumentError("paths must hold at least one path; it is empty: check where they were looked for")
    return packed


def _pieces(paths: Iterable[Any]) -> Iterator[list[str]]:
    remaining, start = iter(paths), 0
    while piece := list(islice(remaining, PATHS_ENCODED_AT_ONCE)):
        yield [path_text(start + place, path) for place, path in enumerate(piece)]
        start += len(piece)


def path_text(position: int, path: Any) -> str:
    """Return the text of a path; for anything else, raise an error with its position."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(text, str):
        hint = "leave it out"
        if isinstance(text, bytes):
            hint = "pass it through os.fsdecode, or give ImageBytes what is no path but the picture itself"
        raise ArgumentTypeError(f"paths must hold str or os.PathLike; at {position} it holds {path!r:.80}; {hint}")
    return text


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", PackedPaths._errors)
