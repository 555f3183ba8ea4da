"""What is written, read by the libraries whose formats they are; what is refused; what is there already."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError, BatchError, WriteError
from batchup_ng.formats import job
from batchup_ng.formats.columns import Column, columns_of
from batchup_ng.formats.draft import Draft, undo
from batchup_ng.formats.tar import TarWriter
from tests.extent import thorough
from tests.messages import raises

from .killed import N, columns, contents, objects

FIXED = columns("x.zarr")
VARYING = columns("chunked.h5")
REFUSED_FIELDS = ["{a}", "{:x}", "{:>5}", "{:5d}", "{:.1f}", "{:,}", "{!r}", "{0.real}", "{{}}", "{}{}", "{1}", "}"]


def png(value: int) -> bytes:
    file = io.BytesIO()
    Image.new("L", (2, 2), value).save(file, "png")
    return file.getvalue()


def convert(source: Any, path: Path, **options: Any) -> bu.Converted:
    return bu.convert(source, path, **{"pool": "serial", "progress": False, "batch_size": 16, **options})


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have several checkpoints."""
    monkeypatch.setattr(job, "PART_BYTES", 9_000)
    monkeypatch.setitem(sys.modules, "tqdm", None)  # which would leave a thread that watches its bars


@pytest.fixture(scope="module", autouse=True)
def threads_of_libraries(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have Zarr start the threads that it keeps, before a test is blamed for them."""
    with contextlib.suppress(ImportError):
        import zarr

        zarr.config.set({"threading.max_workers": 1})
        zarr.save_array(str(tmp_path_factory.mktemp("zarr") / "x.zarr"), np.arange(5))


def run_alone(*lines: str, of: Path) -> None:
    """Run a program that reads what was written, with a library that leaves threads and files open."""
    command = [sys.executable, "-W", "ignore", "-c", "\n".join(lines), str(of)]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr


class TestReadByOthers:
    """Every column of every format, as others read it."""

    def test_npy(self, tmp_path: Path) -> None:
        done = convert(FIXED["f"], tmp_path / "x.npy")
        assert done == bu.Converted((str(tmp_path / "x.npy"),), N)
        np.save(tmp_path / "y.npy", FIXED["f"])
        assert (tmp_path / "x.npy").read_bytes() == (tmp_path / "y.npy").read_bytes()
        assert sorted(os.listdir(tmp_path)) == ["x.npy", "y.npy"]

    def test_arrays_with_fields(self, tmp_path: Path) -> None:
        array = np.zeros(N, np.dtype([("a", "u1", (2,)), ("b", [("c", "<f8")])], align=True))  # with room between
        array["a"] = np.arange(2 * N).reshape(N, 2) % 251
        convert(array, tmp_path / "x.npy")
        np.save(tmp_path / "y.npy", array)
        assert (tmp_path / "x.npy").read_bytes() == (tmp_path / "y.npy").read_bytes()
        h5py = pytest.importorskip("h5py")
        convert(array, tmp_path / "x.h5")
        with h5py.File(tmp_path / "x.h5") as file:
            assert file["x0"].dtype == array.dtype
            np.testing.assert_array_equal(file["x0"][:], array)

    def test_hdf5_contiguous(self, tmp_path: Path) -> None:
        h5py = pytest.importorskip("h5py")
        data = FIXED | {"ok": FIXED["y"] % 3 == 0, "z": FIXED["f"] * 1j, "none": np.zeros((N, 0), "i2")}
        convert(data, tmp_path / "x.hdf5")
        with h5py.File(tmp_path / "x.hdf5") as file:
            assert list(file) == sorted(data)
            assert file["x"].chunks is None
            assert file["x"].id.get_offset() % 4096 == 0
            for name, array in data.items():
                assert file[name].dtype == array.dtype
                np.testing.assert_array_equal(file[name][:], array)

    @pytest.mark.parametrize("options", [{"compression": "gzip"}, {"chunk_rows": 10}])
    def test_hdf5_in_chunks(self, tmp_path: Path, options: Any) -> None:
        h5py = pytest.importorskip("h5py")
        convert(VARYING, tmp_path / "x.h5", **options)
        with h5py.File(tmp_path / "x.h5") as file:
            assert file["x"].compression == options.get("compression")
            assert file["x"].chunks[0] == options.get("chunk_rows", 80)
            for name in FIXED:
                np.testing.assert_array_equal(file[name][:], VARYING[name])
            assert file["text"].asstr()[:].tolist() == VARYING["text"].tolist()
            assert [each.tobytes() for each in file["data"]] == VARYING["data"].tolist()
            for one, other in zip(file["ragged"], VARYING["ragged"], strict=True):
                np.testing.assert_array_equal(one, other)

    @pytest.mark.parametrize("lengths", [[0, 0], [1], [1, 1], [3, 3], [3], [0, 3]])
    def test_hdf5_with_lengths_by_chance_the_same(self, tmp_path: Path, lengths: list[int]) -> None:
        h5py = pytest.importorskip("h5py")
        arrays = [np.arange(2 * n, dtype=">f4")[::2] for n in lengths]
        convert({"r": objects([*arrays, np.ones(5, ">f4")])}, tmp_path / "r.h5", batch_size=len(lengths) + 1)
        convert({"b": objects([bytes(array) for array in arrays])}, tmp_path / "b.h5")
        with h5py.File(tmp_path / "r.h5") as file:
            np.testing.assert_equal(list(file["r"][: len(arrays)]), arrays)
        with h5py.File(tmp_path / "b.h5") as file:
            assert [bytes(row) for row in file["b"]] == [bytes(array) for array in arrays]

    def test_zarr(self, tmp_path: Path) -> None:
        zarr = pytest.importorskip("zarr")
        convert(FIXED, tmp_path / "x.zarr")
        group = zarr.open_group(tmp_path / "x.zarr", mode="r")
        assert group.metadata.zarr_format == 3
        for name, array in FIXED.items():
            np.testing.assert_array_equal(group[name][:], array)
            assert group[name].dtype == array.dtype

    def test_parquet(self, tmp_path: Path) -> None:
        parquet = pytest.importorskip("pyarrow.parquet")
        convert(VARYING, tmp_path / "x.parquet", chunk_rows=50, compression="zstd")
        table = parquet.read_table(tmp_path / "x.parquet")
        assert table["x"].to_pylist() == VARYING["x"].tolist()
        for name in ("y", "f", "text", "data"):
            assert table[name].to_pylist() == VARYING[name].tolist()
        assert table["ragged"].to_pylist() == [row.tolist() for row in VARYING["ragged"]]

    @pytest.mark.thorough
    def test_parquet_by_polars(self, tmp_path: Path) -> None:
        pytest.importorskip("polars")
        convert(VARYING, tmp_path / "x.parquet")
        run_alone(
            "import polars, sys, numpy; from tests.formats.killed import columns",
            "frame = polars.read_parquet(sys.argv[1])",
            "assert frame.schema['x'] == polars.Array(polars.UInt8, (5, 4, 3))",
            "for name, array in columns('chunked.h5').items():",
            "    numpy.testing.assert_equal(list(frame[name].to_numpy()), list(array))",
            of=tmp_path / "x.parquet",
        )

    def test_lmdb(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pyxis = pytest.importorskip("pyxis", reason="ml-pyxis is not installed")
        monkeypatch.setattr(np, "fromstring", np.frombuffer)  # which it calls, and NumPy no longer has for bytes
        convert(VARYING | {"json": objects([{"a": [i]} for i in range(N)])}, tmp_path / "x.lmdb")
        with pyxis.Reader(str(tmp_path / "x.lmdb"), lock=False) as reader:
            assert len(reader) == N
            for row in (0, 77, N - 1):
                sample = reader[row]
                for name, array in VARYING.items():
                    np.testing.assert_array_equal(sample[name], array[row])
                assert sample["json"] == {"a": (row,)}  # as it reads lists
        assert os.listdir(tmp_path / "x.lmdb") == ["data.mdb"]

    def test_tar(self, tmp_path: Path) -> None:
        data = VARYING | {"json": objects([{"a": [i]} for i in range(N)])}
        done = convert(data, tmp_path / "s-{:03d}.tar", shard_bytes=100_000)
        assert [Path(path).name for path in done.paths] == [f"s-{i:03d}.tar" for i in range(len(done.paths))]
        for path in done.paths:
            with tarfile.open(path) as file:
                assert sum(member.size for member in file) <= 100_000
        read = bu.TarShards.columns(done.paths, {"x": "x.npy", "y": "cls", "f": "f.npy", "text": "txt", "data": "bin"})
        assert len(read["x"]) == N
        for name, rows in read.items():
            np.testing.assert_equal(list(rows[:]), list(data[name]))

    @pytest.mark.thorough
    def test_tar_by_webdataset(self, tmp_path: Path) -> None:
        pytest.importorskip("webdataset")
        convert(VARYING | {"json": objects([{"a": [i]} for i in range(N)])}, tmp_path / "s-{:03d}.tar", shard_rows=66)
        run_alone(
            "import webdataset, sys, numpy; from tests.formats.killed import columns, N",
            "names = ['x.npy', 'cls', 'f.npy', 'txt', 'bin', 'ragged.npy']",
            "shards = sys.argv[1] + '/s-{000..003}.tar'",
            "samples = list(webdataset.WebDataset(shards, shardshuffle=False).decode())",
            "assert [sample['__key__'] for sample in samples] == [f'{row:09d}' for row in range(N)]",
            "assert [sample['json'] for sample in samples] == [{'a': [row]} for row in range(N)]",
            "for name, array in zip(names, columns('x.tar').values(), strict=True):",
            "    numpy.testing.assert_equal([sample[name] for sample in samples], list(array))",
            of=tmp_path,
        )

    def test_shards_of_so_many_rows(self, tmp_path: Path) -> None:
        done = convert(FIXED, tmp_path / "{}.tar", shard_rows=90)
        for path, rows in zip(done.paths, [90, 90, 20], strict=True):
            with tarfile.open(path) as file:
                assert len(file.getnames()) == 3 * rows
        for field, name in [("a{:d}", "a0"), ("b{:02d}", "b00"), ("c{0:03}", "c000")]:
            assert convert(FIXED["y"], tmp_path / f"{field}.tar").paths == (str(tmp_path / f"{name}.tar"),)
        assert len(convert(FIXED, tmp_path / "all.tar").paths) == 1
        with tarfile.open(tmp_path / "all.tar") as file:
            assert {(each.mtime, each.uid, each.uname) for each in file} == {(0, 0, "")}


@pytest.mark.parametrize("first", [16, 15])
def test_our_reader_finds_each_column_of_a_tar(tmp_path: Path, first: int) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (3, 3)).save(picture, "bmp")
    data = {
        "blobs": objects([b"blob", b"BM", b"BMW" * 20] + [picture.getvalue()] * 40),
        "large": np.full(43, 2**64 - 1, np.uint64),
        "pictures": objects(([picture.getvalue()] * first + [b"other", b"\x89PNG\r\n", b"GIF89a"] * 10)[:43]),
    }
    convert(data, tmp_path / "x.tar")
    names = {"blobs": "blobs.bin", "large": "npy", "pictures": "pictures.bmp" if first == 16 else "pictures.bin"}
    for name, rows in bu.TarShards.columns(tmp_path / "x.tar", names).items():
        assert list(rows[:]) == list(data[name])


LIMITED = """
import resource, sys
import numpy as np
import batchup_ng as bu
from batchup_ng.formats import job
import lmdb, msgpack
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), resource.RLIM_INFINITY))
job.PART_BYTES = 1 << 20
try:
    rows = np.broadcast_to(np.zeros(1 << 20, "u1"), (int(sys.argv[2]), 1 << 20))
    bu.convert(rows, sys.argv[1], batch_size=1, pool="serial", progress=False)
except bu.WriteError as error:
    assert "ulimit -v" in str(error), error
    assert int(sys.argv[2]) > 20
else:
    assert int(sys.argv[2]) < 20
"""


@pytest.mark.parametrize("n", [10, thorough(300)])
def test_an_lmdb_where_addresses_are_limited(tmp_path: Path, n: int) -> None:
    pytest.importorskip("lmdb")
    pytest.importorskip("msgpack")
    command = [sys.executable, "-W", "ignore", "-c", LIMITED, str(tmp_path / "x.lmdb"), str(n)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr
    if n < 20:
        assert len(bu.LmdbRows(tmp_path / "x.lmdb", "pyxis")) == n


def test_the_same_bytes_from_every_pool(tmp_path: Path, pools: list[Any]) -> None:
    source = bu.ArrayDataSource(FIXED).map(lambda x, y, f: {"x": x // 2, "y": y, "f": -f})
    made = []
    for number, pool in enumerate(["serial", *pools]):
        convert(source, tmp_path / f"{number}.tar", pool=pool)
        made.append((tmp_path / f"{number}.tar").read_bytes())
    assert made[0] == made[1] == made[2]


class TestPictures:
    """Pictures of several sizes, encoded."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        rng = np.random.default_rng(0)
        for label, kind, shape in [("cat", "jpg", (40, 60)), ("cat", "png", (30, 20)), ("dog", "jpg", (8, 9))]:
            (tmp_path / "in" / label).mkdir(parents=True, exist_ok=True)
            pixels = rng.integers(0, 256, (*shape, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "in" / label / f"{shape[0]}.{kind}")
        return tmp_path / "in"

    def members(self, path: Path) -> dict[str, bytes]:
        with tarfile.open(path) as file:
            return {each.name: file.extractfile(each).read() for each in file}  # type: ignore[union-attr]

    def test_are_stored_as_they_are(self, folder: Path, tmp_path: Path) -> None:
        source = bu.from_folder(folder)
        done = convert(source, tmp_path / "x-{:03d}.tar")
        assert [Path(path).name for path in done.paths] == ["x-000.tar", "x-class_names.json"]
        assert json.loads((tmp_path / "x-class_names.json").read_text()) == ["cat", "dog"]
        with raises(ArgumentError):
            bu.convert([np.arange(3)], tmp_path / "x.tar")  # whose class names these would be taken for
        assert self.members(tmp_path / "x-000.tar") == {
            "000000000.png": (folder / "cat/30.png").read_bytes(), "000000000.cls": b"0",
            "000000001.png": (folder / "cat/40.jpg").read_bytes(), "000000001.cls": b"0",
            "000000002.png": (folder / "dog/8.jpg").read_bytes(), "000000002.cls": b"1",
        }  # fmt: skip

    @pytest.mark.parametrize("batch_size", [1, 16])
    def test_our_reader_decodes_those_of_several_kinds(self, folder: Path, tmp_path: Path, batch_size: int) -> None:
        convert(bu.from_folder(folder), tmp_path / "x.tar", batch_size=batch_size)
        (read,) = bu.TarShards.columns(tmp_path / "x.tar", ["png"], size=8).values()
        np.testing.assert_array_equal(read[:], bu.from_folder(folder, 8).data[0][:])

    def test_a_broken_one_is_no_error_unless_it_is_decoded(self, folder: Path, tmp_path: Path) -> None:
        (folder / "cat" / "text.png").write_text("hello")
        assert convert(bu.from_folder(folder), tmp_path / "x.tar").rows == 4
        with raises(BatchError):
            convert(bu.from_folder(folder), tmp_path / "y.tar", size=10)
        with pytest.warns(bu.SampleWarning):
            done = convert(bu.from_folder(folder), tmp_path / "y.tar", size=10, on_error="skip")
        assert (done.rows, done.skipped) == (3, (str(folder / "cat" / "text.png"),))

    def test_are_made_smaller_and_never_larger(self, folder: Path, tmp_path: Path) -> None:
        parts = bu.from_folder(folder).split([0.5, 0.5], 3)
        source = parts[0].concat(parts[1]).take(3)
        convert(source, tmp_path / "x.tar", size=10, quality=50)
        members = self.members(tmp_path / "x.tar")
        sizes = {Image.open(io.BytesIO(data)).size for name, data in members.items() if name.endswith("jpg")}
        assert sizes == {(15, 10), (10, 15), (9, 8)}
        convert(source, tmp_path / "y.tar", size=10)
        assert len(self.members(tmp_path / "y.tar")["000000000.jpg"]) > len(members["000000000.jpg"])

    def test_with_a_size_or_a_map_are_arrays(self, folder: Path, tmp_path: Path) -> None:
        convert(bu.from_folder(folder, 8).map(lambda x, y: (x,)), tmp_path / "x.npy")
        assert np.load(tmp_path / "x.npy").shape == (3, 8, 8, 3)
        with raises(ArgumentError):
            convert(bu.from_folder(folder, 8), tmp_path / "x.tar", quality=3)

    def test_class_names_are_attributes(self, folder: Path, tmp_path: Path) -> None:
        source = bu.from_folder(folder)
        if h5py := pytest.importorskip("h5py"):
            convert(source, tmp_path / "x.h5")
            with h5py.File(tmp_path / "x.h5") as file:
                assert list(file.attrs["class_names"]) == ["cat", "dog"]
                assert file["image"][2].tobytes() == (folder / "dog/8.jpg").read_bytes()
                assert file["label"][:].tolist() == [0, 0, 1]
        if parquet := pytest.importorskip("pyarrow.parquet"):
            convert(source, tmp_path / "x.parquet")
            names = parquet.read_schema(tmp_path / "x.parquet").metadata[b"class_names"]
            assert json.loads(names) == ["cat", "dog"]
        if zarr := pytest.importorskip("zarr"):
            convert(bu.from_folder(folder, 8), tmp_path / "x.zarr")
            assert zarr.open_group(tmp_path / "x.zarr", mode="r").attrs["class_names"] == ["cat", "dog"]

    @pytest.mark.parametrize("options", [{}, {"chunk_rows": 2}])
    def test_more_class_names_than_an_attribute_has_room_for(self, folder: Path, tmp_path: Path, options: Any) -> None:
        h5py = pytest.importorskip("h5py")
        for n in (4000, 4001, 22_000):
            names = ["cat", "dog", *(f"n{number:08d} é" for number in range(2, n))]
            convert(bu.from_folder(folder, 8, class_names=names), tmp_path / f"{n}.h5", **options)
            with h5py.File(tmp_path / f"{n}.h5") as file:
                found = json.loads(file["class_names"][()]) if n > 4000 else list(file.attrs["class_names"])
                assert found == names
                assert file["label"][:].tolist() == [0, 0, 1]

    def test_on_the_command_line(self, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        from batchup_ng import cli

        words = ["convert", str(folder), str(tmp_path / "x-{:02d}.tar"), "--size", "10", "--pool", "serial"]
        assert cli.main(words) == 0
        assert "3 rows written to 2 (" in capsys.readouterr().out
        with raises(SystemExit):
            cli.main(words)
        assert "x-00.tar' exists; pass another, or --overwrite" in " ".join(capsys.readouterr().err.split())
        (folder / "cat" / "text.png").write_text("hello")
        assert cli.main([*words, "--overwrite"]) == 1
        told = capsys.readouterr().err
        assert "text.png" in told
        assert "leave it out by --on-error skip" in told
        with pytest.warns(bu.SampleWarning):
            assert cli.main([*words, "--overwrite", "--on-error", "skip"]) == 1
        assert "left out: 1 ('" in capsys.readouterr().out


LISTS = [[1, 2], [], [3], [4, 5, 6], [], []]


@pytest.mark.parametrize("name", ["x.h5", "x.parquet", "x.lmdb", "x.tar"])
@pytest.mark.parametrize("batch_size", [2, 4])
def test_lists_that_a_map_returns(name: str, batch_size: int, tmp_path: Path) -> None:
    pytest.importorskip({"x.h5": "h5py", "x.parquet": "pyarrow", "x.lmdb": "lmdb"}.get(name, "numpy"))
    source = bu.ArrayDataSource({"row": np.arange(len(LISTS))})
    lists = source.map(lambda row: [LISTS[i] for i in row], on="row", out="ids").select("ids")
    mixed = source.map(
        lambda row: [np.array(LISTS[i], "i8") if i % 2 else LISTS[i] for i in row], on="row", out="ids"
    ).select("ids")
    for given_source in (lists, *([mixed] if name in ("x.h5", "x.parquet") else [])):
        convert(given_source, tmp_path / name, batch_size=batch_size, overwrite=True)
        found = bu.from_file(str(tmp_path / name))[:]
        (rows,) = found.values()
        assert [list(row) for row in rows] == LISTS
        if name in ("x.h5", "x.parquet"):
            assert {row.dtype for row in rows} == {np.dtype(np.int64)}


class TestRefused:
    """What cannot be written, with the remedy."""

    @pytest.mark.parametrize(
        ("data", "name"),
        [
            ([FIXED["x"], FIXED["y"]], "x.npy"),
            ([VARYING["text"]], "x.npy"),
            ([VARYING["data"]], "x.zarr"),
            ([FIXED["f"].astype(np.longdouble)], "x.zarr"),
            ([FIXED["f"] * 1j], "x.parquet"),
            ([objects([np.zeros((i, 2)) for i in range(4)])], "x.h5"),
            ([objects([[1, 2], [3.5]])], "x.h5"),
            ([objects([["a"], ["b", "c"]])], "x.h5"),
            ([objects([[{}], []])], "x.parquet"),
            ([objects([1, "a"])], "x.tar"),
            ([objects([{"bytes": b"1"}])], "x.tar"),
            ([objects([object()])], "x.tar"),
            ([np.zeros((3, 0))], "x.parquet"),
            ({"a/b": FIXED["y"]}, "x.tar"),
            ({".": FIXED["y"]}, "x.h5"),
            ({"..": FIXED["y"]}, "x.zarr"),
            ({"A": FIXED["f"], "a": FIXED["f"]}, "x.tar"),
            ([FIXED["y"]], "x.txt"),
            ([FIXED["y"]], "no/x.npy"),
            *(([FIXED["y"]], f"{field}.tar") for field in REFUSED_FIELDS),
            ([FIXED["y"]], "o-%05d.tar"),
            ([FIXED["y"]], "memory://a.npy"),
            ([FIXED["y"][:0]], "x.npy"),
        ],
    )
    def test_data(self, tmp_path: Path, data: Any, name: str) -> None:
        for library in {"x.h5": ["h5py"], "x.zarr": ["zarr"], "x.parquet": ["pyarrow"]}.get(name, []):
            pytest.importorskip(library)
        with raises((ArgumentError, ArgumentTypeError)):
            convert(data, name if "://" in name else tmp_path / name)
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize(
        "options",
        [
            {"chunk_rows": 3},
            {"shard_rows": 0},
            {"shard_rows": 10},
            {"size": 10},
            {"quality": 101},
            {"on_error": "replace"},
        ],
    )
    def test_options(self, tmp_path: Path, options: Any) -> None:
        with raises(ArgumentError):
            convert(FIXED, tmp_path / "x.tar", **options)
        assert os.listdir(tmp_path) == []

    def test_sources(self, tmp_path: Path) -> None:
        source = bu.ArrayDataSource([FIXED["y"]])
        with raises(ArgumentError):
            convert(source.repeat(), tmp_path / "x.npy")
        with raises(ArgumentError):
            convert(source.map(lambda y: (y[:1],), resizes=True), tmp_path / "x.npy")
        with raises(ArgumentTypeError):
            convert(bu.IteratorDataSource(iter([])), tmp_path / "x.npy")
        with raises(ArgumentTypeError):
            convert(source.zip(source, flatten=False), tmp_path / "x.npy")

    def test_a_column_that_changes(self, tmp_path: Path) -> None:
        source = bu.ArrayDataSource([FIXED["y"]]).map(lambda y: (y.astype("f4") if y[0] > 20 else y,))
        with raises(ArgumentError):
            convert(source, tmp_path / "x.npy")

    def test_a_library_that_is_missing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "h5py", None)
        with raises(ImportError):
            convert(FIXED, tmp_path / "x.h5")


class TestThereAlready:
    """A target, or a part of one."""

    def test_a_target_is_an_error_unless_it_may_be_replaced(self, tmp_path: Path) -> None:
        convert(FIXED["y"], tmp_path / "x.npy")
        with raises(ArgumentError):
            convert(FIXED["f"], tmp_path / "x.npy")
        assert np.load(tmp_path / "x.npy").tolist() == FIXED["y"].tolist()
        convert(FIXED["f"], tmp_path / "x.npy", overwrite=True)
        assert np.load(tmp_path / "x.npy").tolist() == FIXED["f"].tolist()
        assert os.listdir(tmp_path) == ["x.npy"]

    def test_more_shards_than_there_are_now_go(self, tmp_path: Path) -> None:
        (tmp_path / "s-a.tar").touch()
        convert(FIXED, tmp_path / "s-{}.tar", shard_rows=20)
        convert(FIXED, tmp_path / "s-{}.tar", shard_rows=150, overwrite=True)
        assert sorted(os.listdir(tmp_path)) == ["s-0.tar", "s-1.tar", "s-a.tar"]

    def test_a_part_of_another_source_is_an_error_unless_it_may_be_replaced(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(job, "PART_BYTES", 1)
        failing = bu.ArrayDataSource([FIXED["y"]]).map(self.fail_at_100)
        with raises(BatchError):
            convert(failing, tmp_path / "x.npy")
        assert os.listdir(tmp_path) == ["x.npy.partial"]
        other = bu.ArrayDataSource([FIXED["y"] + 1]).map(self.fail_at_100)
        with raises(ArgumentError):
            convert(other, tmp_path / "x.npy")
        with raises(ArgumentError):
            convert(FIXED["y"], tmp_path / "x.npy")
        with raises(ArgumentError):
            convert(failing, tmp_path / "x.npy", batch_size=8)
        convert(FIXED["f"], tmp_path / "x.npy", overwrite=True)
        assert os.listdir(tmp_path) == ["x.npy"]

    @staticmethod
    def fail_at_100(y: np.ndarray) -> tuple[np.ndarray]:
        if (y == 100).any():
            raise ValueError("no 100")
        return (y,)

    def test_after_an_error_samples_may_be_left_out(self, tmp_path: Path) -> None:
        failing = bu.ArrayDataSource([FIXED["y"]]).map(self.fail_at_100)
        with raises(BatchError):
            convert(failing, tmp_path / "x.npy")
        with pytest.warns(bu.SampleWarning):
            done = convert(failing, tmp_path / "x.npy", on_error="skip")
        assert (done.rows, done.skipped) == (N - 1, ("100",))
        assert np.load(tmp_path / "x.npy").tolist() == [y for y in range(N) if y != 100]

    def test_a_kill_while_it_is_moved_to_its_place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        moved: list[str] = []

        def move(source: Any, target: Any, replace: Any = os.replace) -> None:
            if str(target).endswith(".tar"):
                if moved:
                    raise KeyboardInterrupt
                moved.append(str(target))
            replace(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", move)
            with pytest.raises(KeyboardInterrupt):
                convert(FIXED, tmp_path / "s-{}.tar", shard_rows=50)
        assert len(os.listdir(tmp_path)) == 2
        assert len(convert(FIXED, tmp_path / "s-{}.tar", shard_rows=50).paths) == 4
        assert sorted(os.listdir(tmp_path)) == [f"s-{i}.tar" for i in range(4)]

    @pytest.mark.parametrize("overwrite", [False, True])
    @pytest.mark.parametrize(
        "files",
        [
            {"photo.jpg": "mine"}, {"made/photo.jpg": "mine"}, {".journal.json.0a.tmp": "", "notes": "mine"},
            *({"journal.json": text, "made/x": "mine"} for text in ["[]", "{}", '{"about": 1}', "no JSON", "[" * 9999]),
        ],
    )  # fmt: skip
    def test_a_folder_of_another_is_refused_and_left_as_it_is(
        self, tmp_path: Path, files: dict[str, str], overwrite: bool
    ) -> None:
        theirs = tmp_path / "theirs"
        for name, text in files.items():
            (theirs / name).parent.mkdir(parents=True, exist_ok=True)
            (theirs / name).write_text(text)
        before = contents(tmp_path)
        for place in (tmp_path / "a.npy.partial", tmp_path / "b.npy.partial"):
            if place.name.startswith("a"):
                theirs.rename(place)
            else:
                place.symlink_to(tmp_path / "a.npy.partial")
            with raises(ArgumentError) as caught:
                convert(FIXED["y"], tmp_path / place.stem, overwrite=overwrite)
            assert f"{place.name}'" in str(caught.value)
        assert {name.replace("theirs", "a.npy.partial"): found for name, found in before.items()} == {
            name: found for name, found in contents(tmp_path).items() if not name.startswith("b.npy")
        }

    def test_a_link_to_a_folder_or_to_nothing_and_a_pipe_for_a_journal_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        for name in ("empty", "nothing"):
            (tmp_path / "x.npy.partial").symlink_to(tmp_path / name)
            with raises(ArgumentError):
                convert(FIXED["y"], tmp_path / "x.npy")
            (tmp_path / "x.npy.partial").unlink()
        assert not (tmp_path / "nothing").exists()
        (tmp_path / "y.npy.partial").mkdir()
        os.mkfifo(tmp_path / "y.npy.partial" / "journal.json")
        with raises(ArgumentError):
            convert(FIXED["y"], tmp_path / "y.npy")

    def test_a_run_that_was_killed_before_its_first_row_was_safe_begins_anew(self, tmp_path: Path) -> None:
        def die(y: np.ndarray) -> Any:
            shutil.copytree(tmp_path / "x.npy.partial", tmp_path / "kept")
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            convert(bu.ArrayDataSource([FIXED["y"]]).map(die), tmp_path / "x.npy")
        assert sorted(os.listdir(tmp_path / "kept")) == ["journal.json", "made", "work"]
        (tmp_path / "kept").rename(tmp_path / "x.npy.partial")
        (tmp_path / "x.npy.partial" / ".journal.json.0123abcd.tmp").write_text("{")
        convert(FIXED["f"], tmp_path / "x.npy")  # of another source: nothing is lost
        assert os.listdir(tmp_path) == ["x.npy"]

    @pytest.mark.parametrize(
        "column",
        [
            lambda k: [f"{k}", "a"] * 100,
            lambda k: bu.Ragged.from_rows([[k], [1, 2]] * 100),
            lambda k: objects([{"k": k}, {}] * 100),
            lambda k: bu.MapStyle([np.array([k, 3])] * 200),
            lambda k: bu.Cached(bu.ImageArrayUInt8ToFloat32(np.full((200, 2), k, np.uint8))),
            lambda k: bu.ImageArrayUInt8ToFloat32(np.full((200, 3), k, np.uint8)),
            lambda k: bu.windows(np.arange(203) * k, 4).node.data[0],
            lambda k: bu.ImageBytes([png(k)] * 200),
        ],
    )
    def test_a_part_of_other_contents_is_refused_and_one_of_the_same_goes_on(
        self, column: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(job, "PART_BYTES", 1)
        broken = True

        def fail(*batch: Any) -> Any:
            if broken and (batch[0] >= 100).any():
                raise ValueError
            return batch

        def run(k: int) -> Any:
            numbered = bu.ArrayDataSource([np.arange(200)]).map(fail)
            source = bu.CompositeDataSource([numbered, bu.ArrayDataSource([column(k)])], flatten=True)
            return convert(source, tmp_path / "x.tar")

        with pytest.raises(BatchError):
            run(1)
        broken = False
        before = contents(tmp_path)
        with raises(ArgumentError):
            run(2)
        assert contents(tmp_path) == before
        run(1)
        resumed = (tmp_path / "x.tar").read_bytes()
        (tmp_path / "x.tar").unlink()
        run(1)
        assert (tmp_path / "x.tar").read_bytes() == resumed

    def test_a_target_that_appears_meanwhile_is_no_more_replaced_than_one_before(self, tmp_path: Path) -> None:
        def write(y: np.ndarray) -> tuple[np.ndarray]:
            (tmp_path / "s-1.tar").write_text("mine")
            return (y,)

        source = bu.ArrayDataSource([FIXED["y"]]).map(write)
        for _ in range(2):
            with raises(ArgumentError):
                convert(source, tmp_path / "s-{}.tar", shard_rows=100)
            assert (tmp_path / "s-1.tar").read_text() == "mine"
        (tmp_path / "s-1.tar").unlink()
        assert len(convert(source, tmp_path / "s-{}.tar", shard_rows=100).paths) == 2

    def test_what_others_put_into_the_folder_stays(self, tmp_path: Path) -> None:
        def write(y: np.ndarray) -> tuple[np.ndarray]:
            (tmp_path / "x.npy.partial" / "notes").write_text("mine")
            return (y,)

        convert(bu.ArrayDataSource([FIXED["y"]]).map(write), tmp_path / "x.npy")
        assert (tmp_path / "x.npy.partial" / "notes").read_text() == "mine"
        assert os.listdir(tmp_path / "x.npy.partial") == ["notes"]

    def test_two_programs_at_one_target_leave_one_whole_file(self, tmp_path: Path) -> None:
        begun, refused = threading.Barrier(3), []

        def run() -> None:
            begun.wait()
            for _ in range(20):
                try:
                    convert(FIXED["y"], tmp_path / "x.npy", overwrite=True)
                except ArgumentError as error:
                    assert "is being written by another" in str(error)  # noqa: PT017
                    refused.append(error)

        with ThreadPoolExecutor(3) as threads:
            for done in [threads.submit(run) for _ in range(3)]:
                done.result()
        assert os.listdir(tmp_path) == ["x.npy"]
        assert np.load(tmp_path / "x.npy").tolist() == FIXED["y"].tolist()

    def test_a_folder_for_it_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "x.npy.partial").touch()
        with raises(WriteError):
            convert(FIXED["y"], tmp_path / "x.npy")
        with raises(WriteError) as caught:
            convert(FIXED["y"], tmp_path / f"{'x' * 248}.npy")
        assert caught.value.errno == errno.ENAMETOOLONG

    @pytest.mark.parametrize("name", ["x.npy", "x.lmdb"])
    def test_a_link_to_nothing(self, tmp_path: Path, name: str) -> None:
        if name == "x.lmdb":
            pytest.importorskip("lmdb")
            pytest.importorskip("msgpack")
        (tmp_path / name).symlink_to(tmp_path / "nothing")
        with raises(ArgumentError):
            convert(FIXED["y"], tmp_path / name)
        convert(FIXED["y"], tmp_path / name, overwrite=True)
        assert not (tmp_path / name).is_symlink()
        assert os.listdir(tmp_path) == [name]

    def test_another_process_that_is_at_it(self, tmp_path: Path) -> None:
        (tmp_path / "x.npy.partial").mkdir()
        other = os.open(tmp_path / "x.npy.partial", os.O_RDONLY)
        fcntl.flock(other, fcntl.LOCK_EX)
        with raises(ArgumentError):
            convert(FIXED["y"], tmp_path / "x.npy")
        os.close(other)
        convert(FIXED["y"], tmp_path / "x.npy")
        assert os.listdir(tmp_path) == ["x.npy"]


def test_rows_that_grow_are_safe_as_soon_as_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    safe: list[int] = []
    checkpoint = TarWriter.checkpoint
    monkeypatch.setattr(TarWriter, "checkpoint", lambda self: safe.append(self.row) or checkpoint(self))
    convert([objects([b"" if row < 32 else bytes(300) for row in range(140)])], tmp_path / "x.tar")
    assert safe == [64, 96, 128, 140]  # whenever there are more than 9,000 bytes
    convert([np.zeros((70, 600), "u1")], tmp_path / "y.tar")
    assert safe[4:] == [16, 32, 48, 64, 70]


def test_paths_are_in_the_order_of_their_rows(tmp_path: Path) -> None:
    done = convert(np.arange(60), tmp_path / "s-{}.tar", shard_rows=5)
    assert [os.path.basename(path) for path in done.paths] == [f"s-{number}.tar" for number in range(12)]


def test_progress_is_told_of_rows(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Bar:
        def __init__(self, **options: Any) -> None:
            seen.append((options["total"], options["initial"], options["unit"]))

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *exc: object) -> None:
            seen.append("closed")

        def update(self, rows: int) -> None:
            seen.append(rows)

    convert(FIXED["y"][:40], tmp_path / "x.npy", progress=Bar)
    assert seen == [(40, 0, " rows"), 16, 16, 8, "closed"]


class BadDisk:
    """`os.pwrite` as a disk has it that takes few bytes at once, and fails when it is full."""

    def __init__(self, at_once: int, room: int, pwrite: Any = os.pwrite) -> None:
        self.at_once, self.room, self._pwrite = at_once, room, pwrite

    def __call__(self, handle: int, data: Any, offset: int) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "no room")
        done = self._pwrite(handle, memoryview(data)[: min(self.at_once, self.room)], offset)
        self.room -= done
        return int(done)


@given(st.data())
def test_a_draft_is_a_file_of_which_nothing_is_left_when_it_is_undone(tmp_path_factory: Any, data: Any) -> None:
    folder = tmp_path_factory.mktemp("undo")
    path, log = folder / "x", folder / "undo-0"
    before = data.draw(st.binary(max_size=60))
    path.write_bytes(before)
    expected = io.BytesIO(before)
    places = st.integers(0, 80)
    with pytest.MonkeyPatch.context() as patch, Draft(path) as draft:
        patch.setattr("batchup_ng.formats.draft.DRAFT_PAGE_BYTES", data.draw(st.sampled_from([1, 7, 16, 4096])))
        for _ in range(data.draw(st.integers(0, 6))):
            place = data.draw(places)
            assert expected.seek(place) == draft.seek(place)
            text = data.draw(st.binary(max_size=40))
            match data.draw(st.sampled_from(["write", "truncate", "read"])):
                case "write" if text:
                    expected.write(text)
                    assert draft.write(text) == len(text)
                case "truncate":  # BytesIO makes no file longer
                    expected.write(bytes(max(0, place - len(expected.getvalue()))))
                    assert expected.truncate(place) == draft.truncate(place)
                case "read":
                    assert draft.read(30) == expected.read(30)
        assert path.read_bytes() == before
        room = data.draw(st.integers(0, 300))
        patch.setattr(os, "pwrite", BadDisk(data.draw(st.integers(1, 20)), room))
        with contextlib.suppress(OSError):
            assert draft.commit(log) == len(expected.getvalue())
            assert path.read_bytes() == expected.getvalue()
    with open(log, "ab") as cut:  # a record that a kill cut off, or one of which not all came to the disk
        cut.write(data.draw(st.binary(max_size=30)))
    for _ in range(2):
        undo(path, log, len(before))
        assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["x.npy", "x.h5", "x.tar"])
@pytest.mark.parametrize("at_once", [7, 1000])
def test_a_disk_that_takes_few_bytes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, at_once: int
) -> None:
    if name == "x.h5":
        pytest.importorskip("h5py")
    data = {"x": FIXED["x"][:40]} if name == "x.npy" else {key: column[:40] for key, column in VARYING.items()}
    (tmp_path / "good").mkdir()
    convert(data, tmp_path / "good" / name)
    disk = BadDisk(at_once, 1 << 40)
    monkeypatch.setattr(os, "pwrite", disk)
    convert(data, tmp_path / name)
    assert (tmp_path / name).read_bytes() == (tmp_path / "good" / name).read_bytes()
    used = (1 << 40) - disk.room
    disk.room = used // 2
    with pytest.raises(WriteError) as caught:
        convert(data, tmp_path / name, overwrite=True)
    assert caught.value.errno == errno.ENOSPC
    disk.room = 1 << 40
    convert(data, tmp_path / name, overwrite=True)
    assert (tmp_path / name).read_bytes() == (tmp_path / "good" / name).read_bytes()


KEYS = [1, -1.5, None, True, (1, "a")]


@pytest.mark.parametrize(
    ("ending", "key"),
    [("tar", b"a"), *((ending, key) for ending in ("tar", "lmdb") for key in KEYS)],  # msgpack keeps bytes
)
def test_a_key_that_is_no_text_is_refused_and_nothing_is_left(ending: str, key: Any, tmp_path: Path) -> None:
    if ending == "lmdb":
        for library in ("lmdb", "msgpack"):
            pytest.importorskip(library)
    for value in ({key: 1}, {"a": {key: 1}}, {"a": [({"b": 2, key: 1},)]}, [{key: 1}]):
        source = np.empty(3, object)
        source[:] = [{"a": 1}] * 3 if isinstance(value, dict) else [[1]] * 3
        source[1] = value
        with raises(ArgumentError):
            convert([source], tmp_path / f"x.{ending}")
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", ["tar", "lmdb"])
def test_keys_that_are_text_come_back_and_tuples_as_lists(ending: str, tmp_path: Path) -> None:
    source = np.empty(2, object)
    source[:] = [{"": 1, "1": {"ü": [{"true": (1, "x")}]}}, {}]
    expected = [{"": 1, "1": {"ü": [{"true": [1, "x"]}]}}, {}]
    if ending == "tar":
        convert([source], tmp_path / "x.tar")
        with tarfile.open(tmp_path / "x.tar") as file:
            assert [json.load(file.extractfile(name)) for name in file.getnames()] == expected  # type: ignore[arg-type]
        return
    lmdb, msgpack = pytest.importorskip("lmdb"), pytest.importorskip("msgpack")
    convert([source], tmp_path / "x.lmdb")
    with lmdb.open(str(tmp_path / "x.lmdb"), max_dbs=2, lock=False) as file:
        data = file.open_db(b"data_db")
        with file.begin(db=data) as rows:
            found = [msgpack.unpackb(msgpack.unpackb(rows.get(b"%010d" % row))["x0"]) for row in range(2)]
    assert found == expected
    assert [row["x0"] for row in bu.LmdbRows(tmp_path / "x.lmdb", decode="pyxis")[:]] == expected


def test_an_lmdb_refuses_a_dict_that_its_readers_take_for_an_array(tmp_path: Path) -> None:
    for library in ("lmdb", "msgpack"):
        pytest.importorskip(library)
    source = np.empty(1, object)
    for key in ("dtype", b"dtype"):
        source[0] = {key: "<f4"}
        with raises(ArgumentError):
            convert([source], tmp_path / "x.lmdb")
        assert not list(tmp_path.iterdir())
    source[0] = {"shape": {"dtype": 1}}
    convert([source], tmp_path / "x.lmdb")
    assert bu.LmdbRows(tmp_path / "x.lmdb", decode="pyxis")[0] == {"x0": {"shape": {"dtype": 1}}}


def test_a_column_comes_back_from_json() -> None:
    dtype = np.dtype([(("title", "a"), "<i4", (2, 3)), ("b", [("c", ">f8")]), ("d", "u1"), ("e", "f8")], align=True)
    for column in columns_of({"x": np.zeros((2, 4), dtype), "t": ["a"], "r": [np.zeros((2, 3))]}, TarWriter.holds)[0]:
        assert Column.from_json(json.loads(json.dumps(column.as_json()))) == column


@pytest.mark.parametrize("path", [b"x.npy", 3, None])
def test_what_is_no_path_is_refused(path: Any) -> None:
    for use in (lambda: bu.convert([np.arange(3)], path), lambda: bu.NpyRows(path)):
        with raises(ArgumentTypeError):
            use()
