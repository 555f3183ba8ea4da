"""A program that converts in children that are killed: read by ``test_killed.py``, run as a process of its own.

Each line that it reads is a JSON list ``[target, moment, seconds, file_bytes, disk_step, options]``. It forks a child,
which converts the source that suits the target, and kills itself, by SIGKILL, at call or return number `moment` of or
by a function that writes (None for never), or is killed after so many `seconds` (None for never), wherever its threads
are then; `file_bytes` bounds the bytes of a file, as a full disk would. With a `disk_step` the child converts to disks
of its own instead, each larger by so many bytes. It answers with a JSON list: the signal that ended the child (0 if it
came to its end), the text of the error that was raised, how many calls and returns there were.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import batchup_ng as bu
from batchup_ng import formats, replaced_file
from batchup_ng.formats import draft, job
from tests import small_disk
from tests.extent import THOROUGH

N = 200
PART_BYTES = 3_000 if THOROUGH else 8_000
PAGE = 4096
WRITING = tuple(str(path) for path in [*Path(formats.__path__[0]).glob("*.py"), replaced_file.__file__])
"""The files whose calls and returns are counted: those that write something."""


class Failing:
    """Numbers, some of which cannot be read."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, rows: Any) -> Any:
        if np.isin([3, 77], rows).any():
            raise OSError("cannot be read")
        return np.asarray(rows) * 2


def objects(values: list[Any]) -> np.ndarray:
    """Return an array of objects, whatever they are."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def columns(name: str) -> dict[str, Any]:
    """Return columns that the format of a target holds, all kinds of them."""
    rng = np.random.default_rng(0)
    fixed = {"x": rng.integers(0, 4, (N, 5, 4, 3), np.uint8), "y": np.arange(N), "f": rng.normal(size=N).astype("f4")}
    if name.endswith(".npy"):
        return {"x": fixed["x"]}
    if "contiguous" in name or name.endswith(".zarr"):
        return fixed
    return fixed | {
        "text": objects([f"é{i}" * (i % 7) for i in range(N)]),
        "data": objects([rng.bytes(i % 50) for i in range(N)]),
        "ragged": objects([rng.normal(size=i % 5) for i in range(N)]),
    }


def source_of(name: str) -> bu.AbstractDataSource:
    """Return the source for a target."""
    data = columns(name)
    return bu.ArrayDataSource(data | {"bad": Failing()} if "skip" in name else data)


def child(
    target: str, moment: int | None, timed: float | None, file_bytes: int | None, options: dict[str, Any],
    tell: Callable[[Any], None],
) -> None:  # fmt: skip
    """Convert once."""
    job.PART_BYTES, draft.DRAFT_PAGE_BYTES = PART_BYTES, PAGE
    source = source_of(Path(target).name)
    if file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    seen = 0

    def count(frame: Any, *event: Any) -> None:
        nonlocal seen
        seen += frame.f_code.co_filename.endswith(WRITING)
        if seen == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count if timed is None else None)
    try:
        bu.convert(source, target, batch_size=16, progress=False, **options)
        told = ""
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
    finally:
        sys.setprofile(None)
    tell([0, told, seen])


def onto_full_disks(target: Path, step: int, options: dict[str, Any], tell: Callable[[Any], None]) -> None:
    """Convert to ever larger disks until one has room; on those that are full convert again when they have more.

    Tells one more than the number of disks that were full, and which of them led to something else than the last did.
    """
    job.PART_BYTES, draft.DRAFT_PAGE_BYTES = PART_BYTES, PAGE
    source = source_of(target.name)
    made = []
    try:
        small_disk.own_mounts()
    except OSError as error:
        tell([0, str(error), 0])
        return
    for nbytes in range(2 * PAGE, 1 << 23, step):
        with small_disk.small_disk(target.parent, nbytes) as resize:
            full = False
            try:
                bu.convert(source, target, batch_size=16, progress=False, **options)
            except bu.WriteError:
                full = True
                resize(1 << 26)
                bu.convert(source, target, batch_size=16, progress=False, **options)
            made.append(contents(target.parent))
        if not full:
            break
    differ = [number for number, found in enumerate(made) if found != made[-1]]
    tell([0, f"those that differ: {differ}" if differ else "", len(made)])


def contents(folder: Path) -> dict[str, Any]:
    """Return what is in a folder: of each file its digest, of a database its rows."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.name == "data.mdb":
            found[name] = rows_of(path.parent)
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    return found


def rows_of(path: Path) -> list[Any]:
    """Return the rows of a database."""
    import lmdb

    with lmdb.open(str(path), readonly=True, lock=False, max_dbs=2) as environment:
        databases = [environment.open_db(name) for name in (b"data_db", b"meta_db")]
        with environment.begin() as transaction:
            return [list(transaction.cursor(db)) for db in databases]


def answered(request: list[Any]) -> list[Any]:
    """Return what became of a child."""
    out, into = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            target, *how, disk_step, options = request

            def tell(answer: Any) -> None:
                os.write(into, json.dumps(answer).encode())

            if disk_step is None:
                child(target, *how, options, tell=tell)
            else:
                onto_full_disks(Path(target), disk_step, options, tell=tell)
        finally:
            os._exit(0)
    os.close(into)
    if request[2] is not None and not select.select([out], [], [], request[2])[0]:
        os.kill(pid, signal.SIGKILL)
    with open(out, "rb") as file:
        told = file.read()
    _, status = os.waitpid(pid, 0)
    return json.loads(told) if os.WIFEXITED(status) and told else [os.WTERMSIG(status), "", 0]


if __name__ == "__main__":
    for module in ("h5py", "lmdb", "msgpack", "zarr", "pyarrow.parquet") if THOROUGH else ("h5py",):
        with contextlib.suppress(ImportError):
            __import__(module)
    for line in sys.stdin:
        print(json.dumps(answered(json.loads(line))), flush=True)
