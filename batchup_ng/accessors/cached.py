"""An accessor that keeps the rows of a slow accessor, to read and decode each row once.

It keeps the first rows, as many as there is room for. So the number of a row alone decides whether the row is kept, and
where. Writers do not have to agree on a place.
"""

from __future__ import annotations

import copy
import errno
import hashlib
import json
import os
import sys
from typing import Any

import numpy as np

from .. import validation
from ..error_context import raise_if_of_signal_handler
from ..errors import ArgumentError, ArgumentTypeError, CacheWarning
from ..memory.budget import BUDGET
from ..memory.paging import file_name
from ..tensors import is_any_tensor
from ..warn import warn_consumer
from .base import check_out, checked_rows, fingerprint_of, rows_of, sample_name
from .packed_texts import PackedTexts
from .shared_rows import HEADER_BYTES, Form, SharedRows
from .uint8_to_float32 import ImageArrayUInt8ToFloat32

FILE_LAYOUT_VERSION = 2
"""The version of the files' layout; it is part of their names."""

SHARE_OF_FREE_MEMORY = 0.8
"""Part of the free memory that rows may take; the rest is for batches and the remaining program."""

NO_MEMORY_TO_SPARE = (
    "the system has no memory to spare, so the other rows are read from their accessors in each epoch; pass where=, a "
    "folder on a disk, or a lower limit="
)
"""The warning of all caches that find no memory: Python shows it once in each process."""


class Cached:
    """The rows of an accessor. Each row is read from it once, and then kept: decode once, train many epochs.

    Rows are kept as the accessor returns them, before maps, which may draw random numbers: ``source.map(...)`` is
    computed again in each epoch. Every thread and worker process of the program reads rows that any of them has kept.
    With a folder, the next program reads them too. Rows in memory are read at the speed of an array; rows in a file
    take several times as long. A row is there whole or not at all, even if any process is killed at any time. Needs
    Linux.

    A file is used only if it was made for the same: the class of the accessor, its ``fingerprint()`` (for
    :class:`~batchup_ng.ImageFiles` its options, and path, size and modification time of each file, which takes an
    ``os.stat`` of each file, once), shape, dtype, and the layout of the file. The name of the file depends on them too.
    So a change starts another file; the old one stays until you delete it. A row that an earlier program wrote is
    checked by its CRC-32 when it is first read, and read from the accessor if it is damaged. No file is pickled.

    >>> rows = Cached(ImageArrayUInt8ToFloat32(np.array([0, 51, 255], np.uint8)))
    >>> rows[[2, 0]].tolist(), rows
    ([1.0, 0.0], Cached(ImageArrayUInt8ToFloat32, 2 of 3 rows kept in memory))

    Args:
        accessor: An accessor with ``shape`` and ``dtype``, whose rows depend on nothing but their number.
        where: None keeps rows in shared memory as long as anything refers to this accessor; a folder keeps them in a
            file there, ``batchup-….rows``, as large as the rows in it.
        limit: Bytes that rows may take, as an int or a string such as ``"500MB"``, ``"8GB"`` (10⁹) or ``"8GiB"``
            (2³⁰). In memory they also take at most 0.8 of the memory that is free now.

    Raises:
        ArgumentTypeError: `accessor` is not an accessor, or has no `fingerprint` for a file; `where` is not a path.
        ArgumentError: its rows are not of one shape, are objects, or are random; `limit` is not a size; there is no
            such folder, or no file can be made in it.

    Warns:
        CacheWarning: there is no room for all rows: now, or later when a disk gets full.
    """

    @validation.known_names({})
    def __init__(self, accessor: Any, where: str | os.PathLike[str] | None = None, limit: int | str = "8GB") -> None:
        form = _form_of(accessor)
        if where is not None:
            form = _with_file(form, accessor, where)
        form = form._replace(capacity=min(form.total, _room(where, limit) // form.row_bytes))
        self.accessor = accessor
        self._told = False
        try:
            self._rows = SharedRows(form)
        except OSError as error:
            raise ArgumentError(
                f"no cache can be made in {form.place}: {error}; lower limit={limit!r}, or pass another where="
            ) from error
        if form.capacity < form.total:
            warn_consumer(
                f"{form.capacity} of {form.total} rows will be kept in {form.place}, {form.capacity * form.row_bytes} "
                f"of {form.total * form.row_bytes} bytes; the others are read from {type(accessor).__name__} in each "
                f"epoch; raise limit={limit!r} where there is room, pass where=, a folder on a disk, or a smaller size",
                CacheWarning,
            )

    def __len__(self) -> int:
        return self._rows.form.total

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of all the data, as in the accessor."""
        return len(self), *self._rows.form.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the accessor."""
        return self._rows.form.dtype

    def __getitem__(self, rows: Any) -> Any:
        """Return `rows` in the order asked for, in memory of their own: one row for an int, else ``(n, ...)``.

        Raises:
            IndexError: a row is out of range, or a mask has another length.
        """
        return rows_of(self, rows)

    def read_into(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write `rows`, ``(n,) int``, into `out`, ``(n, ...)`` of `dtype`. If all are kept, one gather copies them.

        Missing rows are read from the accessor, all at once, then kept. Raises the exceptions of the accessor.
        """
        rows = checked_rows(rows, len(self))
        check_out(self, rows, out)
        there = self._rows.there(rows)
        if there.all():
            self._rows.copy(rows, out)
        else:
            places = np.flatnonzero(~there).tolist()
            missing = out[: len(places)]
            self._read(rows[places], missing)
            for i, place in reversed(list(enumerate(places))):  # a place is never less than its i: go backwards
                if place != i:
                    out[place] = missing[i]
            kept = np.empty((np.count_nonzero(there), *out.shape[1:]), out.dtype)
            self._rows.copy(rows[there], kept)
            out[there] = kept
        if there.any() and self._rows.lost():  # while rows were copied
            self._read(rows, out)

    def sample_name(self, row: int) -> str | None:
        """Return the accessor's name for the row, or the file that it is mapped from."""
        name = sample_name(self.accessor, row)
        return file_name(self.accessor) if name is None else name

    def __repr__(self) -> str:
        form, rows = self._rows.form, self._rows.count()
        room = f", room for {form.capacity}" if form.capacity < form.total else ""
        return f"Cached({type(self.accessor).__name__}, {rows} of {form.total} rows kept in {form.place}{room})"

    def _read(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Read `rows` from the accessor into `out`, and keep them as far as there is room."""
        if hasattr(self.accessor, "read_into"):
            self.accessor.read_into(rows, out)
        else:
            given = np.asarray(self.accessor[rows])
            if given.shape != out.shape or given.dtype != out.dtype:
                told = f"{out.shape} {out.dtype}, as its shape and dtype say, not {given.shape} {given.dtype}"
                raise ArgumentError(f"{type(self.accessor).__name__} must give rows of {told}; mend it")
            out[...] = given
        for row, data in zip(rows.tolist(), out.reshape(len(rows), -1).view(np.uint8), strict=True):
            if row < self._rows.form.capacity:
                try:
                    self._rows.publish(row, data)
                except OSError as error:
                    raise_if_of_signal_handler(error)
                    if not self._told:
                        self._told = True
                        do = "delete it, and begin anew" if error.errno == errno.ESTALE else "make room"
                        said = f"{self!r} cannot keep all rows: {error}; {do}"
                        warn_consumer(NO_MEMORY_TO_SPARE if error.errno == errno.ENOMEM else said, CacheWarning)
                    return


def cached_columns(columns: list[Any], where: Any, limit: Any) -> list[Any]:
    """Return the columns of a source in :class:`Cached`, except arrays, columns of texts and cached columns.

    They share the limit in proportion to the bytes of their rows. For an :class:`ImageArrayUInt8ToFloat32`, the array
    inside is cached, a quarter of the bytes.
    """
    inside = _inside(columns)
    row_bytes = _row_bytes(inside)
    room = _room(where, limit)
    made = []
    for column, each, own in zip(columns, inside, row_bytes, strict=True):
        if own:
            kept = Cached(each, where, room * own // sum(row_bytes))
            if each is column:
                column = kept
            else:
                column = copy.copy(column)
                column.arr_u8 = kept
        made.append(column)
    return made


def can_cache(columns: list[Any]) -> bool:
    """Tell whether :func:`cached_columns` would keep rows of these columns."""
    try:
        return any(_row_bytes(_inside(columns)))
    except (ArgumentError, ArgumentTypeError):
        return False


def _inside(columns: list[Any]) -> list[Any]:
    return [column.arr_u8 if type(column) is ImageArrayUInt8ToFloat32 else column for column in columns]


def _row_bytes(accessors: list[Any]) -> list[int]:
    """Return the bytes of a row of each accessor, 0 for one that stays as it is; raise if its rows cannot be kept."""
    kept_as_is = (np.ndarray, PackedTexts, Cached)
    is_slow = [not isinstance(each, kept_as_is) and not is_any_tensor(each) for each in accessors]
    return [_form_of(each).row_bytes if slow else 0 for each, slow in zip(accessors, is_slow, strict=True)]


def _room(where: Any, limit: Any) -> int:
    """Return how many bytes rows may take."""
    room = validation.size_in_bytes("limit", limit)
    return room if where is not None else int(min(room, SHARE_OF_FREE_MEMORY * BUDGET.free()))


def _form_of(accessor: Any) -> Form:
    """Return the form of all rows of an accessor, in memory; refuse an accessor whose rows cannot be kept."""
    name = type(accessor).__name__
    if not hasattr(accessor, "__len__") or not hasattr(accessor, "__getitem__"):
        raise ArgumentTypeError(f"accessor must have __len__ and __getitem__, as an array has; {name} does not")
    if getattr(accessor, "draws", False):
        raise ArgumentError(
            f"the rows of this {name} are random, and kept rows would be the same in each epoch; leave the random part "
            f"out of it, and put it into a map of the source: source.map(crop, rng='sample')"
        )
    if not hasattr(accessor, "shape") or not hasattr(accessor, "dtype"):
        raise ArgumentError(
            f"accessor must have shape and dtype, for rows of one shape are kept, and this {name} has none; pass size= "
            f"to ImageFiles, or define them"
        )
    form = Form(len(accessor), len(accessor), tuple(accessor.shape[1:]), np.dtype(accessor.dtype))
    if form.dtype.hasobject or form.row_bytes == 0 or accessor.shape[0] != form.total or not form.total:
        raise ArgumentError(
            f"accessor must have rows of some bytes that are no objects, one for each of its length, and this {name} "
            f"has length {form.total}, shape {tuple(accessor.shape)}, dtype {form.dtype}; use it as it is"
        )
    return form


def _with_file(form: Form, accessor: Any, where: Any) -> Form:
    """Return `form` with the file of its rows in the folder `where`, and its header."""
    kind = type(accessor)
    if not isinstance(where, (str, os.PathLike)):
        raise ArgumentTypeError(f"where must be None or the path of a folder, not {where!r}")
    if not os.path.isdir(where):
        raise ArgumentError(f"where must be a folder, and {os.fspath(where)!r} is none; make it first")
    contents = fingerprint_of(accessor)
    about = [f"{kind.__module__}.{kind.__qualname__}", form.total, form.shape, np.lib.format.dtype_to_descr(form.dtype)]
    try:
        parts = json.dumps([FILE_LAYOUT_VERSION, sys.byteorder, about, contents])
    except TypeError as error:
        raise ArgumentTypeError(f"fingerprint() of {kind.__name__} must return JSON values: {error}") from error
    digest = hashlib.sha256(parts.encode()).hexdigest()
    header = json.dumps(
        {"batchup_ng rows": FILE_LAYOUT_VERSION, "fingerprint": digest, "rows": form.total, "shape": form.shape}
    )
    path = os.path.join(os.path.abspath(where), f"batchup-{digest[:24]}.rows")
    return form._replace(path=path, header=header.encode().ljust(HEADER_BYTES))
