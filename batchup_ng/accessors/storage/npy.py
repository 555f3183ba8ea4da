"""Arrays that ``numpy.save`` and ``numpy.savez`` wrote, by memory map."""

from __future__ import annotations

import io
import mmap
import os
import struct
import zipfile
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from ... import validation
from ...errors import ArgumentError, SampleReadError
from ..base import fill_rows
from .base import Files, StoredArray, StoredRows, of_one_length, runs
from .in_runs import InRuns
from .remote import RemoteFile, is_remote

ZIP_LOCAL_HEADER = struct.Struct("<26x2H")
"""A member's header in a zip file: 26 bytes, the lengths of its name and of its extra field (APPNOTE.TXT, 4.3.7)."""

MAX_NPY_HEADER_BYTES = 12 + 10_000
"""Bytes of a header that NumPy reads at most (``max_header_size``), with the bytes before it."""


class NpyRows(InRuns, StoredArray):
    """The rows of an array that ``numpy.save`` wrote. The array may be larger than memory.

    Unlike ``numpy.load(path, mmap_mode="r")``, which a source takes as well, it notices a changed file, and is pickled
    as its path. If the file is at a URL, the rows of a batch are fetched at once. If a file is cut short while a batch
    is read from the map, SIGBUS ends the process: replace files by renaming others, not by ``cp`` over them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.arange(6).reshape(3, 2))
    ...     NpyRows(f"{folder}/x.npy")[[2, 0]].tolist()
    [[4, 5], [0, 1]]

    Args:
        path: The file, or its URL.

    Raises:
        SampleReadError: the file is not there, is not an npy file, is shorter than it says, or holds objects; or it is
            at a URL and has its columns first.
    """

    takes_urls = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__([path])
        array: np.ndarray | RemoteArray = self._handle()
        if array.ndim == 0:
            raise SampleReadError(f"{self.paths[0]!r} holds a single value, not rows", self.paths[0])
        self._shape, self._dtype = array.shape, array.dtype
        self._mean_bytes = self.row_bytes

    def _open(self, path: str) -> Any:
        if is_remote(path):
            return RemoteArray(RemoteFile(path, self._stamps[0]), self._stamps[0][0])
        with open(path, "rb") as file:
            return _mapped(file, 0, os.fstat(file.fileno()).st_size)

    def __getitem__(self, rows: Any) -> Any:
        """Return `rows`.

        Raises:
            IndexError: a row is out of range, or a mask has another length.
            SampleReadError: the file has changed or cannot be read; ``.source`` is its path.
        """
        array = self._handle()
        if not isinstance(rows, slice) or isinstance(array, RemoteArray):
            return super().__getitem__(rows)
        copied = array[rows].copy()  # no index array: it may be larger than short rows
        self._handle()
        return copied

    def _fill(self, files: Files, rows: np.ndarray, out: np.ndarray) -> None:
        array = files[0]
        if isinstance(array, RemoteArray):
            array.fill(rows, out)
        else:
            fill_rows(array, rows, out)


class RemoteArray:
    """An array at a URL, in a file of `size` bytes."""

    def __init__(self, file: RemoteFile, size: int) -> None:
        self.shape, fortran, self.dtype, self._start = npy_header(file.read(0, min(size, MAX_NPY_HEADER_BYTES)), size)
        if fortran and len(self.shape) > 1:
            raise ValueError("it has its columns first, so that rows lie apart; save numpy.ascontiguousarray of it")
        self.ndim, self._file = len(self.shape), file

    def fill(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write `rows` into `out`, by one request for each run of consecutive rows."""
        n_row, found = out[:1].nbytes, list(runs(rows))
        contents = self._file.read_many([(self._start + first * n_row, n * n_row) for first, n, _ in found])
        for (_, n, place), raw in zip(found, contents, strict=True):
            out[place : place + n] = np.frombuffer(raw, self.dtype).reshape(n, *out.shape[1:]) if raw else 0


class NamedRows(NpyRows):
    """The rows of one of several arrays in a file."""

    takes_urls = False

    @validation.known_names({})
    def __init__(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        self.name = name
        super().__init__(path)

    def _options(self) -> list[Any]:
        return [self.name]

    def _chosen(self, path: str, names: Collection[str]) -> str:
        """Return the requested name of those in the file, or the only one."""
        name = next(iter(names)) if self.name is None and len(names) == 1 else self.name
        if name not in names:
            listed = ", ".join(map(repr, list(names)[:20]))
            raise ArgumentError(f"name must be one of the arrays of {path!r}, not {self.name!r}; it has {listed}")
        return str(name)


class NpzRows(NamedRows):
    """The rows of one array in a file that ``numpy.savez`` wrote: of arrays of one name the last, as ``numpy.load``.

    Args:
        path: The file.
        name: The array; it may be left out if there is only one.

    Raises:
        SampleReadError: as :class:`NpyRows`; or the array is compressed, as by ``savez_compressed``: it then cannot be
            read by rows.
        ArgumentError: there is no array of that name.
    """

    @classmethod
    def columns(cls, path: str | os.PathLike[str], names: Iterable[str] | None = None) -> dict[str, NpzRows]:
        """Return an accessor for each array of a file, by name: for all of them, or for `names`.

        Raises:
            SampleReadError: as the class.
            ArgumentError: as the class; or the arrays differ in length.
        """
        chosen = _Names([path])._handle() if names is None else names
        return of_one_length(path, {name: cls(path, name) for name in chosen})

    def _open(self, path: str) -> Any:
        with open(path, "rb") as file:
            members = _members(path, file)
            name = self._chosen(path, members)
            begin, size, is_stored = members[name]
            if not is_stored:
                raise SampleReadError(
                    f"{path!r}: array {name!r} is compressed, and cannot be read by rows; load it whole by numpy.load "
                    f"if memory has room, or save it by numpy.savez",
                    path,
                )
            file.seek(begin)
            start = begin + ZIP_LOCAL_HEADER.size + sum(ZIP_LOCAL_HEADER.unpack(file.read(ZIP_LOCAL_HEADER.size)))
            return _mapped(file, start, start + size)


class _Names(StoredRows):
    """The names of the arrays of a file."""

    def __len__(self) -> int:
        return len(self._handle())

    def _open(self, path: str) -> list[str]:
        with open(path, "rb") as file:
            return list(_members(path, file))


def _members(path: str, file: Any) -> dict[str, tuple[int, int, bool]]:
    """Return the place of each array in an open zip file: where its member begins, its bytes, whether uncompressed.

    The last result is kept, since a file may have thousands of arrays.
    """
    found = os.fstat(file.fileno())
    key = path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
    last = _last.get("opened")
    if last is None or last[0] != key:
        with zipfile.ZipFile(file) as archive:
            listed = archive.infolist()
        members: dict[str, tuple[int, int, bool]] = {}
        for each in listed:
            place = each.header_offset, each.file_size, each.compress_type == zipfile.ZIP_STORED
            members[each.filename.removesuffix(".npy")] = place  # the last of a name, as numpy.load
        last = _last["opened"] = key, members
    return last[1]


_last: dict[str, tuple[Any, dict[str, tuple[int, int, bool]]]] = {}
"""The identity of the zip file that was opened last, and its members."""


def _mapped(file: Any, start: int, end: int) -> np.ndarray:
    """Map an array read-only: its header begins at `start` of a file, and the array ends before `end`."""
    file.seek(start)
    shape, fortran, dtype, head_bytes = npy_header(file.read(MAX_NPY_HEADER_BYTES), end - start)
    offset = start + head_bytes
    needed = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if not needed:
        return np.empty(shape, dtype)
    mapped = mmap.mmap(file.fileno(), offset + needed, access=mmap.ACCESS_READ)
    return np.ndarray(shape, dtype, mapped, offset, order="F" if fortran else "C")


def npy_header(head: bytes, size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Parse the header of an array.

    Args:
        head: The first bytes of the array, :data:`MAX_NPY_HEADER_BYTES` or more if there are so many: NumPy would
            allocate all the memory that a header claims to need.
        size: The bytes that are there, with the header.

    Returns:
        Shape, whether columns come first, dtype, bytes of the header.

    Raises:
        ValueError: the bytes are not an array, the array is larger than `size`, or it holds objects.
    """
    file = io.BytesIO(head)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"it is of version {version} of the format, and (1, 0), (2, 0) and (3, 0) are known")
    reads_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    if version == (3, 0):  # version 2 with UTF-8; NumPy has no public function for it
        length = int.from_bytes(head[8:12], "little")
        text = head[12 : 12 + length].decode().encode("ascii", "backslashreplace")  # as in a Python literal
        shape, fortran, dtype = reads_header(io.BytesIO(len(text).to_bytes(4, "little") + text))
        file.seek(12 + length)
    else:
        shape, fortran, dtype = reads_header(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, whose pickles could run code")
    if any(type(length) is not int or not 0 <= length < 1 << 62 for length in shape):
        raise ValueError(f"its header says a shape of {shape}")
    n_items = int(np.prod(shape, dtype=object))
    if not dtype.itemsize and n_items > size:  # NumPy would copy them one by one
        raise ValueError(f"its header says {n_items} items of no bytes")
    needed = file.tell() + n_items * dtype.itemsize
    if needed > size:
        raise ValueError(f"{size} bytes are there, and {needed} are needed")
    return shape, fortran, dtype, file.tell()
