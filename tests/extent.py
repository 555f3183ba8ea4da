"""Which settings of a test run always, and which with ``--thorough`` alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest

THOROUGH = bool(os.environ.get("BATCHUP_NG_TESTS_THOROUGH"))
"""Whether tests run at full length, also in the programs that they start."""


def thorough(*values: Any) -> Any:
    """Return the parameters of a test that runs with ``--thorough`` alone."""
    return pytest.param(*values, marks=pytest.mark.thorough)


def quick(chosen: Sequence[Any], everything: Sequence[Any]) -> list[Any]:
    """Return the values of a parameter, or of several as tuples: `chosen` run always, the rest with ``--thorough``."""
    rest = [value for value in everything if value not in chosen]
    return [*chosen, *[thorough(*value) if isinstance(value, tuple) else thorough(value) for value in rest]]


def methods(first: str) -> list[Any]:
    """Return the start methods of processes, of which `first` runs always."""
    return quick([first], ["forkserver", "spawn"])
