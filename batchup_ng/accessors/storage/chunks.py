"""Rows in chunks. A chunk can only be decoded as a whole, and is kept for a while afterwards."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ...errors import SampleReadError
from ...memory.budget import BUDGET, Holder, Living
from ...validation import size_in_bytes
from ..base import fill_rows
from .base import Files, StoredArray
from .chunk_cache import MOST_SLOTS, ChunkCache

SMALL_ARRAY_BYTES = 16 << 20
"""Bytes up to which each process decodes data in a single chunk, such as labels, once."""

SMALL_ARRAYS_BYTES, SMALL_ARRAYS_SHARE = 64 << 20, 1 / 64
"""Bytes that all such data of a program may have, and their part of the memory that is free: each process has them."""

LARGEST_CHUNK_BYTES = 1 << 30
"""Bytes that a file may claim for a decoded chunk or row, unless the cache is larger."""

CHUNKS_AHEAD = 4
"""How many chunks after a batch are candidates for decoding ahead while other workers decode the batch's chunks."""

ORDER_CACHE_BYTES = 256_000_000
"""Bytes of the cache for which an order by blocks is made: the default, ``cache="256MB"``."""

CHUNKS_FETCHED_AT_ONCE = 16
"""Chunks at URLs that are fetched at once, one thread for each."""


class UnfitRow(ValueError):
    """A row of a chunk cannot be a row of the array; `row` counts from the first row that was converted."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


class Whole(Holder):
    """The data in a single small chunk, once they are decoded. A pickle does not contain them.

    Attributes:
        nbytes: Their bytes, in each process that reads them; 0 if they are not small.
    """

    array: np.ndarray | None = None
    nbytes = 0

    def __init__(self) -> None:
        _wholes.add(self)
        BUDGET.add(self)

    def held(self) -> dict[str, int]:
        return {"decoded chunks": 0 if self.array is None else self.array.nbytes}

    def fits(self, nbytes: int) -> bool:
        """Return whether `nbytes` are few enough for each process to have them; count them from then on, if so."""
        most = min(SMALL_ARRAYS_BYTES, BUDGET.free() * SMALL_ARRAYS_SHARE)
        if nbytes <= SMALL_ARRAY_BYTES and nbytes + sum([whole.nbytes for whole in _wholes.all()]) <= most:
            self.nbytes = nbytes
        return self.nbytes > 0

    def close(self) -> None:
        """Drop the data."""
        self.array = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Whole, ()


_wholes: Living[Whole] = Living()
"""The small data of this process."""


class ChunkedArray(StoredArray):
    """Rows in chunks. The most recently decoded chunks stay in memory.

    All threads and processes of a program share them, see :mod:`~batchup_ng.accessors.storage.chunk_cache`. If a batch
    contains a whole chunk in order, the chunk is decoded straight into the batch.

    Args:
        cache: Bytes of decoded chunks that are kept, as an int or a string such as ``"500MB"``.
    """

    _decodes = True  # set to False by a format, when it is made, if rows are read without decoding: by `_copy`
    _files: np.ndarray  # number of the file of each chunk; only set if there may be several files
    _small: bool | None = None  # whether each process decodes the data once; None before that is known

    def _set_cache(self, cache: int | str) -> None:
        self._cache, self._whole = ChunkCache(size_in_bytes("cache", cache)), Whole()
        self._caches = self._cache, self._whole

    def _check_claim(self, nbytes: int, path: str) -> None:
        """Refuse a file whose chunk, or row, would take `nbytes` of memory, if that is too much."""
        if nbytes > max(LARGEST_CHUNK_BYTES, self._cache.limit):
            raise SampleReadError(
                f"a chunk or row of {path!r} has {nbytes:,} bytes when it is decoded; pass a cache= that has room for "
                f"it, or write the file with smaller ones",
                path,
            )

    @property
    @abstractmethod
    def chunk_rows(self) -> int:
        """Rows of the longest chunk."""

    @abstractmethod
    def _read_chunk(self, handle: Any, number: int, out: np.ndarray) -> None:
        """Decode chunk `number` of an open file into `out`, ``(its rows, *shape[1:])`` of `dtype`."""

    @abstractmethod
    def _located(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the chunk of each row, and the row's number within it."""

    @abstractmethod
    def _rows_in(self, chunks: Any) -> Any:
        """Return the number of rows of each chunk."""

    def _copy(self, files: Files, rows: np.ndarray, out: np.ndarray) -> None:
        """Write `rows` into `out` as :meth:`_fill` does, without decoding chunks."""
        raise NotImplementedError

    def _fill_fitting(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write `rows` into `out` although other rows of their chunks are unfit; needed if chunks have unfit rows."""
        raise NotImplementedError

    def _fill(self, files: Files, rows: np.ndarray, out: np.ndarray) -> None:
        if not self._decodes:
            self._copy(files, rows, out)
            return
        numbers, within = self._located(rows)
        try:
            if self._small or (self._small is None and self._is_small()):
                whole = self._whole.array
                if whole is None:
                    whole = np.empty(self.shape, self.dtype)
                    self._decode(int(numbers[0]), whole)
                    self._whole.array = whole
                fill_rows(whole, rows, out)
                return
            left = np.ones(len(rows), bool)
            for start in [] if self._looked else (within == 0).nonzero()[0].tolist():  # URLs: all chunks at once
                number = int(numbers[start])
                end = start + int(self._rows_in(number))
                if end <= len(rows) and (rows[start:end] - rows[start] == np.arange(end - start)).all():
                    self._decode(number, out[start:end])
                    left[start:end] = False
            if left.any():
                places = left.nonzero()[0]
                self._gather(rows, numbers[places], within[places], out, places)
        except UnfitRow:  # in the chunk, though perhaps not among `rows`
            self._fill_fitting(rows, out)

    def _decode(self, number: int, out: np.ndarray) -> None:
        """Decode a chunk by a handle of this thread: chunks at URLs are decoded by several threads."""
        self._read_chunk(self._handle(int(self._files[number]) if len(self.paths) > 1 else 0), number, out)

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
            self._decode(number, np.ndarray(shape, self.dtype, memory))

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
            with ThreadPoolExecutor(min(CHUNKS_FETCHED_AT_ONCE, len(missing))) as threads:
                each = [np.array([number]) for number in missing.tolist()]
                list(threads.map(lambda number: self._cache.fetch(number, nbytes, decode, use), each))
        elif len(missing):
            ahead: Sequence[int] = ()
            if len(rows) > 1 and (np.diff(rows) == 1).all():  # other workers wait for that chunk, too
                last = int(self._located(np.array([len(self) - 1]))[0][0])
                ahead = range(int(chunks[-1]) + 1, min(int(chunks[-1]) + CHUNKS_AHEAD, last) + 1)
            self._cache.fetch(missing, nbytes, decode, use, ahead)

    def _is_small(self) -> bool:
        """Return whether each process decodes the data once and keeps it, without the cache.

        Called before the first use of the cache, which needs no room for more chunks than there are.
        """
        if self._small is not None:
            return self._small
        chunks = int(self._located(np.array([len(self) - 1]))[0][0]) + 1 if len(self) else 1
        self._cache.limit = min(self._cache.limit, chunks * self._chunk_bytes)
        fits = len(self) <= self.chunk_rows and self._chunk_bytes <= self._cache.limit
        self._small = fits and self._whole.fits(self._chunk_bytes)
        return self._small

    def __getstate__(self) -> dict[str, Any]:
        self._cache.is_idle = self._is_small() or not self._decodes
        return super().__getstate__()

    @property
    def _chunk_bytes(self) -> int:
        return max(1, min(self.chunk_rows, len(self)) * self.row_bytes)


class EvenChunks(ChunkedArray):
    """Rows of one file in chunks of one length; the last chunk may have fewer rows."""

    _chunk_rows: int

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk; for data without chunks, the rows that are worth reading in one go."""
        return self._chunk_rows

    def _located(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.divmod(rows, self.chunk_rows)

    def _rows_in(self, chunks: Any) -> Any:
        return np.minimum(self.chunk_rows, len(self) - chunks * self.chunk_rows)

    @property
    def natural_block(self) -> int:
        """Rows of a chunk."""
        return self.chunk_rows

    @property
    def natural_window(self) -> int:
        """How many chunks may be mixed if a cache of :data:`ORDER_CACHE_BYTES` is to read each once. It is half of the
        chunks that fit, because workers already begin the next ones. The order depends on this number, not on `cache=`.
        """
        return max(1, min(MOST_SLOTS, ORDER_CACHE_BYTES // self._chunk_bytes) // 2)

    @property
    def rows_kept(self) -> float:
        """How many rows of decoded chunks fit into `cache=` and into the memory that is free now."""
        if not self._decodes:
            return math.inf
        return min(MOST_SLOTS, self._cache.room() // self._chunk_bytes) * self.chunk_rows
