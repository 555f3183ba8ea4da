"""The table of the tests, its pictures, and a source that does not look for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
