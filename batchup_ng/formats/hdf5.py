"""Writes HDF5 files.

Rows of one shape and dtype lie contiguously, unless they are to be compressed: the offset of each data set is known
before rows are written. All other data need chunks. HDF5 then changes its own tables again and again, so a kill of the
writer would leave a damaged file. So HDF5 only writes into a :class:`~.draft.Draft`: its changes can be undone, and
HDF5 never meets an error of the disk, which may make it end the program.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from .base import CHUNK_BYTES, PartsWriter, Writer, dividing, pread_all, pwrite_all, synchronised
from .columns import Column, Values
from .draft import Draft, undo
from .npy import FixedRows

ALIGNMENT_BYTES = 4096
"""Contiguous data begin at multiples of this number of bytes, like pages of memory, to be mapped."""

VARYING_CHUNK_ROWS = 1024
"""Rows of a chunk of values that vary in size. The chunk has 16 bytes for each: the place of the value."""

MAX_NAMES_IN_ATTRIBUTE = 4000
"""Names that fit into an attribute of 64 kB. Each takes 16 bytes of it; the letters are stored elsewhere."""

COPIED_BYTES = 1 << 24
"""Bytes to copy at once."""


class ChunkedHdf5(PartsWriter):
    """A data set in chunks for each column. Values that vary in size lie in the heaps of the file."""

    ending = ".h5"
    can_hold = "numbers and arrays of them, strings, bytes, 1-D arrays of several lengths"
    options = ("compression", "chunk_rows")
    compressions = ("gzip", "lzf")
    needs = ("hdf5", "h5py")

    @classmethod
    def holds(cls, column: Column) -> bool:
        if column.kind == "ragged":
            return len(column.shape) == 1 and _has_numbers(column.dtype)
        return column.kind in ("bytes", "text") or (column.kind == "fixed" and _has_numbers(column.dtype))

    @classmethod
    def chosen(cls, columns: Sequence[Column], options: dict[str, Any]) -> type[Writer]:
        return ContiguousHdf5 if not options and all(each.kind == "fixed" for each in columns) else cls

    def begin(self) -> None:
        def write(file: Any) -> None:
            _name_classes(file, self.class_names)
            for column in self.columns:
                rows, dtype, filters = VARYING_CHUNK_ROWS, _varying(column), {}
                if column.kind == "fixed":
                    rows, dtype = CHUNK_BYTES // max(1, column.row_bytes), column.dtype
                    filters = {"compression": self.given.get("compression")}
                rows = self.given.get("chunk_rows") or dividing(self.part_rows, min(rows, self.rows))
                shapes = {"shape": (0, *column.shape), "maxshape": (None, *column.shape)}
                if column.kind != "fixed":
                    shapes = {"shape": (0,), "maxshape": (None,)}
                chunks = (rows, *shapes["shape"][1:])
                file.create_dataset(column.name, **shapes, chunks=chunks, dtype=dtype, track_times=False, **filters)

        _change(self.path, self._log(), write, "w")

    def resume(self, place: Any) -> None:
        self._done = self.row
        undo(self.path, self._log(), int(place))

    def write_part(self, values: Values) -> Any:
        def write(file: Any) -> None:
            for column in self.columns:
                data = file[column.name]
                data.resize(self.row, axis=0)
                if column.kind in ("bytes", "ragged"):
                    _write_varying(data, self._done, values[column.name])
                else:
                    data[self._done :] = values[column.name]

        return _change(self.path, self._log(), write, "r+")

    def finish(self) -> None:
        pass  # the file is whole after each part

    def _log(self) -> Path:
        """Return the log of the changes since the last checkpoint. Its name has the number of rows at that time."""
        return self.work / f"undo-{self._done}"


class ContiguousHdf5(FixedRows):
    """A contiguous data set for each column. It can be mapped, like a file of NumPy's."""

    def make(self) -> None:
        self._make(self.path, self.rows)

    def offsets(self) -> list[int]:
        return self._offsets_in(self.path)

    def finish(self) -> None:
        import h5py

        self.close()
        with h5py.File(self.path, "r") as file:
            rows = len(file[self.columns[0].name])
        if rows > self.row:  # samples were left out, and contiguous data cannot be cut
            short = self.work / "short.h5"
            short.unlink(missing_ok=True)
            self._make(short, self.row)
            with open(self.path, "rb") as old, open(short, "r+b") as new:
                for column, start, place in zip(self.columns, self.offsets(), self._offsets_in(short), strict=True):
                    size = self.row * column.row_bytes
                    for at in range(0, size, COPIED_BYTES):
                        data = pread_all(old.fileno(), min(COPIED_BYTES, size - at), start + at)
                        pwrite_all(new.fileno(), data, place + at)
            synchronised(short)
            os.replace(short, self.path)
        synchronised(self.path)

    def _offsets_in(self, path: Path) -> list[int]:
        import h5py

        with h5py.File(path, "r") as file:
            return [file[column.name].id.get_offset() or 0 for column in self.columns]  # None if rows have no bytes

    def _make(self, path: Path, rows: int) -> None:
        import h5py

        how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        how.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        how.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        how.set_obj_track_times(False)

        def write(file: Any) -> None:
            _name_classes(file, self.class_names)
            for column in self.columns:
                space = h5py.h5s.create_simple((rows, *column.shape))
                kind = h5py.h5t.py_create(column.dtype, logical=True)
                h5py.h5d.create(file.id, column.name.encode(), kind, space, how)

        log = self.work / "undo-0"
        _change(path, log, write, "w", alignment_threshold=ALIGNMENT_BYTES, alignment_interval=ALIGNMENT_BYTES)


def _change(path: Path, log: Path, write: Callable[[Any], None], mode: str, **options: Any) -> int:
    """Call `write` with an HDF5 file; return the size of the file. Afterwards `log` undoes the change.

    HDF5 calls the draft in the middle of its work, where an exception may end the program. So HDF5 works on its own
    thread, where no signal handler runs.
    """
    import h5py

    def work() -> None:
        with h5py.File(draft, mode, **options) as file:
            write(file)

    with Draft(path) as draft:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(work).result()
        return draft.commit(log)


def _has_numbers(dtype: np.dtype[Any] | None) -> bool:
    """Return whether HDF5 has such a type."""
    assert dtype is not None
    if dtype.fields:
        return all(_has_numbers(field[0].base) for field in dtype.fields.values())
    return dtype.kind in "biufc"


def _varying(column: Column) -> Any:
    import h5py

    if column.kind == "text":
        return h5py.string_dtype()
    return h5py.vlen_dtype(np.dtype(np.uint8) if column.kind == "bytes" else column.dtype)


def _write_varying(data: Any, first: int, values: list[Any]) -> None:
    """Write arrays or bytes from row `first` on; ``data[first:] = rows`` fails if all have one length."""
    import h5py

    rows = np.empty(len(values), data.dtype)
    arrays = (np.frombuffer(value, np.uint8) if isinstance(value, bytes) else value for value in values)
    rows[:] = [np.ascontiguousarray(array) for array in arrays]
    place = data.id.get_space()
    place.select_hyperslab((first,), rows.shape)
    data.id.write(h5py.h5s.create_simple(rows.shape), place, rows)


def _name_classes(file: Any, class_names: list[str]) -> None:
    if len(class_names) > MAX_NAMES_IN_ATTRIBUTE:
        file.create_dataset("class_names", data=json.dumps(class_names), track_times=False)
    elif class_names:
        file.attrs["class_names"] = class_names
