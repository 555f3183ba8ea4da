"""Whole scripts as a user of BatchUp wrote them: no guard for the main module, no close."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.extent import quick

DEADLINE_S = 600
IS_EXITING = 0x4
"""The kernel's PF_EXITING: such a process has closed its files, yet is not gone for another moment."""

SCRIPT = """
import sys
import numpy as np
from PIL import Image
from batchup_ng import data_source, work_pool

class Pictures:
    def __init__(self, n):
        self.n = n
    def __len__(self):
        return self.n
    def __getitem__(self, index):
        return [Image.new("L", (int(i) % 9 + 4, 8), int(i)) for i in index]

def augment_batch(batch_x, batch_y):
    return np.stack([np.array(picture.resize((6, 6))) for picture in batch_x]), batch_y

def train(batches):
    rows = []
    for batch_x, batch_y in batches:
        assert (batch_x[:, 0, 0] == batch_y).all()
        rows.extend(batch_y.tolist())
    return rows

pool = getattr(work_pool, sys.argv[1])(processes=2)
ds = data_source.ArrayDataSource([Pictures(100), np.arange(100)])
par_ds = pool.parallel_data_source(ds.map(augment_batch), batch_buffer_size=32)
"""

WHOLE_EPOCHS = """
for epoch in range(2):
    rows = train(par_ds.batch_iterator(batch_size=8, shuffle=np.random.RandomState(12345)))
    assert sorted(rows) == list(range(100))
print("end of the script")
"""

BROKEN_OFF = """
for batch_x, batch_y in par_ds.batch_iterator(batch_size=8, shuffle=np.random.RandomState(12345)):
    break
waiting = par_ds.batch_iterator(batch_size=8)
next(waiting)
print("end of the script")
"""


def living_members(session: int) -> list[str]:
    """The processes of a session that still run, as lines of /proc; those on their way out of the kernel are over."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            line = entry.read_text(errors="replace")
        except OSError:  # it ended as we looked
            continue
        state, _, _, its_session, _, _, flags = line.rpartition(")")[2].split()[:7]
        if int(its_session) == session and state not in "ZX" and not int(flags) & IS_EXITING:
            found.append(line)
    return found


def run_script(path: Path, kind: str) -> tuple[int, str, str, int]:
    """Run it in a session of its own; its output ends only when every process that inherited it has ended."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(entry for entry in sys.path if entry))
    with subprocess.Popen(
        [sys.executable, str(path), kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            raise
    return process.returncode, out, err, process.pid


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="left processes are looked for in /proc")
@pytest.mark.parametrize(
    ("kind", "ending"),
    quick(
        [("WorkerProcessPool", BROKEN_OFF)],
        list(itertools.product(["WorkerThreadPool", "WorkerProcessPool"], [BROKEN_OFF, WHOLE_EPOCHS])),
    ),
    ids=["processes, broken off", "threads, broken off", "threads, whole epochs", "processes, whole epochs"],
)
def test_a_script_without_guard_and_close_ends_cleanly(tmp_path: Path, kind: str, ending: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(SCRIPT + ending)
    code, out, err, session = run_script(script, kind)
    assert (code, out.splitlines()) == (0, ["end of the script"]), err
    assert "Traceback" not in err
    assert living_members(session) == []
