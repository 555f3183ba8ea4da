"""The file that remembers which samples a filter keeps.

It holds JSON: a digest of all that the answer depends on, the number of samples, one bit for each, and a checksum. It
is written as saved states are: at any time the file has its old content or the whole new one. So two programs may write
it at the same time; the last one stays.
"""

from __future__ import annotations

import base64
import json
import os
import stat
import zlib
from typing import Any

import numpy as np

from ..accessors.storage.remote import is_remote
from ..error_context import raise_if_of_signal_handler
from ..errors import ArgumentError, CacheWarning
from ..validation import path_text
from ..warn import warn_consumer
from .epoch.state_file import replace_text

HEAD = '{"batchup_ng filter": 1,'
"""The first characters of each such file, with the version of its layout."""

MOST_BYTES_BESIDE = 4096
"""Bytes that a file may have beside the bits."""


class FilterFile:
    """The file of one filter. The constructor checks that the path can be one.

    Args:
        path: The file. Its folder must exist.

    Raises:
        ArgumentError: `path` is at a URL or in no folder, or an existing file is not one of a filter.
        ArgumentTypeError: `path` is no path.
        OSError: the file cannot be read.
    """

    def __init__(self, path: Any) -> None:
        self.path = path_text("cache", path)
        if is_remote(self.path):
            raise ArgumentError(f"cache must be a file on this machine, not {self.path!r}; pass a path")
        folder = os.path.dirname(os.path.abspath(self.path))
        if not os.path.isdir(folder):
            raise ArgumentError(f"cache must be a file in a folder that exists, and {folder!r} does not; make it first")
        self._check_kind()

    def _check_kind(self) -> None:
        """Refuse to replace a file that no filter wrote. An empty file may be replaced."""
        if not os.path.exists(self.path):
            return
        head = ""
        if regular := stat.S_ISREG(os.stat(self.path).st_mode):  # opening a pipe would wait for a writer
            with open(self.path, "rb") as file:
                head = file.read(len(HEAD)).decode("latin-1")
        if not regular or not HEAD.startswith(head):
            raise ArgumentError(
                f"cache must be a new file, or the file of a filter, and {self.path!r} is something else; pass "
                f"another path"
            )

    def read(self, digest: str, n: int) -> np.ndarray | None:
        """Return which of `n` samples are kept, ``(n,) bool``; None if the file does not say it for this `digest`.

        Warns:
            CacheWarning: the file is damaged.
        """
        try:
            with open(self.path, "rb") as file:
                raw = file.read(MOST_BYTES_BESIDE + n)
                longer = bool(file.read(1))  # of a filter of more samples
        except FileNotFoundError:
            return None
        if longer or not raw:
            return None
        try:
            told = json.loads(raw)
            if told["digest"] != digest:
                return None
            bits = base64.b64decode(told["kept"], validate=True)
            if told["crc32"] == zlib.crc32(bits) and told["samples"] == n and len(bits) == -(-n // 8):
                return np.unpackbits(np.frombuffer(bits, np.uint8), count=n).astype(bool)
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise_if_of_signal_handler(error)
        warn_consumer(f"the answer of a filter in {self.path!r} is damaged; the filter is computed anew", CacheWarning)
        return None

    def write(self, digest: str, keep: np.ndarray) -> None:
        """Write which samples are kept: ``(n,) bool``.

        Warns:
            CacheWarning: the file cannot be written, for example because the disk is full. Nothing else is lost.
        """
        bits = np.packbits(keep).tobytes()
        kept = base64.b64encode(bits).decode()
        told = {"digest": digest, "samples": len(keep), "crc32": zlib.crc32(bits), "kept": kept}
        try:
            replace_text(self.path, f"{HEAD} {json.dumps(told)[1:]}\n")
        except OSError as error:
            raise_if_of_signal_handler(error)
            warn_consumer(
                f"the answer of a filter cannot be kept in {self.path!r}: {error}; the filter is complete, and the "
                f"next program computes it again",
                CacheWarning,
            )
