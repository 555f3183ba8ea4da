"""LMDB files as rows, one value each."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import validation
from ...error_context import unless_of_signal_handler
from ...errors import ArgumentError, ArgumentTypeError, SampleReadError
from ...validation import not_negative
from .base import Files, StoredArray, StoredValues
from .in_runs import RUN_BYTES, WINDOW_BYTES, InRuns
from .lmdb_file import LmdbFile
from .lmdb_values import Decode, Field, checked_decode, decoded, msgpack

FORM_SAMPLE_ROWS = 16
"""Rows, spread over the file, that decide which columns have one shape and dtype."""


class LmdbRows(LmdbFile, StoredValues):
    """The values of an LMDB file: ``bytes``, or the results of `decode`.

    ``ImageBytes(LmdbRows(path), size)`` decodes images, such as LSUN's; ``MapStyle(LmdbRows(path, "pyxis"))`` stacks
    samples that are dicts. If values are arrays of one shape, use :class:`LmdbArray`. LMDB trusts the pages of a file:
    a damaged one, for example with a wrong length of a value, may crash the process that reads it, in a pool a worker.

    ::

        images = ImageBytes(LmdbRows("lsun/bedroom_train_lmdb"), size=224)
        source = ArrayDataSource(LmdbRows.columns("digits.pyxis", ["image", "label"]))  # batches are dicts

    Args:
        path: The folder that contains ``data.mdb``, or the file itself. No other code of this process may have it open.
        decode: None for ``bytes``; ``"pyxis"`` for samples of ml-pyxis, a dict of arrays; ``"datum"`` for Caffe's
            ``Datum``, a dict of ``"image"``, ``(channels, height, width) uint8`` or ``float32``, or ``bytes`` if it is
            encoded, and ``"label"``, an int; or a function of ``bytes``. Nothing is unpickled.
        keys: The keys of the rows: None for all keys of the database, in the order of their bytes (10 stands before 9);
            or a list of keys. Numbers of one width take no memory. Listing other keys takes time, a second for some
            million, and memory, 8 bytes and the key itself for each.
        database: The name of a database within the file; None for the main one, for ``"pyxis"`` the one of ml-pyxis.

    Raises:
        SampleReadError: the file is not there, is not an LMDB file, is shorter than it says, or is open in this
            process.
        ArgumentError: there is no such database, or the database has several values per key.
        ImportError: lmdb is not installed, or msgpack for ``"pyxis"``.
    """

    natural_window = WINDOW_BYTES // RUN_BYTES
    """How many blocks of `natural_block` rows a shuffle may mix and still read each block once."""

    @validation.known_names({})
    def __init__(
        self, path: str | os.PathLike[str], decode: Decode = None, *, keys: Any = None, database: str | None = None
    ) -> None:
        if decode == "pyxis":
            msgpack()  # raise now if it is missing, before any read
            database = "data_db" if database is None else database
        super().__init__(path, checked_decode(decode), keys, database)

    @classmethod
    def columns(
        cls, path: str | os.PathLike[str], names: Sequence[str] | None = None, *, decode: Decode = "pyxis",
        keys: Any = None, database: str | None = None,
    ) -> dict[str, LmdbArray | LmdbRows]:  # fmt: skip
        """Return an accessor for each array of values that are dicts: ``ArrayDataSource(LmdbRows.columns(path))``.

        A number or array that has one shape and dtype in 16 rows spread over the file becomes an :class:`LmdbArray`;
        everything else becomes lists. Each accessor reads the value for itself: it copies only its own part of a
        ``Datum``, and decodes only its own part of a sample of ml-pyxis. ``MapStyle(LmdbRows(path, decode))`` decodes
        each value once.

        Args:
            path: As for the class; so are the other arguments.
            names: The arrays; None for all that the first row has.
            decode: How values become dicts: ``"pyxis"``, ``"datum"`` or a function.
            keys: The keys of the rows.
            database: The database.

        Raises:
            ArgumentError: as the class; or there is no array of that name.
            ArgumentTypeError: values are not dicts.
            SampleReadError: as the class; or there are no rows.
        """
        rows = cls(path, decode, keys=keys, database=database)
        if not len(rows):
            raise SampleReadError(f"{rows.paths[0]!r} has no rows, and the first tells the columns", rows.paths[0])
        samples = [rows[0]]
        for row in np.linspace(0, len(rows) - 1, FORM_SAMPLE_ROWS, dtype=np.int64):
            with unless_of_signal_handler(SampleReadError):  # reading that row raises the error again
                samples.append(rows[int(row)])
        for sample in samples:
            if not isinstance(sample, dict):
                raise ArgumentTypeError(f"decode must give dicts to have columns, not {type(sample).__name__}")
        made: dict[str, LmdbArray | LmdbRows] = {}
        for name in samples[0] if names is None else names:
            if name not in samples[0]:
                there = ", ".join(map(repr, samples[0]))
                raise ArgumentError(f"names must be of {there}, which row 0 has, not {name!r}")
            field, form = Field(rows.decode, name), _form([sample.get(name) for sample in samples])
            if form is None:
                made[name] = cls(path, field, keys=rows._keys, database=rows.database)
            else:
                made[name] = LmdbArray(path, *form, field, keys=rows._keys, database=rows.database)
        return made

    @property
    def natural_block(self) -> int:
        """How many neighbouring rows are as cheap to read together as one: values lie in the order of their keys."""
        return max(1, RUN_BYTES * len(self) // self._stamps[0][0])

    def _values(self, files: Files, rows: np.ndarray) -> list[Any]:
        made: list[Any] = []
        for value in self._each(files, rows):
            try:
                made.append(bytes(value) if self.decode is None else _in_own_memory(decoded(self.decode, value)))
            except Exception as error:
                raise self._unreadable(rows[len(made) : len(made) + 1], error) from error
        return made


class LmdbArray(LmdbFile, InRuns, StoredArray):
    """The values of an LMDB file as rows of one shape and dtype, copied straight into a batch.

    ::

        images = LmdbArray("images.lmdb", np.uint8, (128, 128, 3))
        images[[7, 0]].shape  # (2, 128, 128, 3)

    Args:
        path: As for :class:`LmdbRows`; so are `keys` and `database`.
        dtype: The dtype.
        row_shape: The shape of a row, a tuple or an int.
        decode: A function of ``bytes`` that returns the array of a row; None if a value is the bytes of the array.
        keys: The keys of the rows.
        database: The name of a database within the file.

    Raises:
        SampleReadError: as :class:`LmdbRows`. Reading raises it for a row of another shape or dtype.
        ArgumentError: as :class:`LmdbRows`; or `dtype` has Python objects.
        ImportError: lmdb is not installed.
    """

    @validation.known_names({})
    def __init__(
        self, path: str | os.PathLike[str], dtype: Any, row_shape: int | tuple[int, ...],
        decode: Callable[..., Any] | None = None, *, keys: Any = None, database: str | None = None,
    ) -> None:  # fmt: skip
        self._dtype = np.dtype(dtype)
        if self._dtype.hasobject:
            raise ArgumentError("dtype must be one of plain numbers, not of Python objects; read bytes by LmdbRows")
        if decode is not None and not callable(decode):
            raise ArgumentTypeError(
                f"decode must be None or a function of bytes, not {decode!r:.80}; LmdbRows.columns makes the arrays of "
                f"samples of ml-pyxis and Caffe"
            )
        super().__init__(path, decode, keys, database)
        row_shape = (row_shape,) if isinstance(row_shape, int) else row_shape
        self._shape = (len(self._keys), *(not_negative("row_shape", length) for length in row_shape))
        self._mean_bytes = self.row_bytes

    def _options(self) -> list[Any]:
        return [*super()._options(), str(self._dtype), self._shape]

    def _fill(self, files: Files, rows: np.ndarray, out: np.ndarray) -> None:
        size, raw = self.row_bytes, self.decode is None
        target = out.reshape(-1).view(np.uint8).data if raw else memoryview(b"")
        for place, value in enumerate(self._each(files, rows)):
            try:
                if raw and len(value) == size:
                    target[place * size : (place + 1) * size] = value  # faster than an assignment of arrays
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


def _form(values: list[Any]) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Return dtype and shape of arrays or numbers; None if these differ, or a value is neither."""
    if not all(isinstance(value, (int, float, np.generic, np.ndarray)) for value in values):
        return None
    forms = {(array.dtype, array.shape) for array in map(np.asarray, values)}
    return forms.pop() if len(forms) == 1 else None


def _in_own_memory(value: Any) -> Any:
    """Return arrays that lie over the file, or over bytes, as writable copies."""
    if isinstance(value, dict):
        return {name: _in_own_memory(part) for name, part in value.items()}
    return np.array(value) if isinstance(value, np.ndarray) and not value.flags.writeable else value
