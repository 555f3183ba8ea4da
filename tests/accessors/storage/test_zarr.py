"""Arrays of Zarr stores."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, SampleReadError
from batchup_ng.testing.accessors import Made
from tests.messages import raises

from .damaged import damaged
from .stored_contract import StoredContract

zarr = pytest.importorskip("zarr", minversion="3.0", reason="needs zarr 3")

ROWS = np.arange(7 * 6, dtype=np.int32).reshape(7, 3, 2)


def write(path: Path, array: np.ndarray, version: int = 2, **options: Any) -> None:
    """Write an array in chunks of two rows, and of half of the second axis."""
    chunks = (2, *(-(-size // 2) for size in array.shape[1:]))
    form = {"shape": array.shape, "chunks": chunks, "dtype": array.dtype, "zarr_format": version, **options}
    zarr.create_array(str(path), **form)[:] = array


class ZarrContract(StoredContract):
    """The contract for an array that is the store."""

    library = "zarr", "zarr"
    options: ClassVar[dict[str, Any]] = {}

    def make(self, tmp_path: Path) -> Made:
        write(tmp_path / "x.zarr", ROWS, **self.options)
        return bu.ZarrRows(tmp_path / "x.zarr"), list(ROWS)

    def opened(self, like: Any) -> Any:
        return bu.ZarrRows(like.path, like.array or None)


class TestFormat2(ZarrContract):
    """A folder of format 2."""


class TestShards(ZarrContract):
    """A folder of format 3, whose chunks lie in shards."""

    options: ClassVar[dict[str, Any]] = {"version": 3, "shards": (4, 4, 2)}


class TestArrayOfAZip(ZarrContract):
    """A group in a zip file."""

    def make(self, tmp_path: Path) -> Made:
        write(tmp_path / "x.zarr" / "train" / "images", ROWS)
        for group in ("", "train"):
            (tmp_path / "x.zarr" / group / ".zgroup").write_text('{"zarr_format": 2}')
        with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
            for path in sorted((tmp_path / "x.zarr").rglob("*")):
                archive.write(path, path.relative_to(tmp_path / "x.zarr"))
        return bu.ZarrRows(tmp_path / "x.zip", "train/images"), list(ROWS)


@pytest.mark.parametrize("coded", [{"compressors": None}, {"order": "F"}, {"version": 3}], ids=str)
def test_what_zarr_writes_is_read(coded: dict[str, Any], tmp_path: Path) -> None:
    for dtype in ("u1", ">f8", "M8[s]", "?", *([] if "version" in coded else ["<U3"])):
        write(tmp_path / dtype, ROWS.astype(dtype), **coded)
        rows = bu.ZarrRows(tmp_path / dtype)
        np.testing.assert_array_equal(rows[[6, 0, 6]], ROWS.astype(dtype)[[6, 0, 6]])
        assert rows.natural_block == 2


def test_a_store_by_the_letter_of_format_2_is_read(tmp_path: Path) -> None:
    """Layout: "Zarr storage specification version 2", sections Metadata, Chunks, Logical storage paths."""
    described = {
        "zarr_format": 2, "shape": [5, 3], "chunks": [2, 2], "dtype": ">i4", "compressor": {"id": "zlib", "level": 1},
        "fill_value": 9, "order": "F", "filters": None, "dimension_separator": "/",
    }  # fmt: skip
    (tmp_path / ".zarray").write_text(json.dumps(described))
    array = np.arange(24, dtype=">i4").reshape(6, 4)  # chunks at the edges are stored whole
    for i in range(3):
        (tmp_path / str(i)).mkdir()
        for j in range(2):
            chunk = array[2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
            (tmp_path / str(i) / str(j)).write_bytes(zlib.compress(chunk.tobytes("F")))
    (tmp_path / "1" / "0").unlink()
    expected = array[:5, :3].copy()
    expected[2:4, :2] = 9
    np.testing.assert_array_equal(bu.ZarrRows(tmp_path)[:], expected)


def test_the_only_array_of_a_group_needs_no_name_and_others_are_listed(tmp_path: Path) -> None:
    group = zarr.open_group(str(tmp_path / "g"), mode="w")
    write(tmp_path / "g" / "x", ROWS, 3)
    np.testing.assert_array_equal(bu.ZarrRows(tmp_path / "g")[2:], ROWS[2:])
    write(tmp_path / "g" / "y", ROWS[:, 0], 3)
    group.create_group("z")
    for name in (None, "c", "z", "../g/x", "x/y"):
        with raises(ArgumentError):
            bu.ZarrRows(tmp_path / "g", name)
    with raises(ArgumentError):
        bu.ZarrRows(tmp_path / "g" / "x", "x")


def test_the_arrays_of_a_group_are_columns_of_batches(tmp_path: Path) -> None:
    zarr.open_group(str(tmp_path / "g"), mode="w")
    for name, array in {"x": ROWS, "y": ROWS[:, 0], "z": ROWS[:3]}.items():
        write(tmp_path / "g" / name, array, 3)
    columns = bu.ZarrRows.columns(tmp_path / "g", ["y", "x"], cache="2kB")
    assert [column._cache.limit for column in columns.values()] == [2000, 2000]
    (batch,) = bu.ArrayDataSource(columns).batch_iterator(7)
    np.testing.assert_array_equal(batch["x"], ROWS)
    np.testing.assert_array_equal(batch["y"], ROWS[:, 0])
    with raises(ArgumentError):
        bu.ZarrRows.columns(tmp_path / "g")


def test_a_cache_of_rows_knows_the_files_of_chunks(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    write(tmp_path / "x", ROWS)
    for more in (0, 5):
        zarr.open_array(str(tmp_path / "x"), mode="r+")[:] = ROWS + more
        for chunk in (tmp_path / "x").glob("[0-9]*"):
            os.utime(chunk, ns=(more, more))  # the clock of a file system may be coarse
        np.testing.assert_array_equal(bu.Cached(bu.ZarrRows(tmp_path / "x"), tmp_path / "cache")[:], ROWS + more)


def described(path: Path, **changes: Any) -> Path:
    """Write an array of format 2 whose metadata says something else."""
    write(path, ROWS)
    metadata = json.loads((path / ".zarray").read_text())
    (path / ".zarray").write_text(json.dumps({**metadata, **changes}))
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "|O", "filters": [{"id": "vlen-utf8"}], "fill_value": ""},
        {"filters": [{"id": "pickle"}]},
        {"compressor": {"id": "pickle"}},
        {"shape": [], "chunks": []},
    ],
    ids=str,
)
def test_what_is_no_rows_or_a_pickle_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    with raises(SampleReadError):
        bu.ZarrRows(described(tmp_path / "x", **changes))


def test_s1_zarr_2_which_would_load_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "x", ROWS)
    monkeypatch.setattr(zarr, "__version__", "2.18.7")
    with raises(ImportError):
        bu.ZarrRows(tmp_path / "x")
    with raises(ImportError):
        bu.convert([ROWS], tmp_path / "y.zarr", progress=False)


def test_s4_a_chunk_that_is_claimed_to_be_large_is_refused(tmp_path: Path) -> None:
    much = 1 << 40
    for shape, chunks in (([much, 3, 2], [much // 2, 2, 1]), ([7, much, 2], [2, 1, 1]), ([8, 3, 2], [much, 3, 2])):
        path = described(tmp_path / str(shape[0]), shape=shape, chunks=chunks)
        with raises(SampleReadError):
            bu.ZarrRows(path)
    write(tmp_path / "x", ROWS)
    assert bu.ZarrRows(tmp_path / "x", cache=0)[6].tolist() == ROWS[6].tolist()


def test_s4_a_file_in_a_zip_that_decodes_to_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchup_ng.accessors.storage.chunks.LARGEST_CHUNK_BYTES", 1 << 10)
    write(tmp_path / "x", ROWS)
    for name, coding in {"x.zip": zipfile.ZIP_DEFLATED, "stored.zip": zipfile.ZIP_STORED}.items():
        with zipfile.ZipFile(tmp_path / name, "w", coding) as archive:
            archive.write(tmp_path / "x" / ".zarray", ".zarray")
            archive.writestr("0.0.0", bytes(2000))
    for make in (bu.ZarrRows, bu.ZarrRows.columns):
        with raises(SampleReadError):
            make(tmp_path / "x.zip", cache=0)
    assert len(bu.ZarrRows(tmp_path / "stored.zip", cache=0)) == 7


def test_s10_whatever_a_store_holds_is_rows_or_our_error(tmp_path: Path, in_full: bool) -> None:
    for name, options in (("2", {}), ("3", {"version": 3}), ("3 sharded", {"version": 3, "shards": (4, 4, 2)})):
        write(tmp_path / "whole" / name, ROWS, **options)
    tries = 2000 if in_full else 24
    assert damaged(tmp_path, tries, "zarr", "some_rows(bu.ZarrRows(path))") == (tries, [])


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe{}", b"[]", b"null", b"1", b"[" * 5000, b'{"zarr_format":3,"node_type":"array"}']
)
@pytest.mark.parametrize(("form", "name"), [(2, ".zgroup"), (2, "a/.zarray"), (3, "zarr.json"), (3, "a/zarr.json")])
def test_damaged_metadata_are_an_error_that_names_the_store(
    tmp_path: Path, form: Literal[2, 3], name: str, content: bytes
) -> None:
    group = zarr.open_group(str(tmp_path / "x.zarr"), mode="w", zarr_format=form)
    for array in ("a", "b"):
        group.create_array(array, data=np.arange(10))
    (tmp_path / "x.zarr" / name).write_bytes(content)
    for read in (lambda path: bu.ZarrRows(path)[:], lambda path: bu.ZarrRows(path, "a")[:], bu.from_file):
        with pytest.raises((SampleReadError, ArgumentError)) as caught:
            read(tmp_path / "x.zarr")
        assert str(tmp_path / "x.zarr") in str(caught.value)
    if name.startswith("a"):
        assert bu.ZarrRows(tmp_path / "x.zarr", "b")[:].tolist() == list(range(10))
