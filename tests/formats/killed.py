"""A program that converts in children that are killed: read by ``test_killed.py``, run as a process of its own.

Each line that it reads is a JSON list ``[target, moment, seconds, file_bytes, options]``. It forks a child, which
converts the source that suits the target, and kills itself, by SIGKILL, at call or return number `moment` of or by a
function that writes (None for never), or is killed after so many `seconds` (None for never), wherever its threads are
then; `file_bytes` bounds the bytes of a file, as a full disk would. It answers with a JSON list: the signal that ended
the child (0 if it came to its end), the text of the error that was raised, how many calls and returns there were.
"""

from __future__ import annotations

import contextlib
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
from batchup_ng import formats
from batchup_ng.data_source.epoch import state_file
from batchup_ng.formats import conversion
from tests.extent import THOROUGH

N = 200
PART_BYTES = 3_000 if THOROUGH else 8_000
WRITING = tuple(str(path) for path in [*Path(formats.__path__[0]).glob("*.py"), state_file.__file__])
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
    conversion.PART_BYTES = PART_BYTES
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


def answered(request: list[Any]) -> list[Any]:
    """Return what became of a child."""
    out, into = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            child(*request, tell=lambda answer: os.write(into, json.dumps(answer).encode()) and None)
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
