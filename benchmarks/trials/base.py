"""The seam that every trial implements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from benchmarks.outcome import Epoch
from benchmarks.peers.base import Variant
from benchmarks.workloads import Workload


class Trial(Protocol):
    """What one variant does each time it is its turn, in its process."""

    def turn(self, number: int) -> Epoch:
        """Do it, for the time of this number, from 0; raises what makes the variant a failed one."""

    def close(self) -> None:
        """End what was started."""


class MakesTrial(Protocol):
    """Makes a trial, untimed: loads the data, imports the library."""

    def __call__(
        self, variant: Variant, workload: Workload, workers: int, settings: Mapping[str, float], /
    ) -> Trial: ...
