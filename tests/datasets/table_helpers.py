"""The table of the tests, of every kind, its pictures, and a source that does not look for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import batchup_ng as bu

PATHS = ["a.png", "b.png", "c.png", "d.png"]
TABLE = {
    "id": [7, 3, 5, 1],
    "path": PATHS,
    "kind": ["dog", "cat", "dog", "ant"],
    "tags": ["x|y", "", " y | z ", "x"],
    "score": [0.5, 1.0, -2.0, 3.25],
    "flag": [True, False, True, True],
}


def write_pictures(folder: Path, names: list[str] = PATHS) -> None:
    for grey, name in enumerate(names):
        Image.new("RGB", (3, 2), (grey,) * 3).save(folder / name)


def unchecked(table: Any, **options: Any) -> bu.FilesDataSource:
    return bu.from_table(table, missing="ignore", **options)


def of_dict(table: dict[str, Any]) -> Any:
    return table


def of_library(name: str, make: str) -> Callable[[dict[str, Any]], Any]:
    def made(table: dict[str, Any]) -> Any:
        pytest.importorskip("narwhals", reason="tables of libraries are read through narwhals, which is not installed")
        library = pytest.importorskip(name, reason=f"{name} is not installed")
        return getattr(library, make)(table)

    return made


KINDS = {
    "dict": of_dict,
    "pandas": of_library("pandas", "DataFrame"),
    "polars": of_library("polars", "DataFrame"),
    "pyarrow": of_library("pyarrow", "table"),
}
each_kind = pytest.mark.parametrize("kind", KINDS)
