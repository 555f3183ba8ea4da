"""The security bars of what reads files: pictures, stored rows, saved states (S1, S2, S7, S8, S9)."""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import pickle
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import batchup_ng as bu
from batchup_ng import accessors, data_source

PACKAGE = Path(bu.__file__).parent


class Canary:
    """A pickle that leaves a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def resume(path: Path) -> None:
    bu.ArrayDataSource([np.arange(10)]).batch_iterator(4).load_state(path)


READERS: dict[str, Callable[[Path], Any]] = {
    "ImageFiles": lambda path: bu.ImageFiles([path], 8)[0],
    "ImageBytes": lambda path: bu.ImageBytes([path.read_bytes()], 8)[0],
    "FileBytes": lambda path: bu.ImageBytes(bu.FileBytes([path]), 8)[0],
    "Hdf5Rows": bu.Hdf5Rows,
    "Hdf5Values": bu.Hdf5Values,
    "LmdbArray": lambda path: bu.LmdbArray(path, np.uint8, 1),
    "LmdbRows": bu.LmdbRows,
    "ArrowRows": lambda path: bu.ArrowRows(path, "x"),
    "NpyRows": bu.NpyRows,
    "NpzRows": bu.NpzRows,
    "SafetensorsRows": bu.SafetensorsRows,
    "TarShards": bu.TarShards,
    "TextLines": lambda path: bu.TextLines(path)[:],
    "ParquetRows": lambda path: bu.ParquetRows(path, "x"),
    "ZarrRows": bu.ZarrRows,
    "BatchIterator.load_state": resume,
    "datasets.from_csv": bu.from_csv,
    "datasets.from_folder": lambda path: bu.from_folder(path.parent, exclude=path),
    "data_source.subset": lambda path: bu.ArrayDataSource([np.arange(3)]).subset(exclude=path),
}
"""All that reads a file which a user names."""

LIBRARIES = {"Hdf5Rows": "h5py", "Hdf5Values": "h5py", "LmdbArray": "lmdb", "LmdbRows": "lmdb", "ArrowRows": "pyarrow",
             "ParquetRows": "pyarrow", "ZarrRows": "zarr"}  # fmt: skip
"""What some of them need."""

READ_NO_FILES = {"Accessor", "CenterCrop", "ImageArrayUInt8ToFloat32", "MapStyle", "Ragged", "RandomResizedCrop",
                 "TokenBlocks", "gather"}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
def test_s1_no_reader_runs_code_out_of_a_file(reader: str, tmp_path: Path) -> None:
    pytest.importorskip(LIBRARIES.get(reader, "numpy"))
    path, sign = tmp_path / "data", tmp_path / "it ran"
    path.write_bytes(pickle.dumps({"version": 1, "canary": Canary(sign)}))
    with pytest.raises(bu.BatchupError):
        READERS[reader](path)
    assert not sign.exists()
    pickle.loads(path.read_bytes())
    assert sign.exists(), "the canary would not have run anywhere"


def hide_in_hdf5(path: Path, canary: Canary) -> list[Callable[[], Any]]:
    with pytest.importorskip("tables").open_file(path, "w") as file:
        file.create_vlarray("/", "objects", pytest.importorskip("tables").ObjectAtom()).append(canary)
        file.create_array("/", "array", np.arange(3)).attrs.canary = canary  # pickled, as PyTables does
    with pytest.importorskip("h5py").File(path, "a") as file:
        file["opaque"] = np.array([np.void(pickle.dumps(canary))] * 3)
        file["opaque"].attrs["canary"] = np.void(pickle.dumps(canary))
    named = [lambda name=name: bu.Hdf5Rows(path, name) for name in ("opaque", "array")]
    return [*named, lambda: bu.Hdf5Values(path, "objects")]


def hide_in_lmdb(path: Path, canary: Canary) -> list[Callable[[], Any]]:
    """As msgpack_numpy and ml-pyxis would write an array of objects."""
    msgpack, pickled = pytest.importorskip("msgpack"), pickle.dumps(canary)
    array = {"nd": True, "type": "|O", "kind": "O", "dtype": "|O", "shape": [1], "data": pickled}
    samples = [{"typed": msgpack.ExtType(1, pickled), "raw": pickled}, {"array": array}]
    packed = [msgpack.packb({name: msgpack.packb(part) for name, part in sample.items()}) for sample in samples]
    with pytest.importorskip("lmdb").open(str(path), subdir=False, max_dbs=1) as env:
        database = env.open_db(b"data_db")
        with env.begin(write=True, db=database) as transaction:
            for key, value in enumerate([*packed, pickled, msgpack.packb(msgpack.ExtType(1, pickled))]):
                transaction.put(b"%d" % key, value)
    decoders: list[Any] = [None, "pyxis", "datum"]
    whole = [lambda decode=decode: bu.LmdbRows(path, decode, database="data_db") for decode in decoders]
    fields = [lambda name=name: bu.LmdbRows.columns(path, [name])[name] for name in samples[0]]
    return [*whole, *fields]


def hide_in_zarr(path: Path, canary: Canary) -> list[Callable[[], Any]]:
    zarr, pickled = pytest.importorskip("zarr", minversion="3.0"), pickle.dumps(canary)
    changes: list[dict[str, Any]] = [
        {"filters": [{"id": "pickle"}]},
        {"filters": [{"id": "pickle"}], "dtype": "|O", "fill_value": base64.b64encode(pickled).decode()},
        {"filters": [{"id": "pickle"}], "dtype": [["a", "|O"]], "fill_value": base64.b64encode(pickled).decode()},
        {"codecs": [{"name": "bytes"}, {"name": "numcodecs.pickle", "configuration": {}}]},
    ]
    for number, change in enumerate(changes):
        form = {"shape": (3,), "dtype": "u1", "compressors": None, "zarr_format": 3 if "codecs" in change else 2}
        zarr.create_array(path / str(number), **form, attributes={"canary": pickled.hex()})[:] = 1
        (metadata,) = (path / str(number)).glob("*z*arr*")
        metadata.write_text(json.dumps(json.loads(metadata.read_text()) | change))
        chunk = path / str(number) / ("c/0" if "codecs" in change else "0")
        assert chunk.exists()
        chunk.write_bytes(pickled)
    return [lambda number=number: bu.ZarrRows(path / str(number)) for number in range(len(changes))]


def hide_in_arrow(path: Path, canary: Canary) -> list[Callable[[], Any]]:
    pa, pickled = pytest.importorskip("pyarrow"), pickle.dumps(canary)
    parquet, ipc = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow.ipc")
    typed = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickled}  # PyExtensionType
    fields = [pa.field("typed", pa.int64(), metadata=typed), pa.field("raw", pa.binary(), metadata={"PANDAS": pickled})]
    schema = pa.schema(fields, {"pandas": pickled, "huggingface": pickled})
    table = pa.table([[1, 2], [pickled, pickled]], schema=schema)
    parquet.write_table(table, path)
    with ipc.new_file(f"{path}.arrow", table.schema) as file:
        file.write_table(table)
    in_parquet = [lambda name=name: bu.ParquetRows(path, name) for name in table.column_names]
    return [*in_parquet, *(lambda name=name: bu.ArrowRows(f"{path}.arrow", name) for name in table.column_names)]


def hide_in_npz(path: Path, canary: Canary) -> list[Callable[[], Any]]:
    with open(path, "wb") as file:
        np.savez(file, objects=np.array([canary], object), fields=np.array([(canary,)], [("a", object)]))
    np.save(f"{path}.npy", np.array([canary], object), allow_pickle=True)
    named = [lambda name=name: bu.NpzRows(path, name) for name in ("objects", "fields")]
    return [*named, lambda: bu.NpyRows(f"{path}.npy")]


def hide_in_tar(path: Path, canary: Canary) -> list[Callable[[], Any]]:
    array = io.BytesIO()
    np.save(array, np.array([canary], object), allow_pickle=True)
    ends = ("pkl", "pyd", "pickle", "pth", "pt", "npy", "json", "cls", "txt", "bin", "jpg")
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT, pax_headers={"canary": repr(pickle.dumps(canary))}) as file:
        for end in ends:
            content = array.getvalue() if end == "npy" else pickle.dumps(canary)
            member = tarfile.TarInfo(f"0.{end}")
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    columns = [lambda end=end: bu.TarShards.columns(path, [end], 8)[end] for end in ends]
    return [lambda: bu.TarShards(path), *columns, *(lambda end=end: bu.TarShards(path, end) for end in ends)]


def hide_in_safetensors(path: Path, canary: Canary) -> list[Callable[[], Any]]:
    pickled = pickle.dumps(canary)
    array = {"shape": [len(pickled)], "data_offsets": [0, len(pickled)]}
    arrays = {"x": {"dtype": "U8", **array}, "objects": {"dtype": "|O", **array}}
    header = json.dumps({"__metadata__": {"canary": pickled.decode("latin-1")}, **arrays}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + pickled)
    return [lambda name=name: bu.SafetensorsRows(path, name) for name in arrays]


@pytest.mark.parametrize(
    "hide",
    [hide_in_hdf5, hide_in_lmdb, hide_in_zarr, hide_in_arrow, hide_in_npz, hide_in_tar, hide_in_safetensors],
)  # fmt: skip
def test_s1_no_code_runs_that_hides_where_a_format_has_room_for_it(
    hide: Callable[[Path, Canary], list[Callable[[], Any]]], tmp_path: Path
) -> None:
    sign = tmp_path / "it ran"
    openings = hide(tmp_path / "data", Canary(sign))
    assert any(b"it ran" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for opened in openings:
        with contextlib.suppress(bu.BatchupError):
            rows = opened()
            for row in range(len(rows)):
                with contextlib.suppress(bu.BatchupError):
                    rows[row]
    assert not sign.exists()


@pytest.mark.parametrize("reader", READERS)
def test_s7_a_name_that_would_speak_to_a_terminal_is_escaped(reader: str, tmp_path: Path) -> None:
    pytest.importorskip(LIBRARIES.get(reader, "numpy"))
    path = tmp_path / "\x1b[31m\n<script>.npy"
    path.write_bytes(b"\xff no such thing")
    with pytest.raises(bu.BatchupError) as caught:
        READERS[reader](path)
    assert not set(str(caught.value)) & {"\x1b", "\r", "\0"}
    assert "\n<script>" not in str(caught.value)
    named = getattr(caught.value, "source", None) or str(path)
    assert named.removesuffix(":1") == str(path)  # of lines, which one


@pytest.mark.parametrize("reader", READERS)
def test_s8_no_name_is_a_command(reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(LIBRARIES.get(reader, "numpy"))
    monkeypatch.chdir(tmp_path)
    for name in ("pipe:touch ran", "|touch ran", "pipe:touch ran |"):
        with pytest.raises((bu.BatchupError, OSError)):
            READERS[reader](Path(name))
    assert not os.listdir(tmp_path)


def test_s1_a_file_of_rows_that_is_none_is_replaced(tmp_path: Path) -> None:
    class Rows:
        shape, dtype = (3, 2), np.int64
        fingerprint = __len__ = lambda self: 3

        def __getitem__(self, rows: np.ndarray) -> np.ndarray:
            return np.ones((len(rows), 2), np.int64)

    folder, sign = tmp_path / "cache", tmp_path / "it ran"
    folder.mkdir()
    bu.Cached(Rows(), folder)
    (file,) = folder.iterdir()
    canary = pickle.dumps(Canary(sign))
    file.write_bytes(canary.ljust(file.stat().st_size))
    assert bu.Cached(Rows(), folder)[:].sum() == 6
    assert not file.read_bytes().startswith(canary)
    assert not sign.exists()


def test_s1_no_reader_was_forgotten() -> None:
    assert set(accessors.__all__) == READ_NO_FILES | {"Cached"} | {name for name in READERS if "." not in name}
    loaders = {name for name in dir(data_source.BatchIterator) if name.startswith(("load", "open", "read", "from_"))}
    assert loaders == {"load_state", "load_state_dict"}  # the second is given what has been read


DANGEROUS = {"pickle.loads", "pickle.load", "cloudpickle.loads", "cloudpickle.load", "pickle.Unpickler", "torch.load",
             "marshal.loads", "marshal.load", "yaml.load", "eval", "exec", "os.system", "os.popen"}  # fmt: skip
MAY_UNPICKLE = ("work_pool/processes/", "testing/", "errors.py")
"""What workers and their pool say to one another, errors that are tried before they travel, and test suites."""


def dangers(path: Path) -> list[str]:
    """Return what a module calls that can run code out of data, or a shell."""
    found: list[str] = []
    text = path.read_text()
    if not re.search(r"(?:eval|exec|loads?|Unpickler|system|popen|extract|extractall)\(|shell|allow_pickle", text):
        return found  # which a parser would take a second to find out
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            found += [name] if name in DANGEROUS or name.endswith((".extractall", ".extract")) else []
            for keyword in node.keywords:
                off = getattr(keyword.value, "value", None) is False
                found += [f"{keyword.arg}=True"] if keyword.arg in ("shell", "allow_pickle") and not off else []
    return found


def test_s2_only_the_channel_of_workers_unpickles() -> None:
    found = {str(path.relative_to(PACKAGE)): dangers(path) for path in PACKAGE.rglob("*.py")}
    assert {name: calls for name, calls in found.items() if calls and not name.startswith(MAY_UNPICKLE)} == {}
    allowed = {call for name, calls in found.items() if name.startswith(MAY_UNPICKLE) for call in calls}
    assert allowed <= {"pickle.loads", "cloudpickle.loads"}


AUDITED = """
import os, sys
import numpy as np
import batchup_ng as bu

def hook(event, details):
    if event in ("socket.connect", "socket.bind", "socket.sendto", "os.system", "os.exec", "os.posix_spawn"):
        raise SystemExit(f"{event} {details}")
    if event == "subprocess.Popen" and details[0] != sys.executable:
        raise SystemExit(f"{event} {details}")
    if event == "open" and isinstance(details[0], str) and details[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        if details[0] != os.devnull:
            raise SystemExit(f"{event} {details}")

def audit(*batch):
    if not hasattr(sys, "audited"):
        sys.audited = True
        sys.addaudithook(hook)
    return batch

folder = sys.argv[1]
files = [f"{folder}/{k}.png" for k in range(30)]
audit()
with bu.WorkerProcessPool(2) as pool:
    source = pool.parallel_data_source(bu.ArrayDataSource([bu.ImageFiles(files, 8), np.arange(30)]).map(audit))
    for epoch in range(3):  # of which the workers audit all but their first batches
        assert sum(len(rows) for _, rows in source.batch_iterator(4, shuffle=1, epoch=epoch)) == 30
print("done")
"""


def test_s9_an_epoch_opens_no_connection_runs_no_other_program_and_writes_no_file(tmp_path: Path) -> None:
    for k in range(30):
        Image.fromarray(np.full((9, 9, 3), k, np.uint8)).save(tmp_path / f"{k}.png")
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", AUDITED, str(tmp_path)],
        capture_output=True, text=True, timeout=800, check=False, env=environment,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
