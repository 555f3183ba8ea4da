"""The tests notice what they are for: each known bug, planted in a copy, fails a test that is named, as it should.

The named tests all run without ``--thorough``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .planting import BUGS, Bug, copy_of_the_package, failures, run_tests, with_bug


def outcomes(text: str) -> dict[str, str]:
    """Return what became of each test, by its name below ``tests/``."""
    return {test: word for word, test in re.findall(r"^(PASSED|FAILED|ERROR) tests/(.+?)(?: - .*)?$", text, re.M)}


@pytest.mark.in_turn
def test_each_of_a_dozen_bugs_can_be_planted(tmp_path: Path) -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 12
    copy_of_the_package(tmp_path)
    for bug in BUGS:
        with (tmp_path / "batchup_ng" / bug.file).open("a") as module:
            module.write(bug.code)
    # What a bug replaces must be there: a name that is missing ends the import.
    command = [sys.executable, "-c", "import batchup_ng.work_pool.processes.worker"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
def test_the_named_tests_pass_without_a_bug(tmp_path: Path) -> None:
    # In a copy, as with a bug: else a test that fails there for that reason would seem to notice one.
    copy_of_the_package(tmp_path)
    tests = sorted({bug.test for bug in BUGS})
    done = run_tests(tmp_path, *tests)
    assert outcomes(done.stdout) == dict.fromkeys(tests, "PASSED"), done.stdout[-3000:]


@pytest.mark.thorough
@pytest.mark.parametrize("bug", BUGS, ids=str)
def test_a_planted_bug_is_noticed(bug: Bug, tmp_path: Path) -> None:
    copy_of_the_package(tmp_path)
    (tmp_path / "batchup_ng" / bug.file).write_text(with_bug(bug))
    done = run_tests(tmp_path, bug.test)
    assert outcomes(done.stdout).get(bug.test) in ("FAILED", "ERROR"), (
        f"no test noticed that {bug.name}:\n{done.stdout[-3000:]}\n{done.stderr[-2000:]}"
    )
    said = failures(tmp_path)
    assert any(re.search(bug.expect, text) for text in said), f"{bug.name}: the test fails for another reason: {said}"
