"""Which settings of a test run: the most telling one always, a pairwise cover of all with ``--thorough``.

The settings are pool or start method, workers, size of a result. Each number of workers meets each size once, in one
pool after the other: nine settings, however many pools.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..extent import quick, thorough
from .accounting import POOLS, PROCESSES, SIZES

SEED = "batchup_ng faults 1"
WORKERS = (1, 2, 4)

__all__ = ["PARALLEL", "Extent", "cover", "kinds", "quick", "thorough"]

Setting = tuple[str, int, str]
"""A pool or start method, how many workers, the size of a result."""


class Extent:
    """How often a test repeats what it does.

    Args:
        thorough: Whether to repeat as often as the full suite does.
    """

    def __init__(self, thorough: bool) -> None:
        self.thorough = thorough

    def times(self, part: int, whole: int) -> int:
        """Return how often to repeat: `whole` in the full suite, `part` in a short run."""
        return whole if self.thorough else part

    def cases(self, part: Iterable[Any], whole: Iterable[Any]) -> Iterable[Any]:
        """Return `part` in a short run, `whole` in a thorough one."""
        return whole if self.thorough else part


def kinds(first: str = "forkserver", pools: Sequence[str] = PROCESSES) -> list[Any]:
    """Return the pools or start methods of which `first` runs always, the others with ``--thorough``."""
    return quick([first], pools)


PARALLEL = POOLS[1:]
"""All pools with workers."""


def cover(*chosen: Setting, pools: Sequence[str] = PROCESSES) -> list[Any]:
    """Return (pool, workers, size of a result): `chosen` always, with ``--thorough`` a pairwise cover of `pools`."""
    pairwise = [
        (pools[(j + k) % len(pools)], workers, size)
        for j, workers in enumerate(WORKERS)
        for k, size in enumerate(SIZES)
    ]
    return quick(chosen, pairwise)
