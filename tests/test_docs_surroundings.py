"""What the pages on containers and notebooks say of surroundings that the script of a page does not have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import DOCS, LONGEST, blocks_of

SMALL_SHM = """
import numpy as np
import batchup_ng as bu
from pathlib import Path
from tests.small_disk import own_mounts, small_disk

own_mounts()
with small_disk(Path("/dev/shm"), 1 << 20):
    large = bu.ArrayDataSource([np.ones((64, 1 << 20), np.uint8)]).map(lambda x: (x + x,))
    with bu.WorkerProcessPool(1) as pool:
        batches = pool.parallel_data_source(large).batch_iterator(4)
        print(sum(int(x[:, -1].sum()) for (x,) in batches), batches.stats()["transport"]["slots"] > 0)
"""

PROCESS_1 = """
import os, signal, subprocess, sys
import numpy as np
import batchup_ng as bu

def stop(number, frame):
    raise SystemExit(143)

assert os.getpid() == 1
if sys.argv[1] == "handled":
    signal.signal(signal.SIGTERM, stop)
source = bu.ArrayDataSource([np.arange(100)]).map(lambda x: (x, np.full(len(x), os.getpid())))
with bu.Loader(source, 4, shuffle=7, pool="processes", workers=1, buffer=2) as loader:
    try:
        for step, (_, pids) in enumerate(loader):
            if step == 3:
                os.kill(int(pids[0]), signal.SIGKILL)
            if step == 6:
                subprocess.run(["kill", "-TERM", "1"], check=True)  # a signal to oneself would not be ignored
    finally:
        print(step)
children = subprocess.run(["ps", "-A", "-o", "stat="], capture_output=True, text=True).stdout.split()
print(sum(each[0] == "Z" for each in children), "zombies")
"""


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that imports this checkout."""
    paths = [str(DOCS.parent), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        command, cwd=folder, env=dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, paths))),
        capture_output=True, text=True, timeout=LONGEST, check=False,
    )  # fmt: skip


@pytest.mark.in_turn
def test_workers_need_no_dev_shm(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", SMALL_SHM], tmp_path)
    if "no file system can be mounted" in done.stderr or "not permitted" in done.stderr:
        pytest.skip("this user may not mount a file system")
    assert done.stdout == f"{64 * 2} True\n", done.stderr


@pytest.mark.in_turn
@pytest.mark.parametrize(("how", "code"), [("handled", 143), ("ignored", 0)])
def test_process_1_stops_at_a_signal_only_if_it_handles_it(how: str, code: int, tmp_path: Path) -> None:
    alone = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    try:
        if run([*alone, "true"], tmp_path).returncode:
            pytest.skip("this user may not make a process 1")
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    done = run([*alone, sys.executable, "-c", PROCESS_1, how], tmp_path)
    assert done.returncode == code, done.stderr
    assert done.stdout == ("6\n" if code else "24\n0 zombies\n")


CELLS = """
import contextlib, io, json, sys
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
for code, expected in json.load(open(sys.argv[1])):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        shell.run_cell(code, store_history=False).raise_error()
    assert expected is None or expected in printed.getvalue(), (code, printed.getvalue())
print("all cells")
"""


@pytest.mark.in_turn
def test_the_page_on_notebooks_runs_cell_by_cell(tmp_path: Path) -> None:
    pytest.importorskip("IPython", reason="cells are run by IPython, which is not installed")
    (tmp_path / "cells.json").write_text(json.dumps(blocks_of("notebooks")), encoding="utf-8")
    done = run([sys.executable, "-c", CELLS, "cells.json"], tmp_path)
    assert done.stdout == "all cells\n", done.stderr
