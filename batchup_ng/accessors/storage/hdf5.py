"""Data sets of HDF5 files, PyTables' included.

If rows lie in the file as in memory (contiguous, or in chunks without compression), they are copied out of a memory
map, without the library. Otherwise HDF5 reads them: run by run into the batch if a chunk has one row, by chunks if not.
h5py never gets lists of rows: it reads them far more slowly than one row after the other.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import validation
from ...errors import ArgumentError, SampleReadError
from ..base import fill_rows
from .base import OPENING_LOCK, Files, StoredRows, StoredValues, of_one_length, runs
from .chunks import EvenChunks
from .hdf5_file import data_set, data_sets, h5py_library, is_fresh, open_hdf5, rows_differ
from .in_runs import RUN_BYTES

MAX_MAPPED_CHUNKS = 1 << 20
"""Chunks of a data set that is read by memory map, at most: each process asks for each place, in microseconds."""

VALUES_CACHE_BYTES = 64 << 20
"""Bytes of decoded chunks that HDF5 keeps for a data set of values."""

_READERS: weakref.WeakSet[_DataSet] = weakref.WeakSet()
"""The accessors of this process that may have a file open."""


class _DataSet(StoredRows):
    """A file that is closed once it has changed: HDF5 reads only a file again that nothing in the process has open."""

    shares_state = True

    def _file(self, path: str, cache: int = 0) -> Any:
        """Return the open file in its present state. Accessors that have an earlier state open close it."""
        with OPENING_LOCK:
            _READERS.add(self)
            for _ in range(2):
                file = open_hdf5(path, cache)
                if is_fresh(file, self._stamps[0]):
                    return file
                file.close()
                for other in list(_READERS):
                    if os.path.realpath(other.paths[0]) == os.path.realpath(path) and other._stamps != self._stamps:
                        other._let_go()
        raise SampleReadError(
            f"{path!r} has changed, and code of this process has it open as it was, which HDF5 would read; close() the "
            f"h5py.File there",
            path,
        )

    def _let_go(self) -> None:
        """Close the file, even if it was inherited by a fork: HDF5 remembers that state too."""
        handles, self._handles = self._handles, {}
        for handle in handles.values():
            self._close(handle)


class Hdf5Rows(_DataSet, EvenChunks):
    """The rows of one data set of an HDF5 file; also PyTables' EArray, CArray, Array and Table.

    Rows of a Table, or of any compound type, are structured arrays; with `field`, only its values. Other dtypes are as
    in h5py. Rows that differ in length, text included, are read by :class:`Hdf5Values`. HDF5 allocates as much memory
    as a damaged chunk decodes to, without a limit.

    ::

        images = Hdf5Rows("train.h5", "images")
        images[[7, 0]].shape  # (2, 128, 128, 3)
        source = ArrayDataSource(Hdf5Rows.columns("train.h5", ["images", "labels"]))  # batches are dicts

    Args:
        path: The file.
        dataset: The path of the data set in it, such as ``"images"`` or ``"group/x"``; it may be left out if there is
            only one.
        field: One column of a compound type.
        cache: Bytes of decoded chunks that are kept for all processes together, as an int or a string such as
            ``"500MB"``.

    Raises:
        SampleReadError: the file is not there, is not an HDF5 file, is being written to, or has changed while an
            ``h5py.File`` of this process has it open; the data set lies in other files, or is a virtual one; a
            chunk, or row, that must be decoded has more bytes than 1 GiB and than `cache`.
        ArgumentError: there is no such data set or field, its rows are not arrays of one shape, or `cache` has no room
            for a chunk.
        ImportError: h5py is not installed, or a library that decodes the data is not.
    """

    @validation.known_names({})
    def __init__(
        self, path: str | os.PathLike[str], dataset: str | None = None, *, field: str | None = None,
        cache: int | str = "256MB",
    ) -> None:  # fmt: skip
        super().__init__([path])
        self._set_cache(cache)
        self.dataset, self.field = dataset, field
        opened: _ByLibrary | _ByMap = self._handle()
        self.close()  # HDF5 locks a file that is open against writers
        self._shape, self._dtype, self._chunk_rows = opened.shape, opened.dtype, opened.chunk_rows
        self._decodes = isinstance(opened, _ByLibrary) and self._chunk_rows > 1
        if isinstance(opened, _ByLibrary):
            self._check_claim(max(self._chunk_bytes, opened.chunk_bytes), self.paths[0])
        if self._decodes and self._shape[0] and not self._cache.slots(self._chunk_bytes):
            raise ArgumentError(
                f"cache must have room for a chunk of {self.paths[0]!r}, {self._chunk_bytes} bytes, not {cache!r}; "
                f"raise it, or write the file with smaller chunks"
            )

    @classmethod
    def columns(
        cls, path: str | os.PathLike[str], names: Sequence[str] | None = None
    ) -> dict[str, Hdf5Rows | Hdf5Values]:
        """Return an accessor for each data set of a file, by its path in it: for all of them, or for `names`.

        Raises:
            ArgumentError: the data sets differ in length; or as the class.
        """
        differs = Hdf5Columns([path], names)._handle()
        return of_one_length(path, {name: (Hdf5Values if differs[name] else cls)(path, name) for name in differs})

    def _open(self, path: str) -> _ByLibrary | _ByMap:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(self._file(path))
            data = data_set(file, self.dataset)
            if data.dtype.hasobject and self.field is None:
                raise ArgumentError(
                    f"dataset must have rows of one shape, and those of {data.name!r} of {path!r} have parts that "
                    f"differ in length, or refer to others; read text and arrays by Hdf5Values, a column of a table "
                    f"by field="
                )
            opened, pieces = _ByLibrary(data, self.field), _pieces(data, self.field)
            if pieces is not None:
                return _ByMap(path, data, self.field, opened, *pieces)
            stack.pop_all()  # the file stays open
            return opened

    def _close(self, handle: _ByLibrary | _ByMap) -> None:
        if isinstance(handle, _ByLibrary):
            handle.file.close()

    def _copy(self, files: Files, rows: np.ndarray, out: np.ndarray) -> None:
        files[0].fill(rows, out)

    def _read_chunk(self, handle: Any, number: int, out: np.ndarray) -> None:
        handle.read(number * self._chunk_rows, out)

    def _options(self) -> list[Any]:
        return [self.dataset, self.field]


class Hdf5Values(_DataSet, StoredValues):
    """The rows of a data set of an HDF5 file that differ in length: ``str`` for text, arrays for others.

    PyTables' VLArray is such a data set; objects that it pickled stay the bytes of the pickle, ``uint8``.

    Args:
        path: The file.
        dataset: The path of the data set in it; it may be left out if there is only one.

    Raises:
        SampleReadError: as :class:`Hdf5Rows`.
        ArgumentError: there is no such data set, or its rows are of one length.
        ImportError: as :class:`Hdf5Rows`.
    """

    natural_block = 1
    """How many neighbouring rows are as cheap to read together as one."""
    natural_window = 16
    """How many such blocks a shuffle may mix and still read each block once."""

    @validation.known_names({})
    def __init__(self, path: str | os.PathLike[str], dataset: str | None = None) -> None:
        super().__init__([path])
        self.dataset = dataset
        self._length = len(self._handle())
        self.close()

    def __len__(self) -> int:
        return self._length

    def _open(self, path: str) -> Any:
        with contextlib.ExitStack() as stack:
            data = data_set(stack.enter_context(self._file(path, VALUES_CACHE_BYTES)), self.dataset)
            if not rows_differ(data):
                raise ArgumentError(
                    f"dataset must have rows that differ in length, and {data.name!r} of {path!r} has {data.dtype}; "
                    f"read it by Hdf5Rows"
                )
            stack.pop_all()  # the file stays open
            return data

    def _close(self, handle: Any) -> None:
        handle.file.close()

    def _values(self, files: Files, rows: np.ndarray) -> list[Any]:
        data = files[0]
        if h5py_library().check_string_dtype(data.dtype):
            data = data.asstr()
        return [value for first, n, _ in runs(rows) for value in data[first : first + n]]

    def _options(self) -> list[Any]:
        return [self.dataset]


class Hdf5Columns(_DataSet):
    """Data sets of a file. The handle is a dict: does a data set, by name, have rows that differ in length?"""

    def __init__(self, paths: Sequence[str | os.PathLike[str]], names: Sequence[str] | None) -> None:
        super().__init__(paths)
        self._names = names

    def __len__(self) -> int:
        return len(self._handle())

    def _open(self, path: str) -> dict[str, bool]:
        with self._file(path) as file:
            names = data_sets(file) if self._names is None else self._names
            return {name: rows_differ(data_set(file, name)) for name in names}


class _ByLibrary:
    """A data set, or a field of it, read by HDF5."""

    def __init__(self, data: Any, field: str | None) -> None:
        h5py = h5py_library()
        inner = data.dtype
        if field is not None:
            fixed = [name for name in data.dtype.names or () if not data.dtype[name].hasobject]
            if field not in fixed:
                there = f"one of {fixed}" if fixed else "left out for rows without fields, as those"
                raise ArgumentError(f"field must be {there} of {data.name!r}, not {field!r}")
            inner = data.dtype[field]
        self.file, self._id, self._spaces = data.file, data.id, h5py.h5s
        self._type = h5py.h5t.py_create(inner if field is None else np.dtype([(field, inner)]))
        self.shape: tuple[int, ...] = (*data.shape, *inner.shape)
        self.dtype: np.dtype[Any] = inner.base
        self.chunk_rows: int = data.chunks[0] if data.chunks else 1
        self.chunk_bytes: int = math.prod(data.chunks or [0]) * data.dtype.itemsize

    def fill(self, rows: np.ndarray, out: np.ndarray) -> None:
        for first, n, place in runs(rows):
            self.read(first, out[place : place + n])

    def read(self, first: int, out: np.ndarray) -> None:
        """Read ``len(out)`` rows, from `first` on."""
        space = self._id.get_space()
        extent = (len(out), *space.shape[1:])
        space.select_hyperslab((first, *[0] * (len(extent) - 1)), extent)
        # h5py's read_direct does this too, in twice the time for a row of 49 kB (measured).
        self._id.read(self._spaces.create_simple(extent), space, out, self._type)


class _ByMap:
    """A data set, or a field of it, in pieces that lie in the file as in memory."""

    def __init__(
        self, path: str, data: Any, field: str | None, like: _ByLibrary, piece_rows: int, starts: np.ndarray
    ) -> None:
        self.shape, self.dtype, self.chunk_rows = like.shape, like.dtype, piece_rows
        self._starts, self._row_bytes = starts, data.dtype.itemsize * math.prod(data.shape[1:])
        with open(path, "rb") as file:
            self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if starts.min() < 0 or starts.max() + piece_rows * self._row_bytes > len(self._mapped):
            raise ValueError("the file ends before its data")
        self._whole: np.ndarray | None = None
        if len(starts) == 1:
            whole = np.ndarray(data.shape, data.dtype, self._mapped, int(starts[0]))
            self._whole = whole if field is None else whole[field]
            self.chunk_rows = max(1, RUN_BYTES // self._row_bytes)

    def fill(self, rows: np.ndarray, out: np.ndarray) -> None:
        if self._whole is not None:
            fill_rows(self._whole, rows, out)
            return
        pieces, within = np.divmod(rows, self.chunk_rows)
        starts = self._starts[pieces] + within * self._row_bytes
        for _, n, place in runs(rows + pieces):  # adding `pieces` ends each run with its piece
            shape, start = (n, *self.shape[1:]), int(starts[place])
            out[place : place + n] = np.ndarray(shape, self.dtype, self._mapped, start)


def _pieces(data: Any, field: str | None) -> tuple[int, np.ndarray] | None:
    """Return rows per piece, and where each piece begins, of data that lie in the file as in memory; else None."""
    h5py, plist = h5py_library(), data.id.get_create_plist()
    if not data.id.get_type().equal(h5py.h5t.py_create(data.dtype)) or data.dtype.hasobject or not data.size:
        return None
    if plist.get_layout() == h5py.h5d.CONTIGUOUS:
        start = data.id.get_offset()
        return None if start is None else (len(data), np.array([start]))
    if plist.get_layout() != h5py.h5d.CHUNKED or plist.get_nfilters() or field is not None or data.file.userblock_size:
        return None
    rows, n = data.chunks[0], -(-len(data) // data.chunks[0])
    if data.chunks[1:] != data.shape[1:] or n > MAX_MAPPED_CHUNKS or data.id.get_num_chunks() != n:
        return None
    if not hasattr(data.id, "chunk_iter"):  # as in h5py with HDF5 before 1.12.3
        return None
    starts = np.full(n, -1)

    def note(chunk: Any) -> None:
        starts[chunk.chunk_offset[0] // rows] = chunk.byte_offset

    data.id.chunk_iter(note)
    return rows, starts
