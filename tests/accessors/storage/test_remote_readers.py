"""Readers over files at URLs: the contract, with the files behind a web server."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import batchup_ng as bu
from batchup_ng.accessors.storage import remote
from batchup_ng.errors import ArgumentError, SampleReadError
from batchup_ng.testing.accessors import AccessorContract, Made, assert_same_rows
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises

from .remote_server import Server, meets, refuses, resets, sends_the_begin, serving, truncates
from .stored_contract import StoredContract
from .test_tar import npy, png, shards

fsspec = pytest.importorskip("fsspec", reason="needs fsspec")
pytest.importorskip("aiohttp", reason="needs aiohttp")

pytestmark = pytest.mark.in_turn

ROWS = np.arange(7 * 6, dtype=np.int32).reshape(7, 3, 2)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Look at files each time, try again at once, keep indices in a folder of the test's; wait for a busy machine."""
    monkeypatch.setattr(remote, "LOOK_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(remote, "FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(remote, "RETRY_SECONDS", 3600.0)
    monkeypatch.setattr(remote, "SILENCE_SECONDS", 250.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of the test's folder."""
    with serving(tmp_path) as server:
        yield server


class RemoteContract(StoredContract):
    """The contract, with the files behind a server."""

    library = "fsspec", "remote"

    @pytest.fixture(autouse=True)
    def _served(self, server: Server) -> None:
        self.server = server

    def file(self, accessor: Any) -> Path:
        return self.server.path(accessor.file_paths([0])[0])

    def test_f26_a_file_that_changes_in_mid_epoch_is_named(self, made: Made, pools: list[AbstractWorkerPool]) -> None:
        with bu.WorkerThreadPool(2) as pool:  # processes look after five seconds
            super().test_f26_a_file_that_changes_in_mid_epoch_is_named(made, [pool])

    test_closing_lets_go_of_the_files = None  # type: ignore[assignment]  # connections are the process's
    test_a_pipe_is_refused = None  # type: ignore[assignment]  # the server's

    def test_a_fork_reads_what_was_opened_before(self, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
        # What ends a connection in the child, where it is shared, has the parent wait for an answer that it never gets.
        monkeypatch.setattr(remote, "SILENCE_SECONDS", 1000.0)
        super().test_a_fork_reads_what_was_opened_before(made)


class TestTar(RemoteContract):
    """Members that are bytes, in several tars."""

    def make(self, tmp_path: Path) -> Made:
        contents = [b"x" * row + b"end" for row in range(7)]
        shards(tmp_path, "bin", contents)
        return bu.TarShards(self.server.url("x-{0..2}.tar"), "bin"), contents  # type: ignore[return-value]

    def opened(self, like: Any) -> Any:
        return bu.TarShards(like.paths, "bin")


class TestTarOfOneShape(RemoteContract):
    """Members of one shape, read into the batch."""

    def make(self, tmp_path: Path) -> Made:
        shards(tmp_path, "npy", [npy(row) for row in ROWS])
        rows = bu.TarShards(self.server.url("x-{0..2}.tar"), "npy", shape=(3, 2), dtype=np.int32)
        return rows, list(ROWS)

    def opened(self, like: Any) -> Any:
        return bu.TarShards(like.paths, "npy", shape=(3, 2), dtype=np.int32)


class TestLines(RemoteContract):
    """Text."""

    def make(self, tmp_path: Path) -> Made:
        (tmp_path / "x.txt").write_text("first\n\nthird\nlast")
        return bu.TextLines(self.server.url("x.txt")), ["first", "", "third", "last"]  # type: ignore[return-value]

    test_a_file_that_is_none_of_this_format_is_refused = None  # type: ignore[assignment]  # nearly all bytes are lines


class TestNpy(RemoteContract):
    """An array that numpy.save wrote."""

    def make(self, tmp_path: Path) -> Made:
        np.save(tmp_path / "x.npy", ROWS)
        return bu.NpyRows(self.server.url("x.npy")), list(ROWS)


class TestParquet(RemoteContract):
    """A column of Parquet files."""

    def make(self, tmp_path: Path) -> Made:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        for name, part in (("0.parquet", ROWS[:5]), ("1.parquet", ROWS[5:])):
            lists = pa.FixedSizeListArray.from_arrays(pa.array(part.ravel()), 6)
            pq.write_table(pa.table({"x": lists}), tmp_path / name, row_group_size=2)
        return bu.ParquetRows(self.server.url("{0,1}.parquet"), "x", shape=(3, 2)), list(ROWS)

    def opened(self, like: Any) -> Any:
        return bu.ParquetRows(like.paths, like.column)


class TestZarr(RemoteContract):
    """A folder of format 3."""

    shards: tuple[int, ...] | None = None

    def make(self, tmp_path: Path) -> Made:
        zarr = pytest.importorskip("zarr", minversion="3.0")
        form: dict[str, Any] = {"shape": ROWS.shape, "dtype": ROWS.dtype, "chunks": (2, 2, 2), "shards": self.shards}
        zarr.create_array(str(tmp_path / "x.zarr"), **form)[:] = ROWS
        return bu.ZarrRows(self.server.url("x.zarr")), list(ROWS)

    def opened(self, like: Any) -> Any:
        return bu.ZarrRows(like.path)


class TestFileBytes(AccessorContract):
    """Whole files, some of them local."""

    @pytest.fixture(autouse=True)
    def _served(self, server: Server) -> None:
        self.server = server

    def make(self, tmp_path: Path) -> Made:
        contents = [b"", b"one", b"2" * 5000, b"three", b"4"]
        for number, content in enumerate(contents):
            (tmp_path / f"{number}").write_bytes(content)
        paths = [self.server.url("0"), tmp_path / "1", self.server.url("2"), self.server.url("3"), tmp_path / "4"]
        return bu.FileBytes(paths), contents  # type: ignore[return-value]

    def test_what_cannot_be_read_is_named(self, made: Made, tmp_path: Path) -> None:
        assert repr(made[0]) == "FileBytes(5 files)"
        (tmp_path / "1").unlink()
        (tmp_path / "4").unlink()
        (tmp_path / "4").mkdir()
        (tmp_path / "3").unlink()
        for row in (1, 3, 4):
            with raises(SampleReadError) as caught:
                made[0][[0, row]]
            assert caught.value.source == made[0].sample_name(row)


def test_pictures_of_a_batch_are_fetched_at_once_in_every_pool(server: Server, pools: list[AbstractWorkerPool]) -> None:
    for row in range(12):
        (server.folder / f"{row:02d}.png").write_bytes(png(row))
    source = bu.ArrayDataSource([bu.ImageBytes(bu.FileBytes([server.url(f"{row:02d}.png") for row in range(12)]), 4)])
    for pool in [bu.SerialPool(), *pools]:
        server.fails(r"GET .*\.png", meets(6), 12)
        batches = pool.parallel_data_source(source).batch_iterator(6)
        assert [batch[:, 0, 0, 0].tolist() for (batch,) in batches] == [list(range(6)), list(range(6, 12))]
    assert server.faults == []


def test_rows_of_several_tars_are_fetched_at_once_and_their_facts_too(server: Server) -> None:
    shards(server.folder, "bin", [b"x" * (row + 1) for row in range(7)])
    server.fails(r"HEAD .*\.tar", meets(3), 3)
    rows = bu.TarShards(server.url("x-{0..2}.tar"), "bin")
    server.fails(r"HEAD .*\.tar", meets(3), 3)
    server.fails(r"GET .*\.tar", meets(7), 7)
    assert [len(row) for row in rows[::-1]] == [7, 6, 5, 4, 3, 2, 1]
    assert server.faults == []


def test_a_second_epoch_of_what_is_kept_asks_for_nothing(server: Server) -> None:
    shards(server.folder, "png", [png(row) for row in range(7)])
    columns = bu.TarShards.columns(server.url("x-{0..2}.tar"), ["png", "id"], size=4)
    source = bu.ArrayDataSource(columns).cache()
    first = [batch["png"] for batch in source.batch_iterator(3)]
    server.asked.clear()
    second = [batch["png"] for batch in source.batch_iterator(3)]
    assert server.asked.total() == 0
    assert_same_rows(second, first)


@pytest.mark.parametrize("fault", [refuses(503), resets, truncates], ids=["refused", "reset", "truncated"])
def test_parquet_and_zarr_try_again(fault: Any, server: Server) -> None:
    for contract, pattern in ((TestParquet(), r"GET .*parquet"), (TestZarr(), r"GET .*/c/.*")):
        contract.server = server
        server.fails(pattern, fault, 2)
        rows, expected = contract.make(server.folder)
        assert_same_rows(rows[:], expected)
        assert server.faults == []
        server.fails(pattern, fault, 10**4)
        rows.close()
        with raises(SampleReadError) as caught:
            rows[:]
        assert server.url() in str(caught.value)
        server.faults.clear()


def test_no_reader_takes_what_comes_from_elsewhere(server: Server) -> None:
    zarr = pytest.importorskip("zarr", minversion="3.0")
    for contract, pattern in ((TestParquet(), "GET .*parquet"), (TestTar(), "GET .*tar"), (TestLines(), "GET .*txt")):
        contract.server = server
        rows, expected = contract.make(server.folder)
        assert_same_rows(rows[:], expected)
        rows.close()
        server.fails(pattern, sends_the_begin, 10**4)
        with raises(SampleReadError):
            rows[1:]
        server.faults.clear()
    array = zarr.create_array(str(server.folder / "y.zarr"), shape=(8,), chunks=(2,), shards=(8,), dtype="i4")
    array[:] = np.arange(8)
    for right in range(2):  # the places of the chunks of a shard, which are asked for from the file's end, then a chunk
        rows = bu.ZarrRows(server.url("y.zarr"))
        server.fails("GET y.zarr/c/.*", lambda *_: True, right)
        server.fails("GET y.zarr/c/.*", sends_the_begin)
        with raises(SampleReadError):
            rows[5]
        rows.close()
        assert rows[5] == 5
        rows.close()


def test_a_row_group_of_a_column_is_one_request_or_several_at_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    x = np.random.default_rng(0).integers(0, 1 << 62, 400_000)
    table = pa.table({"w": x, "x": x + 1, "y": x + 2})
    form = {"row_group_size": 100_000, "use_dictionary": False, "data_page_size": 8192}
    pq.write_table(table, server.folder / "x.parquet", **form)
    rows = bu.ParquetRows(server.url("x.parquet"), "x")
    rows[0]
    before = server.gets()
    np.testing.assert_array_equal(rows[100_000:200_000], x[100_000:200_000] + 1)
    assert server.gets() == before + 1
    monkeypatch.setattr(remote, "REQUEST_BYTES", 300_000)
    server.fails("GET x.parquet", meets(3), 3)
    np.testing.assert_array_equal(rows[200_000:300_000], x[200_000:300_000] + 1)
    assert server.gets() == before + 4


def test_the_chunks_and_row_groups_of_a_batch_are_fetched_at_once(server: Server) -> None:
    zarr, pa = pytest.importorskip("zarr", minversion="3.0"), pytest.importorskip("pyarrow")
    values = np.arange(8)
    zarr.create_array(str(server.folder / "x.zarr"), shape=(8,), chunks=(2,), dtype="i4")[:] = values
    rows = bu.ZarrRows(server.url("x.zarr"))
    server.fails(r"GET x.zarr/c/.*", meets(4), 4)
    assert rows[[7, 0, 3, 4]].tolist() == [7, 0, 3, 4]
    rows.close()
    server.fails(r"GET x.zarr/c/.*", meets(4), 4)
    assert rows[:].tolist() == values.tolist()
    assert server.faults == []
    table = pa.table({"x": [[n] * 200_000 for n in values.tolist()]})
    pytest.importorskip("pyarrow.parquet").write_table(table, server.folder / "x.parquet", row_group_size=2)
    lists = bu.ParquetRows(server.url("x.parquet"), "x", shape=[200_000])
    server.fails(r"GET x.parquet", meets(4), 4)
    server.sent = 0
    assert lists[[7, 0, 3, 4]][:, 9].tolist() == [7, 0, 3, 4]
    assert server.sent < (server.folder / "x.parquet").stat().st_size, "no thread reads the end of the file again"
    assert server.faults == []


def test_shards_of_zarr_have_their_index_read_by_a_range_from_the_end(server: Server) -> None:
    contract = TestZarr()
    contract.server, contract.shards = server, (4, 4, 2)
    rows, expected = contract.make(server.folder)
    assert_same_rows(rows[:], expected)
    rows.close()
    assert_same_rows(rows[[6, 0, 3]], [expected[6], expected[0], expected[3]])


def test_a_chunk_of_zarr_that_was_never_written_has_the_fill_value(server: Server) -> None:
    zarr = pytest.importorskip("zarr", minversion="3.0")
    zarr.create_array(str(server.folder / "x.zarr"), shape=(4,), chunks=(2,), dtype="i4", fill_value=7)[:2] = 1
    rows = bu.ZarrRows(server.url("x.zarr"))
    assert rows[:].tolist() == [1, 1, 7, 7]
    server.fails("GET .*/c/1", refuses(403))
    rows.close()
    with raises(SampleReadError):
        rows[:]


def test_from_file_reads_urls(server: Server) -> None:
    columns = {"x": ROWS, "y": np.arange(7)}
    for name in ("x.tar", "x.parquet", "x.npy"):
        if name.endswith("parquet"):
            pytest.importorskip("pyarrow")
        bu.convert([ROWS] if name == "x.npy" else columns, str(server.folder / name), progress=False)
        (batch,) = bu.from_file(server.url(f"{name}?signature=a.b")).batch_iterator(7)
        np.testing.assert_array_equal(next(value for value in batch.values() if np.ndim(value) == 3), ROWS)
    (server.folder / "x.jsonl").write_text('{"y": 3}\n')
    assert next(bu.from_file(server.url("x.jsonl")).batch_iterator(1))["x"] == [{"y": 3}]


@pytest.mark.parametrize(
    "reader",
    [
        bu.Hdf5Rows, bu.Hdf5Rows.columns, bu.Hdf5Values, bu.NpzRows, bu.NpzRows.columns, bu.SafetensorsRows,
        bu.SafetensorsRows.columns, bu.LmdbRows, lambda url: bu.LmdbArray(url, np.uint8, 1),
        lambda url: bu.ArrowRows(url, "x"), bu.ArrowRows.columns,
    ],
)  # fmt: skip
def test_readers_of_local_files_say_what_to_do(reader: Callable[[str], Any]) -> None:
    with raises(ArgumentError):
        reader("s3://bucket/x")


def test_picture_files_say_what_to_do() -> None:
    with raises(ArgumentError):
        bu.ImageFiles(["s3://bucket/x.jpg"], 8)


def test_every_reader_reads_what_lies_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any) -> None:
        raise PermissionError("not yours")

    memory = fsspec.filesystem("memory")
    try:
        contents = [b"%d" % row for row in range(7)]
        shards(tmp_path, "txt", contents)
        np.save(tmp_path / "x.npy", ROWS)
        Image.fromarray(ROWS[0].astype(np.uint8)).save(tmp_path / "x.png")
        (tmp_path / "x.jsonl").write_text("1\n2\n")
        memory.put(str(tmp_path) + "/", "/data/", recursive=True)
        assert bu.TarShards("memory://data/x-*.tar", "txt")[:] == [content.decode() for content in contents]
        assert bu.TarShards("memory://data/x-{0..2}.tar", "id")[[1, 5]].tolist() == [5, 5]
        assert_same_rows(bu.NpyRows("memory://data/x.npy")[::-1], ROWS[::-1])
        assert bu.TextLines("memory://data/x.jsonl", decode=json.loads)[:] == [1, 2]
        assert bu.ImageBytes(bu.FileBytes("memory://data/*.png"), size=2)[:].shape == (1, 2, 2, 3)
        with raises(SampleReadError):
            bu.FileBytes("memory://data/*.jpg")
        with raises(SampleReadError):
            bu.NpyRows("memory://data/y.npy")
        with raises(SampleReadError):
            bu.NpyRows("memory://data")
        forgotten: list[Any] = []
        monkeypatch.setattr(type(memory), "invalidate_cache", lambda self, path=None: forgotten.append(path))
        bu.FileBytes("memory://data/*.png")
        assert forgotten == [None]  # what another library had listed before
        monkeypatch.setattr(type(memory), "glob", refused)
        with raises(SampleReadError):
            bu.FileBytes("memory://data/*")
    finally:
        memory.store.clear()
        memory.pseudo_dirs[:] = [""]


def test_zarr_in_memory(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr", minversion="3.0")
    memory = fsspec.filesystem("memory")
    try:
        for name in ("a", "b"):
            zarr.create_array(str(tmp_path / "x.zarr" / name), shape=ROWS.shape, dtype=ROWS.dtype)[:] = ROWS
        zarr.open_group(str(tmp_path / "x.zarr"), mode="a")
        memory.put(str(tmp_path / "x.zarr"), "/x.zarr", recursive=True)
        columns = bu.ZarrRows.columns("memory://x.zarr")
        assert list(columns) == ["a", "b"]
        assert_same_rows(columns["b"][:], ROWS)
    finally:
        memory.store.clear()
        memory.pseudo_dirs[:] = [""]


def test_an_array_of_a_group_is_found_by_its_name_where_nothing_is_listed(server: Server) -> None:
    zarr = pytest.importorskip("zarr", minversion="3.0")
    zarr.create_array(str(server.folder / "x.zarr/train/images"), shape=ROWS.shape, dtype=ROWS.dtype)[:] = ROWS
    for group in ("x.zarr", "x.zarr/train"):
        zarr.open_group(str(server.folder / group), mode="a")
    assert_same_rows(bu.ZarrRows(server.url("x.zarr"), "train/images")[:], ROWS)
    with raises(ArgumentError):
        bu.ZarrRows(server.url("x.zarr"))


def test_an_array_with_its_columns_first_is_refused(server: Server) -> None:
    np.save(server.folder / "x.npy", np.asfortranarray(ROWS))
    with raises(SampleReadError):
        bu.NpyRows(server.url("x.npy"))
    for shape in ((-1,), (-2, -3), (2**70, 0), (True, 2)):
        with (server.folder / "x.npy").open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
            file.write(bytes(100))
        with raises(SampleReadError):
            bu.NpyRows(server.url("x.npy"))
    np.save(server.folder / "y.npy", np.empty((3, 0)))
    assert bu.NpyRows(server.url("y.npy"))[:].shape == (3, 0)


def test_the_fingerprint_of_files_is_that_of_what_is_there(server: Server) -> None:
    path = server.folder / "x"
    path.write_bytes(b"1")
    files = bu.FileBytes([server.url("x"), path])
    before = files.fingerprint()
    assert files.fingerprint() == before
    os.utime(path, ns=(1, 1))
    after = files.fingerprint()
    assert before[1] != after[1]
    assert before[2] != after[2]
    assert bu.FileBytes([path, server.url("x")]).fingerprint() != after
