"""How LMDB files are opened and read: what their accessors share.

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
import time
import weakref
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from ...errors import ArgumentError, SampleReadError
from .base import StoredRows
from .lmdb_keys import Keys, PackedKeys, listed, numbered
from .lmdb_values import Decode, Field

MAX_DATABASES = 64
"""Named databases of one file that a process may read from; each costs a transaction some 50 bytes."""

MAX_LISTED = 20
"""Keys of the main database that are looked at for names of databases."""


class _Opened:
    """The environment of a file in this process, with the file's size and time of change when it was opened."""

    def __init__(self, environment: Any, stamp: tuple[int, int]) -> None:
        self.environment, self.stamp = environment, stamp


_OPENED: weakref.WeakValueDictionary[str, _Opened] = weakref.WeakValueDictionary()
"""The environments of this process, by the real paths of their files."""

_LOCK = threading.Lock()
"""Held while a file is opened, or a database in it."""

# A thread that the child of a fork does not have may hold it.
os.register_at_fork(after_in_child=_LOCK._at_fork_reinit)  # type: ignore[attr-defined]  # typeshed leaves it out


class LmdbFile(StoredRows):
    """What accessors over an LMDB file share: how it is opened, which key a row has, how a value is decoded."""

    def __init__(self, path: str | os.PathLike[str], decode: Decode, keys: Any, database: str | None) -> None:
        path = os.fspath(path)
        super().__init__([os.path.join(path, "data.mdb") if os.path.isdir(path) else path])
        self.decode = decode
        self.runs_user_code = callable(decode.decode if isinstance(decode, Field) else decode)
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
        lmdb, real = _library(), os.path.realpath(path)
        with _LOCK:
            opened = _OPENED.get(real)
            if opened is not None and opened.stamp != self._stamps[0]:
                _OPENED.pop(real).environment = None  # its accessors read no more from a file that has changed
                opened = None
            if opened is None:
                opened = _OPENED[real] = _Opened(_environment(lmdb, path), self._stamps[0])
            try:
                name = None if self.database is None else self.database.encode()
                return opened, opened.environment.open_db(name, create=False)
            except (lmdb.NotFoundError, lmdb.IncompatibleError):
                names = ", ".join(map(repr, _databases(opened.environment))) or "only the main one, which is None"
                raise ArgumentError(
                    f"database must be one of the databases of {path!r}, not {self.database!r}; it has {names}; "
                    f"'data_db' is ml-pyxis's: what others write needs another decode="
                ) from None

    def _close(self, handle: Any) -> None:
        pass  # the environment goes with the last reference to it: another accessor or thread may be reading

    def _found(self, keys: Any) -> Keys:
        """Return the keys that are asked for, which may mean to look at all keys of the database."""
        opened, database = self._handle()
        environment = opened.environment
        if database.flags()["dupsort"]:
            raise ArgumentError(f"{self.paths[0]!r} keeps several values a key (dupsort), which are no rows")
        if keys is not None:
            return listed(keys)
        if self.database is None and (names := _databases(environment)):
            raise ArgumentError(f"database must name one of those in {self.paths[0]!r}, as database={names[0]!r}")
        with environment.begin(db=database) as transaction:
            cursor, count = transaction.cursor(), transaction.stat(database)["entries"]
            first, last = [cursor.key() if move() else b"" for move in (cursor.first, cursor.last)]
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


def _library() -> Any:
    try:
        import lmdb
    except ImportError as error:
        raise ImportError(f"LMDB files need lmdb: pip install 'batchup_ng[lmdb]' ({error})") from error
    return lmdb


def _environment(lmdb: Any, path: str, tries: int = 50) -> Any:
    """Return the environment of a file, which is as long as it says: to read beyond its end would be a SIGBUS."""
    size = os.path.getsize(path)
    if not size:
        raise ValueError("it is empty; copy it anew")
    try:
        # The map is as large as the file, against which LMDB checks places of pages, though not lengths of values.
        opened = lmdb.open(
            path, subdir=False, readonly=True, lock=False, create=False, map_size=4096, max_dbs=MAX_DATABASES
        )
    except lmdb.Error as error:
        if "already open" not in str(error):
            raise
        if tries > 1:  # perhaps it is being closed: another thread has dropped the last reference
            time.sleep(0.001)
            return _environment(lmdb, path, tries - 1)
        raise SampleReadError(
            f"{path!r} is open in this process by lmdb.open, and LMDB lets a process open a file once; close() that "
            f"before, or read all by accessors, which share it",
            path,
        ) from error
    needed = (opened.info()["last_pgno"] + 1) * opened.stat()["psize"]
    if size < needed:
        opened.close()
        raise ValueError(f"{size} bytes are there, and {needed} are needed; copy it anew")
    return opened


def _databases(environment: Any) -> list[str]:
    """Return the names among the first keys of the main database that are databases."""
    with environment.begin() as transaction:
        keys = list(islice(transaction.cursor().iternext(values=False), MAX_LISTED))
    names = []
    for key in keys:
        try:
            environment.open_db(key, create=False)
            names.append(key.decode(errors="replace"))
        except _library().Error:
            pass  # a value
    return names
