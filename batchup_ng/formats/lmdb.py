"""Writes LMDB databases in the layout of ml-pyxis.

The folder is an environment with two databases. ``data_db`` has a sample under each number, ten decimal digits or more:
a msgpack map of names to values. Each value is msgpack again; an array is a map of its type, dtype, shape and bytes.
``meta_db`` has ``nb_samples``, in decimal digits, and ``class_names``, as JSON, if there are any.
Source of the layout: ``pyxis.py`` of ml-pyxis 0.4.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..platforms import system
from .base import Writer
from .columns import Column, Values, check_keys

MAP_BYTES = 1 << 44
"""Addresses to reserve for the database while it is written, far more than any database has bytes; they cost nothing.
If there is a limit on addresses, fewer are reserved."""

SPARE_BYTES = 1 << 20
"""Bytes of the map after the used ones, at the end."""


class LmdbWriter(Writer):
    """A sample is a msgpack map of its columns. All rows between two checkpoints are one transaction."""

    ending = ".lmdb"
    can_hold = "arrays and numbers of any shape but with fields, strings, bytes, dicts and lists of these"
    needs = ("lmdb", "lmdb", "msgpack")
    _environment: Any = None
    _transaction: Any = None

    @classmethod
    def holds(cls, column: Column) -> bool:
        return column.dtype is None or not column.dtype.fields

    def begin(self) -> None:
        self.path.mkdir()
        self.resume(None)

    def resume(self, place: Any) -> None:
        import lmdb

        self._environment = lmdb.open(str(self.path), map_size=_map_bytes(), max_dbs=2, lock=False)
        self._data, self._meta = map(self._environment.open_db, (b"data_db", b"meta_db"))
        self._transaction = self._environment.begin(write=True)

    def write(self, values: Values, n: int) -> None:
        import msgpack

        with _explaining():
            for place in range(n):
                for name, column in values.items():
                    self._check(name, self.row + place, column[place])
                sample = {name: msgpack.packb(_packable(column[place])) for name, column in values.items()}
                self._transaction.put(b"%010d" % (self.row + place), msgpack.packb(sample), db=self._data)

    def _check(self, name: str, row: int, value: Any) -> None:
        """Refuse a dict that could not be read back."""
        check_keys(name, row, value, (str, bytes), "could not be read back")
        if isinstance(value, dict) and ("dtype" in value or b"dtype" in value):
            raise ArgumentError(
                f"column {name!r} of source has a dict with the key 'dtype' in row {row}, which readers of .lmdb would "
                f"take for an array; rename the key by a map"
            )

    def checkpoint(self) -> Any:
        with _explaining():
            self._transaction.commit()
        self._transaction = self._environment.begin(write=True)

    def finish(self) -> None:
        meta = {"nb_samples": str(self.row)}
        if self.class_names:
            meta["class_names"] = json.dumps(self.class_names)
        for name, text in meta.items():
            self._transaction.put(name.encode(), text.encode(), db=self._meta)
        with self._transaction.cursor(db=self._data) as cursor:  # rows of another run, after the last checkpoint
            while cursor.set_range(b"%010d" % self.row):
                cursor.delete()
        self._transaction.commit()
        used = (self._environment.info()["last_pgno"] + 1) * self._environment.stat()["psize"]
        self._environment.set_mapsize(used + SPARE_BYTES)
        with self._environment.begin(write=True, db=self._meta) as transaction:  # it stores the new size
            transaction.put(b"nb_samples", str(self.row).encode())
        self.close()

    def close(self) -> None:
        if self._environment is not None:
            if self._transaction is not None:
                self._transaction.abort()
            self._environment.close()
            self._environment = None


def _map_bytes() -> int:
    """Return how many addresses to reserve: half of the remaining ones if there is a limit."""
    limit = system.limit_on("RLIMIT_AS")
    if limit == math.inf:
        return MAP_BYTES
    half = int(limit - system.addresses_in_use()) // 2
    return min(MAP_BYTES, max(SPARE_BYTES, half // mmap.PAGESIZE * mmap.PAGESIZE))


@contextlib.contextmanager
def _explaining() -> Iterator[None]:
    """Name the remedy if a limit leaves too few addresses."""
    import lmdb

    try:
        yield
    except lmdb.MapFullError as error:
        raise OSError(errno.ENOMEM, "a limit on addresses, ulimit -v, leaves too few for it; raise that") from error


def _packable(value: Any) -> Any:
    """Return a value in a form that msgpack can pack."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = np.asarray(value)
        return {b"type": 2, b"dtype": value.dtype.str, b"shape": value.shape, b"data": value.tobytes()}
    return value
