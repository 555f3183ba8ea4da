"""A column of texts in two arrays: each text takes its own length, and worker processes share both arrays.

A NumPy array of texts gives each row the width of the longest: one text of 20,000 characters among 20,000 short ones
turns 120 kB into 1.6 GB. A list of texts, or an array of objects, is copied to every worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .base import chosen_rows


class PackedTexts:
    """Rows that are all ``str`` or all ``bytes``: one for an int, several are a list, in the order asked for.

    >>> texts = PackedTexts(["one", "", "a longer text"])
    >>> texts[0], texts[[2, 1]]
    ('one', ['a longer text', ''])
    """

    def __init__(self, texts: Sequence[str] | Sequence[bytes]) -> None:
        self._decoded = bool(texts) and isinstance(texts[0], str)
        encoded = [each.encode("utf-8", "surrogatepass") if isinstance(each, str) else each for each in texts]
        self._joined = np.asarray(bytearray().join(encoded), np.uint8)
        self._ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, rows: Any) -> Any:
        """Return one text for an int, else a list.

        Raises:
            IndexError: a row is out of range, or a mask has another length.
        """
        chosen = chosen_rows(rows, len(self))
        several = np.atleast_1d(chosen)
        found = list(map(self._text, self._ends[several].tolist(), self._ends[several + 1].tolist()))
        return found[0] if isinstance(chosen, int) else found

    def _text(self, start: int, end: int) -> str | bytes:
        raw = self._joined[start:end].tobytes()
        return raw.decode("utf-8", "surrogatepass") if self._decoded else raw

    def __repr__(self) -> str:
        return f"{len(self)} {'texts' if self._decoded else 'byte strings'}"
