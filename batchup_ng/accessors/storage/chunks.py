"""Rows that storage keeps in chunks, each of which can only be decoded whole, and is kept for a while then."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from ...validation import size_in_bytes
from .base import StoredArray
from .chunk_cache import ChunkCache

LARGE_ROW = 1024
"""Bytes of a row above which rows are copied one by one, where an index array would go by way of fresh memory."""


class ChunkedArray(StoredArray):
    """Rows in chunks of so many, of which the last ones that were decoded are kept in memory.

    All threads and processes of a program share them, see :mod:`~batchup_ng.accessors.storage.chunk_cache`. A batch
    that wants a whole chunk in order has it decoded straight into its memory.

    Args:
        cache: Bytes of decoded chunks that are kept, as an int or a string such as ``"500MB"``.
    """

    def _set_cache(self, cache: int | str) -> None:
        self._cache = ChunkCache(size_in_bytes("cache", cache))

    @property
    @abstractmethod
    def chunk_rows(self) -> int:
        """Rows of a chunk, the last of which may have fewer."""

    @abstractmethod
    def _read_chunk(self, number: int, out: np.ndarray) -> None:
        """Decode the chunk of that number into `out`, ``(its rows, *shape[1:])`` of `dtype`."""

    @property
    def natural_block(self) -> int:
        """Rows of a chunk."""
        return self.chunk_rows

    @property
    def natural_window(self) -> int:
        """How many chunks may be mixed: half of those that are kept, for the next are begun meanwhile."""
        return max(1, self._cache.slots(self._chunk_bytes) // 2)

    def close(self) -> None:
        """Close the files that this process has open, and let go of the chunks; the next reading begins anew."""
        super().close()
        self._cache.close()

    def _fill(self, rows: np.ndarray, out: np.ndarray) -> None:
        copies_rows = self.row_bytes >= LARGE_ROW
        if not self.row_bytes:
            return
        numbers, within = np.divmod(rows, self.chunk_rows)
        places = {number: np.flatnonzero(numbers == number) for number in np.unique(numbers).tolist()}

        def decode(number: int, memory: np.ndarray) -> None:
            self._read_chunk(number, self._chunk(number, memory))

        def use(number: int, memory: np.ndarray) -> None:
            chunk, at = self._chunk(number, memory), places[number]
            if copies_rows:
                for place, row in zip(at.tolist(), within[at].tolist(), strict=True):
                    out[place] = chunk[row]
            else:
                out[at] = chunk[within[at]]

        whole = [number for number, at in places.items() if self._is_whole(number, rows[at], at)]
        for number in self._cache.copy(whole, self._chunk_bytes, use):
            at = places.pop(number)
            self._read_chunk(number, out[at[0] : at[-1] + 1])
        self._cache.fetch([number for number in places if number not in whole], self._chunk_bytes, decode, use)

    @property
    def _chunk_bytes(self) -> int:
        return max(1, min(self.chunk_rows, len(self)) * self.row_bytes)

    def _rows_in(self, number: int) -> int:
        return min(self.chunk_rows, len(self) - number * self.chunk_rows)

    def _chunk(self, number: int, memory: np.ndarray) -> np.ndarray:
        return np.ndarray((self._rows_in(number), *self.shape[1:]), self.dtype, memory)

    def _is_whole(self, number: int, rows: np.ndarray, places: np.ndarray) -> bool:
        """Return whether rows of a batch, all of a chunk, are the whole of it in order, at consecutive places."""
        if len(rows) != self._rows_in(number):
            return False
        steps = np.arange(len(rows))
        return bool((rows - rows[0] == steps).all() and (places - places[0] == steps).all())
