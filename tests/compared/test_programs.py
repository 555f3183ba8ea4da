"""The programs of docs/compared do what the page says, each where its library is installed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from tests.compared import files, oracles, run
from tests.compared.programs import LIBRARIES, PROGRAMS, TASKS
from tests.extent import quick
from tests.short_folder import short_folder

pytestmark = pytest.mark.skipif(not PROGRAMS.exists(), reason="not run in a checkout")

NEEDS = {
    "batchup_ng": (), "torch": ("torch", "torchvision"), "tf_data": ("tensorflow", "keras"),
    "hugging_face": ("datasets", "torch", "torchvision", "transformers"), "grain": ("grain",),
}  # fmt: skip
"""What a library's programs import."""
NEEDS_OF_TASKS = {"large_file": ("h5py",), "lengths": ("pyarrow",)}
NEEDS_OF_PROGRAMS = {
    f"{task}_{library}": ("pandas",)
    for task in ("columns", "lengths", "boxes")
    for library in ("torch", "tf_data", "grain")
} | {"boxes_batchup_ng": ("cv2", "narwhals", "pandas")}
TOGETHER = (("batchup_ng",), ("torch", "hugging_face"), ("tf_data",), ("grain",))
"""Libraries that share an interpreter, since they import the same."""
LONGEST = 800


def absent(task: str, library: str) -> list[str]:
    """Return the packages that a program needs and that are not installed."""
    needed = {*NEEDS[library], *NEEDS_OF_TASKS.get(task, ()), *NEEDS_OF_PROGRAMS.get(f"{task}_{library}", ())}
    return sorted(name for name in needed if find_spec(name) is None)


@pytest.fixture(scope="module")
def logs() -> Any:
    """Give a function that returns what a program handed to its network; it runs all programs of a library at once."""
    results: dict[str, Any] = {}

    def log(task: str, library: str) -> Any:
        if f"{task}_{library}" not in results:
            (libraries,) = (some for some in TOGETHER if library in some)
            results.update(results_of([f"{t}_{each}" for each in libraries for t in TASKS if not absent(t, each)]))
        return results[f"{task}_{library}"]

    return log


def results_of(programs: list[str]) -> dict[str, Any]:
    """Run programs in an interpreter of their own; return their logs, or their errors."""
    with short_folder() as folder:
        paths = [str(PROGRAMS.parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
        environment |= {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)), "TMPDIR": str(folder), "HF_HOME": str(folder / "hf"),
            "HF_HUB_OFFLINE": "1", "KERAS_BACKEND": "tensorflow", "KERAS_HOME": str(folder / "keras"),
            "TF_CPP_MIN_LOG_LEVEL": "3", "TORCHINDUCTOR_CACHE_DIR": str(folder / "compiled"), "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        data, result = folder / "data", folder / "result"
        data.mkdir()
        files.write_files(data)
        command = [sys.executable, run.__file__, str(result), *programs]
        done = subprocess.run(
            command, cwd=data, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False
        )
        assert done.returncode == 0, done.stderr
        results: dict[str, Any] = pickle.loads(result.read_bytes())
    return results


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("library", "task"),
    quick([("batchup_ng", task) for task in TASKS], [(library, task) for library in LIBRARIES for task in TASKS]),
)
def test_a_program_hands_over_what_the_page_says(library: str, task: str, logs: Any) -> None:
    if lacks := absent(task, library):
        pytest.skip(f"this program needs {', '.join(lacks)}")
    log = logs(task, library)
    assert not isinstance(log, str), log
    getattr(oracles, f"check_{task}")(log, library)


def test_every_program_is_run() -> None:
    assert {path.stem for path in PROGRAMS.glob("*.py")} == {f"{task}_{each}" for task in TASKS for each in LIBRARIES}
