"""Samples in tar files, as WebDataset writes them, read in place."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ... import validation
from ...errors import ArgumentError, ArgumentTypeError
from ...platforms import system
from ...validation import not_negative
from ..base import rows_of
from ..image_bytes import ImageBytes
from .base import Files, StoredArray, StoredRows, StoredValues
from .in_runs import InRuns
from .index_file import indices_of
from .member_decoding import PICTURE_EXTENSIONS, decoder_of, int64
from .npy import MAX_NPY_HEADER_BYTES, npy_header
from .open_file import AnyFile, opened
from .remote import RemoteFile, is_remote, read_ranges
from .shard_paths import shard_paths
from .tar_index import INDEX_FORM, Samples, believable, scan


class TarShards(InRuns, StoredArray, StoredValues):
    """One column of the samples in tar files that follow WebDataset's conventions, with random access.

    Consecutive members ``KEY.EXT`` with the same key are a sample. ``EXT`` is everything after the first dot of the
    name without its folders, in lower case. The reader skips members whose names have no dot or begin with one, members
    in ``__folders__`` with two underscores on each side, links, and anything else that is not a plain file. If a key
    comes again later, it is another sample, as in WebDataset.

    Members are read in place; nothing is extracted, and no name is opened. The reader finds the members by reading all
    headers once, and keeps the result next to each tar in ``X.tar.index``. This index is used as long as the size and
    modification time of the tar stay the same. If the index cannot be written, each program reads the headers again.
    The index of a tar at a URL is kept in ``~/.cache/batchup_ng``. If you upload an index next to such a tar, it is
    used if it was made for a tar of the same size with the same bytes in some places. The members of a batch at URLs
    are fetched at once.

    The type of the rows depends on the extension: ``cls``: numbers, together ``(n,) int64``; ``npy``: arrays;
    ``txt``: ``str``; ``json``: the parsed value; all others, images included: ``bytes``, which
    :class:`~batchup_ng.ImageBytes` takes. Pickles (``pyd``, ``pkl``, ``pickle``, ``pth``) are refused. Several rows are
    a list, except for ``cls``. If you pass `shape` and `dtype`, they are ``(n, *shape)`` of `dtype`, read straight into
    the batch.

    >>> import io, tarfile, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with tarfile.open(f"{folder}/a.tar", "w") as file:
    ...         for name, content in [("0.txt", b"zero"), ("0.cls", b"7"), ("1.txt", b"one"), ("1.cls", b"8")]:
    ...             member = tarfile.TarInfo(name)
    ...             member.size = len(content)
    ...             file.addfile(member, io.BytesIO(content))
    ...     TarShards(f"{folder}/*.tar", "txt")[[1, 0]], TarShards(f"{folder}/*.tar", "cls")[:]
    (['one', 'zero'], array([7, 8]))

    Args:
        paths: One path or URL, or a list; each may be a pattern: ``"train-{000..099}.tar"``, ``"train-*.tar"``.
        column: The extension, or several (``"jpg;png"``) if each sample has one of them. It may be left out if there is
            only one.
        decode: ``"auto"`` decodes by extension, as above; None leaves bytes; a function gets the bytes of each member.
        shape: Shape of each row, if all rows have the same. Members then are the plain values (``bin``), or all are
            ``npy`` with the same header.
        dtype: The dtype of rows of that shape.
        index: Whether an index may be written; or a folder for the indices, which is made if it is not there. An
            existing index next to a tar is used in any case.

    Attributes:
        keys: The key of each sample, a sequence of ``str``.

    Raises:
        SampleReadError: a tar is not there, is damaged, compressed, or holds sparse files or no samples; a sample lacks
            the column, or has it twice.
        ArgumentError: there is no such column; members do not have the size that follows from `shape` and `dtype`.
        ArgumentTypeError: an argument has a wrong type.
    """

    takes_urls = True

    @validation.known_names({})
    def __init__(
        self, paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], column: str | None = None, *,
        decode: Callable[[bytes], Any] | str | None = "auto", shape: Sequence[int] | None = None, dtype: Any = None,
        index: bool | str | os.PathLike[str] = True,
    ) -> None:  # fmt: skip
        StoredRows.__init__(self, shard_paths(paths))
        self._choose(self._samples(index), column, decode, shape, dtype)

    @classmethod
    def columns(
        cls, paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        names: Sequence[str] | Mapping[str, str] | None = None, size: int | tuple[int, int] | None = None, *,
        index: bool | str | os.PathLike[str] = True,
    ) -> dict[str, Any]:  # fmt: skip
        """Return an accessor for each column, by name, for ``ArrayDataSource``; all rows are in the same order.

        Args:
            paths: As above.
            names: The extensions; a dict gives them names: ``{"image": "jpg;png", "label": "cls"}``. None for all.
            size: ``(height, width)`` of images, or one int for a square: :class:`~batchup_ng.ImageBytes` then decodes
                them. None leaves them bytes.
            index: As above.
        """
        of_all = cls.__new__(cls)
        StoredRows.__init__(of_all, shard_paths(paths))
        samples = of_all._samples(index)
        if isinstance(names, str):
            raise ArgumentTypeError(f"names must be a list of extensions, or a dict, not {names!r}; pass [{names!r}]")
        asked = names if isinstance(names, Mapping) else {name: name for name in names or samples.names}
        made: dict[str, Any] = {}
        for name, column in asked.items():
            one = copy.copy(of_all)
            one._handles = {}
            remedy = f"name other columns, or take it by TarShards(paths, {column!r}, decode=None) for its bytes"
            one._choose(samples, column, "auto", None, None, remedy)
            picture = size is not None and all(
                each.rpartition(".")[2] in PICTURE_EXTENSIONS for each in one._extensions
            )
            made[name] = ImageBytes(one, size) if picture else one
        return made

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def shape(self) -> tuple[int, ...]:
        """``(len, *shape)``; raises ``AttributeError`` if rows have no common shape."""
        if self._row_shape is None:
            raise AttributeError("members differ in shape; pass shape= and dtype= if these do not")
        return (len(self), *self._row_shape)

    def __getitem__(self, rows: Any) -> Any:
        """Return one row for an int, else several, as the class says, in the order asked for.

        Raises:
            IndexError: a row is out of range, or a mask has another length.
            SampleReadError: a tar has changed, or a member cannot be read or decoded; ``.source`` names it.
        """
        return StoredValues.__getitem__(self, rows) if self._row_shape is None else rows_of(self, rows)

    def __getitems__(self, rows: Any) -> list[Any]:
        """Return several rows as a list."""
        return list(self[rows])

    def sample_name(self, row: int) -> str | None:
        """Return ``"SHARD.tar/KEY.EXT"``."""
        row = range(len(self))[row]
        number = int(self._numbers_of(np.array([row]))[0])
        return f"{self.paths[number]}/{self.keys[row]}.{self._extensions[self._which[row]]}"

    def __repr__(self) -> str:
        where = repr(self.paths[0]) if len(self.paths) == 1 else f"{len(self.paths)} tars"
        return f"TarShards({where}, {';'.join(self._extensions)!r}, {len(self)} rows)"

    def _options(self) -> list[Any]:
        return [self._extensions, self._row_shape, str(getattr(self, "_dtype", None))]

    def _samples(self, index: Any) -> Samples:
        made = indices_of(
            self, INDEX_FORM, believable, lambda file, size: scan(file.walk(size), size), index, " as a tar"
        )
        return Samples(self.paths, made)

    def _choose(
        self, samples: Samples, column: Any, decode: Any, shape: Any, dtype: Any,
        remedy: str = "pass decode=None for its bytes",
    ) -> None:  # fmt: skip
        """Take one column of the samples."""
        self._extensions = _known_column(column, samples.names, self.paths[0])
        self._offsets, self._sizes, self._which = samples.column(self._extensions)
        self._ends, self.keys = samples.ends, samples.keys
        self._mean_bytes = max(1, sum(size for size, _ in self._stamps) // len(self))
        self.decode = decoder_of(self._extensions, decode, remedy)
        self.runs_user_code = callable(decode)
        self._row_shape: tuple[int, ...] | None = None
        self._head = b""
        if (shape is None) != (dtype is None):
            raise ArgumentError("shape and dtype go together: pass both for rows of one shape, or neither")
        if shape is not None:
            if callable(decode):
                raise ArgumentError("shape and dtype are for members that are values as they lie; leave out decode")
            self._row_shape, self._dtype, self.decode = *_known_form(shape, dtype), None
            self._head = self._common_header()
            self._check_sizes()
        elif self.decode is int64:
            self._row_shape, self._dtype = (), np.dtype(np.int64)

    def _common_header(self) -> bytes:
        """Return the common beginning of all members: the header of the first if they are ``npy``, else nothing."""
        if not self._extensions[0].endswith("npy"):
            return b""
        try:
            head: bytes = self._handle().read(int(self._offsets[0]), min(MAX_NPY_HEADER_BYTES, int(self._sizes[0])))
            shape, fortran, dtype, length = npy_header(head, int(self._sizes[0]))
        except Exception as error:
            raise self._unreadable(np.zeros(1, np.int64), error) from error
        if (shape, dtype) != (self._row_shape, self._dtype) or (fortran and len(shape) > 1):
            raise ArgumentError(
                f"shape and dtype must be those of the members: {self.sample_name(0)!r} has {shape} {dtype}"
                f"{', columns first' if fortran else ''}, not {self._row_shape} {self._dtype}; pass these, or neither"
            )
        return head[:length]

    def _check_sizes(self) -> None:
        wanted = len(self._head) + self.row_bytes
        others = np.flatnonzero(self._sizes != wanted)
        if len(others):
            row = int(others[0])
            raise ArgumentError(
                f"shape and dtype say that each member has {wanted} bytes, and {self.sample_name(row)!r} has "
                f"{self._sizes[row]}; leave them out where members differ"
            )

    def _numbers_of(self, rows: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._ends, rows, "right")

    def _open(self, path: str) -> AnyFile:
        return opened(path, self._stamps[self.paths.index(path)])

    def _file_of_each(self, files: Files, rows: np.ndarray) -> list[Any]:
        """Return the open file of each row."""
        if len(files) == 1:
            return [*files.values()] * len(rows)
        return [*map(files.__getitem__, self._numbers_of(rows).tolist())]

    def _values(self, files: Files, rows: np.ndarray) -> list[Any]:
        values: list[Any] = [None] * len(rows)
        offsets, sizes = self._offsets[rows].tolist(), self._sizes[rows].tolist()
        ranges = {}
        each = zip(range(len(rows)), self._file_of_each(files, rows), offsets, sizes, strict=True)
        for place, file, offset, size in each:
            try:
                if isinstance(file, RemoteFile):
                    ranges[place] = file, offset, size  # fetched at once, below
                else:
                    values[place] = file.read(offset, size)
            except (OSError, EOFError) as error:
                values[place] = error
        for place, content in zip(ranges, read_ranges(list(ranges.values())), strict=True):
            values[place] = content
        for place, found in enumerate(values):
            try:
                if isinstance(found, Exception):
                    raise found
                if self.decode is not None:
                    values[place] = self.decode(found)
            except Exception as error:
                raise self._unreadable(rows[place : place + 1], error) from error
        return values

    def _fill(self, files: Files, rows: np.ndarray, out: np.ndarray) -> None:
        if self.decode is not None:
            out[...] = self._values(files, rows)
        elif out.nbytes and any(map(is_remote, self.paths)):
            for place, member in enumerate(self._values(files, rows)):
                if not member.startswith(self._head):
                    raise self._unfit(rows[place : place + 1], len(member))
                out[place] = np.frombuffer(member, self._dtype, offset=len(self._head)).reshape(out.shape[1:])
        elif out.nbytes:
            self._fill_fixed(files, rows, out.reshape(-1).view(np.uint8).data)

    def _fill_fixed(self, files: Files, rows: np.ndarray, out: memoryview) -> None:
        n_row, head, wanted = len(out) // len(rows), bytearray(len(self._head)), self._head
        whole, offsets = len(head) + n_row, self._offsets[rows].tolist()
        each = zip(range(0, len(out), n_row), self._file_of_each(files, rows), offsets, strict=True)
        for start, file, offset in each:  # no file is at a URL
            into = out[start : start + n_row]
            found = system.pread_into(file.number, [head, into] if wanted else [into], offset)
            while len(head) <= found < whole and (
                more := system.pread_into(file.number, [into[found - len(head) :]], offset + found)
            ):
                found += more  # Linux reads 2 GiB at once at most
            if found != whole or head != wanted:
                place = start // n_row
                raise self._unfit(rows[place : place + 1], found)

    def _unfit(self, row: np.ndarray, found: int) -> Exception:
        whole = len(self._head) + self.row_bytes
        other = f"{found} of {whole} bytes are there, or its header is not that of {self.sample_name(0)!r}"
        return self._unreadable(row, ValueError(other))


def _known_form(shape: Any, dtype: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    try:
        known = np.dtype(dtype)
    except TypeError as error:
        raise ArgumentTypeError(f"dtype must be a NumPy dtype, not {dtype!r}; pass numpy.uint8 or such") from error
    if known.hasobject:
        raise ArgumentError(f"dtype must be one of plain values, not {known}; leave shape and dtype out")
    if not isinstance(shape, (tuple, list)):
        raise ArgumentTypeError(f"shape must be a tuple of whole numbers, not {shape!r}; pass () for single values")
    return tuple(not_negative("shape", length) for length in shape), known


def _known_column(column: Any, names: list[str], path: str) -> list[str]:
    """Return the extensions of a column."""
    listed = ", ".join(map(repr, names[:20]))
    if column is None and len(names) == 1:
        return names
    if column is not None and not isinstance(column, str):
        raise ArgumentTypeError(f"column must be an extension, such as 'jpg', not {column!r}; there are {listed}")
    asked = [] if column is None else [each.lower().lstrip(".") for each in column.split(";")]
    if not set(asked) & set(names):
        raise ArgumentError(f"column must be one of the extensions in {path!r}, not {column!r}; there are {listed}")
    return asked
