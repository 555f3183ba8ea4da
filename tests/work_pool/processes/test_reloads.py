"""Modules that are reloaded: that workers go on with old code is not kept from the user."""

from __future__ import annotations

import importlib
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from tests.messages import warns

NAME = "batchup_ng_test_of_reloads"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module whose file can be written anew, and another one that imports it."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))
    written(tmp_path, 1)
    (tmp_path / f"{NAME}_user.py").write_text(f"import {NAME}\n\ndef used(x):\n    return {NAME}.add(x)\n")
    yield importlib.import_module(NAME)
    for name in (NAME, f"{NAME}_user"):
        sys.modules.pop(name, None)


def written(folder: Path, number: int) -> None:
    (folder / f"{NAME}.py").write_text(f"def add(x):\n    return (x + {number},)\n")


def reloaded(module: Any, number: int) -> None:
    written(Path(module.__file__).parent, number)
    importlib.reload(module)


def first(parallel: Any) -> int:
    with parallel.batch_iterator(1) as batches:
        return int(next(batches)[0][0])


@pytest.mark.in_turn
def test_what_workers_do_with_a_module_that_was_reloaded_is_warned_of(module: Any) -> None:
    user = importlib.import_module(f"{NAME}_user")
    source = bu.ArrayDataSource([np.zeros(4, int)])
    with bu.WorkerProcessPool(1) as pool:
        before = pool.parallel_data_source(source.map(module.add))
        assert first(before) == 1
        reloaded(module, 20)
        with warns(bu.WorkerWarning):
            assert first(pool.parallel_data_source(source.map(module.add))) == 1
        with warnings.catch_warnings(record=True) as said:  # once for each reload
            first(before)
        assert not said
        reloaded(module, 300)
        with warns(bu.WorkerWarning):
            first(before)
        reloaded(module, 4000)
        with warns(bu.WorkerWarning):  # also where a module between them was not
            first(pool.parallel_data_source(source.map(user.used)))
        reloaded(module, 50000)
        with warns(bu.WorkerWarning), pool.work_stream(iter([(abs, (1,))])) as stream:
            next(stream)
    with warnings.catch_warnings(record=True) as said, bu.WorkerProcessPool(1) as pool:
        assert first(pool.parallel_data_source(source.map(module.add))) == 50000
    assert not said


def test_modules_of_any_kind_are_looked_at_and_none_is_loaded_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(types.ModuleType):
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(f"it was asked for {name}")

    monkeypatch.setitem(sys.modules, "lazy_one_of_the_tests", Lazy("lazy_one_of_the_tests"))
    monkeypatch.setitem(sys.modules, "no_module_of_the_tests", object())
    with bu.WorkerProcessPool(1) as pool, pool.work_stream(iter([(abs, (-1,))])) as stream:
        assert next(stream) == 1


def test_a_loader_after_a_reload_has_workers_with_the_new_code(module: Any) -> None:
    source = bu.ArrayDataSource([np.zeros(1, int)])
    with bu.Loader(source.map(module.add), 1, pool="processes") as before:
        assert int(next(iter(before))[0][0]) == 1
        reloaded(module, 20)
        with bu.Loader(source.map(module.add), 1, pool="processes") as after:
            assert int(next(iter(after))[0][0]) == 20
