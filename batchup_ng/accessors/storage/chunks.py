"""Rows that storage keeps in chunks, each of which can only be decoded whole, and is kept for a while then."""

from __future__ import annotations

import collections
import threading
from abc import abstractmethod
from typing import Any

import numpy as np

from ...validation import size_in_bytes
from .base import StoredArray


class ChunkedArray(StoredArray):
    """Rows in chunks of so many, of which the last ones that were decoded are kept in memory.

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
        return max(1, self._cache.limit // max(1, self.chunk_rows * self.row_bytes) // 2)

    def _fill(self, rows: np.ndarray, out: np.ndarray) -> None:
        numbers, within = np.divmod(rows, self.chunk_rows)
        for number in np.unique(numbers).tolist():
            places = np.flatnonzero(numbers == number)
            chunk = self._cache.get(number)
            if chunk is None:
                start = number * self.chunk_rows
                chunk = np.empty((min(self.chunk_rows, len(self) - start), *self.shape[1:]), self.dtype)
                self._read_chunk(number, chunk)
                self._cache.put(number, chunk)
            out[places] = chunk[within[places]]


class ChunkCache:
    """The arrays that were used last, up to `limit` bytes; pickled without them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept: collections.OrderedDict[int, np.ndarray] = collections.OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, number: int) -> np.ndarray | None:
        """Return the array of that number if it is kept."""
        with self._lock:
            if number in self._kept:
                self._kept.move_to_end(number)
            return self._kept.get(number)

    def put(self, number: int, array: np.ndarray) -> None:
        """Keep an array, instead of those that were not used for longest."""
        with self._lock:
            if number not in self._kept and array.nbytes <= self.limit:
                self._kept[number] = array
                self._bytes += array.nbytes
                while self._bytes > self.limit:
                    self._bytes -= self._kept.popitem(last=False)[1].nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkCache, (self.limit,)
