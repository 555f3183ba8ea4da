"""One column of files that Arrow reads, in chunks of different lengths: the base for Parquet and Arrow files."""

from __future__ import annotations

import math
import os
import threading
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from ... import validation
from ...error_context import shortened
from ...errors import ArgumentTypeError, BatchupError, SampleReadError
from ...memory import limits
from ...memory.budget import BUDGET, Holder, Step
from .arrow_schema import class_names, field_path
from .arrow_types import (
    as_numbers,
    check_values,
    entries_form,
    numbers_form,
    pyarrow,
    python_value,
    type_words,
    unwrapped,
)
from .base import Files, StoredRows, StoredValues
from .chunk_cache import MOST_SLOTS
from .chunks import ORDER_CACHE_BYTES, ChunkedArray, UnfitRow
from .in_runs import RUN_BYTES, block_of_run, window_of_runs
from .shard_paths import shard_paths

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
Self = TypeVar("Self", bound="ArrowColumn")


class Part(NamedTuple):
    """A row group or a batch of a file, or several in sequence."""

    file: int
    first: int  # number of its first row group or batch in the file
    last: int  # the number after its last one
    rows: int
    nbytes: int  # approximate, in memory
    begin: int = -1  # place in the file if the part lies there as in memory


class ArrowColumn(ChunkedArray, StoredValues):
    """One column of the tables in some files, one table after the other.

    The type of the column decides about the rows:

    - Numbers, booleans, dates, timestamps (in UTC), durations, and lists of a fixed length of these, also nested, are
      arrays of one `shape` and `dtype`. A null is NaN among floats, NaT among times; elsewhere it is an error that
      names the row, unless `fill` gives a value for it.
    - Lists of any length, and bytes, are such arrays too if you pass the `shape` of a row.
    - Otherwise the rows are values, and several rows are a list: ``str``, ``bytes``, dicts for structs, None for nulls.
      A list of any length is an array, or a list of its entries. There is then no `shape` and no `dtype`. For lists of
      boxes pass ``shape=(None, 4)``: each row is then an array ``(k, 4)``, also without a box.

    Dictionaries are read as their values, extension types as their storage type.

    Attributes:
        class_names: The class names for the numbers in the column, if Hugging Face's `datasets` wrote the file with a
            ``ClassLabel``; else empty.

    Args:
        paths: A file (of Parquet, also a URL); a pattern such as ``"train-*.parquet"``, whose files are sorted by name;
            or a list of files, used as they are.
        column: The name of the column; ``"image.bytes"`` is the field ``bytes`` of a column of structs.
        shape: The shape of a row that is stored as a list, or as bytes, of as many numbers. It may begin with None, for
            lists of any length.
        fill: The value for a null among numbers, also in lists. A list or bytes that are null stay an error.
        cache: Bytes of decoded chunks that are kept, as an int or a string such as ``"500MB"``.

    Raises:
        SampleReadError: a file is not there, or has another format; the column has different types or classes in two
            files; or a chunk of arrays has more bytes than 1 GiB and than `cache`.
        ArgumentError: there is no such column; its type cannot be read, such as decimals; or `shape` does not have the
            number of entries of a row.
        ArgumentTypeError: `fill` is not a value of the column's type.
        ImportError: the extra ``parquet`` is not installed.
    """

    most_open = 4000
    class_names: tuple[str, ...] = ()
    _kind: Any = None
    _form: Any = None
    _entries: Any = None  # the form of the entries of lists, if the user gave it

    @validation.known_names({})
    def __init__(
        self, paths: Paths, column: str, *, shape: Sequence[int | None] | None = None, fill: Any = None,
        cache: int | str = "256MB",
    ) -> None:  # fmt: skip
        if not isinstance(column, str):
            raise ArgumentTypeError(
                f"column must be the name of one, not {column!r}; see {type(self).__name__}.columns"
            )
        self.column = column
        self.fill = fill
        self._set_cache(cache)
        super().__init__(shard_paths(paths))
        parts = [part for number in range(len(self.paths)) for part in self._parts_of(number, shape)]
        self._decodes = any(part.begin < 0 for part in parts)
        self._part_rows = max([1, *[part.rows for part in parts]])
        n = sum(part.rows for part in parts)
        if self._form is not None:
            self._shape, self._dtype = (n, *self._form.shape), self._form.dtype
            parts = [part._replace(nbytes=part.rows * self.row_bytes) for part in parts]
        self._mean_bytes = max(1, sum(part.nbytes for part in parts) // max(1, n))
        decoded = parts if self._decodes and self._form is not None else []  # no file records the size of values
        for part in decoded:
            self._check_claim(part.nbytes, self.paths[part.file])
        chunks = joined(parts) if self._decodes and self._form is not None else parts
        facts = [(chunk.file, chunk.first, chunk.last, chunk.rows, chunk.begin) for chunk in chunks]
        table: np.ndarray = np.array(facts, np.int64).reshape(-1, 5).T.copy()
        self._files, self._first, self._last, lengths, begins = table
        self._ends = np.cumsum(lengths)
        self._starts = self._ends - lengths
        if not self._decodes and self._form is not None:
            # In numbers, not bytes: where row 0 would be if all rows before the chunk lay directly before it.
            self._before = (begins - self._starts * self.row_bytes) // self._dtype.itemsize
        self._longest = int(lengths.max(initial=1))
        self._recent = Recent(self._cache.limit)
        self._caches = (*self._caches, self._recent)

    @classmethod
    def columns(
        cls: type[Self], paths: Paths, names: Iterable[str] | None = None, *, cache: int | str = "256MB"
    ) -> dict[str, Self]:
        """Return an accessor for each column of the files, or for `names`. Each accessor has its own `cache`.

        Raises:
            SampleReadError: as the class.
            ArgumentError: the type of a column cannot be read; name the others.
        """
        if names is None:
            first = cls.__new__(cls)
            first.column = ""
            StoredRows.__init__(first, shard_paths(paths)[:1])
            names = first._schema(first._handle()).names
            first.close()
        return {name: cls(paths, name, cache=cache) for name in names}

    @abstractmethod
    def _schema(self, handle: Any) -> Any:
        """Return the schema of an open file."""

    @abstractmethod
    def _parts(self, handle: Any) -> list[tuple[int, int, int]]:
        """Return rows, approximate bytes, and `begin` of each part of an open file, as in :class:`Part`.

        If all parts have a `begin` other than -1, they are read from there, not decoded.
        """

    @abstractmethod
    def _decoded(self, handle: Any, first: int, last: int) -> Any:
        """Return the column ``_names[0]`` of the parts from `first` to before `last`, as a list of Arrow arrays."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of all the data; the first axis counts the rows. ``AttributeError`` if they differ in shape."""
        if self._form is None:
            told = type_words(self._kind)
            raise AttributeError(f"rows of type {told} are values, which have no common `shape` or `dtype`")
        return self._shape

    @property
    def chunk_rows(self) -> int:
        """Rows of the longest chunk."""
        return self._longest

    @property
    def natural_block(self) -> int:
        """Rows of the longest chunk; if nothing is decoded, how many neighbouring rows are as cheap to read as one."""
        if not self._decodes:
            return block_of_run(self._mean_bytes)
        return self._longest if len(self._ends) > 1 else self._part_rows  # a single chunk is no reason for long blocks

    @property
    def natural_window(self) -> int:
        """How many such blocks a shuffle may mix and still read each block once."""
        if not self._decodes:
            return window_of_runs(self._mean_bytes)
        if self._form is not None:
            kept = min(MOST_SLOTS, ORDER_CACHE_BYTES // self._chunk_bytes)
            return max(1, kept * self._longest // self.natural_block // 2)
        return max(1, ORDER_CACHE_BYTES // self._values_bytes // 2)

    @property
    def rows_kept(self) -> float:
        """How many rows of decoded chunks fit into `cache=`, and as arrays into the memory that is free now."""
        if not self._decodes:
            return math.inf
        if self._form is None:
            return self._cache.limit // self._values_bytes * self._longest
        return min(MOST_SLOTS, self._cache.room() // self._chunk_bytes) * self._longest

    @property
    def _values_bytes(self) -> int:
        """Approximate bytes of the longest chunk, estimated by decoding the first: no file records the size of values.
        """
        first = int(np.searchsorted(self._ends, 0, "right"))
        size = self._kept(first).nbytes * self._longest // int(self._ends[first]) if len(self) else 0
        return max(1, size)

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

    def sample_name(self, row: int) -> str | None:
        """Return the file of a row."""
        return self.file_paths([row % len(self)])[0]

    def _numbers_of(self, rows: np.ndarray) -> np.ndarray:
        numbers: np.ndarray = self._files[self._ends.searchsorted(rows, "right")]
        return numbers

    def _options(self) -> list[Any]:
        shape = None if self._form is None else list(self._form.shape)
        entries = [] if self._entries is None else [list(self._entries.shape)]
        return [self.column, shape, repr(self.fill), *entries]

    def _parts_of(self, number: int, shape: Sequence[int | None] | None) -> list[Part]:
        """Return the parts of file `number`. Refuse a column with another type than in the first file."""
        path, handle = self.paths[number], self._handle(number)
        schema = self._schema(handle)
        self._names, kind = field_path(schema, self.column, path)
        names = class_names(schema.metadata, self._names)
        if names and self.class_names and names != self.class_names:
            raise SampleReadError(
                f"column {self.column!r} has the classes {shortened(repr(names))} in {path!r}, and "
                f"{shortened(repr(self.class_names))} in a file before it; read the files apart, and map their labels "
                f"to the same classes",
                path,
            )
        self.class_names = self.class_names or names
        if number == 0:
            self._kind = kind
            if shape is not None and len(shape) and shape[0] is None:
                self._entries = entries_form(kind, shape, self.fill)
            else:
                self._form = numbers_form(kind, shape, self.fill)
            if self._form is None:
                check_values(kind, self.column)
        elif kind != self._kind:
            raise SampleReadError(
                f"column {self.column!r} is of type {type_words(kind)} in {path!r}, and of {type_words(self._kind)} in "
                f"{self.paths[0]!r}; read the files apart, or write one anew",
                path,
            )
        try:
            parts = [Part(number, place, place + 1, *told) for place, told in enumerate(self._parts(handle))]
        except (BatchupError, MemoryError):
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {shortened(repr(str(error)), 500)}"
            raise SampleReadError(f"column {self.column!r} of {path!r} cannot be read ({said})", path) from error
        if any(part.rows < 0 for part in parts):
            raise SampleReadError(f"{path!r} has a chunk of less than no rows; get a whole copy of the file", path)
        return parts

    def _leaf(self, array: Any) -> Any:
        """Return the column's field of an array, in its storage type."""
        for name in self._names[1:]:
            array = unwrapped(array)
            array = array.flatten()[array.type.get_field_index(name)]  # an entry is null where its struct is
        return unwrapped(array)

    def _array(self, handle: Any, chunk: int) -> Any:
        """Return the Arrow array of a chunk of an open file, in its storage type."""
        told = self._ends[chunk] - self._starts[chunk]
        try:
            decoded = self._decoded(handle, int(self._first[chunk]), int(self._last[chunk]))
            array = self._leaf(decoded[0] if len(decoded) == 1 else pyarrow().concat_arrays(decoded))
            if len(array) != told:
                raise ValueError(f"a chunk has {len(array)} rows, not the {told} told")
        except Exception as error:
            raise self._unreadable(np.arange(self._starts[chunk], self._ends[chunk]), error) from error
        return array

    def _kept(self, chunk: int) -> Any:
        """Return the array of a chunk with values or with unfit rows, and keep it for a while."""
        array = self._recent.get(chunk)
        if array is None:
            array = self._array(self._handle(int(self._files[chunk])), chunk)
            self._recent.put(chunk, array, array.nbytes if self._decodes else 0)
        return array

    def _unfit(self, row: int, error: UnfitRow) -> SampleReadError:
        path = self.sample_name(row)
        told = f"row {row} of column {self.column!r}, of {path!r}, {error} (read by {type(self).__name__})"
        return SampleReadError(told, path)

    def _is_small(self) -> bool:
        return self._form is None or super()._is_small()  # values do not use the cache

    def _rows_in(self, chunks: Any) -> Any:
        return self._ends[chunks] - self._starts[chunks]

    def _located(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        chunks = self._ends.searchsorted(rows, "right")
        return chunks, rows - self._starts[chunks]

    def _read_chunk(self, handle: Any, number: int, out: np.ndarray) -> None:
        kept = self._recent.get(number)
        out[...] = as_numbers(self._array(handle, number) if kept is None else kept, self._form, self.fill)

    def _fill_fitting(self, rows: np.ndarray, out: np.ndarray) -> None:
        chunks, within = self._located(rows)
        for chunk in np.unique(chunks).tolist():
            here = np.flatnonzero(chunks == chunk)
            some = self._kept(chunk).take(pyarrow().array(within[here]))
            try:
                out[here] = as_numbers(some, self._form, self.fill)
            except UnfitRow as error:
                raise self._unfit(int(rows[here[error.row]]), error) from error

    def _values(self, files: Files, rows: np.ndarray) -> list[Any]:
        values: list[Any] = [None] * len(rows)
        chunks = self._ends.searchsorted(rows, "right")
        within = rows - self._starts[chunks]
        last = -1
        array: Any = None
        for place in np.argsort(chunks, kind="stable").tolist():  # decodes a chunk once, even if it is not kept
            if chunks[place] != last:
                last = int(chunks[place])
                array = self._kept(last)
            try:
                values[place] = python_value(array[int(within[place])], self._entries, self.fill)
            except UnfitRow as error:
                raise self._unfit(int(rows[place]), error) from error
        return values


def joined(parts: list[Part]) -> list[Part]:
    """Merge short neighbouring parts of a file, up to :data:`~.in_runs.RUN_BYTES` each."""
    chunks: list[Part] = []
    for part in parts:
        before = chunks[-1] if chunks else part
        if before.file == part.file and before.last == part.first and before.nbytes + part.nbytes <= RUN_BYTES:
            both = before.rows + part.rows, before.nbytes + part.nbytes
            chunks[-1] = Part(part.file, before.first, part.last, *both)
        else:
            chunks.append(part)
    return chunks


class Recent(Holder):
    """The chunks of values that were used last, up to `limit` bytes. A pickle does not contain them.

    Each process has its own. If memory is short, it gives back the chunk that was not used for longest.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept: dict[int, tuple[Any, int]] = {}  # the last used one is last
        self._bytes = 0
        self._lock = threading.Lock()
        BUDGET.add(self)

    def get(self, number: int) -> Any:
        """Return chunk `number`; None if it is not kept."""
        with self._lock:
            if number in self._kept:
                self._kept[number] = self._kept.pop(number)
            return self._kept.get(number, (None, 0))[0]

    def close(self) -> None:
        """Drop all chunks."""
        with self._lock:
            self._kept, self._bytes = {}, 0

    def put(self, number: int, chunk: Any, size: int) -> None:
        """Keep a chunk of `size` bytes, instead of the chunks that were not used for longest, if memory has room."""
        has_room = size <= self.limit and size < limits.addresses_left() / 2
        if not has_room or not BUDGET.within(size) or not BUDGET.spares(size):
            return
        with self._lock:
            if number not in self._kept:
                self._kept[number] = chunk, size
                self._bytes += size
                self._drop(self._bytes - self.limit)

    def _drop(self, nbytes: int) -> int:
        """Drop chunks of at least `nbytes`, or all; return how many bytes. The caller holds the lock."""
        before = self._bytes
        while self._kept and before - self._bytes < nbytes:
            self._bytes -= self._kept.pop(next(iter(self._kept)))[1]
        return before - self._bytes

    def held(self) -> dict[str, int]:
        return {"decoded chunks": self._bytes}

    def give_back(self, step: Step, nbytes: int) -> int:
        if step is not Step.CHUNKS or not self._lock.acquire(blocking=False):  # the budget holds signals back
            return 0
        try:
            return self._drop(nbytes)
        finally:
            self._lock.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return Recent, (self.limit,)
