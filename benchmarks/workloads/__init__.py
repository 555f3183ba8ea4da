"""The workloads: one file each, found by its name.

A module has a function ``make(folder, quick)``, which the parent calls to write the data once, and a class ``Data``,
which reads the data in a peer's process. A workload that no study names has its own study.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path

from benchmarks.workloads.base import Data, Workload

KINDS = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "base"))
"""All workloads."""


def make(kind: str, folder: Path, *, quick: bool) -> Workload:
    """Write the data of a workload to an empty folder; `quick` makes them tiny, to test the harness itself."""
    made: Workload = import_module(f"{__name__}.{kind}").make(folder, quick)
    return made


def open_data(workload: Workload) -> Data:
    """Load the data of a workload into this process."""
    data: Data = import_module(f"{__name__}.{workload.kind}").Data(workload)
    return data
