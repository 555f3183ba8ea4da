"""Files, errors, arguments, defaults and attributes that the documentation names exist."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng import augment, errors

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
FOLDERS = ("batchup_ng", "tests", "docs", "examples", "benchmarks")
PLACEHOLDERS = ("NAME.py",)
NAMESPACES = {"augmentation": augment, "concepts": bu.SampleRng, "images": bu, "caching": bu, "storage": bu}
"""Where to look for the calls in the first column of the tables of a page."""
VARIABLES = {"source": bu.ArrayDataSource, "loader": bu.Loader}
"""What the pages call their objects."""

pytestmark = pytest.mark.skipif(not (ROOT / "docs").exists(), reason="not run in a checkout")


def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def quoted() -> Iterator[tuple[str, str]]:
    """Yield the name of a page and each piece of code within its sentences and tables."""
    for page in PAGES:
        for code in re.findall(r"(?<!\})`([^`\n]+)`", prose(page)):
            yield page.stem, code


def calls(code: str) -> list[ast.Call]:
    """Return the calls in an expression; none if the code is no expression."""
    try:
        parsed = ast.parse(code, mode="eval")
    except SyntaxError:
        return []
    return [node for node in ast.walk(parsed) if isinstance(node, ast.Call)]


def found(name: str, *namespaces: Any) -> Any:
    """Return the object with a dotted name from the first namespace that has it, or None."""
    for namespace in namespaces:
        own = namespace
        for part in name.removeprefix("bu.").split("."):
            # Only what a module holds: getattr of bu.KeepState would import Keras.
            own = vars(own).get(part) if isinstance(own, ModuleType) else getattr(own, part, None)
        if own is not None:
            return own
    return None


def test_files_that_are_named_exist() -> None:
    files = [path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    files += [path.name for path in ROOT.glob("*.*")]
    named = {(page, code.split("::")[0]) for page, code in quoted() if re.fullmatch(r"[\w./-]+\.(py|md)(::\w+)?", code)}
    named = {(page, file) for page, file in named if not file.endswith(PLACEHOLDERS)}
    assert len(named) > 100
    assert {each for each in named if not any(f"/{file}".endswith(f"/{each[1]}") for file in files)} == set()


def test_errors_and_warnings_that_are_named_exist() -> None:
    ending = re.compile(r"\b[A-Z]\w+(?:Errors?|Warning|Died|Timeout|Broken|Closed|Iteration)\b")
    named = {(page, name) for page, code in quoted() for name in ending.findall(code)}
    assert len({name for _, name in named if hasattr(errors, name)}) > 15
    assert {each for each in named if found(each[1], bu, errors, builtins) is None} == set()


def test_references_lead_to_something() -> None:
    for page in PAGES:
        for role, target in re.findall(r"\{py:(\w+)\}`(?:[^`<]*<)?~?([\w.]+)>?`", prose(page)):
            module, _, name = (target, "", "__name__") if role == "mod" else target.rpartition(".")
            assert hasattr(importlib.import_module(module), name), f"{page.name}: {role} {target}"


def test_arguments_of_calls_exist() -> None:
    checked, wrong = 0, []
    for page, code in quoted():
        for call in calls(code):
            first, _, method = ast.unparse(call.func).partition(".")
            own = found(method, VARIABLES[first]) if first in VARIABLES else found(ast.unparse(call.func), bu, augment)
            if first in VARIABLES and method.isidentifier() and own is None:
                wrong.append(f"{page}: {code} has no {method}")
            if not callable(own):
                continue
            parameters = inspect.signature(own).parameters
            keywords = [keyword.arg for keyword in call.keywords if keyword.arg]
            checked += len(keywords)
            if all(each.kind is not each.VAR_KEYWORD for each in parameters.values()):
                wrong += [f"{page}: {code} has no {keyword}=" for keyword in keywords if keyword not in parameters]
    assert checked > 100
    assert wrong == []


def test_defaults_in_tables_are_those_of_the_code() -> None:
    checked = 0
    for page, namespace in NAMESPACES.items():
        cells = re.findall(r"^\| `([a-zA-Z]\w*\(.*?\))` *[|,]", prose(ROOT / "docs" / f"{page}.md"), re.MULTILINE)
        for cell in cells:
            for call in calls(cell)[:1]:
                own = found(ast.unparse(call.func), namespace)
                for keyword in call.keywords if own is not None else ():
                    default = inspect.signature(own).parameters[keyword.arg or ""].default
                    assert default == eval(ast.unparse(keyword.value), {"numpy": np}), f"{page}: {cell}, {keyword.arg}"
                    checked += 1
    assert checked > 40


def test_attributes_of_errors_in_tables_exist() -> None:
    tables = re.findall(r"(?:^\|.*\n)+", prose(ROOT / "docs" / "faults.md"), re.MULTILINE)
    (table,) = [table for table in tables if "\n| `traceback` |" in table]
    names = [name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert len(names) == 9
    with bu.SerialPool() as pool, pytest.raises(bu.BatchError) as caught:
        list(pool.parallel_data_source(bu.ArrayDataSource([np.arange(3)]).map(fails)).batch_iterator(2))
    assert [name for name in names if not hasattr(caught.value, name)] == []


def fails(x: np.ndarray) -> Any:
    raise ValueError("no")


def test_keys_of_stats_exist() -> None:
    with bu.Loader([np.arange(9)], 3, pool="serial") as loader:
        iterator = iter(loader)
        next(iterator)
        keys = loader.stats().keys() | iterator.stats().keys()
    with bu.SerialPool() as pool:
        keys |= pool.parallel_data_source(bu.ArrayDataSource([np.arange(9)])).batch_iterator(3).stats().keys()
    named = {(page, key) for page, code in quoted() for key in re.findall(r'stats\(\)\["(\w+)"\]', code)}
    assert len(named) >= 5
    assert {each for each in named if each[1] not in keys} == set()
