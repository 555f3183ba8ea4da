"""Which settings of the matrix run: all of them by option, a part of them otherwise.

The matrix is that of pool, start method, workers and size of a result. The part is either a covering one, a Latin
square: with three start methods, three numbers of workers and three sizes, nine settings hold each pair of values once,
where all would be twenty-seven. Or it is what a test chooses, few settings that differ in all three.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from .books import PROCESSES, SIZES

SEED = "batchup_ng faults 1"
WORKERS = (1, 2, 4)


class Extent:
    """How much of each line of the matrix is run.

    Args:
        thorough: Whether all of it is.
    """

    def __init__(self, thorough: bool) -> None:
        self.thorough = thorough

    def times(self, part: int, whole: int) -> int:
        """Return how often to repeat: `whole` is the figure of FAULTS.md, `part` what fits in a short run."""
        return whole if self.thorough else part


def thorough(*values: Any, id: str | None = None) -> Any:
    """Return the parameters of a test that runs with ``--thorough`` alone."""
    return pytest.param(*values, marks=pytest.mark.thorough, id=id)


MOSTLY = ("forkserver", "spawn", thorough("fork"))
"""The start methods, for tests of some seconds each that have to do with the start of workers: the whole suite is to
take no more than ten minutes, and ``fork`` differs from ``spawn`` in other things."""


Setting = tuple[str, int, str]
"""A pool or start method, how many workers, the size of a result."""


def covering() -> list[Setting]:
    """Return the covering part of the settings of the process pool."""
    return [
        (kind, workers, size)
        for i, kind in enumerate(PROCESSES)
        for j, workers in enumerate(WORKERS)
        for k, size in enumerate(SIZES)
        if (i + j + k) % 3 == 0
    ]


def matrix(*chosen: Setting, pools: Sequence[str] = PROCESSES) -> list[Any]:
    """Return (pool, workers, size of a result) for each setting.

    Args:
        chosen: Those that run in any case; the others run with ``--thorough``.
        pools: Pools and start methods; that without workers counts as one.
    """
    all_of_them = [
        (kind, workers, size) for kind in pools for workers in WORKERS for size in SIZES
        if kind != "serial" or workers == 1
    ]  # fmt: skip
    assert set(chosen) <= set(all_of_them), chosen
    return [
        (pytest.param if setting in chosen else thorough)(*setting, id="-".join(map(str, setting)))
        for setting in all_of_them
    ]
