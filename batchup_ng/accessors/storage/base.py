"""Rows in files that are opened when they are first read, in each process anew: what all formats share.

A format derives from :class:`StoredArray`, if its rows are of one shape and dtype, or from :class:`StoredValues`. It
says how a file is opened and how some rows are read; all else is here: indices, pickling, handles, changed files,
errors.
"""

from __future__ import annotations

import math
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from ...error_context import shortened
from ...errors import ArgumentError, BatchupError, SampleReadError
from ...validation import path_text
from ..base import check_out, checked_rows, chosen_rows, function_told, rows_of
from . import remote
from .open_file import regular
from .remote import is_remote

RUN_BYTES = 1 << 20
"""Bytes that are worth reading in one go where storage has no chunks of its own: disks and networks wait for each."""

WINDOW_BYTES = 256 << 20
"""Bytes of rows that a shuffle of blocks mixes where no cache says how many."""


class StoredRows(ABC):
    """Rows in one file, or several.

    What is pickled are the paths and options: each process opens the files itself when it first reads from them, and
    each thread where a handle is not safe among threads (`each_thread`). A file whose size or time of change is not
    that of when this was made is refused, on any machine: copy files by what keeps their times. That is looked at
    before and after each batch; of a file at a URL after
    :data:`~batchup_ng.accessors.storage.remote.LOOK_AGAIN` seconds.

    Attributes:
        paths: The files: URLs, absolute paths.

    Args:
        paths: The files, at least one.

    Raises:
        SampleReadError: one of them is not there; ``.source`` is its path.
        ArgumentError: one of them is a URL, and files of this format are not read there.
    """

    each_thread: ClassVar[bool] = False
    most_open: ClassVar[int] = 100  # handles that are kept; more are let go of, and close with the last reference
    takes_urls: ClassVar[bool] = False
    runs_user_code: bool = False
    decode: Any = None

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        self.paths = tuple(self._known(path_text("path", path)) for path in paths)
        self._looked = {number: time.monotonic() for number, path in enumerate(self.paths) if is_remote(path)}
        self._stamps = _stamps_of(self.paths)
        self._handles: dict[tuple[int, int, int], Any] = {}

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _open(self, path: str) -> Any:
        """Open a file and return the handle by which it is read."""

    def _close(self, handle: Any) -> None:
        """Close what :meth:`_open` returned."""
        handle.close()

    @property
    def natural_block(self) -> int:
        """How many neighbouring rows are as cheap to read together as one."""
        return 1

    @property
    def natural_window(self) -> int:
        """How many such blocks a shuffle may mix so that each is read once."""
        return 16

    def close(self) -> None:
        """Close the files that this process has open; the next reading opens them again."""
        handles, self._handles = self._handles, {}
        for (_, pid, _), handle in handles.items():
            if pid == os.getpid():  # those of a process that was forked from are its own
                self._close(handle)

    def file_paths(self, rows: Sequence[int]) -> list[str]:
        """Return the files that `rows` are read from."""
        return [self.paths[number] for number in self._file_numbers(rows)]

    def _file_numbers(self, rows: Sequence[int] | np.ndarray) -> list[int]:
        """Return the number of each file that `rows` are read from."""
        return list(range(len(self.paths)))

    def file_sizes(self) -> dict[str, int]:
        """Return the bytes of each file, as far as they are known without a look at it."""
        return {path: size for path, (size, _) in zip(self.paths, self._stamps, strict=True)}

    def sample_name(self, row: int) -> str | None:
        """Return the file of a row."""
        return self.paths[0]

    def fingerprint(self) -> list[Any]:
        """Return what the rows depend on: files with their sizes and times, the options, `decode`."""
        decode = None if self.decode is None else function_told(self.decode)
        return [type(self).__name__, self.paths, self._stamps, self._options(), decode]

    def _options(self) -> list[Any]:
        """Return the options on which the rows depend, as JSON has them."""
        return []

    @classmethod
    def _known(cls, path: str) -> str:
        """Return a path as it is kept: absolute, or the URL that it is."""
        if is_remote(path) and not cls.takes_urls:
            raise ArgumentError(
                f"{called(path)} is a URL, and files of this format are read on this machine alone; download it, or "
                f"have it as tar, Parquet, Zarr, npy or text there (bu.convert); pictures: ImageBytes(FileBytes(urls))"
            )
        if is_remote(path) or os.pardir not in path.split(os.sep):
            return path if is_remote(path) else os.path.abspath(path)
        return os.path.join(os.getcwd(), path)  # behind a link .. is another folder than abspath says

    def _look(self, numbers: Sequence[int]) -> None:
        """Look whether those of some files that are at URLs are what they were, at all of them at once.

        Raises:
            SampleReadError: one is not, or cannot be looked at.
        """
        if not self._looked:
            return
        now = time.monotonic()
        due = [number for number in numbers if now - self._looked.get(number, math.inf) >= remote.LOOK_AGAIN]
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
        """Return the file of that number, open, if it is still what it was.

        Raises:
            SampleReadError: it is not, or cannot be opened.
        """
        path = self.paths[number]
        if number in self._looked:
            self._look([number])
        else:
            self._compare(number, _stamp(path))
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

    def _look_again(self, rows: np.ndarray) -> None:
        """Look whether the files that `rows` were read from have changed meanwhile."""
        numbers = [0] if len(self.paths) == 1 else self._file_numbers(rows)
        self._look(numbers)
        for number in numbers:
            if number not in self._looked:
                self._compare(number, _stamp(self.paths[number]))

    def _opened(self, path: str) -> Any:
        try:
            if not is_remote(path):
                regular(path)
            return self._open(path)
        except (BatchupError, ImportError, MemoryError):
            raise
        except Exception as error:  # whatever a library makes of what the file holds
            raise SampleReadError(
                f"{called(path)} cannot be opened by {type(self).__name__} ({reason(error)})", path
            ) from error

    def _unreadable(self, rows: np.ndarray, error: Exception) -> Exception:
        """Return the error for rows that could not be read; raise `error` itself if it says that, or is of memory."""
        if isinstance(error, (BatchupError, MemoryError)):
            try:
                raise error
            finally:
                del error  # whose traceback holds this frame: a circle that would keep files open
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

    _shape: tuple[int, ...]  # which a format sets when it is made, as it does `_dtype`
    _dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of all the data, the first axis that of the rows."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the rows."""
        return self._dtype

    @abstractmethod
    def _fill(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write `rows`, ``(n,) int64`` in range, n > 0, into `out`, ``(n, *shape[1:])`` in C order."""

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def natural_block(self) -> int:
        """How many neighbouring rows are as cheap to read together as one."""
        return max(1, RUN_BYTES // max(1, self.row_bytes))

    @property
    def natural_window(self) -> int:
        """How many such blocks a shuffle may mix so that each is read once."""
        return max(2, WINDOW_BYTES // max(1, self.natural_block * self.row_bytes))

    def __getitem__(self, rows: Any) -> Any:
        """Return `rows`.

        Raises:
            IndexError: a row is out of range, or a mask has another length.
            SampleReadError: the file has changed or cannot be read; ``.source`` is its path.
        """
        return rows_of(self, rows)

    def read_into(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write `rows`, ``(n,) int``, into `out`, ``(n, *shape[1:])`` of `dtype`; raises what indexing does."""
        rows = checked_rows(rows, len(self))
        check_out(self, rows, out)
        into = out if out.flags.c_contiguous else np.empty_like(out, order="C")
        if len(rows):
            try:
                self._fill(rows, into)
            except Exception as error:
                raise self._unreadable(rows, error) from error
            self._look_again(rows)
            if into is not out:
                out[...] = into


class StoredValues(StoredRows):
    """Rows that differ in shape, or are no arrays: several of them are a list."""

    @abstractmethod
    def _values(self, rows: np.ndarray) -> list[Any]:
        """Return `rows`, ``(n,) int64`` in range, n > 0."""

    def __getitem__(self, rows: Any) -> Any:
        """Return one row for an int, else a list of rows, in the order asked for.

        Raises:
            IndexError: a row is out of range, or a mask has another length.
            SampleReadError: the file has changed or cannot be read; ``.source`` is its path.
        """
        chosen = chosen_rows(rows, len(self))
        several = np.atleast_1d(chosen).astype(np.int64, copy=False)
        try:
            values = self._values(several) if len(several) else []
        except Exception as error:
            raise self._unreadable(several, error) from error
        if len(several):
            self._look_again(several)
        return values[0] if isinstance(chosen, int) else values

    __getitems__ = __getitem__  # by which MapStyle, which stacks rows that are dicts or tuples, asks for several

def of_one_length(path: Any, columns: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a file, whose rows belong together; refuse those that differ in length."""
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
    """Give each run of consecutive rows among `rows`, as they are: its first row, its length, its place.

    >>> list(runs(np.array([4, 5, 6, 1, 9])))
    [(4, 3, 0), (1, 1, 3), (9, 1, 4)]
    """
    starts = np.flatnonzero(np.diff(rows, prepend=rows[:1] - 2) != 1)
    lengths = np.diff(starts, append=len(rows))
    return zip(rows[starts].tolist(), lengths.tolist(), starts.tolist(), strict=True)


def _stamps_of(paths: Sequence[str]) -> list[tuple[int, Any]]:
    """Return by what a change of each file is noticed: its size and time of change, or what its server tells."""
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
    """Return what an error says, without control characters, which may come out of the file."""
    if isinstance(error, OSError) and error.strerror:
        return f"{type(error).__name__}: {error.strerror}"
    return f"{type(error).__name__}: {shortened(repr(str(error))[1:-1], 500)}"
