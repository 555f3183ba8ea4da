"""The workloads: a class each, found in the table of this file.

The parent calls ``make`` of a class to write the data once. An instance reads the data in a peer's process, which
imports the module of that class only. A workload that no study names has its own study.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

from benchmarks.workloads.base import Data, Workload

KINDS = {
    "arrays": "arrays.Arrays", "decoded": "arrays.Decoded", "digits": "arrays.Digits", "empty": "numbers.Empty",
    "images": "images.Images", "images_large": "images.LargeImages", "numbered": "numbers.Numbered",
    "order": "numbers.Order", "photographs": "images.Photographs", "python": "numbers.Python",
    "remote": "arrays.Remote", "storage": "storage.Storage", "table": "arrays.Table",
}  # fmt: skip
"""The module and class of each workload, by its name."""


def class_of(kind: str) -> type[Data]:
    """Import the class of a workload."""
    module, name = KINDS[kind].split(".")
    found: type[Data] = getattr(import_module(f"{__name__}.{module}"), name)
    return found


def make(kind: str, folder: Path, *, quick: bool) -> Workload:
    """Write the data of a workload to an empty folder; `quick` makes them tiny, to test the harness itself."""
    return replace(class_of(kind).make(folder, quick), kind=kind)


def open_data(workload: Workload) -> Data:
    """Load the data of a workload into this process."""
    return class_of(workload.kind)(workload)
