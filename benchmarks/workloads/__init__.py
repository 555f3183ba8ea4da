"""The workloads: classes of the modules of this folder, found by the name of their data.

The parent calls ``make`` of a class to write the data once. An instance reads the data in a peer's process. A workload
that no study names has its own study.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path

from benchmarks.workloads.base import Data, Workload

_MODULES = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
_FOUND = [each for module in _MODULES for each in vars(module).values() if isinstance(each, type)]
KINDS: dict[str, type[Data]] = {each.kind: each for each in _FOUND if issubclass(each, Data) and each.kind}
"""All workloads, by name."""


def make(kind: str, folder: Path, *, quick: bool) -> Workload:
    """Write the data of a workload to an empty folder; `quick` makes them tiny, to test the harness itself."""
    return KINDS[kind].make(folder, quick)


def open_data(workload: Workload) -> Data:
    """Load the data of a workload into this process."""
    return KINDS[workload.kind](workload)
