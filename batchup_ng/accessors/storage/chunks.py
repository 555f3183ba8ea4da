"""Rows that storage keeps in chunks, each of which can only be decoded whole, and is kept for a while then."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from ...validation import size_in_bytes
from .base import StoredArray
from .chunk_cache import ChunkCache

LARGE_ROW = 1024
"""Bytes of a row above which rows are copied one by one, where an index array would go by way of fresh memory."""


class ChunkedArray(StoredArray):
    """Rows in chunks, of which the last ones that were decoded are kept in memory.

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
        """Rows of a chunk, none of which has more, and of which only the last has fewer."""

    @abstractmethod
    def _read_chunk(self, number: int, out: np.ndarray) -> None:
        """Decode the chunk of that number into `out`, ``(its rows, *shape[1:])`` of `dtype`."""

    def _located(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the chunk of each row, and its number there.

        Raises:
            SampleReadError: the file has changed, though chunks of it may be kept.
        """
        self._handle()
        return np.divmod(rows, self.chunk_rows)

    def _rows_in(self, chunks: Any) -> Any:
        """Return how many rows each of some chunks has."""
        return np.minimum(self.chunk_rows, len(self) - chunks * self.chunk_rows)

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
        numbers, within = self._located(rows)
        left = np.ones(len(rows), bool)
        for start in np.flatnonzero(within == 0).tolist():
            number = int(numbers[start])
            end = start + int(self._rows_in(number))
            if end <= len(rows) and rows[end - 1] - rows[start] == end - 1 - start and _rise(rows[start:end]):
                self._read_chunk(number, out[start:end])
                left[start:end] = False
        places = np.flatnonzero(left)
        if len(places):
            self._gather(numbers[places], within[places], out, places)

    def _gather(self, numbers: np.ndarray, within: np.ndarray, out: np.ndarray, places: np.ndarray) -> None:
        """Write rows of chunks that are kept, or will be, to `places` of `out`."""
        nbytes, row_bytes = self._chunk_bytes, self.row_bytes
        if not row_bytes:
            return
        chunks, of_row = np.unique(numbers, return_inverse=True)
        into = out.reshape(len(out), -1).view(np.uint8)  # `out` is in C order

        def decode(number: int, memory: np.ndarray) -> None:
            shape = (int(self._rows_in(number)), *self.shape[1:])
            self._read_chunk(number, np.ndarray(shape, self.dtype, memory))

        def use(found: np.ndarray, slots: np.ndarray, memory: np.ndarray) -> None:
            slot_of = np.full(len(chunks), -1)
            slot_of[np.searchsorted(chunks, found)] = slots
            slot_of = slot_of[of_row]
            kept, wanted = memory.reshape(-1, row_bytes), slot_of * (nbytes // row_bytes) + within
            if len(found) == len(chunks) and len(places) == len(out):
                kept.take(wanted, 0, into, "clip")
                return
            here = np.flatnonzero(slot_of >= 0)
            if row_bytes < LARGE_ROW:
                into[places[here]] = kept[wanted[here]]
            else:
                for place, row in zip(places[here].tolist(), wanted[here].tolist(), strict=True):
                    into[place] = kept[row]

        missing = self._cache.copy(chunks, nbytes, use)
        self._cache.fetch(missing, nbytes, decode, use)

    @property
    def _chunk_bytes(self) -> int:
        return max(1, min(self.chunk_rows, len(self)) * self.row_bytes)


def _rise(rows: np.ndarray) -> bool:
    """Return whether each row is the one behind the row before it."""
    return bool((rows[1:] - rows[:-1] == 1).all())
