"""The rules of the house: who may import whom, what is public, what an import costs."""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import batchup_ng
from tests.libraries import OPTIONAL

PACKAGE = Path(batchup_ng.__file__).parent
FLOORS = {
    "errors": 0, "error_context": 0, "extras": 0, "validation": 0, "batch": 0, "batch_layout": 0, "shared_columns": 0,
    "references": 0, "memory": 0, "platforms": 0,
    "tensors": 0, "randomness": 0, "meters": 0, "_version": 0, "warn": 0, "display": 0, "signals": 0, "log": 0,
    "private_apis": 0, "csv_file": 0, "replaced_file": 0, "columns": 0, "padding": 0, "packing": 0,
    "row_arrays": 0, "lazy_names": 0, "interpreter": 0, "at_exit": 0,
    "sampling": 1, "accessors": 1, "explanation": 1,
    "faults": 2, "augment": 2,
    "graph": 3,
    "data_source": 4,
    "datasets": 5,
    "work_pool": 6,
    "testing": 7, "image": 7, "targets": 7, "loader": 7, "data_statistics": 7, "live": 7,
    "formats": 8, "frameworks": 8, "observe": 8, "waiting": 8, "inspection": 8, "time_machine": 8,
    "demo": 8, "cli": 8, "__main__": 8, "__init__": 8,
}  # fmt: skip
MODULES = sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    """Return the name of the room, a file or folder of the package, that a module is in."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@pytest.fixture(scope="module", autouse=True)
def trees_are_forgotten() -> Iterator[None]:
    """Forget the trees after this file: with them each later look of the collector took 0.15 s longer."""
    yield
    parsed.cache_clear()
    imported.cache_clear()


@functools.cache
def imported(path: Path) -> list[tuple[str, ast.AST]]:
    """Return each module of ours that a module imports, by its dotted name below the package, with the statement."""
    found: list[tuple[str, ast.AST]] = []
    package = ("batchup_ng", *path.relative_to(PACKAGE).parts[:-1])
    for_types = {
        id(inner)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in node.body
    }
    for node in ast.walk(parsed(path)):
        if id(node) in for_types:  # such an import is never run
            continue
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            whole = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            if whole == "batchup_ng":
                found += [(alias.name, node) for alias in node.names]
            elif whole.startswith("batchup_ng."):
                found.append((whole.removeprefix("batchup_ng."), node))
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("batchup_ng")]
            found += [(name.removeprefix("batchup_ng."), node) for name in names]
    return found


def test_every_module_has_a_floor() -> None:
    assert {room(path) for path in MODULES} <= set(FLOORS)


def test_imports_point_down() -> None:
    up = []
    for path in MODULES:
        for name, _ in imported(path):
            other = name.split(".")[0]
            if other in FLOORS and other != room(path):
                same_floor = FLOORS[other] == FLOORS[room(path)]
                if not (FLOORS[other] < FLOORS[room(path)] or (same_floor and FLOORS[other] in (0, 8))):
                    up.append(f"{path.relative_to(PACKAGE)} imports {name}, which is not below it")
    assert up == []


def test_no_module_imports_ours_inside_a_function() -> None:
    inside = []
    for path in MODULES:
        for function in ast.walk(parsed(path)):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                inside += [
                    f"{path.relative_to(PACKAGE)}:{node.lineno}"
                    for node in ast.walk(function)
                    if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("batchup_ng"))
                ]
    assert inside == []


def needed(path: Path) -> Iterator[Path]:
    """Yield the files that are run before a module can be: what it imports, and the packages that those are in."""
    for name, node in imported(path):
        base = PACKAGE.joinpath(*name.split("."))
        parts = [base / alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
        for target in [base, *parts]:
            around = [folder for folder in target.parents if PACKAGE in folder.parents and folder not in path.parents]
            files = [target.with_suffix(".py"), *[folder / "__init__.py" for folder in (target, *around)]]
            yield from (file for file in files if file.exists() and file not in (path, PACKAGE / "__init__.py"))


def own_package(path: Path, other: Path) -> bool:
    """Return whether a module is in the package whose ``__init__`` the other is, which is then being run already."""
    return other.name == "__init__.py" and other.parent in path.parents


def test_no_modules_need_one_another() -> None:
    graph = {path: {other for other in needed(path) if not own_package(path, other)} for path in MODULES}
    assert sum(map(len, graph.values())) > len(MODULES)
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


def test_no_attributes_are_searched_for_sources() -> None:
    rooms = [path for path in MODULES if room(path) in ("graph", "data_source", "display")]
    searched = [path.name for path in rooms if re.search(r"__dict__|vars\(\w+\)\.(items|values)\(", path.read_text())]
    assert searched == []


def test_no_module_reads_variables_of_other_libraries() -> None:
    readers = [path.name for path in MODULES if "f_locals" in path.read_text()]
    assert readers == ["error_context.py"]  # which looks for the arguments of a signal handler


def test_no_file_is_longer_than_the_house_allows() -> None:
    assert [path.name for path in MODULES if len(path.read_text().splitlines()) > 500] == []


@pytest.mark.parametrize(
    "name",
    ["", ".data_source", ".datasets", ".sampling", ".work_pool", ".accessors", ".augment", ".image.utils", ".testing"],
)
def test_what_is_public_is_listed_sorted_and_there(name: str) -> None:
    module = importlib.import_module("batchup_ng" + name)
    assert module.__all__ == sorted(module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)
    for public in module.__all__:
        assert getattr(module, public).__doc__ or public == "__version__"


def test_importing_the_package_imports_nothing_optional_and_starts_nothing() -> None:
    program = (
        "import sys, threading, batchup_ng; "
        f"print([m for m in {(*OPTIONAL, 'joblib', 'pytest')!r} if m in sys.modules], threading.active_count())"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, timeout=600, capture_output=True, text=True)
    assert done.stdout.split("\n")[0] == "[] 1"


def test_names_of_batchup_have_their_old_paths() -> None:
    old = {
        "data_source": "AbstractDataSource RandomAccessDataSource ArrayDataSource CallableDataSource "
        "IteratorDataSource CompositeDataSource ChoiceDataSource ChoiceBatch MapDataSource batch_map_concat "
        "batch_map_mean coerce_data_source",
        "sampling": "num_batches AbstractSampler StandardSampler SubsetSampler WeightedSampler WeightedSubsetSampler",
        "work_pool": "AbstractWorkerPool WorkerThreadPool WorkerProcessPool ParallelDataSource WorkStream",
        "image.utils": "ImageArrayUInt8ToFloat32",
    }
    for module, names in old.items():
        for name in names.split():
            assert hasattr(importlib.import_module(f"batchup_ng.{module}"), name)
