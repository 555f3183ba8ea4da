"""Data sets of HDF5 files, written by h5py and by PyTables."""

from __future__ import annotations

import ctypes
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError, SampleReadError
from batchup_ng.testing.accessors import Made, assert_same_rows
from tests.extent import thorough

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


def test_a_file_that_was_written_over_is_read_anew(tmp_path: Path) -> None:
    for options in ({}, {"chunks": (3, 3, 2), "compression": "gzip"}):
        other = written(tmp_path / "other.h5", ROWS + 7, **options).read_bytes()
        rows = bu.Hdf5Rows(written(tmp_path / "x.h5", **options))
        check(rows, ROWS)
        (tmp_path / "x.h5").write_bytes(other)
        os.utime(tmp_path / "x.h5", ns=(1, 1))
        with pytest.raises(SampleReadError, match="has changed since"):
            rows[0]
        check(bu.Hdf5Rows(tmp_path / "x.h5"), ROWS + 7)
        rows.close()


# Which data set


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """A file with several data sets."""
    with h5py.File(tmp_path / "several.h5", "w") as file:
        file["images"] = ROWS
        file["group/labels"] = np.arange(8)
        file["names"] = [f"name {n}" for n in range(8)]
    return tmp_path / "several.h5"


def test_a_data_set_is_named_by_its_path(several: Path) -> None:
    for name in ("group/labels", "/group/labels", "group/labels/"):
        assert bu.Hdf5Rows(several, name)[[3, 1]].tolist() == [3, 1]


def test_names_that_are_not_there_are_told_with_those_that_are(several: Path) -> None:
    listed = r"it has 'group/labels' \(8,\), 'images' \(8, 3, 2\), 'names' \(8,\)"
    for name in (None, "image", "group", "", "images/x", "group/", "../images", "gro\0up"):
        for kind in (bu.Hdf5Rows, bu.Hdf5Values):
            with pytest.raises(ArgumentError, match=f"dataset must be one of .*{listed}"):
                kind(several, name)
    with pytest.raises(ArgumentTypeError, match="dataset must be the path of a data set"):
        bu.Hdf5Rows(several, 3)  # type: ignore[arg-type]


def test_each_data_set_is_a_column(several: Path) -> None:
    columns = bu.Hdf5Rows.columns(several)
    assert list(columns) == ["group/labels", "images", "names"]
    batch = next(bu.ArrayDataSource(columns).batch_iterator(3))
    assert batch["group/labels"].tolist() == [0, 1, 2]
    assert batch["names"] == ["name 0", "name 1", "name 2"]
    np.testing.assert_array_equal(batch["images"], ROWS[:3])
    assert list(bu.Hdf5Rows.columns(several, ["images", "/names"])) == ["images", "/names"]


def test_columns_that_differ_in_length_are_refused(several: Path) -> None:
    with h5py.File(several, "a") as file:
        file["more"] = np.arange(9)
    with pytest.raises(
        ArgumentError, match=r"of one length, and 'group/labels' has 8 rows.*'more' has 9 rows.*; name some"
    ):
        bu.Hdf5Rows.columns(several)
    assert len(bu.Hdf5Rows.columns(several, ["images", "names"])) == 2


def test_what_is_no_rows_is_refused_with_what_to_do(several: Path) -> None:
    with h5py.File(several, "a") as file:
        file["number"] = 3.0
        file["empty"] = h5py.Empty("f4")
        file["to"] = np.array([file["images"].ref], h5py.ref_dtype)
        file["table"] = np.array([(1, "a")], [("k", "i4"), ("s", h5py.string_dtype())])
    for name in ("number", "empty"):
        with pytest.raises(SampleReadError, match="holds a single value, or none, not rows"):
            bu.Hdf5Rows(several, name)
    for name in ("names", "to", "table"):
        with pytest.raises(ArgumentError, match="read text and arrays by Hdf5Values, a column of a table by field="):
            bu.Hdf5Rows(several, name)
    for name in ("images", "to", "table"):
        with pytest.raises(ArgumentError, match=r"must have rows that differ in length.*read it by Hdf5Rows"):
            bu.Hdf5Values(several, name)
    assert bu.Hdf5Rows(several, "table", field="k")[:].tolist() == [1]
    for name, field in (("table", "s"), ("table", "x"), ("images", "k")):
        with pytest.raises(ArgumentError, match=rf"field must be one of .* of '/{name}', not '{field}'"):
            bu.Hdf5Rows(several, name, field=field)


def test_text_is_str_and_pictures_are_decoded(several: Path) -> None:
    names = bu.Hdf5Values(several, "names")
    assert names[[3, 1, 3]] == ["name 3", "name 1", "name 3"]
    names.close()
    with h5py.File(several, "a") as file:
        file.create_dataset("broken", (1,), h5py.string_dtype())
        file["broken"][0] = b"\xff\xfe"
    with pytest.raises(SampleReadError, match=r"row 0 of .* cannot be read .UnicodeDecodeError"):
        bu.Hdf5Values(several, "broken")[0]


def test_a_cache_without_room_for_a_chunk_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "x.h5", chunks=(5, 3, 2), compression="gzip")
    with pytest.raises(ArgumentError, match=r"cache must have room for a chunk of .*, 120 bytes, not '100B'"):
        bu.Hdf5Rows(path, cache="100B")
    check(bu.Hdf5Rows(path, cache="128B"), ROWS)
    with pytest.raises(ArgumentError, match="cache must be a size in bytes"):
        bu.Hdf5Rows(path, cache="much")


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


def test_s1_what_pytables_pickled_stays_bytes(tmp_path: Path) -> None:
    tables = pytest.importorskip("tables", reason="PyTables is not installed")
    with tables.open_file(tmp_path / "x.h5", "w") as file:
        file.create_vlarray("/", "objects", tables.ObjectAtom()).append({"a": 1})
    (row,) = bu.Hdf5Values(tmp_path / "x.h5")[:]
    assert row.dtype == np.uint8
    assert pickle.loads(row.tobytes()) == {"a": 1}


def test_a_compression_that_h5py_lacks_is_named_with_what_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = pytest.importorskip("tables", reason="PyTables is not installed")
    monkeypatch.setitem(sys.modules, "hdf5plugin", None)
    with tables.open_file(tmp_path / "x.h5", "w", filters=tables.Filters(1, "blosc")) as file:
        file.create_carray("/", "x", obj=ROWS)
    if h5py.h5z.filter_avail(32001):
        pytest.skip("hdf5plugin was imported already")
    with pytest.raises(ImportError, match=r"compressed by 'blosc' \(filter 32001\).*pip install hdf5plugin"):
        bu.Hdf5Rows(tmp_path / "x.h5")


def test_a_file_that_is_being_written_to_is_refused(tmp_path: Path) -> None:
    program = (
        "import sys, batchup_ng as bu\n"
        "for path in sys.stdin:\n"
        "    try: bu.Hdf5Rows(path.strip())\n"
        "    except bu.SampleReadError as error: print(error, flush=True)\n"
    )
    with h5py.File(tmp_path / "x.h5", "w", libver="latest") as file, subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as other:  # fmt: skip
        file["x"] = ROWS
        file.flush()
        assert other.stdin is not None
        assert other.stdout is not None
        for swmr in (False, True):
            if swmr:
                file.swmr_mode = True
            other.stdin.write(f"{tmp_path / 'x.h5'}\n")
            said = other.stdout.readline()
            assert "is being written to, or was when its writer was killed; close it there" in said
        other.stdin.close()
    check(bu.Hdf5Rows(tmp_path / "x.h5"), ROWS)


# What leads out of the file


IN_OPEN = 0x20
"""Of inotify(7): a file was opened."""


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], bool]]:
    """Return whether any file of a folder was opened since the last call, by whatever part of this process."""
    libc = ctypes.CDLL(None)
    fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    (tmp_path / "elsewhere").mkdir()
    assert libc.inotify_add_watch(fd, os.fsencode(tmp_path / "elsewhere"), IN_OPEN) >= 0

    def was_opened() -> bool:
        try:
            return bool(os.read(fd, 1 << 16))
        except BlockingIOError:
            return False

    yield was_opened
    os.close(fd)


def test_s6_no_other_file_is_opened(tmp_path: Path, opened: Callable[[], bool]) -> None:
    source = written(tmp_path / "elsewhere" / "x.h5", ROWS, maxshape=(None, 3, 2))
    (tmp_path / "elsewhere" / "raw").write_bytes(bytes(8 * 8))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["external"] = h5py.ExternalLink(str(source), "/x")
        file["soft"] = h5py.SoftLink("/external")
        file["up"] = h5py.ExternalLink(str(source), "/")
        file.create_dataset("storage", (8,), "i8", external=[(str(tmp_path / "elsewhere" / "raw"), 0, 64)])
        layout = h5py.VirtualLayout(ROWS.shape, ROWS.dtype)
        layout[:] = h5py.VirtualSource(str(source), "x", ROWS.shape)
        file.create_virtual_dataset("virtual", layout)
        layout = h5py.VirtualLayout(ROWS.shape, ROWS.dtype, (None, 3, 2))
        whole = slice(0, h5py.h5s.UNLIMITED)
        layout[whole] = h5py.VirtualSource(str(source), "x", ROWS.shape, maxshape=(None, 3, 2))[whole]
        file.create_virtual_dataset("growing", layout)
    opened()
    for kind in (bu.Hdf5Rows, bu.Hdf5Values):
        for name in ("external", "soft", "up/x"):
            with pytest.raises(
                SampleReadError, match=r"leads by way of .*, a link to another path or file, which is not"
            ):
                kind(tmp_path / "x.h5", name)
        for name in ("storage", "virtual", "growing"):
            with pytest.raises(SampleReadError, match=r"lie in other files, or other data sets, which are not opened"):
                kind(tmp_path / "x.h5", name)
        for name in (None, "none"):
            with pytest.raises(ArgumentError, match=r"it has 'growing' virtual, 'storage' \(8,\), 'virtual' virtual"):
                kind(tmp_path / "x.h5", name)
    with pytest.raises(SampleReadError, match="are not opened"):
        bu.Hdf5Rows.columns(tmp_path / "x.h5")
    assert not opened()
    assert len(bu.Hdf5Rows(source)) == 8
    assert opened(), "the watch would have seen it"


# Files that are damaged


READ = """
import resource, signal, sys
import batchup_ng as bu

resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
OURS = (bu.BatchupError, MemoryError, ImportError)
for path in sys.stdin.read().split():
    signal.alarm(10)
    print(path, flush=True)
    for make in (bu.Hdf5Rows, bu.Hdf5Values):
        for name in sys.argv[1:]:
            try:
                rows = make(path, name)
                if len(rows) and getattr(rows, "row_bytes", 0) < 1 << 20:
                    rows[:5], rows[[len(rows) - 1, 0]]
            except OURS:
                pass
    try:
        bu.Hdf5Rows.columns(path)
    except OURS:
        pass
"""

READ_PLAINLY = """
import signal, sys
import h5py

signal.alarm(10)
with h5py.File(sys.argv[1], "r") as file:
    for name in sys.argv[2:]:
        try:
            file[name][:5], file[name][-1:]
        except Exception:
            pass
"""


def everything(path: Path, library_is_careful: bool) -> list[str]:
    """Write a file with data sets of each kind, and return their names.

    Those that HDF5 1.14 reads without care for damage are left out if it is to be careful: the heap of what differs in
    length, in which it looks for ever for an object, and a chunk that is shorter than its checksum.
    """
    with h5py.File(path, "w") as file:
        file["whole"] = ROWS
        file.create_dataset("chunks", data=ROWS, chunks=(3, 3, 2))
        file.create_dataset("decoded", data=ROWS, chunks=(3, 3, 2), compression="gzip", shuffle=True)
        file.create_dataset("group/rows", data=ROWS, chunks=(1, 3, 2), compression="gzip")
        file["table"] = np.zeros(5, [("k", "i8"), ("s", "S3")])
        if not library_is_careful:
            file.create_dataset("checked", data=ROWS, chunks=(1, 3, 2), fletcher32=True)
            file["text"] = ["a", "bc", "d"]
            file.create_dataset("arrays", (3,), h5py.vlen_dtype(np.int16))[1] = [1, 2]
        names: list[str] = []
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    return names


def mutations(content: bytes, n: int) -> Iterator[bytes]:
    """Yield what a file's content becomes where some of its bytes change, or it is cut short."""
    rng = random.Random(14)
    used = [place for place, byte in enumerate(content) if byte]
    for number in range(n):
        changed = bytearray(content)
        for _ in range(rng.choice([1, 1, 2, 8])):
            changed[rng.choice(used) - rng.choice([0, 1])] = rng.choice([0, 1, 127, 255, rng.randrange(256)])
        yield bytes(changed[: rng.randrange(len(content))] if number % 10 == 0 else changed)


@pytest.mark.parametrize(("n", "library_is_careful"), [(40, True), thorough(400, True), thorough(1000, False)])
def test_s10_whatever_a_file_holds_is_rows_or_our_error(n: int, library_is_careful: bool, tmp_path: Path) -> None:
    names = everything(tmp_path / "x.h5", library_is_careful)
    paths = [str(tmp_path / f"{number}.h5") for number in range(n)]
    for path, content in zip(paths, mutations((tmp_path / "x.h5").read_bytes(), n), strict=True):
        Path(path).write_bytes(content)
    while paths:
        done = subprocess.run(
            [sys.executable, "-c", READ, *names], input=" ".join(paths), capture_output=True, text=True, check=False
        )
        read = done.stdout.split()
        assert done.returncode <= 0, f"{read[-1]}: {done.stderr}"
        if done.returncode < 0:  # a crash, or a loop without end
            assert not library_is_careful, read[-1]
            plainly = subprocess.run([sys.executable, "-c", READ_PLAINLY, read[-1], *names], check=False)
            assert plainly.returncode < 0, f"{read[-1]}: h5py alone survives it"
        paths = paths[len(read) :]
