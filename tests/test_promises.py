"""The table of promises in CONTRIBUTING.md names tests that exist."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from tests.turns import IN_TURN, named

ROOT = Path(__file__).parents[1]
TITLE = "## What is promised, and which test holds it"
LINES = [*[f"F{i}" for i in range(1, 30)], *[f"S{i}" for i in range(1, 11)], *[f"M{i}" for i in range(1, 7)]]


def rows() -> list[str]:
    """Return the rows of the table."""
    _, _, section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition(TITLE)
    return [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")][1:]


@functools.cache
def functions(file: str) -> set[str]:
    """Return the names of the functions of a file below ``tests``."""
    text = (ROOT / "tests" / file).read_text(encoding="utf-8")
    return set(re.findall(r"^ *def (\w+)\(", text, re.MULTILINE))


def test_each_line_has_its_row() -> None:
    first = [row.split()[1] for row in rows()]
    assert [name for name in first if re.fullmatch(r"[FSM]\d+", name)] == LINES


def test_each_test_that_is_named_exists() -> None:
    named = [name.split("::") for row in rows() for name in re.findall(r"`([\w/]+\.py::\w+)`", row)]
    assert len(named) > 80
    missing = [f"{file}::{test}" for file, test in named if test not in functions(file)]
    assert not missing


def test_quick_tests_run(request: pytest.FixtureRequest) -> None:
    config = request.config
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS or config.option.keyword or config.option.markexpr:
        pytest.skip("only a run of all tests tells")
    running = {named(item) for item in request.session.items} | config.stash.get(IN_TURN, set())
    files = {file for file, _ in running}  # without those that need a library that is not here
    column = " ".join(row.split("|")[2] for row in rows())
    promised = [(f"tests/{file}", test) for file, test in re.findall(r"`([\w/]+\.py)::(\w+)`", column)]
    assert not [name for name in promised if name[0] in files and name not in running]


def test_each_row_names_a_quick_test() -> None:
    for row in rows():
        _, promise, quick, *_ = row.split("|")
        assert ".py" in quick, promise
