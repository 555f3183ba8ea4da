"""How HDF5 files are opened, which data set is meant, what is refused."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, SampleReadError
from tests.extent import thorough
from tests.messages import raises

pytest.importorskip("h5py", reason="h5py is not installed")

import h5py

from .damaged import damaged
from .test_hdf5 import ROWS, check, written


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


def test_soft_links_are_followed_within_the_file(several: Path) -> None:
    with h5py.File(several, "a") as file:
        file["soft"] = h5py.SoftLink("/group/labels")
        file["group/beside"] = h5py.SoftLink("labels")
        file["further"] = h5py.SoftLink("group/beside")
        file["folder"] = h5py.SoftLink("/group")
        file["nowhere"] = h5py.SoftLink("/images/x")
        file["round"] = h5py.SoftLink("/round")
    for name in ("soft", "group/beside", "further", "folder/labels", "folder/beside"):
        assert bu.Hdf5Rows(several, name)[[3, 1]].tolist() == [3, 1]
    assert list(bu.Hdf5Rows.columns(several, ["soft", "images"])) == ["soft", "images"]
    for name in ("nowhere", "round", "folder"):
        with raises(ArgumentError):
            bu.Hdf5Rows(several, name)


def test_names_that_are_not_there_are_told_with_those_that_are(several: Path) -> None:
    for name in (None, "image", "group", "", "images/x", "group/", "../images", "gro\0up"):
        for kind in (bu.Hdf5Rows, bu.Hdf5Values):
            with raises(ArgumentError):
                kind(several, name)


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
    with raises(ArgumentError):
        bu.Hdf5Rows.columns(several)
    assert len(bu.Hdf5Rows.columns(several, ["images", "names"])) == 2


def test_what_is_no_rows_is_refused_with_what_to_do(several: Path) -> None:
    with h5py.File(several, "a") as file:
        file["number"] = 3.0
        file["empty"] = h5py.Empty("f4")
        file["to"] = np.array([file["images"].ref], h5py.ref_dtype)
        file["table"] = np.array([(1, "a")], [("k", "i4"), ("s", h5py.string_dtype())])
    for name in ("number", "empty"):
        with raises(SampleReadError):
            bu.Hdf5Rows(several, name)
    for name in ("names", "to", "table"):
        with raises(ArgumentError):
            bu.Hdf5Rows(several, name)
    for name in ("images", "to", "table"):
        with raises(ArgumentError):
            bu.Hdf5Values(several, name)
    assert bu.Hdf5Rows(several, "table", field="k")[:].tolist() == [1]
    for name, field in (("table", "s"), ("table", "x"), ("images", "k")):
        with raises(ArgumentError):
            bu.Hdf5Rows(several, name, field=field)


def test_text_is_str_and_pictures_are_decoded(several: Path) -> None:
    names = bu.Hdf5Values(several, "names")
    assert names[[3, 1, 3]] == ["name 3", "name 1", "name 3"]
    names.close()
    with h5py.File(several, "a") as file:
        file.create_dataset("broken", (1,), h5py.string_dtype())
        file["broken"][0] = b"\xff\xfe"
    with raises(SampleReadError):
        bu.Hdf5Values(several, "broken")[0]


def test_a_compression_that_h5py_lacks_is_named_with_what_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = pytest.importorskip("tables", reason="PyTables is not installed")
    monkeypatch.setitem(sys.modules, "hdf5plugin", None)
    with tables.open_file(tmp_path / "x.h5", "w", filters=tables.Filters(1, "blosc")) as file:
        file.create_carray("/", "x", obj=ROWS)
    if h5py.h5z.filter_avail(32001):
        pytest.skip("hdf5plugin was imported already")
    with raises(ImportError):
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


def two_files(folder: Path) -> tuple[Path, bytes]:
    """Write a file, and return it with the content of a later one, whose rows have 7 more."""
    for name, more in (("new.h5", 7), ("train.h5", 0)):
        with h5py.File(folder / name, "w") as file:
            file.create_dataset("images", data=ROWS + more, chunks=(3 - more // 4, 3, 2), compression="gzip")
            file["labels"] = np.arange(8) + more
            file.create_dataset("text", data=[str(n + more) for n in range(8)])
    return folder / "train.h5", (folder / "new.h5").read_bytes()


def copied_over(path: Path, content: bytes) -> None:
    """Write over a file in place, as ``cp`` does."""
    path.write_bytes(content)
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))


def test_what_is_opened_after_a_change_is_new_though_others_have_the_file_open_as_it_was(tmp_path: Path) -> None:
    path, content = two_files(tmp_path)
    old = list(bu.Hdf5Rows.columns(path).values())
    assert [rows[0] is not None for rows in old] == [True] * 3
    copied_over(path, content)
    new = bu.Hdf5Rows.columns(path)
    np.testing.assert_array_equal(new["images"][:], ROWS + 7)
    assert new["labels"][:].tolist() == [*range(7, 15)]
    assert new["text"][:2] == ["7", "8"]
    for rows in old:
        with raises(SampleReadError):
            rows[0]
    assert new["text"][:2] == ["7", "8"]


def test_a_change_under_what_the_program_has_open_itself_is_refused(tmp_path: Path) -> None:
    path, content = two_files(tmp_path)
    rows = bu.Hdf5Rows(path, "images")
    with h5py.File(path, "r") as own:
        rows[0]
        assert len(bu.Hdf5Rows(path, "labels")) == len(own["labels"])
        copied_over(path, content)
        for _ in range(2):
            with raises(SampleReadError):
                bu.Hdf5Rows(path, "images")
    np.testing.assert_array_equal(bu.Hdf5Rows(path, "images")[:], ROWS + 7)


def test_a_worker_that_has_read_a_file_reads_what_was_copied_over_it(tmp_path: Path) -> None:
    path, content = two_files(tmp_path)
    seen = []
    with bu.WorkerProcessPool(1) as pool:
        for _ in range(2):
            source = bu.ArrayDataSource([bu.Hdf5Values(path, "text"), bu.Hdf5Rows(path, "images")])
            seen += [batch[1].copy() for batch in pool.parallel_data_source(source).batch_iterator(8)]
            copied_over(path, content)
    np.testing.assert_array_equal(seen, [ROWS, ROWS + 7])


def test_a_fork_reads_what_was_copied_over_a_file_that_its_parent_has_open(tmp_path: Path) -> None:
    path, content = two_files(tmp_path)
    rows = bu.Hdf5Values(path, "text")
    rows[0]
    copied_over(path, content)
    child = os.fork()
    if child == 0:
        try:
            np.testing.assert_array_equal(bu.Hdf5Rows(path, "images")[:], ROWS + 7)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    rows.close()


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
            with raises(SampleReadError):
                kind(tmp_path / "x.h5", name)
        for name in ("storage", "virtual", "growing"):
            with raises(SampleReadError):
                kind(tmp_path / "x.h5", name)
        for name in (None, "none"):
            with raises(ArgumentError):
                kind(tmp_path / "x.h5", name)
    with raises(SampleReadError):
        bu.Hdf5Rows.columns(tmp_path / "x.h5")
    assert not opened()
    assert len(bu.Hdf5Rows(source)) == 8
    assert opened(), "the watch would have seen it"


# Files that are damaged


READ = """
import resource

resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
for make in (bu.Hdf5Rows, bu.Hdf5Values):
    for name in {names}:
        tried(lambda: some_rows(make(path, name)))
bu.Hdf5Rows.columns(path)
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


@pytest.mark.parametrize(("n", "library_is_careful"), [(40, True), thorough(400, True), thorough(1000, False)])
def test_s10_whatever_a_file_holds_is_rows_or_our_error(n: int, library_is_careful: bool, tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    names = everything(tmp_path / "whole" / "x.h5", library_is_careful)
    _, crashed = damaged(tmp_path, n, "h5py", READ.format(names=names))
    assert not (library_is_careful and crashed)
