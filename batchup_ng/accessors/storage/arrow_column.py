"""One column of files that Arrow reads, in chunks of different lengths: what Parquet and Arrow files share."""

from __future__ import annotations

import collections
import contextlib
import os
import threading
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ...error_context import shortened
from ...errors import ArgumentError, ArgumentTypeError, BatchupError, SampleReadError
from ...validation import size_in_bytes
from .arrow_types import UnfitRow, as_numbers, check_values, numbers_form, pyarrow, python_value, unwrapped
from .base import RUN_BYTES, WINDOW_BYTES, StoredArray, StoredRows, StoredValues
from .chunks import LARGE_ROW, ChunkedArray
from .remote import is_remote
from .shard_paths import shard_paths

LARGEST_CHUNK = 1 << 30
"""Bytes of a decoded chunk that are taken on the word of a file, which may claim anything."""

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
Self = TypeVar("Self", bound="ArrowColumn")


class ArrowColumn(StoredArray, StoredValues):
    """One column of the tables in some files, one table after the other.

    What a row is follows from the type of the column:

    - Numbers, booleans, dates, timestamps (in UTC) and durations, and lists of a fixed length of them, nested too, are
      arrays of one `shape` and `dtype`. A null is NaN among floats, NaT among times; elsewhere it is an error that
      names the row, unless `fill` says what stands for it.
    - Lists of any length, and bytes, are so too if `shape` says what each row holds.
    - Else the rows are values, several of them a list: ``str``, ``bytes``, dicts for structs, for lists of any length
      an array, or a list of what they hold; None for a null. There is no `shape` then, nor `dtype`.

    Dictionaries are read as their values, extension types as what they are stored as.

    Args:
        paths: A file (of Parquet, also a URL); a pattern such as ``"train-*.parquet"``, whose files are taken in the
            order of their names; or a list of files, taken as they are.
        column: Its name; ``"image.bytes"`` is the field ``bytes`` of a column of structs.
        shape: The shape of a row that is stored as a list, or as bytes, of as many numbers.
        fill: What stands for a null among numbers.
        cache: Bytes of decoded chunks that are kept, as an int or a string such as ``"500MB"``.

    Raises:
        SampleReadError: a file is not there, or is none of this format; the column has different types in two files;
            or a chunk has more bytes than 1 GiB and than `cache`.
        ArgumentError: there is no such column; it is of a type that cannot be read, such as decimals; or `shape` has
            other numbers of entries.
        ArgumentTypeError: `fill` is no such number.
        ImportError: the extra ``parquet`` is not installed.
    """

    _mapped: bool = False
    """Whether chunks lie in the file as they are in memory, so that there is nothing to decode."""

    _kind: Any = None

    def __init__(
        self, paths: Paths, column: str, *, shape: Sequence[int] | None = None, fill: Any = None,
        cache: int | str = "256MB",
    ) -> None:  # fmt: skip
        if not isinstance(column, str):
            raise ArgumentTypeError(
                f"column must be the name of one, not {column!r}; see {type(self).__name__}.columns"
            )
        self.column = column
        self.fill = fill
        self._cache_limit = size_in_bytes("cache", cache)
        super().__init__(shard_paths(paths))
        chunks = [self._checked_chunks(number) for number in range(len(self.paths))]
        self._files = np.repeat(np.arange(len(chunks)), [len(of_file) for of_file in chunks])
        lengths = [length for of_file in chunks for length, _ in of_file]
        sizes = [size for of_file in chunks for _, size in of_file]
        self._ends = np.cumsum(lengths, dtype=np.int64)
        self._starts = self._ends - np.array(lengths, np.int64)
        self._longest = max([1, *lengths])
        self._mean_bytes = sum(sizes) // max(1, len(self))
        self._form = numbers_form(self._kind, shape, fill)
        self._recent = Recent(self._cache_limit)
        self._padded: PaddedChunks | None = None
        if self._form is None:
            check_values(self._kind, column)
        else:
            self._shape, self._dtype = (len(self), *self._form.shape), self._form.dtype
            sizes = [length * self.row_bytes for length in lengths]
        if self._mapped:
            return
        if (size := max(sizes, default=0)) > max(LARGEST_CHUNK, self._cache_limit):
            path = self.paths[self._files[sizes.index(size)]]
            raise SampleReadError(
                f"a chunk of column {column!r} of {path!r} has {size:,} bytes; pass a cache= that has room for it, or "
                f"write the file with smaller row groups or batches",
                path,
            )
        if self._form is not None:
            self._padded = PaddedChunks(self, cache)

    @classmethod
    def columns(cls: type[Self], paths: Paths, names: Iterable[str] | None = None) -> dict[str, Self]:
        """Return an accessor for each column of the files: for all of them, or for those of `names`.

        Raises:
            SampleReadError: as the class.
            ArgumentError: a column is of a type that cannot be read; name the others.
        """
        if names is None:
            first = cls.__new__(cls)
            first.column = ""
            StoredRows.__init__(first, shard_paths(paths)[:1])
            names = first._schema(first._handle()).names
            StoredRows.close(first)
        return {name: cls(paths, name) for name in names}

    @abstractmethod
    def _schema(self, handle: Any) -> Any:
        """Return the schema of an open file."""

    @abstractmethod
    def _chunks(self, handle: Any) -> list[tuple[int, int]]:
        """Return the rows of each chunk of an open file, and about how many bytes they are in memory."""

    @abstractmethod
    def _decoded(self, handle: Any, number: int) -> Any:
        """Return the column of names ``_names[0]`` of a chunk of an open file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of all the data, the first axis that of the rows; ``AttributeError`` where they differ in shape."""
        if self._form is None:
            raise AttributeError(f"rows of type {self._kind} are values, which have no common `shape` or `dtype`")
        return self._shape

    @property
    def natural_block(self) -> int:
        """Rows of the longest chunk; where nothing is decoded, as many as are as cheap to read together as one."""
        if not self._mapped:
            return self._longest
        return super().natural_block if self._form else max(1, RUN_BYTES // max(1, self._mean_bytes))

    @property
    def natural_window(self) -> int:
        """How many such blocks a shuffle may mix so that each is read once."""
        if self._mapped:
            return super().natural_window if self._form else WINDOW_BYTES // RUN_BYTES
        if self._padded is not None:
            return self._padded.natural_window
        first = int(np.searchsorted(self._ends, 0, "right"))  # which is decoded, for no file says what values take
        size = self._kept(first).nbytes * self._longest // int(self._ends[first]) if len(self) else 0
        return max(1, self._cache_limit // max(1, size) // 2)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, rows: Any) -> Any:
        """Return one row for an int, else several, in the order asked for: an array, or a list of values.

        Raises:
            IndexError: a row is out of range, or a mask has another length.
            SampleReadError: a file has changed or cannot be read; ``.source`` is its path.
        """
        return StoredValues.__getitem__(self, rows) if self._form is None else super().__getitem__(rows)

    __getitems__ = __getitem__

    def close(self) -> None:
        """Close the files that this process has open, and let go of chunks; the next reading begins anew."""
        super().close()
        self._recent = Recent(self._cache_limit)
        if self._padded is not None:
            self._padded.close()

    def sample_name(self, row: int) -> str | None:
        """Return the file of a row."""
        return self.file_paths([row % len(self)])[0]

    def file_paths(self, rows: Sequence[int]) -> list[str]:
        """Return the files that `rows` are read from."""
        files = np.unique(self._files[np.searchsorted(self._ends, np.asarray(rows), "right")])
        return [self.paths[file] for file in files.tolist()]

    def _options(self) -> list[Any]:
        return [self.column, None if self._form is None else list(self._form.shape), repr(self.fill)]

    def _checked_chunks(self, number: int) -> list[tuple[int, int]]:
        """Return :meth:`_chunks` of the file of that number, whose column is of the type of the others."""
        path, handle = self.paths[number], self._handle(number)
        self._names, kind = field_path(self._schema(handle), self.column, path)
        if number == 0:
            self._kind = kind
        elif kind != self._kind:
            raise SampleReadError(
                f"column {self.column!r} is of type {kind} in {path!r}, and of {self._kind} in {self.paths[0]!r}; read "
                f"the files apart, or write one anew",
                path,
            )
        try:
            chunks = self._chunks(handle)
        except (BatchupError, MemoryError):
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {shortened(repr(str(error)), 500)}"
            raise SampleReadError(f"column {self.column!r} of {path!r} cannot be read ({said})", path) from error
        if any(length < 0 for length, _ in chunks):
            raise SampleReadError(f"{path!r} has a chunk of less than no rows; get a whole copy of the file", path)
        return chunks

    def _array(self, chunk: int) -> Any:
        """Return the Arrow array of a chunk, as it is stored."""
        file = int(self._files[chunk])
        handle = self._handle(file)
        try:
            array = self._decoded(handle, chunk - int(np.searchsorted(self._files, file)))
            for name in self._names[1:]:
                array = unwrapped(array)
                array = array.flatten()[array.type.get_field_index(name)]  # which are null where the struct is
            array = unwrapped(array)
            if len(array) != self._ends[chunk] - self._starts[chunk]:
                raise ValueError(
                    f"a chunk has {len(array)} rows, not the {self._ends[chunk] - self._starts[chunk]} told"
                )
        except Exception as error:
            rows = np.arange(self._starts[chunk], self._ends[chunk])
            raise self._unreadable(rows, error) from error
        return array

    def _kept(self, chunk: int) -> Any:
        """Return the array of a chunk, which is kept for a while: of NumPy, where that is a view of numbers."""
        kept = self._recent.get(chunk)
        if kept is None:
            kept = self._array(chunk)
            if self._form is not None:
                with contextlib.suppress(UnfitRow, pyarrow().ArrowInvalid):
                    kept = as_numbers(kept, self._form, only_views=True)
            self._recent.put(chunk, kept, 0 if self._mapped else kept.nbytes)
        return kept

    def _numbers(self, array: Any, rows: Sequence[int]) -> np.ndarray:
        """Return an Arrow array of numbers, which are those of `rows`, as NumPy has it."""
        assert self._form is not None
        try:
            return as_numbers(array, self._form, self.fill)
        except UnfitRow as error:
            raise self._unfit(int(rows[error.row]), error) from error

    def _unfit(self, row: int, error: UnfitRow) -> SampleReadError:
        path = self.sample_name(row)
        return SampleReadError(f"row {row} of column {self.column!r}, of {path!r}, {error}", path)

    def _located(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the chunk of each row, and its number there.

        Raises:
            SampleReadError: one of their files has changed, though their chunks may be kept.
        """
        chunks = np.searchsorted(self._ends, rows, "right")
        files = np.unique(self._files[chunks]).tolist()
        self._look([file for file in files if is_remote(self.paths[file])])  # at all of them at once
        for file in files:
            self._handle(file)
        return chunks, rows - self._starts[chunks]

    def _fill(self, rows: np.ndarray, out: np.ndarray) -> None:
        chunks, within = self._located(rows)
        if self._padded is not None:
            self._padded._fill(chunks * self._longest + within, out)
        elif self.row_bytes >= LARGE_ROW:  # an index array would go by way of fresh memory
            last = -1
            kept: Any = None
            for place, (chunk, row) in enumerate(zip(chunks.tolist(), within.tolist(), strict=True)):
                if chunk != last:
                    last, kept = chunk, self._kept(chunk)
                out[place] = kept[row] if isinstance(kept, np.ndarray) else self._some(kept, [row], rows[place:])[0]
        else:
            for chunk in np.unique(chunks).tolist():
                places, kept = np.flatnonzero(chunks == chunk), self._kept(chunk)
                here = within[places]
                out[places] = kept[here] if isinstance(kept, np.ndarray) else self._some(kept, here, rows[places])

    def _some(self, array: Any, within: Any, rows: np.ndarray) -> np.ndarray:
        """Return some entries, those of `rows`, of an array of numbers that NumPy cannot view."""
        return self._numbers(array.take(pyarrow().array(within)), rows.tolist())

    def _values(self, rows: np.ndarray) -> list[Any]:
        values: list[Any] = [None] * len(rows)
        chunks, within = self._located(rows)
        last = -1
        array: Any = None
        for place in np.argsort(chunks, kind="stable").tolist():  # so that a chunk that is not kept is decoded once
            if chunks[place] != last:
                last = int(chunks[place])
                array = self._kept(last)
            try:
                values[place] = python_value(array[int(within[place])])
            except UnfitRow as error:
                raise self._unfit(int(rows[place]), error) from error
        return values


class PaddedChunks(ChunkedArray):
    """The chunks of a column of numbers, each as long as the longest, as `ChunkedArray` takes them to be."""

    takes_urls = True

    def __init__(self, column: ArrowColumn, cache: int | str) -> None:
        super().__init__(column.paths)
        self._column = column
        self._shape = (len(column._ends) * column.natural_block, *column.shape[1:])
        self._dtype = column.dtype
        self._set_cache(cache)

    @property
    def chunk_rows(self) -> int:
        """Rows of the longest chunk."""
        return self._column.natural_block

    def _open(self, path: str) -> Any:
        raise NotImplementedError("the column opens its files")

    def _options(self) -> list[Any]:
        return self._column._options()

    def _read_chunk(self, number: int, out: np.ndarray) -> None:
        array, start = self._column._array(number), int(self._column._starts[number])
        out[: len(array)] = self._column._numbers(array, range(start, start + len(array)))


class Recent:
    """The chunks of values that were used last, up to `limit` bytes; pickled without them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept: collections.OrderedDict[int, tuple[Any, int]] = collections.OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, number: int) -> Any:
        """Return the chunk of that number; None if it is not kept."""
        with self._lock:
            if number in self._kept:
                self._kept.move_to_end(number)
            return self._kept.get(number, (None, 0))[0]

    def put(self, number: int, chunk: Any, size: int) -> None:
        """Keep a chunk of so many bytes, instead of those that were not used for longest."""
        with self._lock:
            if number not in self._kept and size <= self.limit:
                self._kept[number] = chunk, size
                self._bytes += size
                while self._bytes > self.limit:
                    self._bytes -= self._kept.popitem(last=False)[1][1]

    def __reduce__(self) -> tuple[Any, ...]:
        return Recent, (self.limit,)


def field_path(schema: Any, column: str, path: str) -> tuple[list[str], Any]:
    """Return the names of a field, from the outermost to its own, and its type without that of an extension.

    Raises:
        ArgumentError: there is none, or there are several of the name.
    """
    pa = pyarrow()
    kind = pa.struct(list(schema))
    names = [column] if column in schema.names else column.split(".")
    for name in names:
        at = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
        if at < 0:
            listed = ", ".join(map(repr, schema.names[:20]))
            raise ArgumentError(f"column must be one of the columns of {path!r}, not {column!r}; it has {listed}")
        kind = kind[at].type
        while isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
    return names, kind
