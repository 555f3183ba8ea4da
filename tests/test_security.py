"""The security bars of what reads files: pictures, stored rows, saved states (S1, S2, S7, S8, S9)."""

from __future__ import annotations

import ast
import os
import pickle
import subprocess
import sys
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
    "data_source.from_csv": bu.from_csv,
    "data_source.from_folder": lambda path: bu.from_folder(path.parent, exclude=path),
    "data_source.subset": lambda path: bu.ArrayDataSource([np.arange(3)]).subset(exclude=path),
}
"""All that reads a file which a user names."""

LIBRARIES = {"Hdf5Rows": "h5py", "Hdf5Values": "h5py", "LmdbArray": "lmdb", "LmdbRows": "lmdb", "ArrowRows": "pyarrow",
             "ParquetRows": "pyarrow", "ZarrRows": "zarr"}  # fmt: skip
"""What some of them need."""

READ_NO_FILES = {"Accessor", "CenterCrop", "ImageArrayUInt8ToFloat32", "MapStyle", "Ragged", "RandomResizedCrop",
                 "gather"}  # fmt: skip


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
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
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
        capture_output=True, text=True, timeout=120, check=False, env=environment,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
