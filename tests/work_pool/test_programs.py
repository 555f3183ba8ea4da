"""Whole programs that use a pool: they need no guard, end as they should and leave nothing.

:func:`start` gives a program a session of its own, by which its processes are found when it has ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import batchup_ng as bu
from batchup_ng.work_pool.processes.pool import START_METHODS
from tests.work_pool.processes.serialization_helpers import PATIENT

from ..extent import quick

METHODS = tuple(START_METHODS)
POOLS = ["WorkerThreadPool(2)", *[f"WorkerProcessPool(2, start_method={method!r})" for method in METHODS]]
FORKSERVER = "WorkerProcessPool(2, start_method='forkserver')"
WAYS = ["script", "-c", "-m", "stdin"]
PROGRAM = """
import os
import numpy as np
import batchup_ng as bu
{patient}

class Mine:
    pass

def add_mine(x):
    return x, [Mine() for _ in x]

os.chdir("elsewhere")
pool = bu.{pool}
source = bu.ArrayDataSource([np.arange(100_000)], repeats=-1).map(add_mine)
for x, mine in pool.parallel_data_source(source).batch_iterator(10):
    assert all(type(m) is Mine for m in mine)
    print("batch", flush=True)
    break
"""


def run(pool: str, how: str, folder: Path) -> subprocess.Popen[str]:
    """Start the program as a script, by ``-c``, by ``-m`` or from standard input.

    Its pool is made in a folder with modules that have the names of some of Python's.
    """
    program = PROGRAM.format(pool=pool, patient=PATIENT)
    (folder / "program.py").write_text(program)
    (folder / "elsewhere").mkdir()
    for module in ("json", "dataclasses"):  # of which the library imports one or the other
        (folder / "elsewhere" / f"{module}.py").write_text("raise RuntimeError('not the one')")
    commands = {"script": ["program.py"], "-c": ["-c", program], "-m": ["-m", "program"], "stdin": ["-"]}
    environment = {**os.environ, "PYTHONPATH": str(Path(bu.__file__).parents[1])}
    # An interrupt that comes while the measuring of coverage holds its lock makes it wait for that lock for ever.
    environment.pop("COVERAGE_PROCESS_CONFIG", None)
    return subprocess.Popen(
        [sys.executable, *commands[how]],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, cwd=folder, env=environment, start_new_session=True,
    )  # fmt: skip


def alive(session: int) -> list[str]:
    """Return the processes of a session."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline())[:100])
        except (OSError, psutil.Error):
            continue
    return found


def assert_gone(session: int, seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while left := alive(session):
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("pool", "how"),
    quick([(POOLS[0], "script"), (FORKSERVER, "stdin")], [(pool, how) for pool in POOLS for how in WAYS]),
)
def test_programs_need_no_guard_and_no_close_wherever_they_go(pool: str, how: str, tmp_path: Path) -> None:
    process = run(pool, how, tmp_path)
    out, errors = process.communicate((tmp_path / "program.py").read_text() if how == "stdin" else None, timeout=600)
    assert (process.returncode, out, errors) == (0, "batch\n", "")
    assert_gone(process.pid)


LOOPS = """
import sys, threading
import numpy as np
import batchup_ng as bu

def loop():
    while True:
        for x in loader:
            begun.set()

pool = bu.{pool}
loader, begun = bu.Loader([np.arange(64)], 4, shuffle=7, pool=pool), threading.Event()
threading.Thread(target=loop, daemon=True).start()
begun.wait(240)
"""

FINALIZER = """
import gc
import numpy as np
import batchup_ng as bu
{patient}

class Asks:
    def __del__(self):
        try:
            got.extend(int(x[0]) for (x,) in [next(iterator, ([-1],))])
        except bu.ReentrantIteration:
            pass

gc.set_threshold(1)
with bu.{pool} as pool:
    for epoch in range(3):
        iterator, got = pool.parallel_data_source(bu.ArrayDataSource([np.arange(64)])).batch_iterator(1), []
        for (x,) in iterator:
            got.append(int(x[0]))
            cycle = Asks()
            cycle.itself = cycle
            del cycle
        gc.collect()
        assert sorted(x for x in got if x >= 0) == list(range(64))
print("whole")
"""


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("pool", "program"),
    quick(
        [(POOLS[0], LOOPS), (FORKSERVER, LOOPS), (FORKSERVER, FINALIZER)],
        [(pool, program) for pool in ("SerialPool()", POOLS[0], FORKSERVER) for program in (LOOPS, FINALIZER)],
    ),
)
def test_what_asks_for_batches_as_a_program_ends_or_from_a_finalizer(
    pool: str, program: str, tmp_path: Path, in_full: bool
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(bu.__file__).parents[1])}
    for _ in range(20 if in_full and program is LOOPS else 1):
        done = subprocess.run(
            [sys.executable, "-c", program.format(pool=pool, patient=PATIENT)], env=environment, cwd=tmp_path,
            timeout=600, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "AccountingError" not in done.stderr
        assert program is LOOPS or (done.stdout, done.stderr) == ("whole\n", "")
