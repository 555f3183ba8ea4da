"""docs/guarantees.md has a row for each fault and each security rule, and names tests that exist."""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "guarantees.md"
NUMBERS = [*[f"F{i}" for i in range(1, 30)], *[f"S{i}" for i in range(1, 11)]]
NUMBER = re.compile(r"\b[FS]\d{1,2}\b")
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="not run in a checkout")


def rows() -> dict[str, list[str]]:
    """Return the cells behind the number of each row of the page."""
    cells = [line.strip("| \n").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines()]
    numbered = [each for each in cells if NUMBER.fullmatch(each[0])]
    assert [number for number, *_ in numbered] == NUMBERS
    return {number: rest for number, *rest in numbered}


@functools.cache
def functions(file: str) -> set[str]:
    """Return the names of the functions and methods of a file."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_each_number_has_one_row_with_a_guarantee_and_tests() -> None:
    for number, cells in rows().items():
        assert len(cells) == 3, number
        happens, guarantee, tests = cells
        assert happens.endswith("."), number
        assert guarantee.endswith("."), number
        assert NAMED.sub("", tests).strip(", ") == "", number


def test_each_test_that_is_named_exists() -> None:
    named = [(number, *found) for number, cells in rows().items() for found in NAMED.findall(cells[-1])]
    assert len(set(named)) == len(named) > 100
    assert [each for each in named if each[2] not in functions(each[1])] == []


def test_a_test_whose_name_has_a_number_stands_in_its_row() -> None:
    for number, cells in rows().items():
        for _, test in NAMED.findall(cells[-1]):
            own = re.match(r"test_([fs]\d+)_", test)
            assert own is None or own[1].upper() == number, test


def test_the_page_and_the_table_of_promises_agree() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()
    promised = {line.split()[1]: line for line in table if line.startswith("| ") and NUMBER.match(line.split()[1])}
    for number, cells in rows().items():
        named = [f"`{file.removeprefix('tests/')}::{test}`" for file, test in NAMED.findall(cells[-1])]
        assert any(name in promised[number] for name in named), f"{number}: CONTRIBUTING.md names none of these tests"


def words_of(path: Path) -> Iterator[str]:
    """Yield comments, docstrings and names of tests of a module: other code has numbers that are dtypes."""
    source = path.read_text(encoding="utf-8")
    if not re.search(r"\b[FS]\d{1,2}\b|def test_[fs]\d", source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield ast.get_docstring(node) or ""
        if isinstance(node, ast.FunctionDef) and (numbered := re.match(r"test_([fs]\d+)_", node.name)):
            yield numbered[1].upper()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def test_each_number_that_is_mentioned_is_one_of_the_page() -> None:
    modules = [path for folder in ("batchup_ng", "tests") for path in sorted((ROOT / folder).rglob("*.py"))]
    mentioned = {(path.name, number) for path in modules for text in words_of(path) for number in NUMBER.findall(text)}
    pages = [ROOT / "CONTRIBUTING.md", ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        mentioned |= {(page.name, number) for number in NUMBER.findall(prose)}
    assert {number for _, number in mentioned} >= set(NUMBERS)
    assert {each for each in mentioned if each[1] not in NUMBERS} == set()
