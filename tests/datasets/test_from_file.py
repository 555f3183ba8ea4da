"""A source over a file, by its ending."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.datasets.from_file import COLUMNS_BY_ENDING
from batchup_ng.errors import ArgumentError, ArgumentTypeError, SampleReadError
from tests.messages import raises

X, Y = np.arange(12, dtype=np.float32).reshape(6, 2), np.arange(6)
NEEDS = {".h5": "h5py", ".hdf5": "h5py", ".lmdb": "lmdb", ".mdb": "lmdb", ".zarr": "zarr", ".parquet": "pyarrow",
         ".zarr.zip": "zarr", ".arrow": "pyarrow", ".feather": "pyarrow"}  # fmt: skip


def written(path: Path) -> dict[str, Any]:
    """Write a file, and return its columns."""
    kind = path.suffix
    if kind == ".npz":
        np.savez(path, x=X, y=Y)
    elif kind in (".arrow", ".feather"):
        import pyarrow as pa
        from pyarrow import feather

        values = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 2)
        feather.write_feather(pa.table({"x": values, "y": Y}), path, compression="uncompressed")
    elif kind == ".safetensors":
        pytest.importorskip("safetensors.numpy").save_file({"x": X, "y": Y}, path)
    elif kind == ".mdb":
        import lmdb

        with lmdb.open(str(path), subdir=False, map_size=1 << 22) as env, env.begin(write=True) as transaction:
            for row in range(6):
                transaction.put(b"%04d" % row, X[row].tobytes())
        return {"x": [row.tobytes() for row in X]}
    elif kind == ".zip":
        import zarr

        with zarr.storage.ZipStore(path, mode="w") as store:
            group = zarr.open_group(store, mode="w")
            group.create_array("x", data=X)
            group.create_array("y", data=Y)
    elif kind == ".txt":
        path.write_text("".join(f"line {k}\n" for k in range(6)))
        return {"x": [f"line {k}" for k in range(6)]}
    elif kind == ".jsonl":
        path.write_text("".join(json.dumps({"y": k}) + "\n" for k in range(6)))
        return {"x": [{"y": k} for k in range(6)]}
    elif kind == ".npy":
        np.save(path, X)
        return {"x": X}
    else:
        bu.convert({"x": X, "y": Y}, path, progress=False)
    return {"cls": Y, "npy": X} if kind == ".tar" else {"x": X, "y": Y}


@pytest.mark.parametrize("ending", COLUMNS_BY_ENDING)
def test_each_format_is_read(ending: str, tmp_path: Path) -> None:
    if ending in NEEDS:
        pytest.importorskip(NEEDS[ending])
    expected = written(tmp_path / f"d{ending}")
    source = bu.from_file(tmp_path / f"d{ending}")
    batch = next(source.batch_iterator(6))
    assert len(batch) == len(expected), list(batch)
    for name, wanted in zip(sorted(batch), expected.values(), strict=True):
        got = batch[name]
        np.testing.assert_array_equal(np.array(got, object).tolist(), np.array(wanted, object).tolist())
    if len(expected) > 1:
        assert len(next(bu.from_file(str(tmp_path / f"d{ending}"), [list(batch)[1]]).batch_iterator(2))) == 1
    else:
        with raises(ArgumentError):
            bu.from_file(tmp_path / f"d{ending}", ["other"])


def test_several_files_are_one(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for number in range(3):
        bu.convert({"y": Y + 6 * number}, tmp_path / f"{number}.parquet", progress=False)
    for paths in (tmp_path / "*.parquet", [tmp_path / f"{number}.parquet" for number in range(3)]):
        (batch,) = bu.from_file(paths).batch_iterator(99)
        assert batch["y"].tolist() == list(range(18))


def test_folders_are_known_by_what_they_hold(tmp_path: Path) -> None:
    pa, lmdb = pytest.importorskip("pyarrow"), pytest.importorskip("lmdb")
    table = pa.table({"y": Y})
    (tmp_path / "saved[1]").mkdir()
    for number, part in enumerate((table[:4], table[4:])):  # as save_to_disk of Hugging Face has them
        name = tmp_path / "saved[1]" / f"data-{number:05d}-of-00002.arrow"
        with pa.ipc.new_stream(str(name), table.schema) as stream:
            stream.write_table(part)
    (batch,) = bu.from_file(tmp_path / "saved[1]").batch_iterator(99)
    assert batch["y"].tolist() == Y.tolist()
    with lmdb.open(str(tmp_path / "values")) as file, file.begin(write=True) as transaction:
        transaction.put(b"1", b"one")
    assert next(bu.from_file(tmp_path / "values").batch_iterator(1)) == {"x": [b"one"]}


@pytest.mark.parametrize("ending", COLUMNS_BY_ENDING)
def test_a_pipe_is_refused_and_not_waited_for(ending: str, tmp_path: Path) -> None:
    pytest.importorskip(NEEDS.get(ending, "numpy"))
    os.mkfifo(tmp_path / f"x{ending}")
    with raises(SampleReadError):
        bu.from_file(tmp_path / f"x{ending}")


def test_of_a_saved_data_set_only_the_files_of_its_state_are_read(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    (tmp_path / "saved").mkdir()
    for name, value in (("data-00000-of-00001.arrow", 0), ("data-00000-of-00002.arrow", 1), ("../data-x.arrow", 2)):
        table = pa.table({"y": [value]})
        with pa.ipc.new_stream(str(tmp_path / "saved" / name), table.schema) as stream:
            stream.write_table(table)
    for names, expected in (
        (["data-00000-of-00002.arrow"], [1]), (["../data-x.arrow"], [0, 1]), ([], [0, 1]), (3, [0, 1]),
    ):  # fmt: skip
        told = {"_data_files": [{"filename": name} for name in names] if isinstance(names, list) else names}
        (tmp_path / "saved" / "state.json").write_text(json.dumps(told))
        assert next(bu.from_file(tmp_path / "saved").batch_iterator(9))["y"].tolist() == expected
    told = {"_data_files": [{"filename": f"data-0000{shard}-of-00002.arrow"} for shard in range(2)]}
    (tmp_path / "saved" / "state.json").write_text(json.dumps(told))  # the second was not copied
    with raises(SampleReadError) as caught:
        bu.from_file(tmp_path / "saved")
    assert str(caught.value.source).endswith("data-00001-of-00002.arrow")


def test_what_is_close_to_a_known_format_is_refused_with_what_to_do(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / "saved" / split).mkdir(parents=True)
        (tmp_path / "saved" / split / "data-00000-of-00001.arrow").touch()
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with raises(ArgumentError):
        bu.from_file(tmp_path / "saved")
    with raises(ArgumentError):
        bu.from_file(tmp_path / "x.jsonl.gz")
    with tarfile.open(tmp_path / "x.tar", "w") as file:
        file.addfile(tarfile.TarInfo("a.pkl"))
    with raises(ArgumentError):
        bu.from_file(tmp_path / "x.tar")


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    with raises(ArgumentError):
        bu.from_file(tmp_path / "x.pt")
    with raises(ArgumentTypeError):
        bu.from_file(Y)  # type: ignore[arg-type]
    np.save(tmp_path / "y.npy", Y)
    assert len(next(bu.from_file([tmp_path / "y.npy"]).batch_iterator(2))["x"]) == 2
    with raises(ArgumentError):
        bu.from_file([tmp_path / "y.npy"] * 2)
    with raises(SampleReadError):
        bu.from_file(tmp_path / "x.npy")
    pytest.importorskip("lmdb")
    with raises(SampleReadError):
        bu.from_file(tmp_path / "x.lmdb")
    written(tmp_path / "d.lmdb")
    with raises(ArgumentError):
        bu.from_file(tmp_path / "d.lmdb", ["z"])
