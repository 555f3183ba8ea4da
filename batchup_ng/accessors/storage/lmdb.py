"""Values of LMDB files, one a row.

LMDB forbids a process to open a file twice. So a process has one environment a file, which all accessors of that file
share. It is closed when the last of them has dropped it and no thread reads: closing it unmaps what is being read.

Files are opened read-only and without LMDB's lock file, in which each reader would have to enter itself. Two things
follow. A program that writes to the file does not know of its readers, and may use pages again that are being read; so
a batch is refused if the file has changed while it was read. And a child of ``os.fork()`` may go on with the
environment that it inherits: what LMDB forbids there is to share entries of the lock file.

A file that is cut short while a batch is read is a SIGBUS, as with every map: it ends a worker process, which the pool
replaces, or a program that reads on its own threads. Replace files by renaming others, as safe programs do.

The system's readahead stays on for files larger than memory. Without it (``readahead=False``) batches of 64 random
values of 49 kB took 61 to 109 ms from a disk, with it 39 to 55, as LMDB touches a value page by page.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ...errors import ArgumentError, ArgumentTypeError, SampleReadError
from ...validation import not_negative
from .base import RUN_BYTES, WINDOW_BYTES, StoredArray, StoredRows, StoredValues
from .lmdb_keys import Keys, PackedKeys, formatted, listed, numbered
from .lmdb_values import Decode, Field, checked_decode, decoded, msgpack

MAX_DATABASES = 64
"""Named databases of one file that a process may read from; each costs a transaction some 50 bytes."""


class _Opened:
    """An environment, with size and time of change of its file when it was opened."""

    def __init__(self, environment: Any, stamp: tuple[int, int]) -> None:
        self.environment, self.stamp = environment, stamp


class _Environments:
    """The environments of this process, by the real paths of their files."""

    def __init__(self) -> None:
        self.renew_lock()
        self._opened: weakref.WeakValueDictionary[str, _Opened] = weakref.WeakValueDictionary()

    def renew_lock(self) -> None:
        """Make the lock that is held while a file is opened, or a database in it, anew.

        In the child of a fork that of its parent may be held by a thread that the child does not have.
        """
        self.lock = threading.Lock()

    def get(self, lmdb: Any, path: str, stamp: tuple[int, int]) -> _Opened:
        """Return the environment of a file with this size and time of change, opened if it is not; the lock is held."""
        real = os.path.realpath(path)
        opened = self._opened.get(real)
        if opened is not None and opened.stamp != stamp:
            self._opened.pop(real).environment = None  # its accessors read no more from a file that has changed
            opened = None
        if opened is None:
            opened = self._opened[real] = _Opened(_environment(lmdb, path), stamp)
        return opened


_ENVIRONMENTS = _Environments()
os.register_at_fork(after_in_child=_ENVIRONMENTS.renew_lock)


class LmdbStored(StoredRows):
    """What accessors over an LMDB file share: how it is opened, which key a row has.

    Args:
        path: The folder in which ``data.mdb`` lies, or the file itself.
        keys: Which rows there are, as :class:`LmdbRows` has it.
        database: The name of a database within the file; None for the main one.
    """

    def __init__(self, path: str | os.PathLike[str], keys: Any, database: str | None) -> None:
        path = os.fspath(path)
        super().__init__([os.path.join(path, "data.mdb") if os.path.isdir(path) else path])
        self.database = database
        self._handle()
        try:
            self._keys = keys if isinstance(keys, Keys) else self._found(keys)
        except _library().Error as error:
            raise SampleReadError(f"the keys of {self.paths[0]!r} cannot be read ({error})", self.paths[0]) from error

    def __len__(self) -> int:
        return len(self._keys)

    def sample_name(self, row: int) -> str | None:
        """Return the file of a row with its key: ``/data/data.mdb[00000042]``."""
        return f"{self.paths[0]}[{repr(self._keys.of(np.array([row]))[0])[2:-1]}]"

    def _options(self) -> list[Any]:
        return [self.database, self._keys.fingerprint()]

    def _open(self, path: str) -> Any:
        """Return the environment of this process and the database."""
        lmdb = _library()
        with _ENVIRONMENTS.lock:
            opened = _ENVIRONMENTS.get(lmdb, path, self._stamps[0])
            return opened, self._database(lmdb, opened.environment)

    def _close(self, handle: Any) -> None:
        pass  # the environment goes with the last reference to it: another accessor or thread may be reading

    def _database(self, lmdb: Any, environment: Any) -> Any:
        try:
            name = None if self.database is None else self.database.encode()
            return environment.open_db(name, create=False)
        except (lmdb.NotFoundError, lmdb.IncompatibleError):
            names = ", ".join(map(repr, _databases(lmdb, environment))) or "only the main one, which is None"
            raise ArgumentError(
                f"database must be one of the databases of {self.paths[0]!r}, not {self.database!r}; it has {names}"
            ) from None

    def _found(self, keys: Any) -> Keys:
        """Return the keys that are asked for, which may mean to look at all keys of the database."""
        opened, database = self._handle()
        environment = opened.environment
        if database.flags()["dupsort"]:
            raise ArgumentError(f"{self.paths[0]!r} keeps several values a key (dupsort), which are no rows")
        if keys is not None and not isinstance(keys, str):
            return listed(keys)
        if self.database is None and (names := _databases(_library(), environment, 1)):
            raise ArgumentError(f"database must name one of those in {self.paths[0]!r}, as database={names[0]!r}")
        with environment.begin(db=database) as transaction:
            if keys is not None:
                return formatted(keys, lambda key: transaction.get(key) is not None)
            cursor, count = transaction.cursor(), transaction.stat(database)["entries"]
            if not count:
                return PackedKeys([])
            first, last = (cursor.key() for move in (cursor.first, cursor.last) if move())
            return numbered(first, last, count) or PackedKeys(transaction.cursor().iternext(values=False))

    def _each(self, rows: np.ndarray) -> Iterator[memoryview]:
        """Give the value of each of `rows`, valid until the next is asked for."""
        opened, database = self._handle()
        transaction = opened.environment.begin(db=database, buffers=True)
        try:
            # One at a time: Cursor.getmulti looks at all values before the first is copied, out of the caches by then.
            for place, key in enumerate(self._keys.of(rows)):
                value = transaction.get(key)
                if value is None:
                    row = int(rows[place])
                    name = self.sample_name(row)
                    raise SampleReadError(f"row {row} of {self.paths[0]!r} has a key that is not there: {name}", name)
                yield value
        finally:
            transaction.abort()
            del transaction, opened, database  # which an error that somebody keeps would hold, and with them the file
        self._handle()  # or it was written to meanwhile


class LmdbRows(LmdbStored, StoredValues):
    """The values of an LMDB file: ``bytes``, or what `decode` makes of them.

    ``ImageBytes(LmdbRows(path), size)`` decodes pictures, as those of LSUN; ``MapStyle(LmdbRows(path, "pyxis"))``
    stacks samples that are dicts. Values that are arrays of one shape are an :class:`LmdbArray`. LMDB itself trusts
    what the pages of a file say: reading one that was damaged may crash a process.

    ::

        images = ImageBytes(LmdbRows("lsun/bedroom_train_lmdb"), size=224)
        source = ArrayDataSource(LmdbRows.columns("digits.pyxis", ["image", "label"]))  # batches are dicts

    Args:
        path: The folder in which ``data.mdb`` lies, or the file itself. No other code of this process may have it open.
        decode: None for ``bytes``; ``"pyxis"`` for samples of ml-pyxis, a dict of arrays; ``"datum"`` for Caffe's
            ``Datum``, a dict of ``"image"``, ``(channels, height, width) uint8`` or ``float32``, or ``bytes`` where it
            is encoded, and ``"label"``, an int; or a function of ``bytes``. Nothing is unpickled.
        keys: Which rows there are: None for all keys of the database, in its order, which is that of their bytes (10
            stands before 9); a list of keys; or a format, such as ``"image-{:05d}"``, for those of the numbers from 0
            to the first that is missing. Numbers of one width take no memory. To list other keys takes time, a second
            for some million, and memory, 8 bytes beside those of each key.
        database: The name of a database within the file; None for the main one, for ``"pyxis"`` that of ml-pyxis.

    Raises:
        SampleReadError: the file is not there, is none of LMDB, is shorter than it says, or is open in this process.
        ArgumentError: there is no such database or key, or the database has several values a key.
        ImportError: lmdb is not installed, or msgpack for ``"pyxis"``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        decode: Decode = None,
        *,
        keys: Any = None,
        database: str | None = None,
    ) -> None:
        self.decode = checked_decode(decode)
        self.runs_user_code = _is_users(self.decode)
        if self.decode == "pyxis":
            msgpack()  # or say that it is missing, before anything is read
            database = "data_db" if database is None else database
        super().__init__(path, keys, database)

    @classmethod
    def columns(
        cls,
        path: str | os.PathLike[str],
        names: Sequence[str] | None = None,
        *,
        decode: Decode = "pyxis",
        keys: Any = None,
        database: str | None = None,
    ) -> dict[str, LmdbArray | LmdbRows]:
        """Return an accessor for each array of values that are dicts: ``ArrayDataSource(LmdbRows.columns(path))``.

        What is an array or a number in the first row is an :class:`LmdbArray` of its shape and dtype, else the accessor
        gives lists. Each reads the value for itself: of a ``Datum`` it copies its own part alone, of a sample of
        ml-pyxis it decodes its own alone. ``MapStyle(LmdbRows(path, decode))`` decodes each value once.

        Args:
            path: This and the others are those of the class.
            names: Which; None for all that the first row has.
            decode: How values become dicts: ``"pyxis"``, ``"datum"`` or a function.
            keys: Which rows.
            database: Which database.

        Raises:
            ArgumentError: as the class; or there is no array of a name.
            ArgumentTypeError: values are no dicts.
            SampleReadError: as the class; or there are no rows.
        """
        rows = cls(path, decode, keys=keys, database=database)
        if not len(rows):
            raise SampleReadError(f"{rows.paths[0]!r} has no rows, and the first tells the columns", rows.paths[0])
        first = rows[0]
        if not isinstance(first, dict):
            raise ArgumentTypeError(f"decode must give dicts to have columns, not {type(first).__name__}")
        for name in names or ():
            if name not in first:
                raise ArgumentError(f"names must be of {', '.join(map(repr, first))}, which row 0 has, not {name!r}")
        made: dict[str, LmdbArray | LmdbRows] = {}
        for name in first if names is None else names:
            field, keys, database = Field(rows.decode, name), rows._keys, rows.database
            if isinstance(first[name], (int, float, np.generic, np.ndarray)):
                array = np.asarray(first[name])
                made[name] = LmdbArray(path, array.dtype, array.shape, field, keys=keys, database=database)
            else:
                made[name] = cls(path, field, keys=keys, database=database)
        return made

    @property
    def natural_block(self) -> int:
        """How many neighbouring rows are as cheap to read together as one: values lie in the order of their keys."""
        return max(1, RUN_BYTES * len(self) // self._stamps[0][0])

    @property
    def natural_window(self) -> int:
        """How many such blocks a shuffle may mix so that each is read once."""
        return WINDOW_BYTES // RUN_BYTES

    def _options(self) -> list[Any]:
        return [*super()._options(), _decode_facts(self.decode)]

    def _values(self, rows: np.ndarray) -> list[Any]:
        made = []
        for value in self._each(rows):
            try:
                made.append(_in_own_memory(decoded(self.decode, value)))
            except Exception as error:
                raise self._unreadable(rows[len(made) : len(made) + 1], error) from error
        return made


class LmdbArray(LmdbStored, StoredArray):
    """The values of an LMDB file as rows of one shape and dtype, which are copied straight into a batch.

    ::

        images = LmdbArray("images.lmdb", np.uint8, (128, 128, 3))
        images[[7, 0]].shape  # (2, 128, 128, 3)

    Args:
        path: This, `keys` and `database` are those of :class:`LmdbRows`.
        dtype: The dtype.
        row_shape: The shape of a row, a tuple or an int.
        decode: A function of ``bytes`` that gives the array of a row; None for the bytes of the array itself.
        keys: Which rows there are.
        database: The name of a database within the file.

    Raises:
        SampleReadError: as :class:`LmdbRows`. Reading raises it for a row of another shape or dtype.
        ArgumentError: as :class:`LmdbRows`; or `dtype` is one of Python objects.
        ImportError: lmdb is not installed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        dtype: Any,
        row_shape: int | tuple[int, ...],
        decode: Callable[..., Any] | None = None,
        *,
        keys: Any = None,
        database: str | None = None,
    ) -> None:
        self._dtype = np.dtype(dtype)
        if self._dtype.hasobject:
            raise ArgumentError("dtype must be one of plain numbers, not of Python objects; read bytes by LmdbRows")
        if decode is not None and not callable(decode):
            raise ArgumentTypeError(
                f"decode must be None or a function of bytes, not {decode!r:.80}; LmdbRows.columns makes the arrays of "
                f"samples of ml-pyxis and Caffe"
            )
        self.decode = decode
        self.runs_user_code = _is_users(decode)
        super().__init__(path, keys, database)
        row_shape = (row_shape,) if isinstance(row_shape, int) else row_shape
        self._shape = (len(self._keys), *(not_negative("row_shape", length) for length in row_shape))

    def _options(self) -> list[Any]:
        return [*super()._options(), str(self._dtype), self._shape, _decode_facts(self.decode)]

    def _fill(self, rows: np.ndarray, out: np.ndarray) -> None:
        size, raw = self.row_bytes, self.decode is None and out.flags.c_contiguous
        target = out.reshape(-1).view(np.uint8).data if raw else memoryview(b"")
        for place, value in enumerate(self._each(rows)):
            try:
                if raw and len(value) == size:
                    target[place * size : (place + 1) * size] = value  # sooner than an assignment of arrays
                else:
                    out[place] = self._array(value)
            except Exception as error:
                raise self._unreadable(rows[place : place + 1], error) from error

    def _array(self, value: memoryview) -> np.ndarray:
        if self.decode is None:
            return np.frombuffer(value, self._dtype).reshape(self._shape[1:])
        array = np.asarray(decoded(self.decode, value))
        if array.shape != self._shape[1:] or array.dtype != self._dtype:
            raise ValueError(
                f"it is {array.shape} {array.dtype}, not {self._shape[1:]} {self._dtype}; take rows that differ as a "
                f"list, by LmdbRows"
            )
        return array


def _library() -> Any:
    try:
        import lmdb
    except ImportError as error:
        raise ImportError(f"LMDB files need lmdb: pip install 'batchup_ng[lmdb]' ({error})") from error
    return lmdb


def _environment(lmdb: Any, path: str) -> Any:
    """Return the environment of a file, which is as long as it says: to read beyond its end would be a SIGBUS."""
    try:
        # The map is as large as the file, against which LMDB checks places of pages, though not lengths of values.
        opened = lmdb.open(
            path, subdir=False, readonly=True, lock=False, create=False, map_size=4096, max_dbs=MAX_DATABASES
        )
    except lmdb.Error as error:
        if "already open" not in str(error):
            raise
        raise SampleReadError(
            f"{path!r} is open in this process by lmdb.open, and LMDB lets a process open a file once; close() that "
            f"before, or read all by accessors, which share it",
            path,
        ) from error
    size, needed = os.path.getsize(path), (opened.info()["last_pgno"] + 1) * opened.stat()["psize"]
    if size < needed:
        opened.close()
        raise ValueError(f"{size} bytes are there, and {needed} are needed; copy it anew")
    return opened


def _databases(lmdb: Any, environment: Any, most: int = 20) -> list[str]:
    """Return the names among the first keys of the main database that are databases."""
    with environment.begin() as transaction:
        keys = list(islice(transaction.cursor().iternext(values=False), most))
    names = []
    for key in keys:
        try:
            environment.open_db(key, create=False)
            names.append(key.decode(errors="replace"))
        except lmdb.Error:
            pass  # a value
    return names


def _is_users(decode: Any) -> bool:
    return _is_users(decode.decode) if isinstance(decode, Field) else callable(decode)


def _decode_facts(decode: Any) -> Any:
    if _is_users(decode):
        raise ArgumentTypeError(
            "what a decode function of yours makes of values cannot be told by a fingerprint; keep rows in memory: "
            "Cached(rows, where=None), source.cache()"
        )
    return [decode.decode, decode.name] if isinstance(decode, Field) else decode


def _in_own_memory(value: Any) -> Any:
    """Return arrays that lie over the file, or over bytes, as arrays that may be written to."""
    if isinstance(value, dict):
        return {name: _in_own_memory(part) for name, part in value.items()}
    return np.array(value) if isinstance(value, np.ndarray) and not value.flags.writeable else value
