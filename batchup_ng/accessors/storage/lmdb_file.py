"""Opens and reads LMDB files: the base of their accessors.

LMDB forbids a process to open a file twice. So a process has one environment for each file, and all accessors of the
file share it. It is closed when the last accessor has dropped it and no thread reads: closing it unmaps the memory that
is being read.

Files are opened read-only and without LMDB's lock file, where each reader would have to register. Two things follow.
A program that writes to the file does not know its readers, and may reuse pages that are being read. So a batch is
refused if the file has changed during the read. And a child of ``os.fork()`` may go on with the environment that it
inherits: LMDB only forbids it to share entries of the lock file.

If a file is cut short while a batch is read, that is a SIGBUS, as with every map. It ends a worker process, which the
pool replaces, or a program that reads on its own threads. Replace files by renaming others, as safe programs do.

The system's readahead stays on for files larger than memory. Without it (``readahead=False``) batches of 64 random
values of 49 kB took 61 to 109 ms from a disk, with it 39 to 55 ms, because LMDB touches a value page by page.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from ...errors import ArgumentError, SampleReadError
from ...extras import library
from .base import OPENING_LOCK, Files, StoredRows
from .lmdb_keys import NumberedKeys, PackedKeys, listed, numbered
from .lmdb_values import Decode, Field

MAX_DATABASES = 64
"""Named databases of one file that a process may read from, at most; each costs a transaction some 50 bytes."""

MAX_TRIED_KEYS = 20
"""Keys of the main database that are tried as names of databases."""


class _Opened:
    """The environment of a file in this process, and the file's size and modification time when it was opened."""

    def __init__(self, environment: Any, stamp: tuple[int, int]) -> None:
        self.environment, self.stamp = environment, stamp


_OPENED: weakref.WeakValueDictionary[str, _Opened] = weakref.WeakValueDictionary()
"""The environments of this process, by the real paths of their files."""


class LmdbFile(StoredRows):
    """Base of the accessors to an LMDB file. It opens the file, finds the key of a row, and decodes values."""

    def __init__(self, path: str | os.PathLike[str], decode: Decode, keys: Any, database: str | None) -> None:
        path = os.fspath(path)
        super().__init__([os.path.join(path, "data.mdb") if os.path.isdir(path) else path])
        self.decode = decode
        self.runs_user_code = callable(decode.decode if isinstance(decode, Field) else decode)
        self.database = database
        self._handle()
        try:
            self._keys = keys if isinstance(keys, (NumberedKeys, PackedKeys)) else self._found(keys)
        except _library().Error as error:
            raise SampleReadError(f"the keys of {self.paths[0]!r} cannot be read ({error})", self.paths[0]) from error

    def __len__(self) -> int:
        return len(self._keys)

    def sample_name(self, row: int) -> str | None:
        """Return the file and key of a row: ``/data/data.mdb[00000042]``."""
        return f"{self.paths[0]}[{repr(self._keys.of(np.array([row]))[0])[2:-1]}]"

    def _options(self) -> list[Any]:
        return [self.database, self._keys.fingerprint()]

    def _open(self, path: str) -> Any:
        """Return this process's environment and the database."""
        lmdb, real = _library(), os.path.realpath(path)
        with OPENING_LOCK:
            opened = _OPENED.get(real)
            if opened is not None and opened.stamp != self._stamps[0]:
                _OPENED.pop(real).environment = None  # its accessors stop reading a file that has changed
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

    def _found(self, keys: Any) -> NumberedKeys | PackedKeys:
        """Return the requested keys, which may require reading all keys of the database."""
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

    def _each(self, files: Files, rows: np.ndarray) -> Iterator[memoryview]:
        """Yield the value of each of `rows`, valid until the next one is requested."""
        opened, database = files[0]
        transaction = opened.environment.begin(db=database, buffers=True)
        try:
            # One at a time: Cursor.getmulti touches all values before the first is copied, and the caches lose them.
            for place, key in enumerate(self._keys.of(rows)):
                value = transaction.get(key)
                if value is None:
                    row = int(rows[place])
                    name = self.sample_name(row)
                    raise SampleReadError(f"row {row} of {self.paths[0]!r} has a key that is not there: {name}", name)
                yield value
        finally:
            transaction.abort()
            del transaction, opened, database  # a kept exception would hold these, and with them the file


def _library() -> Any:
    return library("lmdb", "LMDB files need lmdb", "lmdb")


def _environment(lmdb: Any, path: str, tries: int = 50) -> Any:
    """Return the environment of a file. Refuse a file shorter than it says: a read past its end would be a SIGBUS."""
    size = os.path.getsize(path)
    if not size:
        raise ValueError("it is empty; copy it anew")
    try:
        # The map is as large as the file. LMDB checks the places of pages against it, but not the lengths of values.
        opened = lmdb.open(
            path, subdir=False, readonly=True, lock=False, create=False, map_size=4096, max_dbs=MAX_DATABASES
        )
    except lmdb.Error as error:
        if "already open" not in str(error):
            raise
        if tries > 1:  # another thread may just have dropped the last reference
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
    """Return the first keys of the main database that are names of databases."""
    with environment.begin() as transaction:
        keys = list(islice(transaction.cursor().iternext(values=False), MAX_TRIED_KEYS))
    names = []
    for key in keys:
        try:
            environment.open_db(key, create=False)
            names.append(key.decode(errors="replace"))
        except _library().Error:
            pass  # a value
    return names
