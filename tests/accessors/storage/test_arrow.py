"""Columns of Arrow files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.accessors.storage.arrow import LARGE_ROW_BYTES
from batchup_ng.errors import SampleReadError
from batchup_ng.testing.accessors import Made
from tests.messages import raises

from .stored_contract import StoredContract

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")

ROWS = np.arange(9 * 6, dtype=np.float32).reshape(9, 6)
LISTS = [np.arange(k % 4, dtype=np.int64) + 10 * k for k in range(9)]


def write(path: Path, table: Any, compression: str | None = None, stream: bool = False, rows: int = 4) -> Path:
    """Write a table in batches of so many rows."""
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(path, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


class ArrowContract(StoredContract):
    """The contract for one column of a file."""

    library = "pyarrow", "parquet"
    options: ClassVar[dict[str, Any]] = {}

    def opened(self, like: Any) -> Any:
        return bu.ArrowRows(like.paths, like.column)


class TestMappedArrays(ArrowContract):
    """Lists of a fixed length, not compressed."""

    def make(self, tmp_path: Path) -> Made:
        table = pa.table({"other": range(9), "x": pa.FixedSizeListArray.from_arrays(pa.array(ROWS.ravel()), 6)})
        return bu.ArrowRows(write(tmp_path / "x.arrow", table, **self.options), "x"), list(ROWS)


class TestDecodedArrays(TestMappedArrays):
    """Lists of a fixed length, compressed."""

    options: ClassVar[dict[str, Any]] = {"compression": "zstd"}


class TestListsInAStream(ArrowContract):
    """Rows that differ in shape, in a stream."""

    def make(self, tmp_path: Path) -> Made:
        table = pa.table({"x": list(map(list, LISTS))})
        return bu.ArrowRows(write(tmp_path / "x.arrow", table, stream=True), "x"), LISTS


def test_arrays_that_are_not_compressed_are_mapped(tmp_path: Path) -> None:
    table = pa.table({"x": ROWS[:, 0], "s": ["abc"] * 9})
    for rows in (bu.ArrowRows(write(tmp_path / "x.arrow", table), name) for name in ("x", "s")):
        assert len(rows[:]) == 9
        assert rows.natural_block > 4  # not a batch of the file: nothing is decoded whole
        assert rows.natural_window > 16
    assert bu.ArrowRows(write(tmp_path / "y.arrow", table, "zstd"), "s").natural_block == 4


@pytest.mark.parametrize("n", [1, 3, LARGE_ROW_BYTES])
def test_rows_in_several_maps_are_found_in_any_order(n: int, tmp_path: Path) -> None:
    rows = np.arange(18 * n, dtype=np.int16).reshape(18, n)
    for name, some in (("1", rows[:9]), ("2", rows[9:9]), ("3", rows[9:])):
        write(tmp_path / name, pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(some.ravel()), n)}))
    found = bu.ArrowRows(f"{tmp_path}/*", "x")
    assert not found._decodes
    for chosen in ([17, 0, 9, 8, 3, 3], range(2, 7), range(18), range(17, -1, -1), [8, 9], [12]):
        np.testing.assert_array_equal(found[list(chosen)], rows[list(chosen)])


def test_a_compressed_stream_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = write(tmp_path / "x.arrow", pa.table({"x": ROWS[:, 0]}), "zstd", stream=True)
    with raises(SampleReadError):
        bu.ArrowRows(path, "x")
