"""Writes Zarr groups, format 3."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..accessors.storage.zarr import zarr_library
from .base import CHUNK_BYTES, PartsWriter, dividing, synchronised
from .columns import Column, Values

FILES_SYNCHRONISED_AT_ONCE = 16
"""Files to bring to the disk at once: file systems then do so in one go, while each alone takes a while."""


class ZarrWriter(PartsWriter):
    """A group with an array for each column. Each chunk is a file, which a kill leaves as it was or complete."""

    ending = ".zarr"
    can_hold = "numbers and arrays of them, of one shape"
    options = ("chunk_rows",)
    needs = ("zarr", "zarr")

    def check(self) -> None:
        zarr_library()

    @classmethod
    def holds(cls, column: Column) -> bool:
        dtype = column.dtype
        return column.kind == "fixed" and dtype is not None and dtype.kind in "biufc" and dtype.char not in "gG"

    def begin(self) -> None:
        import zarr

        group = zarr.open_group(str(self.path), mode="w", zarr_format=3)
        if self.class_names:
            group.attrs["class_names"] = self.class_names
        for column in self.columns:
            rows = min(self.rows, CHUNK_BYTES // max(1, column.row_bytes))
            rows = self.given.get("chunk_rows") or dividing(self.part_rows, rows)
            shape = (self.rows, *column.shape)
            group.create_array(column.name, shape=shape, chunks=(rows, *column.shape), dtype=column.dtype)
        self._group = group

    def resume(self, place: Any) -> None:
        import zarr

        self._done = self.row
        for path in self.path.rglob("*.partial"):  # a chunk that Zarr was about to rename
            path.unlink()
        self._group = zarr.open_group(str(self.path), mode="r+")

    def write_part(self, values: Values) -> Any:
        for column in self.columns:
            array: Any = self._group[column.name]
            array[self._done : self.row] = values[column.name]
            chunks = range(self._done // array.chunks[0], -(-self.row // array.chunks[0]))
            self._synchronise(column, chunks)

    def finish(self) -> None:
        for column in self.columns:
            array: Any = self._group[column.name]
            if array.shape[0] > self.row:  # samples were left out
                array.resize((self.row, *column.shape))
        for path in (self.path, *(self.path / column.name for column in self.columns)):
            synchronised(path / "zarr.json")
            synchronised(path)

    def _synchronise(self, column: Column, chunks: range) -> None:
        folder, zeros = self.path / column.name / "c", ["0"] * len(column.shape)
        paths = (folder.joinpath(str(chunk), *zeros) for chunk in chunks)
        with ThreadPoolExecutor(FILES_SYNCHRONISED_AT_ONCE) as threads:
            list(threads.map(synchronised, [path for path in paths if path.exists()]))  # zeros are not written
