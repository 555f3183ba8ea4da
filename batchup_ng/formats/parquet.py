"""Writes Parquet files.

The metadata of a Parquet file are at its end, so nothing can be appended to the file. Rows between two checkpoints are
an Arrow file. At the end, the Parquet file is made from all of these.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .base import PartsWriter, dividing, synchronised
from .columns import Column, Values

GROUP_BYTES = 1 << 23
"""Bytes of a row group; reading one row decodes its whole group."""


class ParquetWriter(PartsWriter):
    """A list column for arrays, ``binary`` for bytes."""

    ending = ".parquet"
    can_hold = "numbers and arrays of them (not complex, not empty), strings, bytes, 1-D arrays of several lengths"
    options = ("compression", "chunk_rows")
    compressions = ("none", "snappy", "gzip", "zstd", "lz4")
    needs = ("parquet", "pyarrow")

    @classmethod
    def holds(cls, column: Column) -> bool:
        if column.kind in ("bytes", "text"):
            return True
        numbers = column.dtype is not None and column.dtype.kind in "biuf" and column.dtype.itemsize <= 8
        fixed = column.kind == "fixed" and 0 not in column.shape
        return numbers and (fixed or (column.kind == "ragged" and len(column.shape) == 1))

    def begin(self) -> None:
        pass

    def resume(self, place: Any) -> None:
        self._done = self.row
        for path, first in self._parts():
            if first >= self.row:
                path.unlink()

    def write_part(self, values: Values) -> Any:
        import pyarrow

        table = pyarrow.table({each.name: _arrow(each, values[each.name]) for each in self.columns})
        path = self.work / f"part-{self._done}.arrow"
        with pyarrow.ipc.new_file(str(path), table.schema) as file:
            file.write_table(table)
        synchronised(path)

    def finish(self) -> None:
        import pyarrow
        from pyarrow import parquet

        writer = None
        for path, _ in self._parts():
            with pyarrow.memory_map(str(path)) as file:
                table = pyarrow.ipc.open_file(file).read_all()
                if writer is None:
                    names = {"class_names": json.dumps(self.class_names)} if self.class_names else None
                    schema = table.schema.with_metadata(names)
                    group = self.given.get("chunk_rows")
                    group = group or dividing(self.part_rows, GROUP_BYTES * len(table) // max(1, table.nbytes))
                    codec = self.given.get("compression", "snappy")
                    writer = parquet.ParquetWriter(str(self.path), schema, compression=codec)
                writer.write_table(table.replace_schema_metadata(schema.metadata), group)
                del table
        assert writer is not None
        writer.close()
        synchronised(self.path)

    def _parts(self) -> Iterator[tuple[Path, int]]:
        """Return the files of the parts in order, each with its first row."""
        firsts = {int(path.stem.removeprefix("part-")): path for path in self.work.glob("part-*.arrow")}
        return ((firsts[first], first) for first in sorted(firsts))


def _arrow(column: Column, values: Any) -> Any:
    """Return the values of a column as an Arrow array."""
    import pyarrow

    if column.kind == "fixed":
        made = pyarrow.array(np.ascontiguousarray(values).reshape(-1))
        for size in reversed(column.shape):
            made = pyarrow.FixedSizeListArray.from_arrays(made, size)
        return made
    if column.kind == "ragged":
        offsets = np.cumsum([0, *map(len, values)], dtype=np.int32)
        return pyarrow.ListArray.from_arrays(offsets, pyarrow.array(np.concatenate(values)))
    return pyarrow.array(values, pyarrow.binary() if column.kind == "bytes" else pyarrow.string())
