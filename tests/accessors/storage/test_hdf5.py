"""Data sets of HDF5 files, written by h5py and by PyTables."""

from __future__ import annotations

import gc
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, SampleReadError
from batchup_ng.testing.accessors import Made, assert_same_rows
from tests.messages import raises

from .stored_contract import StoredContract

h5py = pytest.importorskip("h5py", reason="h5py is not installed")

ROWS = np.arange(8 * 6, dtype=np.int32).reshape(8, 3, 2)
ORDERS: list[Any] = [slice(None), [3, 0, 3, 7], [5], range(1, 6), [7, 6, 2, 3, 4]]


def written(path: Path, array: Any = ROWS, **options: Any) -> Path:
    """Write an array as the data set "x" of a file."""
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=array, **options)
    return path


def check(rows: Any, expected: np.ndarray) -> None:
    """Assert that an accessor gives rows, in any order."""
    assert rows.shape == expected.shape
    assert rows.dtype == expected.dtype
    for order in ORDERS:
        chosen = [row for row in np.arange(len(expected))[order] if row < len(expected)] if len(expected) < 8 else order
        np.testing.assert_array_equal(rows[chosen], expected[chosen])


class TestContiguous(StoredContract):
    """A memory map."""

    library = ("h5py", "hdf5")
    options: dict[str, Any] = {}  # noqa: RUF012  # read alone

    def make(self, tmp_path: Path) -> Made:
        return bu.Hdf5Rows(written(tmp_path / "x.h5", **self.options), "x"), list(ROWS)


class TestCompressed(TestContiguous):
    """Chunks that are decoded."""

    options = {"chunks": (3, 3, 2), "compression": "gzip"}  # noqa: RUF012  # read alone

    def test_spawned_processes_give_the_rows(self, made: Made, source: Any) -> None:
        self.test_every_way_to_start_a_process_gives_the_rows(made, source, "spawn")  # in the others only --thorough


class TestCompressedRows(TestContiguous):
    """Rows that are decoded one by one."""

    options = {"chunks": (1, 3, 2), "compression": "gzip"}  # noqa: RUF012  # read alone


class TestValues(StoredContract):
    """Arrays that differ in length."""

    library = ("h5py", "hdf5")

    def make(self, tmp_path: Path) -> Made:
        values = [np.arange(n, dtype=np.int16) for n in (3, 1, 4, 0, 5)]
        with h5py.File(tmp_path / "x.h5", "w") as file:
            data = file.create_dataset("x", (5,), h5py.vlen_dtype(np.int16))
            for row, value in enumerate(values):
                data[row] = value
        return bu.Hdf5Values(tmp_path / "x.h5", "x"), values


@pytest.mark.parametrize(
    "options",
    [
        {"chunks": (3, 3, 2)},
        {"chunks": (1, 3, 2)},
        {"chunks": (8, 3, 2)},
        {"chunks": (3, 2, 1)},
        {"chunks": (3, 2, 1), "compression": "lzf"},
        {"chunks": (1, 2, 1), "compression": "gzip"},
        {"chunks": (5, 3, 2), "shuffle": True, "fletcher32": True, "compression": "gzip"},
        {"maxshape": (None, None, 2), "chunks": (20, 5, 2)},
    ],
    ids=str,
)
def test_chunks_of_any_form_are_read(options: dict[str, Any], tmp_path: Path) -> None:
    rows = bu.Hdf5Rows(written(tmp_path / "x.h5", **options))
    check(rows, ROWS)
    assert rows.natural_block == options["chunks"][0] or options == {"chunks": ROWS.shape}, "which is one run"
    assert rows.natural_window >= 1


@pytest.mark.parametrize("options", [{}, {"chunks": (3,)}, {"chunks": (3,), "compression": "gzip"}], ids=str)
@pytest.mark.parametrize(
    "array",
    [
        np.arange(8, dtype=">i2"),
        np.arange(8) % 3 == 0,
        np.array([f"name {n}" for n in range(8)], "S10"),
        np.arange(8) * (1 + 2j),
        np.arange(8, dtype=np.float16),
        np.array([(n, [n] * 3, b"x") for n in range(8)], [("k", "<i8"), ("v", ">f4", (3,)), ("s", "S4")]),
    ],
    ids=lambda array: str(array.dtype)[:20],
)
def test_dtypes_are_those_of_h5py(array: np.ndarray, options: dict[str, Any], tmp_path: Path) -> None:
    path = written(tmp_path / "x.h5", array, **options)
    check(bu.Hdf5Rows(path), array)
    for field in array.dtype.names or ():
        check(bu.Hdf5Rows(path, field=field), array[field])


def test_types_that_differ_in_memory_are_converted(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("enum", data=[0, 1, 1, 0], dtype=h5py.enum_dtype({"a": 0, "b": 1}, "i1"))
        file.create_dataset("parts", data=np.arange(12.0).reshape(4, 3), dtype=np.dtype("f8"))
        kind = h5py.h5t.array_create(h5py.h5t.IEEE_F32LE, (3,))
        made = h5py.h5d.create(file.id, b"array", kind, h5py.h5s.create_simple((4,)))
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(12, dtype="f4").reshape(4, 3), kind)
        padded = h5py.h5t.C_S1.copy()
        padded.set_size(4)
        padded.set_strpad(h5py.h5t.STR_SPACEPAD)
        made = h5py.h5d.create(file.id, b"padded", padded, h5py.h5s.create_simple((2,)))
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([b"ab", b"c"], "S4"))
    assert bu.Hdf5Rows(tmp_path / "x.h5", "enum")[[1, 0]].tolist() == [1, 0]
    np.testing.assert_array_equal(bu.Hdf5Rows(tmp_path / "x.h5", "array")[1:], np.arange(3, 12.0).reshape(3, 3))
    assert bu.Hdf5Rows(tmp_path / "x.h5", "padded")[:].tolist() == [b"ab", b"c"]


def test_what_was_never_written_is_the_fill_value(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("whole", (8, 2), "i4", fillvalue=7)
        file.create_dataset("chunks", (8, 2), "i4", fillvalue=7, chunks=(3, 2))[2] = 1
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        made = h5py.h5d.create(file.id, b"compact", h5py.h5t.STD_I32LE, h5py.h5s.create_simple((8, 2)), compact)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(16, dtype=np.int32).reshape(8, 2))
    expected = np.full((8, 2), 7, np.int32)
    check(bu.Hdf5Rows(tmp_path / "x.h5", "whole"), expected)
    expected[2] = 1
    check(bu.Hdf5Rows(tmp_path / "x.h5", "chunks"), expected)
    check(bu.Hdf5Rows(tmp_path / "x.h5", "compact"), np.arange(16, dtype=np.int32).reshape(8, 2))


@pytest.mark.parametrize("options", [{}, {"chunks": (3, 3, 2)}, {"chunks": (3, 3, 2), "compression": "gzip"}], ids=str)
def test_a_block_of_the_users_before_the_data_is_passed_over(options: dict[str, Any], tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w", userblock_size=1024) as file:
        file.create_dataset("x", data=ROWS, **options)
    check(bu.Hdf5Rows(tmp_path / "x.h5"), ROWS)


def test_no_rows_and_rows_without_bytes_are_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("none", (0, 3), "f4", maxshape=(None, 3), chunks=(5, 3), compression="gzip")
        file.create_dataset("empty", (4, 0), "f4", maxshape=(None, None), chunks=(5, 3), compression="gzip")
        file["nothing"] = np.zeros((4, 0))
    for name in ("none", "empty", "nothing"):
        rows = bu.Hdf5Rows(tmp_path / "x.h5", name)
        assert rows[:].shape == rows.shape
        assert rows.natural_window >= 1


@pytest.mark.skipif(not hasattr(h5py.h5d.DatasetID, "chunk_iter"), reason="HDF5 is older than 1.12.3")
def test_rows_that_lie_in_the_file_as_in_memory_are_read_without_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for options in ({}, {"chunks": (3, 3, 2)}, {"chunks": (1, 3, 2)}):
        rows = bu.Hdf5Rows(written(tmp_path / "x.h5", **options))
        with monkeypatch.context() as patch:
            rows[0]
            patch.setitem(sys.modules, "h5py", None)
            check(rows, ROWS)


def test_two_accessors_on_one_file_do_not_close_each_other(tmp_path: Path) -> None:
    path = written(tmp_path / "x.h5", chunks=(1, 3, 2), compression="gzip")
    first, second = bu.Hdf5Rows(path), bu.Hdf5Rows(path)
    first.close()
    check(second, ROWS)
    check(first, ROWS)


def test_a_close_by_another_thread_in_mid_reading_costs_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "texts.h5", "w") as file:
        file["x"] = np.array([f"text {i}" for i in range(len(ROWS))], h5py.string_dtype())
    accessors: list[tuple[Any, Any]] = [(bu.Hdf5Values(tmp_path / "texts.h5"), [f"text {i}" for i in range(len(ROWS))])]
    for rows in (1, 3):
        path = written(tmp_path / f"{rows}.h5", chunks=(rows, 3, 2), compression="gzip")
        accessors.append((bu.Hdf5Rows(path), ROWS))
    for accessor, expected in accessors:
        handle, left = accessor._handle, [3]

        def closed_once_given(
            number: int = 0, handle: Any = handle, left: list[int] = left, accessor: Any = accessor
        ) -> Any:
            given = handle(number)
            if left[0]:
                left[0] -= 1
                accessor.close()
            return given

        monkeypatch.setattr(accessor, "_handle", closed_once_given)
        assert_same_rows(accessor[:], expected)
        assert left == [0]
        accessor.close()


def test_rows_that_are_never_decoded_take_no_memory_for_chunks(tmp_path: Path) -> None:
    array = np.arange(1 << 19)  # so many that they are not kept whole
    for options, holds in (({}, False), ({"chunks": (1000,), "compression": "gzip"}, True)):
        gc.collect()  # of what other tests left, which would go meanwhile
        before = bu.memory()["decoded chunks"]
        rows = bu.Hdf5Rows(written(tmp_path / "x.h5", array, **options), "x")
        pickle.dumps(rows)  # as for a worker
        assert (bu.memory()["decoded chunks"] > before + array.nbytes // 2) == holds


def test_a_cache_without_room_for_a_chunk_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "x.h5", chunks=(5, 3, 2), compression="gzip")
    with raises(ArgumentError):
        bu.Hdf5Rows(path, cache="100B")
    check(bu.Hdf5Rows(path, cache="128B"), ROWS)
    with raises(ArgumentError):
        bu.Hdf5Rows(path, cache="much")


def test_s4_a_chunk_or_row_that_is_claimed_to_be_large_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("row", (4, 3 << 30), "u1", chunks=(1, 1 << 20), compression="gzip")
        file.create_dataset("unwritten", (4, 3 << 30), "u1")
        file.create_dataset("rows", (4, 3), "u1", maxshape=(None, None), chunks=(1 << 20, 3 << 10), compression="gzip")
        file.create_dataset("columns", (4, 3), "u1", maxshape=(4, None), chunks=(1, 3 << 30), compression="gzip")
    for name in ("row", "unwritten", "rows", "columns"):
        with raises(SampleReadError):
            bu.Hdf5Rows(tmp_path / "x.h5", name)
        assert len(bu.Hdf5Rows(tmp_path / "x.h5", name, cache="4GB")) == 4


# Files of others


def test_files_of_pytables_are_read(tmp_path: Path) -> None:
    tables = pytest.importorskip("tables", reason="PyTables is not installed")
    records = np.zeros(8, [("k", "i8"), ("name", "S6"), ("x", "f4", (2, 3)), ("yes", "?")])
    records["k"], records["name"], records["yes"] = np.arange(8), [b"n%d" % n for n in range(8)], np.arange(8) % 3 == 0
    records["x"] = np.arange(48).reshape(8, 2, 3)
    for library in (None, "zlib"):
        path = tmp_path / f"{library}.h5"
        with tables.open_file(path, "w", filters=tables.Filters(1, library) if library else None) as file:
            extended = file.create_earray("/group", "extended", obj=ROWS[:5], createparents=True)
            extended.append(ROWS[5:])
            file.create_carray("/", "chunked", obj=ROWS, chunkshape=(3, 3, 2))
            file.create_array("/", "plain", ROWS)
            file.create_table("/", "table", records)
            ragged = file.create_vlarray("/", "ragged", tables.Int16Atom())
            for n in (2, 0, 3):
                ragged.append(list(range(n)))
        for name in ("group/extended", "chunked", "plain"):
            check(bu.Hdf5Rows(path, name), ROWS)
        table = bu.Hdf5Rows(path, "table")
        assert_same_rows(table[[3, 1]]["x"], records["x"][[3, 1]])
        for field in ("k", "name", "x"):
            check(bu.Hdf5Rows(path, "table", field=field), records[field])
        np.testing.assert_array_equal(bu.Hdf5Rows(path, "table", field="yes")[:], records["yes"])
        assert [each.tolist() for each in bu.Hdf5Values(path, "ragged")[:]] == [[0, 1], [], [0, 1, 2]]


def test_what_is_no_rows_is_passed_over_where_nothing_is_named(tmp_path: Path) -> None:
    tables = pytest.importorskip("tables", reason="PyTables is not installed")
    path, records = tmp_path / "x.h5", np.array([(n, n / 2) for n in range(8)], [("k", "i8"), ("x", "f4")])
    with tables.open_file(path, "w") as file:
        table = file.create_table("/group", "table", records, createparents=True)
        table.cols.k.create_index()
        file.create_array("/", "classes", 10)
    with h5py.File(path) as file:
        assert "group/_i_table/k/sorted" in file, "the index"
    check(bu.Hdf5Rows(path), records)
    assert list(bu.Hdf5Rows.columns(path)) == ["group/table"]
    (batch,) = bu.from_file(path).batch_iterator(8)
    np.testing.assert_array_equal(batch["group/table"]["k"], records["k"])


def test_s1_what_pytables_pickled_stays_bytes(tmp_path: Path) -> None:
    tables = pytest.importorskip("tables", reason="PyTables is not installed")
    with tables.open_file(tmp_path / "x.h5", "w") as file:
        file.create_vlarray("/", "objects", tables.ObjectAtom()).append({"a": 1})
    (row,) = bu.Hdf5Values(tmp_path / "x.h5")[:]
    assert row.dtype == np.uint8
    assert pickle.loads(row.tobytes()) == {"a": 1}
