"""Indices of files. An index is made by reading through a file once, and is kept next to the file.

The index of a file at a URL is kept in the user's cache folder. An index that was uploaded next to such a file is used
if it was made for a file of the same size with the same bytes in some places. Its modification time does not count,
because it comes from another machine. The user may name another folder for indices, if the folder
of the data must stay as it is. An index next to the data is still used.

Layout: a line that identifies the format, a line of JSON, then the arrays. The JSON holds the size and modification
time of the indexed file, the CRC-32 of the bytes in some places of it, the bytes of each array, and the CRC-32 of all
arrays.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import secrets
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from ...error_context import raise_if_of_signal_handler, unless_of_signal_handler
from ...errors import SampleReadError
from ...validation import true_or_false
from .base import StoredRows
from .remote import REQUESTS_AT_ONCE, RemoteFile, is_remote, read_ranges, stamps_of

INDEX_MAGIC = b"batchup_ng index 1\n"

MAX_HEAD_BYTES = 1 << 16
"""Bytes of the line of JSON, at most."""


def indices_of(
    rows: StoredRows, form: Mapping[str, str], believable: Callable[[dict[str, np.ndarray], int], bool],
    scan: Callable[[Any, int], dict[str, np.ndarray]], index: Any, kind: str = "",
) -> Iterator[dict[str, np.ndarray]]:  # fmt: skip
    """Yield the index of each file of an accessor: an existing one, or else one that is made now.

    Args:
        rows: The accessor.
        form: As of :func:`load_index`.
        believable: Whether an index fits a file of so many bytes.
        scan: Makes the index of an open file of so many bytes.
        index: The user's argument: whether an index that was made is kept, or the folder to keep it in.
        kind: What the file is read as, for the error.

    Raises:
        SampleReadError: a file cannot be read, or is not of that kind.
        ArgumentTypeError: `index` is neither True, False nor a path.
    """
    folder = os.path.abspath(os.fspath(index)) if isinstance(index, (str, os.PathLike)) else None
    save = folder is not None or true_or_false("index", index, "; pass a folder to keep it in another place")
    for number, found in enumerate(load_indices(rows.paths, rows._stamps, form, folder)):
        path, stamp = rows.paths[number], rows._stamps[number]
        if found is None or not believable(found, stamp[0]):
            file = rows._handle(number)
            try:
                found = scan(file, stamp[0])
            except (OSError, EOFError, ValueError) as error:
                raise SampleReadError(f"{path!r} cannot be read{kind}: {error}", path) from error
            if save:
                save_index(index_path(path, stamp, folder), stamp, found, file)
        yield found


def load_indices(
    paths: Sequence[str], stamps: Sequence[tuple[int, Any]], form: Mapping[str, str], folder: str | None = None
) -> Iterator[dict[str, np.ndarray] | None]:
    """Yield the index of each file, in `folder` or in its usual place, or None if it has none.

    Indices at URLs are requested several at once.
    """
    places = dict.fromkeys((folder, None))
    for first in range(0, len(paths), REQUESTS_AT_ONCE):
        some = list(zip(paths[first : first + REQUESTS_AT_ONCE], stamps[first : first + REQUESTS_AT_ONCE], strict=True))
        found = [
            next(filter(None, (load_index(index_path(path, stamp, place), stamp, form) for place in places)), None)
            for path, stamp in some
        ]
        asked = [place for place, (path, _) in enumerate(some) if found[place] is None and is_remote(path)]
        urls = [_beside(some[place][0]) for place in asked]
        there = [(place, url, facts[0]) for place, url, facts in zip(asked, urls, stamps_of(urls), strict=True)
                 if not isinstance(facts, Exception) and facts[0] <= _most_bytes(some[place][1][0])]  # fmt: skip
        contents = read_ranges([(RemoteFile(url), 0, n) for _, url, n in there])
        for (place, _, _), raw in zip(there, contents, strict=True):
            path, stamp = some[place]
            with contextlib.suppress(OSError):  # the reader of the file will get the error
                if isinstance(raw, bytes):
                    found[place] = _loaded(io.BytesIO(raw), stamp[:1], form, _sample(RemoteFile(path, stamp), stamp[0]))
        yield from found


def index_path(path: str, stamp: tuple[int, Any], folder: str | None = None) -> str:
    """Return the path of a file's index on this machine: in `folder`, or in the usual place."""
    if is_remote(path):
        told = [_unsigned(path) if stamp[1] else path, stamp]  # a signature changes each time, the mark does not
        caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        folder = folder or os.path.join(caches, "batchup_ng")
    elif folder is None:
        return f"{path}.index"
    else:
        told = [os.path.abspath(path)]  # a file that changed replaces its index
    digest = hashlib.sha256(json.dumps(told).encode()).hexdigest()
    return os.path.join(folder, f"{digest[:32]}.index")


SIGNATURE = re.compile(
    r"(x-(amz|goog|ms|oss|cos)-.*|signature|sig|s[eiktprv]|sk(oid|tid|t|e|s|v)|spr|sdd|expires|policy|key-pair-id|awsaccesskeyid"
    r"|googleaccessid|ossaccesskeyid|security-token|q-.*|token)=.*",
    re.IGNORECASE,
)
"""A parameter of a URL that signs it, as the stores of Amazon, Google, Microsoft, Alibaba and Tencent write them."""


def _unsigned(url: str) -> str:
    """Return a URL without its signature.

    >>> _unsigned("https://host/get?shard=3&Expires=17&Signature=a%2F")
    'https://host/get?shard=3'
    """
    path, _, query = url.partition("?")
    kept = "&".join(each for each in query.split("&") if each and not SIGNATURE.fullmatch(each))
    return f"{path}?{kept}" if kept else path


def _beside(url: str) -> str:
    """Return the URL of an index that was uploaded with its file.

    >>> _beside("https://host/x.tar?signature=1")
    'https://host/x.tar.index?signature=1'
    """
    path, mark, query = url.partition("?")
    return f"{path}.index{mark}{query}"


def _sample(file: Any, size: int) -> int:
    """Return the CRC-32 of the bytes in some places of a file."""
    places = [size * eighth // 8 for eighth in (1, 3, 5, 7)]
    return zlib.crc32(b"".join(file.read_many([(place, min(1024, size - place)) for place in places])))


def load_index(path: str, stamp: tuple[int, Any], form: Mapping[str, str]) -> dict[str, np.ndarray] | None:
    """Return the arrays of an index; None if it is not there, is damaged, or was made for another file.

    Args:
        path: The file of the index.
        stamp: Size and modification time of the indexed file.
        form: The dtype of each array, in their order: ``"<i8"`` or ``"|u1"``.
    """
    if not os.path.isfile(path):  # opening a pipe would block
        return None
    try:
        with open(path, "rb") as file:
            return _loaded(file, stamp, form)
    except OSError as error:
        raise_if_of_signal_handler(error)
        return None


def _most_bytes(size: int) -> int:
    """Return the bytes that an index may have at most: 8 for each byte of its file, and the line of JSON."""
    return 8 * size + MAX_HEAD_BYTES


def _loaded(
    file: BinaryIO, stamp: Sequence[Any], form: Mapping[str, str], sample: int | None = None
) -> dict[str, np.ndarray] | None:
    try:
        if file.read(len(INDEX_MAGIC)) != INDEX_MAGIC:
            return None
        head = json.loads(file.readline(MAX_HEAD_BYTES))
        if sample is not None and head["sample"] != sample:
            return None
        lengths, start = head["bytes"], file.tell()
        rest = file.seek(0, os.SEEK_END) - start
        if head["of"][: len(stamp)] != list(stamp) or list(lengths) != list(form) or rest > _most_bytes(stamp[0]):
            return None
        file.seek(start)
        raw = np.empty(rest, np.uint8)
        if file.readinto(raw.data) != rest:  # type: ignore[attr-defined]  # files and BytesIO have it
            return None
        if min(lengths.values()) < 0 or sum(lengths.values()) != len(raw) or zlib.crc32(raw.data) != head["crc32"]:
            return None
        parts = np.split(raw, np.cumsum(list(lengths.values()))[:-1])
        return {name: part.view(dtype) for part, (name, dtype) in zip(parts, form.items(), strict=True)}
    except (OSError, ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        raise_if_of_signal_handler(error)
        return None  # someone else may have put anything there


def _is_index(path: str) -> bool:
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(len(INDEX_MAGIC)) == INDEX_MAGIC


def save_index(path: str, stamp: tuple[int, Any], arrays: Mapping[str, np.ndarray], file: Any) -> None:
    """Write the index of an open file, and replace an earlier one in a single step.

    If it cannot be written, or `path` is a file of another kind, the file gets no index.
    """
    raw = {name: np.ascontiguousarray(array).view(np.uint8).data for name, array in arrays.items()}
    crc32 = 0
    for part in raw.values():
        crc32 = zlib.crc32(part, crc32)
    head = {"of": stamp, "bytes": {name: len(part) for name, part in raw.items()}, "crc32": crc32}
    beside = f"{path}.{secrets.token_hex(4)}.tmp"
    with unless_of_signal_handler(OSError, EOFError):
        if not isinstance(file, RemoteFile):  # the index of a remote file stays on this machine
            head["sample"] = _sample(file, stamp[0])
        if os.path.lexists(path) and not _is_index(path):
            return
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        try:
            with open(beside, "xb") as file:
                file.write(INDEX_MAGIC + json.dumps(head).encode() + b"\n")
                for part in raw.values():
                    file.write(part)
            os.replace(beside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise
