"""Rows in chunks. A chunk can only be decoded as a whole, and is kept for a while afterwards."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ...errors import SampleReadError
from ...validation import size_in_bytes
from ..base import fill_rows
from .base import StoredArray
from .chunk_cache import MOST_SLOTS, ChunkCache

SMALL_ARRAY = 16 << 20
"""Bytes up to which each process decodes data in a single chunk, such as labels, once."""

LARGEST_CHUNK = 1 << 30
"""Bytes that a file may claim for a decoded chunk or row, unless the cache is larger."""

AHEAD = 4
"""How many chunks after a batch are candidates for decoding ahead while other workers decode the batch's chunks."""

MIXED_FROM = 256_000_000
"""Bytes of the cache for which an order by blocks is made: the default, ``cache="256MB"``."""

WAITING = 16
"""Chunks at URLs that are fetched at once, one thread for each."""


class ChunkedArray(StoredArray):
    """Rows in chunks. The most recently decoded chunks stay in memory.

    All threads and processes of a program share them, see :mod:`~batchup_ng.accessors.storage.chunk_cache`. If a batch
    contains a whole chunk in order, the chunk is decoded straight into the batch.

    Args:
        cache: Bytes of decoded chunks that are kept, as an int or a string such as ``"500MB"``.
    """

    _only: np.ndarray | None = None  # all the data, if it is small
    _small: bool | None = None  # whether it is; None before that is known

    def _set_cache(self, cache: int | str) -> None:
        self._cache = ChunkCache(size_in_bytes("cache", cache))

    def _check_claim(self, nbytes: int, path: str) -> None:
        """Refuse a file whose chunk, or row, would take `nbytes` of memory, if that is too much."""
        if nbytes > max(LARGEST_CHUNK, self._cache.limit):
            raise SampleReadError(
                f"a chunk or row of {path!r} has {nbytes:,} bytes when it is decoded; pass a cache= that has room for "
                f"it, or write the file with smaller ones",
                path,
            )

    @property
    @abstractmethod
    def chunk_rows(self) -> int:
        """Rows of the longest chunk: all chunks but the last, unless a format has its own `_located` and `_rows_in`."""

    @abstractmethod
    def _read_chunk(self, number: int, out: np.ndarray) -> None:
        """Decode chunk `number` into `out`, ``(its rows, *shape[1:])`` of `dtype`."""

    def _located(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the chunk of each row, and the row's number within it.

        Raises:
            SampleReadError: the file has changed, even if its chunks are in the cache.
        """
        self._handle()
        return np.divmod(rows, self.chunk_rows)

    def _rows_in(self, chunks: Any) -> Any:
        """Return the number of rows of each chunk."""
        return np.minimum(self.chunk_rows, len(self) - chunks * self.chunk_rows)

    @property
    def natural_block(self) -> int:
        """Rows of a chunk."""
        return self.chunk_rows

    @property
    def natural_window(self) -> int:
        """How many chunks may be mixed if a cache of :data:`MIXED_FROM` bytes is to read each once. It is half of the
        chunks that fit, because workers already begin the next ones. The order depends on this number, not on `cache=`.
        """
        return max(1, min(MOST_SLOTS, MIXED_FROM // self._chunk_bytes) // 2)

    @property
    def rows_kept(self) -> float:
        """How many rows of decoded chunks fit into `cache=` and into the memory that is free now."""
        return min(MOST_SLOTS, self._cache.room() // self._chunk_bytes) * self.chunk_rows

    def close(self) -> None:
        """Close the files that this process has open, and drop the chunks; the next read begins again."""
        super().close()
        self._cache.close()
        self._only = None

    def _fill(self, rows: np.ndarray, out: np.ndarray) -> None:
        numbers, within = self._located(rows)
        if self._small or (self._small is None and self._is_small()):
            only = self._only
            if only is None:
                only = np.empty(self.shape, self.dtype)
                self._read_chunk(int(numbers[0]), only)
                self._only = only
            fill_rows(only, rows, out)
            return
        left = np.ones(len(rows), bool)
        for start in [] if self._looked else (within == 0).nonzero()[0].tolist():  # URLs: all chunks at once
            number = int(numbers[start])
            end = start + int(self._rows_in(number))
            if end <= len(rows) and (rows[start:end] - rows[start] == np.arange(end - start)).all():
                self._read_chunk(number, out[start:end])
                left[start:end] = False
        if left.any():
            places = left.nonzero()[0]
            self._gather(rows, numbers[places], within[places], out, places)

    def _gather(
        self, rows: np.ndarray, numbers: np.ndarray, within: np.ndarray, out: np.ndarray, places: np.ndarray
    ) -> None:
        """Copy row `within` of chunk `numbers` to `places` of `out`, by way of the cache."""
        nbytes, row_bytes = self._chunk_bytes, self.row_bytes
        if not row_bytes:
            return
        chunks = np.array(sorted(set(numbers.tolist())))
        of_row = chunks.searchsorted(numbers)
        into = out.reshape(len(out), -1).view(np.uint8)  # `out` is in C order

        def decode(number: int, memory: np.ndarray) -> None:
            shape = (int(self._rows_in(number)), *self.shape[1:])
            self._read_chunk(number, np.ndarray(shape, self.dtype, memory))

        def use(found: np.ndarray, slots: np.ndarray, memory: np.ndarray) -> None:
            slot_of = np.full(len(chunks), -1)
            slot_of[chunks.searchsorted(found)] = slots
            slot_of = slot_of[of_row]
            kept, wanted = memory.reshape(-1, row_bytes), slot_of * (nbytes // row_bytes) + within
            if len(found) == len(chunks) and len(places) == len(out):
                kept.take(wanted, 0, into, "clip")
                return
            here = slot_of >= 0
            for place, row in zip(places[here].tolist(), wanted[here].tolist(), strict=True):
                into[place] = kept[row]  # an index array would need fresh memory

        missing = self._cache.copy(chunks, nbytes, use)
        if len(missing) > 1 and self._looked:
            with ThreadPoolExecutor(min(WAITING, len(missing))) as threads:
                each = [np.array([number]) for number in missing.tolist()]
                list(threads.map(lambda number: self._cache.fetch(number, nbytes, decode, use), each))
        elif len(missing):
            ahead: Sequence[int] = ()
            if len(rows) > 1 and (np.diff(rows) == 1).all():  # other workers wait for that chunk, too
                last = int(self._located(np.array([len(self) - 1]))[0][0])
                ahead = range(int(chunks[-1]) + 1, min(int(chunks[-1]) + AHEAD, last) + 1)
            self._cache.fetch(missing, nbytes, decode, use, ahead)

    def _is_small(self) -> bool:
        """Return whether each process decodes the data once and keeps it, without the cache."""
        self._small = len(self) <= self.chunk_rows and self._chunk_bytes <= min(SMALL_ARRAY, self._cache.limit)
        return self._small

    def __getstate__(self) -> dict[str, Any]:
        self._cache.is_idle = self._is_small()
        return {**super().__getstate__(), "_only": None}

    @property
    def _chunk_bytes(self) -> int:
        return max(1, min(self.chunk_rows, len(self)) * self.row_bytes)
