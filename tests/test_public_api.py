"""The public names and their signatures change only on purpose."""

from __future__ import annotations

import difflib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import public_api
from tests.public_api import CORE, FRAMEWORKS

ROOT = Path(__file__).parents[1]


def sections(*names: str) -> dict[str, list[str]]:
    """Return the lines of these modules, which a process of its own imports."""
    command = [sys.executable, "-m", "tests.public_api", *names]
    done = subprocess.run(command, cwd=ROOT, timeout=800, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def core() -> dict[str, list[str]]:
    """The lines of the modules that need no optional library."""
    return sections(*CORE)


def compare(module: str, now: list[str]) -> None:
    """Fail if the lines of a module are not those in the file."""
    changes = [*difflib.unified_diff(public_api.read()[module], now, "frozen", "now", lineterm="", n=1)]
    if changes:
        remedy = "if the change is deliberate, run: python -m tests.public_api; and tell users in CHANGELOG.md"
        pytest.fail("\n".join([f"the public API of {module} has changed", remedy, *changes]), pytrace=False)


def test_the_file_has_each_module() -> None:
    assert sorted(public_api.read()) == sorted([*CORE, *FRAMEWORKS])
    assert public_api.written(public_api.read()) == public_api.FILE.read_text(encoding="utf-8")


@pytest.mark.parametrize("module", CORE)
def test_the_public_names_of_a_module_are_those_in_the_file(module: str, core: dict[str, list[str]]) -> None:
    compare(module, core[module])


@pytest.mark.in_turn
@pytest.mark.parametrize("module", FRAMEWORKS)
def test_the_public_names_for_a_framework_are_those_in_the_file(module: str) -> None:
    now = sections(*CORE, module)
    if module not in now:
        pytest.skip(f"the library of {module} is not installed")
    compare(module, now[module])


def test_a_name_a_default_and_a_base_are_part_of_the_text(core: dict[str, list[str]]) -> None:
    lines = core["batchup_ng"]
    (made,) = [line for line in lines if line.startswith("class WorkerThreadPool")]
    assert made.startswith("class WorkerThreadPool(processes=None")
    assert made.endswith(" of AbstractWorkerPool")
    assert "class AccountingError of BatchupError, RuntimeError" in lines
    assert "WorkerThreadPool = batchup_ng.WorkerThreadPool" in core["batchup_ng.work_pool"]
    assert any(line.startswith("    map(source, fn, *, on=None") for line in lines)
