"""A table of 100 compressed columns, kept by `Cached` and read by a pool of 8, in less memory than its rows have.

Quickly the limit and the columns have a fraction of their size. With `--thorough` the limit is 2 GB.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import batchup_ng as bu
from tests.extent import quick
from tests.faults.groups import group_with
from tests.faults.test_shared_memory import kills_for_memory

h5py = pytest.importorskip("h5py", reason="h5py is not installed")

pytestmark = pytest.mark.in_turn

COLUMNS = 100

PROGRAM = """
import os, resource, sys, warnings
how, where, path, rows = *sys.argv[1:4], int(sys.argv[4])
if how == "RLIMIT_AS":
    resource.setrlimit(resource.RLIMIT_AS, (int(where), int(where)))
elif how == "group":
    open(where, "w").write(str(os.getpid()))
import numpy as np
import batchup_ng as bu

warnings.simplefilter("ignore")
source = bu.from_file(path).cache()
if how == "BATCHUP_NG_MEMORY":
    assert sum(bu.memory().values()) <= bu.memory().limit
with bu.WorkerProcessPool(8) as pool:
    first, weights = 0, np.zeros(100)
    for batch in pool.parallel_data_source(source).batch_iterator(32):
        expected = np.arange(first, first + len(batch["c00"]))
        for number in range(100):
            x = batch[f"c{number:02d}"]
            assert (x == (expected * 100 + number)[:, None]).all(), (first, number)
            weights[number] += x[:, 0].sum()
        first += len(expected)
        if how == "BATCHUP_NG_MEMORY":
            assert sum(bu.memory().values()) <= 1.05 * bu.memory().limit, bu.memory()
    print(first == rows, (weights == (np.arange(rows) * 100).sum() + rows * np.arange(100)).all())
"""


def written(path: Path, rows: int, width: int) -> Path:
    """Write the table: row r of column c is 100 r + c, `width` times."""
    with h5py.File(path, "w") as file:
        for number in range(COLUMNS):
            x = np.broadcast_to(np.arange(rows, dtype=np.int32)[:, None] * COLUMNS + number, (rows, width))
            options = {"chunks": (64, width), "compression": "gzip", "compression_opts": 1}
            file.create_dataset(f"c{number:02d}", data=x, **options)
    return path


def trained(how: str, where: str, path: Path, rows: int, seconds: float) -> None:
    """Run the program, and check that it read all rows of an epoch, each right, and ended."""
    environment = {**os.environ, "PYTHONPATH": str(Path(bu.__file__).parents[1])}
    if how == "BATCHUP_NG_MEMORY":
        environment[how] = where
    command = [sys.executable, "-c", PROGRAM, how, where, str(path), str(rows)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
    assert (done.stdout, done.returncode) == ("True True\n", 0), done.stderr


def in_group(path: Path, rows: int, limit: int, seconds: float) -> None:
    with group_with("memory", "memory.max", "memory.limit_in_bytes") as group:
        name = next(file for file in ("memory.max", "memory.limit_in_bytes") if (group / file).exists())
        (group / name).write_text(str(limit))
        trained("group", str(group / "cgroup.procs"), path, rows, seconds)
        assert kills_for_memory(group) == 0


def test_a_wide_table_is_trained_on_in_a_small_container(tmp_path: Path) -> None:
    """262 MB of rows, and interpreters of 160 MB."""
    in_group(written(tmp_path / "x.h5", 1280, 512), 1280, 340_000_000, 600)


@pytest.mark.parametrize("how", quick(["RLIMIT_AS"], ["BATCHUP_NG_MEMORY"]))
def test_a_wide_table_is_trained_on_under_a_limit(how: str, tmp_path: Path) -> None:
    limit = 1_000_000_000 if how == "RLIMIT_AS" else 200_000_000  # libraries alone map 300 MB
    trained(how, str(limit), written(tmp_path / "x.h5", 1280, 512), 1280, 600)


@pytest.mark.thorough
def test_a_wide_table_is_trained_on_in_a_container_of_2_gb(tmp_path: Path) -> None:
    in_group(written(tmp_path / "x.h5", 6400, 1024), 6400, 2_000_000_000, 3000)


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["RLIMIT_AS", "BATCHUP_NG_MEMORY"])
def test_a_wide_table_is_trained_on_under_a_limit_of_2_gb(how: str, tmp_path: Path) -> None:
    trained(how, "2000000000", written(tmp_path / "x.h5", 6400, 1024), 6400, 3000)
