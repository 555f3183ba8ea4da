"""Columns of Parquet files."""

from __future__ import annotations

import datetime
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import SampleReadError
from batchup_ng.testing.accessors import Made
from tests.messages import raises

from .stored_contract import StoredContract

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")

ROWS = np.arange(9 * 6, dtype=np.float32).reshape(9, 6)
LISTS = [np.arange(k % 4, dtype=np.int64) + 10 * k for k in range(9)]


class ParquetContract(StoredContract):
    """The contract for one column of some files."""

    library = "pyarrow", "parquet"

    def opened(self, like: Any) -> Any:
        return bu.ParquetRows(like.paths, like.column)


class TestArraysInSeveralFiles(ParquetContract):
    """Lists of a fixed length in two files, whose row groups have 2, 2, 1 and 3, 1 rows."""

    def make(self, tmp_path: Path) -> Made:
        for name, rows, group in (("0.parquet", ROWS[:5], 2), ("1.parquet", ROWS[5:], 3)):
            lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 6)
            pq.write_table(pa.table({"x": lists}), tmp_path / name, row_group_size=group)
        return bu.ParquetRows(f"{tmp_path}/*.parquet", "x"), list(ROWS)


class TestListsOfAnyLength(ParquetContract):
    """Rows that differ in shape."""

    def make(self, tmp_path: Path) -> Made:
        pq.write_table(pa.table({"x": list(map(list, LISTS))}), tmp_path / "x.parquet", row_group_size=4)
        return bu.ParquetRows(tmp_path / "x.parquet", "x"), LISTS


def test_what_pandas_writes_is_read(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas", reason="needs pandas")
    frame = pd.DataFrame({
        "label": pd.Categorical(["cat", "dog", "cat"]), "at": pd.to_datetime(["2020-01-01", None, "2021-02-03"]),
        "score": [0.5, np.nan, 2], "count": pd.array([1, None, 3], "Int32"),
    }, index=["a", "b", "c"])  # fmt: skip
    frame.to_parquet(tmp_path / "x.parquet")
    columns = bu.ParquetRows.columns(tmp_path / "x.parquet", ["label", "at", "score", "__index_level_0__"])
    assert columns["label"][::-1] == ["cat", "dog", "cat"]
    np.testing.assert_array_equal(columns["at"][:], frame["at"].to_numpy())
    np.testing.assert_array_equal(columns["score"][:], frame["score"].to_numpy())
    assert columns["__index_level_0__"][:] == ["a", "b", "c"]
    assert bu.ParquetRows(tmp_path / "x.parquet", "count", fill=0)[:].tolist() == [1, 0, 3]


def test_open_files_take_no_descriptors(tmp_path: Path) -> None:
    for number in range(20):
        pq.write_table(pa.table({"x": [number]}), tmp_path / f"{number:02}.parquet")
    before = len(os.listdir("/proc/self/fd"))
    columns = bu.ParquetRows.columns(f"{tmp_path}/*.parquet")
    assert columns["x"][::-1].tolist() == list(range(20))[::-1]
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("n", [200, 40_000])
def test_pages_whose_checksums_are_wrong_are_an_error_in_every_pool(
    tmp_path: Path, pools: list[Any], n: int, version: str
) -> None:
    path = tmp_path / "x.parquet"
    form = {"use_dictionary": False, "compression": "none", "data_page_version": version}
    x = np.arange(n) + 0x0123456789
    pq.write_table(pa.table({"x": x}), path, write_page_checksum=True, **form)
    assert bu.ParquetRows(path, "x")[:].tolist() == x.tolist()
    raw = path.read_bytes()
    at = raw.index(x[100:101].tobytes())
    path.write_bytes(raw[:at] + b"\1" + raw[at + 1 :])
    source = bu.ArrayDataSource([bu.ParquetRows(path, "x")])
    for pool in [None, *pools]:
        made = source if pool is None else pool.parallel_data_source(source)
        with raises(bu.BatchError):
            next(made.batch_iterator(n))


@pytest.mark.parametrize("form", ["flat", "list", "struct", "lists of structs"])
def test_times_that_nanoseconds_cannot_hold_are_an_error(tmp_path: Path, form: str) -> None:
    years = [1600, 1700, 1969, 2020, None, 2250, 2500]
    for picked in (years, years[1:6]):
        times = [None if year is None else datetime.datetime(year, 3, 4, 5, 6, 7, 891) for year in picked]
        stored: Any = pa.array(times, pa.timestamp("us"))
        if form != "flat":
            stored = [{"t": time} for time in times] if form == "struct" else [[time] * 2 for time in times]
            stored = [[{"t": time}] for time in times] if form == "lists of structs" else stored
        table = pa.table({"t": stored, "y": picked})
        pq.write_table(table, tmp_path / "x.parquet", use_deprecated_int96_timestamps=True)
        rows = bu.ParquetRows(tmp_path / "x.parquet", "t")
        if picked is years:
            with raises(SampleReadError):
                rows[2]
        elif form == "flat":
            np.testing.assert_array_equal(rows[:], np.array(times, "datetime64[ns]"))
        else:
            assert len(rows[:]) == 5
        assert bu.ParquetRows(tmp_path / "x.parquet", "y", fill=0)[:].tolist() == [year or 0 for year in picked]


def test_names_of_classes_of_hugging_face_are_kept(tmp_path: Path) -> None:
    names = ["cat", "dog"]
    told = {"y": {"names": names, "_type": "ClassLabel"}, "x": {"dtype": "int64", "_type": "Value"}}
    told |= {"many": {"feature": told["y"], "_type": "List"}, "bad": {"names": 3, "_type": "ClassLabel"}}
    table = pa.table({"x": [5, 6], "y": [1, 0], "many": [[0, 1], [1, 1]], "bad": [1, 2]})
    schema = table.schema.with_metadata({"huggingface": json.dumps({"info": {"features": told}})})
    pq.write_table(table.cast(schema), tmp_path / "x.parquet")
    columns = bu.ParquetRows.columns(tmp_path / "x.parquet")
    assert {name: column.class_names for name, column in columns.items()} == {
        "x": (), "y": ("cat", "dog"), "many": ("cat", "dog"), "bad": (),
    }  # fmt: skip
    assert pickle.loads(pickle.dumps(columns["y"])).class_names == ("cat", "dog")
    del columns["many"], columns["bad"]
    bu.convert(bu.ArrayDataSource(columns), tmp_path / "y.tar", pool="serial", progress=False)
    assert json.loads((tmp_path / "y-class_names.json").read_text()) == names
