"""An index of a file, which was made by reading through it once and is kept beside it.

That of a file at a URL is kept in the user's folder for caches. One that lies beside it there, where it was uploaded
too, is used if it is that of a file of the same size with the same bytes in some places, since the time in it is that
of a file on another machine.

Layout: a line that says what this is, a line of JSON, the arrays one behind the other. The JSON has the size and time
of change of the indexed file, the CRC-32 of what stands in some places of it, the bytes of each array, and the CRC-32
of all of them.
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

from ...error_context import raise_if_of_signal_handler, unless_of_signal_handler
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
        urls = [_beside(some[place][0]) for place in asked]
        there = [(place, url, facts[0]) for place, url, facts in zip(asked, urls, stamps_of(urls), strict=True)
                 if not isinstance(facts, Exception) and facts[0] <= _most_bytes(some[place][1][0])]  # fmt: skip
        contents = read_ranges([(RemoteFile(url), 0, n) for _, url, n in there])
        for (place, _, _), raw in zip(there, contents, strict=True):
            path, stamp = some[place]
            with contextlib.suppress(OSError):  # which who reads the file will see
                if isinstance(raw, bytes):
                    found[place] = _loaded(io.BytesIO(raw), stamp[:1], form, _sample(RemoteFile(path, stamp), stamp[0]))
        yield from found


def index_path(path: str, stamp: tuple[int, Any]) -> str:
    """Return where the index of a file is kept on this machine."""
    if not is_remote(path):
        return f"{path}.index"
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    told = path.partition("?")[0] if stamp[1] else path  # a signature is another each time; the server's mark is not
    digest = hashlib.sha256(json.dumps([told, stamp]).encode()).hexdigest()
    return os.path.join(caches, "batchup_ng", f"{digest[:32]}.index")


def _beside(url: str) -> str:
    """Return the URL of an index that was uploaded too.

    >>> _beside("https://host/x.tar?signature=1")
    'https://host/x.tar.index?signature=1'
    """
    path, mark, query = url.partition("?")
    return f"{path}.index{mark}{query}"


def _sample(file: Any, size: int) -> int:
    """Return the CRC-32 of what stands in some places of a file."""
    places = [size * eighth // 8 for eighth in (1, 3, 5, 7)]
    return zlib.crc32(b"".join(file.read_many([(place, min(1024, size - place)) for place in places])))


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
    except OSError as error:
        raise_if_of_signal_handler(error)
        return None


def _most_bytes(size: int) -> int:
    """Return the bytes of an index at most: nothing in a file takes more than 8 bytes for one of its own."""
    return 8 * size + LONGEST_HEAD


def _loaded(
    file: BinaryIO, stamp: Sequence[Any], form: Mapping[str, str], sample: int | None = None
) -> dict[str, np.ndarray] | None:
    try:
        if file.read(len(MAGIC)) != MAGIC:
            return None
        head = json.loads(file.readline(LONGEST_HEAD))
        if sample is not None and head["sample"] != sample:
            return None
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
    except (OSError, ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        raise_if_of_signal_handler(error)
        return None  # whatever someone else put there


def _is_index(path: str) -> bool:
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def save_index(path: str, stamp: tuple[int, Any], arrays: Mapping[str, np.ndarray], file: Any) -> None:
    """Write an index of a file that is open; it takes the place of another at once.

    Where that cannot be, or is no index, there is none.
    """
    raw = {name: np.ascontiguousarray(array).view(np.uint8).data for name, array in arrays.items()}
    crc32 = 0
    for part in raw.values():
        crc32 = zlib.crc32(part, crc32)
    head = {"of": stamp, "bytes": {name: len(part) for name, part in raw.items()}, "crc32": crc32}
    beside = f"{path}.{secrets.token_hex(4)}.tmp"
    with unless_of_signal_handler(OSError, EOFError):
        if not isinstance(file, RemoteFile):  # whose index stays on this machine
            head["sample"] = _sample(file, stamp[0])
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
