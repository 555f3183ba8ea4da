"""How much memory and how many CPUs may be used: what files of the system say, put together."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

import batchup_ng as bu
from batchup_ng.memory import limits
from batchup_ng.work_pool.processes import process
from tests.extent import quick, thorough
from tests.faults.groups import remove

MB = 1 << 20


def group(folder: Path, **files: object) -> Path:
    """Return a folder with files, underscores for dots in the names of controllers."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")
    return folder


def test_the_memory_of_this_process_is_part_of_the_machines() -> None:
    found = limits.available()
    assert 0 < found <= psutil.virtual_memory().total


def test_the_files_of_the_machine_are_read(tmp_path: Path) -> None:
    file = tmp_path / "meminfo"
    file.write_text("MemAvailable:   12000000 kB\nMemTotal:\t7 kB\nBad:\nWorse: many kB\nName: ²\ninactive_file 4096\n")
    assert limits.entries(file) == {"MemAvailable": 12_000_000 * 1024, "MemTotal": 7168, "inactive_file": 4096}
    assert limits.entries(tmp_path / "absent") == {}


def test_the_limits_of_all_groups_count_and_files_that_may_be_dropped_count_as_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Path] = []
    monkeypatch.setattr(limits, "group_folders", lambda controller: iter(found))
    assert list(limits.memory_limits()) == []
    group(tmp_path / "inner", memory__max=1000, memory__current=700, memory__stat="anon 1\ninactive_file 300")
    group(
        tmp_path / "1", memory__limit_in_bytes=1000, memory__usage_in_bytes=900, memory__stat="total_inactive_file 100"
    )
    group(tmp_path / "above", memory__max=100, memory__current=700)
    group(tmp_path / "none", memory__max="max", memory__current=700)
    found += [tmp_path / name for name in ("inner", "1", "absent", "none")]
    assert [most for most, _ in limits.memory_limits()] == [1000, 1000]
    assert limits.available() == 200
    found.append(tmp_path / "above")
    assert limits.available() == 0


@pytest.mark.parametrize("limit", quick(["RLIMIT_AS"], ["RLIMIT_DATA"]))
def test_limits_on_the_process_count(limit: str) -> None:
    program = (
        f"import mmap, resource; resource.setrlimit(resource.{limit}, (3 << 30, 3 << 30))\n"
        "from batchup_ng.memory.limits import addresses_left, available\n"
        "left = lambda: min(available(), addresses_left())\n"
        "before = left(); held = mmap.mmap(-1, 1 << 28, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
        "print(before, left())"
    )
    before, after = map(float, _run(program).split())
    assert before < 3 << 30
    assert abs(before - after - (1 << 28)) < 16 * MB


@pytest.mark.thorough  # quickly: test_batches_of_a_spilled_array_are_those_of_the_source
def test_an_array_of_more_than_half_of_the_allowed_memory_goes_through_the_pool() -> None:
    program = """
import resource, warnings
resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
import numpy as np, batchup_ng as bu
warnings.simplefilter("ignore", bu.SharedMemoryWarning)
array = np.zeros((600, 1 << 20), np.uint8)
array[:, 0] = np.arange(600) % 251
with bu.WorkerProcessPool(2) as pool:
    constant = pool.shared_constant(bu.ArrayDataSource([array]))
    rows = [list(range(i, i + 8)) for i in range(0, 600, 100)]
    tasks = ((lambda s, r: s.samples_by_indices(np.array(r))[0][:, 0], (constant, r)) for r in rows)
    print(constant.arrays, all((x == array[r, 0]).all() for x, r in zip(pool.work_stream(tasks).retrieve_iter(), rows)))
"""
    assert _run(program) == "spilled True\n"


@pytest.fixture
def limited() -> Iterator[Path]:
    """A control group of this machine whose processes may have 600 MB together."""
    made = _limiting_group()
    if made is None:
        pytest.skip("no control group with a limit on memory can be made here")
    try:
        yield made
    finally:
        remove(made)


def _limiting_group() -> Path | None:
    files = {"memory.max": "memory.swap.max", "memory.limit_in_bytes": "memory.memsw.limit_in_bytes"}
    for folder in limits.group_folders("memory"):
        made = folder / f"batchup_ng-{os.getpid()}"
        if not (folder / "cgroup.procs").exists():
            continue
        try:
            made.mkdir()
        except OSError:
            continue
        for limit, swap in files.items():
            if (made / limit).exists():
                (made / limit).write_text(str(600 * MB))
                if (made / swap).exists():
                    (made / swap).write_text("0" if swap == "memory.swap.max" else str(600 * MB))
                return made
        made.rmdir()
    return None


@pytest.mark.thorough
def test_an_array_of_60_percent_of_a_containers_memory_goes_through_the_pool(limited: Path) -> None:
    # The system kills what goes beyond: a second copy would, 360 MB each.
    program = f"""
from pathlib import Path
from typing import Any
import os, warnings
Path({str(limited / "cgroup.procs")!r}).write_text(str(os.getpid()))
import numpy as np, batchup_ng as bu
from batchup_ng.memory import limits
warnings.simplefilter("ignore", bu.SharedMemoryWarning)
array = np.empty((720, 500_000), np.uint8)
array[:] = np.arange(720)[:, None] % 251
before = limits.available()
with bu.WorkerProcessPool(2) as pool:
    source = pool.parallel_data_source(bu.ArrayDataSource([array, np.arange(720)]), batch_buffer_size=4)
    for epoch in range(2):
        batches = source.batch_iterator(16, shuffle=1, epoch=epoch)
        rows = [row for x, y in batches if (x == (y % 251)[:, None]).all() for row in y]
        print(sorted(rows) == list(range(720)), batches.stats()["arrays"], before < 300_000_000)
"""
    assert _run(program) == "True spilled True\n" * 2


def _run(program: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path(bu.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stderr == ""
    return done.stdout


# -- threads of libraries ----------------------------------------------------------------------------------------


def threads_of_blas() -> list[int]:
    """Return the number of threads that each library for linear algebra has in this process."""
    import numpy  # noqa: F401  # which brings its library
    import threadpoolctl

    return [each["num_threads"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"]


@pytest.mark.skipif(find_spec("threadpoolctl") is None, reason="threadpoolctl, which tells, is not installed")
@pytest.mark.parametrize(
    ("method", "own", "options", "expected"),
    [
        ("forkserver", {}, {}, 1),
        ("spawn", {"OPENBLAS_NUM_THREADS": "2"}, {"blas_threads": None}, 2),
        thorough("spawn", {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}, {}, 1),
        thorough("forkserver", {}, {"blas_threads": 2}, 2),
    ],
)
def test_libraries_in_workers_have_one_thread_or_as_many_as_one_says(
    method: str, own: dict[str, str], options: dict[str, Any], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in process.THREAD_LIMITS:
        monkeypatch.delenv(name, raising=False)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    here = threads_of_blas()
    if not here or max(here) < 2:
        pytest.skip("one CPU: there is nothing to limit")
    with bu.WorkerProcessPool(1, start_method=method, **options) as pool:
        found = next(pool.work_stream(iter([(threads_of_blas,)])))
    assert found == [expected] * len(found)
    assert found
    assert threads_of_blas() == here


def test_groups_are_walked_from_the_innermost_to_the_root(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "memory" / "x").mkdir(parents=True)
    found = list(limits.group_folders("memory", tmp_path, "5:memory,cpu:/x\n3:pids:/p\n0::/a/b\n"))
    assert [str(folder.relative_to(tmp_path)) for folder in found] == ["a/b", "a", ".", "memory/x", "memory"]


@pytest.mark.parametrize("path", ["/", "/elsewhere/on/the/host", "/../../other"])
def test_a_group_that_is_not_seen_is_that_of_the_container(tmp_path: Path, path: str) -> None:
    assert list(limits.group_folders("memory", tmp_path, f"0::{path}\n")) == [tmp_path]
    assert list(limits.group_folders("memory", tmp_path, "")) == []


def test_what_is_no_number_is_no_limit(tmp_path: Path) -> None:
    for text, number in {"12\n": 12, "max": None, "": None, "-1": None}.items():
        (tmp_path / "limit").write_text(text)
        assert limits.number_in(tmp_path / "limit") == number
