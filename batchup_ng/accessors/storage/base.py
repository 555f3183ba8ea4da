"""Base classes for rows in files. Each process opens a file when it first reads from it.

A format derives from :class:`StoredArray` if its rows have one shape and dtype, otherwise from :class:`StoredValues`.
The format defines how to open a file and how to read rows of open files. These classes handle indices, pickling, file
handles, changed files and errors. During a read, only these classes ask for open files, with two exceptions: each chunk
is decoded by a handle of the thread that decodes it, and a slice of a map is copied at once (``NpyRows``).
"""

from __future__ import annotations

import math
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np

from ...error_context import of_signal_handler, shortened
from ...errors import ArgumentError, BatchupError, SampleReadError
from ...platforms import system
from ...validation import path_text
from ..base import check_out, checked_rows, chosen_rows, function_told, rows_of
from . import remote
from .open_file import regular
from .remote import is_remote

Files: TypeAlias = dict[int, Any]
"""The open files of some rows: each handle, by the number of its file."""

OPENING_LOCK = threading.Lock()
"""Held while a file is opened by a library that has one state of it for all its handles."""

# A thread that does not exist in the child of a fork may hold it.
system.after_fork_in_child(OPENING_LOCK._at_fork_reinit)  # type: ignore[attr-defined]  # typeshed leaves it out


class StoredRows(ABC):
    """Rows in one or several files.

    Only paths and options are pickled; each process opens the files on first use, and so does each thread if a handle
    is not thread-safe (`each_thread`). A file is refused, on any machine, if its size or modification time differs from
    when this object was made: copy files with a tool that keeps their times. Local files are checked before and after
    each batch, files at URLs after :data:`~batchup_ng.accessors.storage.remote.LOOK_AGAIN_SECONDS` seconds.

    Attributes:
        paths: The files: URLs, absolute paths.

    Args:
        paths: The files, at least one.

    Raises:
        SampleReadError: a file is not there; ``.source`` is its path.
        ArgumentError: a path is a URL, and this format cannot be read from URLs.
    """

    each_thread: ClassVar[bool] = False
    most_open: ClassVar[int] = 100  # handles kept; older ones are dropped, and close with the last reference
    takes_urls: ClassVar[bool] = False
    shares_state: ClassVar[bool] = False
    """Whether the library has one state of a file for all its handles. Such a handle is closed once the file has
    changed, or the library would give what it remembers to the next open; and closing it fails the reads of other
    threads, which then begin again."""
    runs_user_code: bool = False
    decode: Any = None
    _caches: tuple[Any, ...] = ()  # decoded data; close() of each drops them

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        self.paths = tuple(self._known(path_text("path", path)) for path in paths)
        self._looked = {number: time.monotonic() for number, path in enumerate(self.paths) if is_remote(path)}
        self._stamps = _stamps_of(self.paths)
        self._handles: dict[tuple[int, int, int], Any] = {}

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _open(self, path: str) -> Any:
        """Open a file and return its handle."""

    def _close(self, handle: Any) -> None:  # noqa: B027  # most handles are maps and files that close by themselves
        """Close a handle. By default it closes with the last reference to it, because another thread may be reading."""

    def close(self) -> None:
        """Close the files that this process has open, and drop decoded data; the next read begins again."""
        for cache in self._caches:
            cache.close()
        handles, self._handles = self._handles, {}
        for (_, pid, _), handle in list(handles.items()):  # a thread that reads may still add one
            if pid == os.getpid():  # a handle inherited through a fork belongs to the parent
                self._close(handle)

    def file_paths(self, rows: Sequence[int]) -> list[str]:
        """Return the files that `rows` are read from."""
        numbers = [0] if len(self.paths) == 1 else self._numbers_of(np.asarray(rows, np.int64)).tolist()
        return [self.paths[number] for number in dict.fromkeys(numbers)]

    def _numbers_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the number of the file of each row, if there are several files."""
        raise NotImplementedError

    def file_sizes(self) -> dict[str, int]:
        """Return the bytes of each file, as far as they are known without checking the file."""
        return {path: size for path, (size, _) in zip(self.paths, self._stamps, strict=True)}

    def sample_name(self, row: int) -> str | None:
        """Return the file of a row."""
        return self.paths[0]

    def fingerprint(self) -> list[Any]:
        """Return everything that the rows depend on: files with their sizes and times, the options, `decode`."""
        decode = None if self.decode is None else function_told(self.decode)
        return [type(self).__name__, self.paths, self._stamps, self._options(), decode]

    def _options(self) -> list[Any]:
        """Return the options that the rows depend on, as JSON values."""
        return []

    @classmethod
    def _known(cls, path: str) -> str:
        """Return a path as it is kept: absolute, or an unchanged URL."""
        if is_remote(path) and not cls.takes_urls:
            raise ArgumentError(
                f"{called(path)} is a URL, and files of this format are read on this machine alone; download it, or "
                f"have it as tar, Parquet, Zarr, npy or text there (bu.convert); pictures: ImageBytes(FileBytes(urls))"
            )
        if is_remote(path) or os.pardir not in path.split(os.sep):
            return path if is_remote(path) else os.path.abspath(path)
        return os.path.join(os.getcwd(), path)  # abspath would resolve .. wrongly after a symbolic link

    def _look(self, numbers: Sequence[int]) -> None:
        """Check the remote files among `numbers` for changes, all at once.

        Raises:
            SampleReadError: a file has changed, or cannot be checked.
        """
        if not self._looked:
            return
        now = time.monotonic()
        due = [number for number in numbers if now - self._looked.get(number, math.inf) >= remote.LOOK_AGAIN_SECONDS]
        for number, stamp in zip(due, _stamps_of([self.paths[number] for number in due]), strict=True):
            self._compare(number, stamp)
            self._looked[number] = now

    def _compare(self, number: int, stamp: tuple[int, Any]) -> None:
        if stamp != self._stamps[number]:
            path = self.paths[number]
            raise SampleReadError(
                f"{called(path)} has changed since it was first opened; make the accessor and the source anew", path
            )

    def _handle(self, number: int = 0) -> Any:
        """Return the open file of that number, if the file has not changed.

        Raises:
            SampleReadError: it has changed, or cannot be opened.
        """
        path = self.paths[number]
        try:
            if number in self._looked:
                self._look([number])
            else:
                self._compare(number, _stamp(path))
        except SampleReadError:
            if self.shares_state:
                self.close()
            raise
        key = number, os.getpid(), threading.get_ident() if self.each_thread else 0
        handle = self._handles.get(key)
        if handle is None:
            opened = self._opened(path)
            handle = self._handles.setdefault(key, opened)
            if handle is not opened:  # another thread was first
                self._close(opened)
            for old in list(self._handles)[: -self.most_open]:
                self._handles.pop(old, None)
        return handle

    def _closed_meanwhile(self, files: Files, error: Exception) -> bool:
        """Return whether a read failed because another thread closed its file."""
        if not self.shares_state or of_signal_handler(error) is not None:
            return False
        handles = list(self._handles.values())
        return any(all(handle is not each for each in handles) for handle in files.values())

    def _read(self, rows: np.ndarray, read: Callable[..., Any], *out: np.ndarray) -> Any:
        """Return ``read(files, rows, *out)``, with the open files of `rows`, which must not change meanwhile."""
        numbers = [0] if len(self.paths) == 1 else sorted(set(self._numbers_of(rows).tolist()))
        files: Files = {}
        while True:
            if len(numbers) > 1:
                self._look(numbers)
            for number in numbers:
                files[number] = self._handle(number)
            try:
                found = read(files, rows, *out)
                self._look(numbers)
                for number in numbers:
                    if number not in self._looked:
                        self._compare(number, _stamp(self.paths[number]))
                return found
            except Exception as error:
                if not self._closed_meanwhile(files, error):
                    raise self._unreadable(rows, error) from error
            finally:
                files.clear()  # a kept exception would hold the files open

    def _opened(self, path: str) -> Any:
        try:
            if not is_remote(path):
                regular(path)
            return self._open(path)
        except (BatchupError, ImportError, MemoryError):
            raise
        except Exception as error:  # a library may raise anything on a file's content
            raise SampleReadError(
                f"{called(path)} cannot be opened by {type(self).__name__} ({reason(error)})", path
            ) from error

    def _unreadable(self, rows: np.ndarray, error: Exception) -> Exception:
        """Return the error for rows that could not be read; raise `error` itself if it is the right one already.

        A ``NameError`` or an ``ImportError``, for example of a `decode` function, is never the fault of a file.
        """
        if isinstance(error, (BatchupError, MemoryError, NameError, ImportError)):
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame: the cycle would keep files open
        name = self.sample_name(int(rows[0]))
        which = f"row {rows[0]}" if len(rows) == 1 else f"one of {len(rows)} rows, the first of which is row {rows[0]},"
        return SampleReadError(f"{which} of {called(name or self.paths[0])} cannot be read ({reason(error)})", name)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_handles": {}, "_looked": dict.fromkeys(self._looked, -math.inf)}

    def __repr__(self) -> str:
        where = shortened(repr(self.paths[0]), 200) if len(self.paths) == 1 else f"{len(self.paths)} files"
        return f"{type(self).__name__}({where}, {len(self)} rows)"


class StoredArray(StoredRows):
    """Rows of one shape and dtype.

    ``a[int]`` is one row; ``a[slice]``, ``a[index array]`` and ``a[boolean mask]`` are ``(n, *shape[1:])`` of `dtype`,
    in the order asked for, in memory of their own.
    """

    _shape: tuple[int, ...]  # set by each format when it is made, as is `_dtype`
    _dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of all the data; the first axis counts the rows."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the rows."""
        return self._dtype

    @abstractmethod
    def _fill(self, files: Files, rows: np.ndarray, out: np.ndarray) -> None:
        """Write `rows`, ``(n,) int64`` in range, n > 0, into `out`, ``(n, *shape[1:])`` in C order.

        `files` are the files of the rows, open and unchanged.
        """

    def __len__(self) -> int:
        return self._shape[0]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    def __getitem__(self, rows: Any) -> Any:
        """Return `rows`.

        Raises:
            IndexError: a row is out of range, or a mask has another length.
            SampleReadError: the file has changed or cannot be read; ``.source`` is its path.
        """
        return rows_of(self, rows)

    def read_into(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write `rows`, ``(n,) int``, into `out`, ``(n, *shape[1:])`` of `dtype`; raises the errors of indexing."""
        rows = checked_rows(rows, len(self))
        check_out(self, rows, out)
        into = out if out.flags.c_contiguous else np.empty_like(out, order="C")
        if len(rows):
            self._read(rows, self._fill, into)
        if into is not out:
            out[...] = into


class StoredValues(StoredRows):
    """Rows that differ in shape, or are not arrays. Several rows are a list."""

    @abstractmethod
    def _values(self, files: Files, rows: np.ndarray) -> list[Any]:
        """Return `rows`, ``(n,) int64`` in range, n > 0. `files` are as for ``StoredArray._fill``."""

    def __getitem__(self, rows: Any) -> Any:
        """Return one row for an int, else a list of rows, in the order asked for.

        Raises:
            IndexError: a row is out of range, or a mask has another length.
            SampleReadError: the file has changed or cannot be read; ``.source`` is its path.
        """
        chosen = chosen_rows(rows, len(self))
        several = np.atleast_1d(chosen).astype(np.int64, copy=False)
        values = self._read(several, self._values) if len(several) else []
        return values[0] if isinstance(chosen, int) else values

    __getitems__ = __getitem__  # MapStyle calls this for several rows, and stacks the dicts or tuples


def of_one_length(path: Any, columns: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a file. Refuse columns of different lengths, because their rows belong together."""
    if not columns:
        raise ArgumentError(
            f"{os.fspath(path)!r} has no columns of its own; name those that are meant, as at a URL "
            f"whose server lists nothing: ['x', 'y']"
        )
    if len({len(column) for column in columns.values()}) > 1:
        lengths = ", ".join(f"{name!r} has {len(column)} rows" for name, column in columns.items())
        raise ArgumentError(f"the columns of {os.fspath(path)!r} must be of one length, and {lengths}; name some")
    return columns


def runs(rows: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Yield each run of consecutive rows in `rows`, in the order given: its first row, its length, its place.

    >>> list(runs(np.array([4, 5, 6, 1, 9])))
    [(4, 3, 0), (1, 1, 3), (9, 1, 4)]
    """
    starts = np.flatnonzero(np.diff(rows, prepend=rows[:1] - 2) != 1)
    lengths = np.diff(starts, append=len(rows))
    return zip(rows[starts].tolist(), lengths.tolist(), starts.tolist(), strict=True)


def _stamps_of(paths: Sequence[str]) -> list[tuple[int, Any]]:
    """Return the stamp of each file, which changes with it: size and modification time, or the server's facts."""
    at_urls = iter(remote.stamps_of(list(filter(is_remote, paths))))
    stamps: list[tuple[int, Any]] = []
    for path in paths:
        stamp = next(at_urls) if is_remote(path) else _stamp(path)
        if isinstance(stamp, Exception):
            raise _unopened(path, stamp) from stamp
        stamps.append(stamp)
    return stamps


def _stamp(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError as error:
        raise _unopened(path, error) from error
    return found.st_size, found.st_mtime_ns


def _unopened(path: str, error: Exception) -> SampleReadError:
    return SampleReadError(f"{called(path)} cannot be opened ({reason(error)})", path)


def called(path: str) -> str:
    return shortened(repr(path), 400)


def reason(error: Exception) -> str:
    """Return the message of an error without control characters, which the file may contain."""
    if isinstance(error, OSError) and error.strerror:
        return f"{type(error).__name__}: {error.strerror}"
    return f"{type(error).__name__}: {shortened(repr(str(error))[1:-1], 500)}"
