"""Columns of Parquet files, by their row groups."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from .arrow_column import ArrowColumn
from .arrow_types import pyarrow
from .remote import RemoteFile, is_remote


class Opened:
    """An open file, its source if it is at a URL, and a function that opens it with other options."""

    def __init__(self, file: Any, source: SeekableFile | None, again: Any) -> None:
        self.file, self.source, self.again = file, source, again


_opened: weakref.WeakValueDictionary[tuple[Any, ...], Opened] = weakref.WeakValueDictionary()
"""The files that are open, each once for all its columns that a thread reads: pyarrow holds some kB for each column of
each row group."""

_latest: weakref.WeakValueDictionary[tuple[Any, ...], Opened] = weakref.WeakValueDictionary()
"""The open file of each URL that a thread took last. The other threads take its metadata: otherwise each of them would
fetch the end of the file, which may have megabytes."""

_first: weakref.WeakValueDictionary[tuple[Any, ...], Any] = weakref.WeakValueDictionary()
"""Locks of the files at URLs: while a thread fetches the end of a file, the others wait for its metadata. A fork has
locks of its own, because no thread of it would release those of the parent."""


class ParquetRows(ArrowColumn):
    """A column of Parquet files, as an array or as values (see the base class).

    A row group is decoded as a whole, so read in order, or with ``shuffle="blocks"``. Short neighbouring row groups of
    numbers are decoded together, up to a megabyte. Lists are slow to decode: pixels that are stored as bytes, and read
    with ``shape=``, come about 15 times as fast as lists of a fixed length. If the file is at a URL, the column's part
    of a row group is fetched in few requests at once, with large requests split. Checksums of pages are compared, if a
    file has them. Few writers write any unless they are asked to (pyarrow: ``write_page_checksum=True``).

    ::

        images = ImageBytes(ParquetRows("train-*.parquet", "image"), size=224)
        labels = ParquetRows("train-*.parquet", "label")
        pixels = ParquetRows("pixels.parquet", "pixels", shape=(128, 128, 3))
    """

    takes_urls = True
    each_thread = True  # several threads that read one ParquetFile crash the interpreter

    def _open(self, path: str) -> Opened:
        stamp = self._stamps[self.paths.index(path)]
        key = path, repr(stamp), os.getpid(), threading.get_ident()
        opened = _opened.get(key)
        if is_remote(path):
            with _first.setdefault(key[:3], threading.Lock()):
                if opened is None:
                    opened = _opened[key] = self._opened_anew(path, stamp, _latest.get(key[:3]))
                _latest[key[:3]] = opened
        elif opened is None:
            opened = _opened[key] = self._opened_anew(path, stamp)
        return opened

    def _opened_anew(self, path: str, stamp: Any, other: Opened | None = None) -> Opened:
        """Open a file. If it is at a URL, take the metadata of another thread's, if there is one."""
        pa = pyarrow()
        import pyarrow.parquet as parquet

        if is_remote(path):
            source = SeekableFile(RemoteFile(path, stamp), stamp[0])
            known = {"metadata": None if other is None else other.file.metadata}
            fetched = functools.partial(
                parquet.ParquetFile, source, pre_buffer=True, page_checksum_verification=True, **known
            )
            with source.telling():
                return Opened(fetched(), source, fetched)
        # Measured: a map is faster than reading. Reading ahead and pyarrow's threads do not help with one column.
        with pa.memory_map(path) as mapped:  # unlike memory_map=True, it keeps no descriptor
            buffer = mapped.read_buffer()

        def again(**options: Any) -> Any:
            reader = pa.BufferReader(buffer)
            return parquet.ParquetFile(reader, pre_buffer=False, page_checksum_verification=True, **options)

        return Opened(again(), None, again)

    def _schema(self, handle: Any) -> Any:
        return handle.file.schema_arrow

    def _parts(self, handle: Any) -> list[tuple[int, int, int]]:
        # Bytes of all columns: asking for one crashes the interpreter if its statistics are damaged (pyarrow 26).
        groups = [handle.file.metadata.row_group(number) for number in range(handle.file.num_row_groups)]
        return [(group.num_rows, group.total_byte_size, -1) for group in groups]

    def _decoded(self, handle: Any, first: int, last: int) -> Any:
        file, source, again = handle.file, handle.source, handle.again
        with contextlib.nullcontext() if source is None else source.telling():
            parts = {"row_groups": range(first, last), "columns": [self.column], "use_threads": False}
            table = file.read_row_groups(**parts)
            columns = (file.schema.column(number) for number in range(len(file.schema)))
            if "timestamp[ns" in str(table.schema.types) and any(each.physical_type == "INT96" for each in columns):
                _check_times(table, again(coerce_int96_timestamp_unit="us").read_row_groups(**parts))
        return table.column(self._names[0]).chunks


def _check_times(exact: Any, coarse: Any) -> None:
    """Refuse times that 64 bits of nanoseconds cannot hold. pyarrow reads INT96 as nanoseconds, and gives other times.

    Args:
        exact: The table, read in nanoseconds.
        coarse: The same in microseconds.
    """
    for fine, wide in zip(_times(exact.combine_chunks().columns), _times(coarse.combine_chunks().columns), strict=True):
        if (np.abs(fine // 1000 - wide) > 1).any():
            raise ValueError(
                "it holds times outside 1677 to 2262, which nanoseconds cannot hold; write the file anew with "
                "timestamps in microseconds, not as INT96"
            )


def _times(arrays: Iterable[Any]) -> Iterator[np.ndarray]:
    """Yield the times in some arrays as numbers, also times within lists and structs; 0 for a null."""
    types = pyarrow().types
    for array in arrays:
        chunks = array.chunks if hasattr(array, "chunks") else [array]
        for chunk in chunks:
            if types.is_timestamp(chunk.type):
                yield chunk.cast(pyarrow().int64()).fill_null(0).to_numpy(zero_copy_only=False)
            elif types.is_nested(chunk.type):
                yield from _times(chunk.flatten() if types.is_struct(chunk.type) else [chunk.flatten()])


class SeekableFile(io.RawIOBase):
    """A file of `size` bytes at a URL, as pyarrow takes it.

    pyarrow would keep an exception forever, with everything that its traceback refers to. So pyarrow gets no bytes
    instead, and the exception is raised afterwards.
    """

    def __init__(self, file: RemoteFile, size: int) -> None:
        self._file, self._size, self._position = file, size, 0
        self._error: OSError | None = None

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """After the body, raise the exception that kept bytes from pyarrow."""
        self._error = None
        try:
            yield
        except Exception:
            if self._error is None:
                raise
        error, self._error = self._error, None
        if error is not None:
            raise error

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place, relative to the beginning, the present place or the end."""
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Return `size` bytes, fewer at the end."""
        rest = self._size - self._position
        try:
            found = self._file.read(self._position, rest if size < 0 else min(size, rest))
        except OSError as error:
            self._error = error
            return b""
        self._position += len(found)
        return found
