"""The tests notice what they are for: each known bug, planted in a copy of the package, fails a test that is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .planting import BUGS, Bug, copy_of_the_package, plant, run_tests


def outcomes(text: str) -> dict[str, str]:
    """Return what became of each test, by its name below ``tests/``."""
    return {test: word for word, test in re.findall(r"^(PASSED|FAILED|ERROR) tests/(.+?)(?: - .*)?$", text, re.M)}


def test_there_are_a_dozen_bugs_or_more() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 12


@pytest.fixture(scope="module")
def without_bugs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What became of each named test in a copy without a bug."""
    folder = tmp_path_factory.mktemp("without-bugs")
    copy_of_the_package(folder)
    return outcomes(run_tests(folder, *sorted({bug.test for bug in BUGS})).stdout)


@pytest.mark.parametrize("bug", BUGS, ids=str)
def test_a_planted_bug_is_noticed(bug: Bug, tmp_path: Path, without_bugs: dict[str, str]) -> None:
    assert without_bugs.get(bug.test) == "PASSED", f"{bug.test} does not pass without a bug either: {without_bugs}"
    copy_of_the_package(tmp_path)
    plant(bug, tmp_path)
    done = run_tests(tmp_path, bug.test)
    assert outcomes(done.stdout).get(bug.test) in ("FAILED", "ERROR"), (
        f"nobody noticed that {bug.name}:\n{done.stdout[-3000:]}\n{done.stderr[-2000:]}"
    )
