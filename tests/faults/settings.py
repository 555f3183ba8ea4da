"""Which settings of the matrix run: all of them by option, a covering part of them otherwise.

The covering part is a Latin square: with three start methods, three numbers of workers and three sizes, nine settings
hold each pair of values once, where all would be twenty-seven.
"""

from __future__ import annotations

from typing import Any

import pytest

from .books import PROCESSES, SIZES

SEED = "batchup_ng faults 1"
WORKERS = (1, 2, 4)


class Extent:
    """How much of each line of the matrix is run.

    Args:
        full: Whether all of it is.
    """

    def __init__(self, full: bool) -> None:
        self.full = full

    def times(self, part: int, whole: int) -> int:
        """Return how often to repeat: `whole` is the figure of FAULTS.md, `part` what fits in a short run."""
        return whole if self.full else part


def only_full(*values: Any, id: str | None = None) -> Any:
    """Return the parameters of a test that runs with ``--faults-full`` alone."""
    return pytest.param(*values, marks=pytest.mark.full, id=id)


def matrix() -> list[Any]:
    """Return (start method, workers, size of a result) for each setting of the process pool."""
    settings = []
    for i, kind in enumerate(PROCESSES):
        for j, workers in enumerate(WORKERS):
            for k, size in enumerate(SIZES):
                choose = pytest.param if (i + j + k) % 3 == 0 else only_full
                settings.append(choose(kind, workers, size, id=f"{kind}-{workers}-{size}"))
    return settings
