"""An index of a file, which was made by reading through it once and is kept beside it.

Layout: a line that says what this is, a line of JSON, the arrays one behind the other. The JSON has the size and time
of change of the indexed file, the bytes of each array, and the CRC-32 of all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import zlib
from collections.abc import Mapping

import numpy as np

MAGIC = b"batchup_ng index 1\n"

LONGEST_HEAD = 1 << 16
"""Bytes of the line of JSON."""


def load_index(path: str, stamp: tuple[int, int], form: Mapping[str, str]) -> dict[str, np.ndarray] | None:
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
            if file.read(len(MAGIC)) != MAGIC:
                return None
            head = json.loads(file.readline(LONGEST_HEAD))
            lengths = head["bytes"]
            rest = os.fstat(file.fileno()).st_size - file.tell()
            # Nothing that is indexed takes more than 8 bytes for one of its own.
            if head["of"] != list(stamp) or list(lengths) != list(form) or rest > 8 * stamp[0] + LONGEST_HEAD:
                return None
            raw = np.fromfile(file, np.uint8)
        if min(lengths.values()) < 0 or sum(lengths.values()) != len(raw) or zlib.crc32(raw.data) != head["crc32"]:
            return None
        parts = np.split(raw, np.cumsum(list(lengths.values()))[:-1])
        return {name: part.view(dtype) for part, (name, dtype) in zip(parts, form.items(), strict=True)}
    except (OSError, ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        return None  # whatever someone else put there


def save_index(path: str, stamp: tuple[int, int], arrays: Mapping[str, np.ndarray]) -> None:
    """Write an index, which takes the place of another at once; where that cannot be, there is none."""
    raw = {name: np.ascontiguousarray(array).view(np.uint8).data for name, array in arrays.items()}
    crc32 = 0
    for part in raw.values():
        crc32 = zlib.crc32(part, crc32)
    head = {"of": stamp, "bytes": {name: len(part) for name, part in raw.items()}, "crc32": crc32}
    beside = f"{path}.{secrets.token_hex(4)}.tmp"
    with contextlib.suppress(OSError):
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
