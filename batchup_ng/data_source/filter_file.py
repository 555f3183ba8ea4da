"""The file that remembers which samples a filter keeps.

It holds a digest of all that the answer depends on, the number of samples, one bit for each, and a checksum.
"""

from __future__ import annotations

import base64
import json
import zlib

import numpy as np

from ..error_context import raise_if_of_signal_handler
from .answer_file import AnswerFile

MOST_BYTES_BESIDE = 4096
"""Bytes that a file may have beside the bits."""


class FilterFile(AnswerFile):
    """The file of one filter."""

    head = '{"batchup_ng filter": 1,'
    of = "a filter"
    noun = "the answer of a filter"
    task = "the filter"

    def read(self, digest: str, n: int) -> np.ndarray | None:
        """Return which of `n` samples are kept, ``(n,) bool``; None if the file does not say it for this `digest`.

        Warns:
            CacheWarning: the file is damaged.
        """
        raw = self.content(MOST_BYTES_BESIDE + n)  # a longer file is of a filter of more samples
        if not raw:
            return None
        try:
            told = json.loads(raw)
            if told["digest"] != digest:
                self.log_of_others()
                return None
            bits = base64.b64decode(told["kept"], validate=True)
            if told["crc32"] == zlib.crc32(bits) and told["samples"] == n and len(bits) == -(-n // 8):
                return np.unpackbits(np.frombuffer(bits, np.uint8), count=n).astype(bool)
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise_if_of_signal_handler(error)
        self.warn_of_damage()
        return None

    def write(self, digest: str, keep: np.ndarray) -> None:
        """Write which samples are kept: ``(n,) bool``.

        Warns:
            CacheWarning: the file cannot be written, for example because the disk is full. Nothing else is lost.
        """
        bits = np.packbits(keep).tobytes()
        kept = base64.b64encode(bits).decode()
        told = {"digest": digest, "samples": len(keep), "crc32": zlib.crc32(bits), "kept": kept}
        self.replace(f"{self.head} {json.dumps(told)[1:]}\n")
