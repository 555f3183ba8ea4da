"""An index of a file, which was made by reading through it once and is kept beside it.

That of a file at a URL is kept in the user's folder for caches. One that lies beside it there, where it was uploaded
too, is used if it is that of a file of the same size, since the time in it is that of a file on another machine.

Layout: a line that says what this is, a line of JSON, the arrays one behind the other. The JSON has the size and time
of change of the indexed file, the bytes of each array, and the CRC-32 of all of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import secrets
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from .remote import AT_ONCE, RemoteFile, is_remote, read_ranges, stamps_of

MAGIC = b"batchup_ng index 1\n"

LONGEST_HEAD = 1 << 16
"""Bytes of the line of JSON."""


def load_indices(
    paths: Sequence[str], stamps: Sequence[tuple[int, Any]], form: Mapping[str, str]
) -> Iterator[dict[str, np.ndarray] | None]:
    """Give the index of each of several files, None where there is none; those at URLs are asked for several at once.

    Args:
        paths: The indexed files.
        stamps: Size and time of change of each, or what the server tells instead.
        form: As of :func:`load_index`.
    """
    for first in range(0, len(paths), AT_ONCE):
        some = list(zip(paths[first : first + AT_ONCE], stamps[first : first + AT_ONCE], strict=True))
        found = [load_index(index_path(path, stamp), stamp, form) for path, stamp in some]
        asked = [place for place, (path, _) in enumerate(some) if found[place] is None and is_remote(path)]
        urls = [f"{some[place][0]}.index" for place in asked]
        there = [(place, url, facts[0]) for place, url, facts in zip(asked, urls, stamps_of(urls), strict=True)
                 if not isinstance(facts, Exception) and facts[0] <= _most_bytes(some[place][1][0])]  # fmt: skip
        contents = read_ranges([(RemoteFile(url), 0, n) for _, url, n in there])
        for (place, _, _), raw in zip(there, contents, strict=True):
            if isinstance(raw, bytes):
                found[place] = _loaded(io.BytesIO(raw), some[place][1][:1], form)
        yield from found


def index_path(path: str, stamp: tuple[int, Any]) -> str:
    """Return where the index of a file is kept on this machine."""
    if not is_remote(path):
        return f"{path}.index"
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    digest = hashlib.sha256(json.dumps([path, stamp]).encode()).hexdigest()
    return os.path.join(caches, "batchup_ng", f"{digest[:32]}.index")


def load_index(path: str, stamp: tuple[int, Any], form: Mapping[str, str]) -> dict[str, np.ndarray] | None:
    """Return the arrays that a file holds; None if it is not there, is damaged, or is that of another file.

    Args:
        path: Where it lies.
        stamp: Size and time of change of the file that it must be the index of.
        form: The dtype of each array, in their order: ``"<i8"`` or ``"|u1"``.
    """
    if not os.path.isfile(path):  # a pipe would be waited for
        return None
    try:
        with open(path, "rb") as file:
            return _loaded(file, stamp, form)
    except OSError:
        return None


def _most_bytes(size: int) -> int:
    """Return the bytes of an index at most: nothing in a file takes more than 8 bytes for one of its own."""
    return 8 * size + LONGEST_HEAD


def _loaded(file: BinaryIO, stamp: Sequence[Any], form: Mapping[str, str]) -> dict[str, np.ndarray] | None:
    try:
        if file.read(len(MAGIC)) != MAGIC:
            return None
        head = json.loads(file.readline(LONGEST_HEAD))
        lengths, start = head["bytes"], file.tell()
        rest = file.seek(0, os.SEEK_END) - start
        if head["of"][: len(stamp)] != list(stamp) or list(lengths) != list(form) or rest > _most_bytes(stamp[0]):
            return None
        file.seek(start)
        raw = np.empty(rest, np.uint8)
        if file.readinto(raw.data) != rest:  # type: ignore[attr-defined]  # which files and BytesIO have
            return None
        if min(lengths.values()) < 0 or sum(lengths.values()) != len(raw) or zlib.crc32(raw.data) != head["crc32"]:
            return None
        parts = np.split(raw, np.cumsum(list(lengths.values()))[:-1])
        return {name: part.view(dtype) for part, (name, dtype) in zip(parts, form.items(), strict=True)}
    except (OSError, ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        return None  # whatever someone else put there


def _is_index(path: str) -> bool:
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def save_index(path: str, stamp: tuple[int, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write an index, which takes the place of another at once; where that cannot be, or is no index, there is none."""
    raw = {name: np.ascontiguousarray(array).view(np.uint8).data for name, array in arrays.items()}
    crc32 = 0
    for part in raw.values():
        crc32 = zlib.crc32(part, crc32)
    head = {"of": stamp, "bytes": {name: len(part) for name, part in raw.items()}, "crc32": crc32}
    beside = f"{path}.{secrets.token_hex(4)}.tmp"
    with contextlib.suppress(OSError):
        if os.path.lexists(path) and not _is_index(path):
            return
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        try:
            with open(beside, "xb") as file:
                file.write(MAGIC + json.dumps(head).encode() + b"\n")
                for part in raw.values():
                    file.write(part)
            os.replace(beside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise
