"""Arrays that numpy.save and numpy.savez wrote."""

from __future__ import annotations

import os
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.accessors.storage import npy
from batchup_ng.errors import ArgumentError, SampleReadError
from batchup_ng.testing.accessors import Made
from tests.messages import raises, warns

from .damaged import damaged
from .stored_contract import StoredContract

ROWS = np.arange(7 * 6, dtype=np.int32).reshape(7, 3, 2)


class TestNpy(StoredContract):
    """A file of one array."""

    array = ROWS

    def make(self, tmp_path: Path) -> Made:
        np.save(tmp_path / "x.npy", self.array)
        return bu.NpyRows(tmp_path / "x.npy"), list(self.array)


class TestFortranOrder(TestNpy):
    """Columns first."""

    array = np.asfortranarray(ROWS)


class TestOtherByteOrder(TestNpy):
    """Numbers as other machines have them."""

    array = ROWS.astype(">f8")


class TestNumbers(TestNpy):
    """Rows that are numbers."""

    array = np.arange(5.0)


class TestNpz(StoredContract):
    """A file of several arrays."""

    def make(self, tmp_path: Path) -> Made:
        np.savez(tmp_path / "x.npz", labels=np.arange(7), images=ROWS)
        return bu.NpzRows(tmp_path / "x.npz", "images"), list(ROWS)

    def opened(self, like: Any) -> Any:
        return bu.NpzRows(like.paths[0], like.name)


def test_headers_of_all_versions_are_read(tmp_path: Path) -> None:
    for version in [(1, 0), (2, 0), (3, 0)]:
        with open(tmp_path / "x.npy", "wb") as file:
            np.lib.format.write_array(file, ROWS, version)
        np.testing.assert_array_equal(bu.NpyRows(tmp_path / "x.npy")[:], ROWS)


def test_names_of_fields_may_be_in_any_script(tmp_path: Path) -> None:
    array = np.array([(1, 2), (3, 4)], [("日本\\", "i4"), ("ä'", "f4")])
    with warns(UserWarning):
        np.save(tmp_path / "x.npy", array)
    rows = bu.NpyRows(tmp_path / "x.npy")
    assert rows.dtype == array.dtype
    assert rows[:].tolist() == array.tolist()


def test_a_version_that_is_not_known_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ROWS)
    content = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(content[:6] + b"\x04" + content[7:])
    with raises(SampleReadError):
        bu.NpyRows(tmp_path / "x.npy")


def test_the_folder_above_is_that_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real/deep")
    np.save(tmp_path / "real" / "x.npy", ROWS)
    np.save(tmp_path / "x.npy", ROWS + 1)
    monkeypatch.chdir(tmp_path)
    for path in ("link/../x.npy", tmp_path / "link/../x.npy"):
        rows = bu.NpyRows(path)
        np.testing.assert_array_equal(rows[:], ROWS)
        assert os.path.isabs(rows.paths[0])
    assert bu.NpyRows("./x.npy").paths == (str(tmp_path / "x.npy"),)


def test_a_slice_takes_no_index_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "x.npy", ROWS)
    rows = bu.NpyRows(tmp_path / "x.npy")
    monkeypatch.setattr(npy, "fill_rows", None)
    np.testing.assert_array_equal(rows[5:1:-2], ROWS[5:1:-2])


def test_rows_without_bytes_and_no_rows_are_read(tmp_path: Path) -> None:
    for array in (np.zeros((0, 3)), np.zeros((4, 0))):
        np.save(tmp_path / "x.npy", array)
        rows = bu.NpyRows(tmp_path / "x.npy")
        assert rows.shape == rows[:].shape == array.shape


def test_a_single_value_is_no_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.float64(3))
    with raises(SampleReadError):
        bu.NpyRows(tmp_path / "x.npy")


def test_the_only_array_of_an_archive_needs_no_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", ROWS)
    np.testing.assert_array_equal(bu.NpzRows(tmp_path / "x.npz")[2:], ROWS[2:])


def test_a_name_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=ROWS, b=ROWS)
    for name in (None, "c"):
        with raises(ArgumentError):
            bu.NpzRows(tmp_path / "x.npz", name)


def test_columns_are_those_of_batches(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=ROWS, b=np.arange(7), c=np.arange(3))
    with raises(ArgumentError):
        bu.NpzRows.columns(tmp_path / "x.npz")
    columns = bu.NpzRows.columns(tmp_path / "x.npz", ["a", "b"])
    (batch,) = bu.ArrayDataSource(columns).batch_iterator(7)
    np.testing.assert_array_equal(batch["a"], ROWS)
    np.savez(tmp_path / "y.npz", a=ROWS, b=np.arange(7))
    assert list(bu.NpzRows.columns(tmp_path / "y.npz")) == ["a", "b"]
    (tmp_path / "y.npz").write_bytes(b"no archive")
    with raises(SampleReadError):
        bu.NpzRows.columns(tmp_path / "y.npz")


def test_a_compressed_array_is_refused_with_what_to_do(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "x.npz", a=ROWS)
    with raises(SampleReadError):
        bu.NpzRows(tmp_path / "x.npz")


def test_the_directory_of_an_archive_is_read_once_for_all_its_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Any] = []
    infolist = zipfile.ZipFile.infolist
    monkeypatch.setattr(zipfile.ZipFile, "infolist", lambda self: reads.append(self.filename) or infolist(self))
    np.savez(tmp_path / "x.npz", **{f"c{n:03}": np.full(3, n) for n in range(300)})
    (tmp_path / "y.npz").write_bytes((tmp_path / "x.npz").read_bytes())
    for name in ("x.npz", "y.npz"):
        columns = bu.NpzRows.columns(tmp_path / name)
        assert [int(rows[1]) for rows in columns.values()] == list(range(300))
    assert len(reads) == 2
    np.savez(tmp_path / "y.npz", a=np.arange(4))
    assert bu.NpzRows(tmp_path / "y.npz")[:].tolist() == [0, 1, 2, 3]


def header(text: bytes, length: int | None = None) -> bytes:
    """Return the beginning of a file, version 2."""
    return b"\x93NUMPY\x02\x00" + (len(text) if length is None else length).to_bytes(4, "little") + text


@pytest.mark.parametrize(
    "content",
    [
        header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,), }\n"),
        header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (4, 1099511627776, 1099511627776), }\n"),
        header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (-4,), }\n"),
        header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (4,), }\n", (1 << 32) - 1),
        header(b"(" * 9000),
        header(b"{'descr': '|V0', 'fortran_order': False, 'shape': (10000000000000,), }\n"),
        header(b"{'descr': [('a', '|V0')], 'fortran_order': False, 'shape': (3, 10000000000000), }\n"),
    ],
    ids=["8 TiB", "more than counts", "negative", "4 GiB of header", "deep", "no bytes", "no bytes in fields"],
)
def test_s4_a_header_that_claims_too_much_is_refused_before_memory_is_taken(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    tracemalloc.start()
    with pytest.raises(SampleReadError):
        bu.NpyRows(tmp_path / "x.npy")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 64 << 20


def test_s10_whatever_a_file_holds_is_rows_or_our_error(tmp_path: Path, in_full: bool) -> None:
    (tmp_path / "whole").mkdir()
    np.save(tmp_path / "whole" / "x.npy", ROWS[:2])
    np.savez(tmp_path / "whole" / "x.npz", ROWS[:2])
    tries, code = 2000 if in_full else 40, "some_rows((bu.NpyRows if path.endswith('y') else bu.NpzRows)(path))"
    assert damaged(tmp_path, tries, "numpy", code) == (tries, [])


def test_rows_that_do_not_begin_where_numbers_may_are_read_without_a_copy_of_all(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", odd=np.arange(1e6).reshape(1000, 1000))
    rows = bu.NpzRows(tmp_path / "x.npz")
    assert not rows._handle().flags.aligned
    tracemalloc.start()
    assert rows[np.array([7, 3])].tolist() == [list(range(7000, 8000)), list(range(3000, 4000))]
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1 << 20


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_the_last_array_of_a_name_counts_as_for_numpy(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.zeros(2), b=np.arange(3.0))
    for number in (1, 2):
        with zipfile.ZipFile(tmp_path / "x.npz", "a") as archive, archive.open("a.npy", "w") as file:
            np.lib.format.write_array(file, np.full(2 + number, float(number)))  # type: ignore[no-untyped-call]
        with np.load(tmp_path / "x.npz") as loaded:
            for name in ("a", "b"):
                np.testing.assert_array_equal(bu.NpzRows(tmp_path / "x.npz", name)[:], loaded[name])
    assert bu.NpzRows(tmp_path / "x.npz", "a")[:].tolist() == [2.0] * 4
    assert list(bu.NpzRows.columns(tmp_path / "x.npz", ["b"])) == ["b"]
