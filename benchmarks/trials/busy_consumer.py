"""The trial whose consumer runs Python code of its own on each batch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from benchmarks.outcome import Epoch
from benchmarks.peers.base import Variant
from benchmarks.trials.consumption import Consumption
from benchmarks.trials.epochs import Epochs
from benchmarks.workloads import Workload, burn


class BusyConsumer(Epochs):
    """Runs epochs whose consumer holds the interpreter for a fixed number of loops a batch.

    Settings: ``loops`` a batch. Figures: ``loops_per_second``, how quick the consumer's loop was beside the loader;
    ``alone``, that as a share of what it reaches in this process while no loader runs.
    """

    def __init__(self, variant: Variant, workload: Workload, workers: int, settings: Mapping[str, float]) -> None:
        super().__init__(variant, workload, workers, settings)
        self._loops = int(settings["loops"])
        self._undisturbed = self._loops / min(self._timed_step() for _ in range(10))

    def _step(self) -> None:
        burn(1, self._loops)

    def _timed_step(self) -> float:
        begin = time.perf_counter()
        self._step()
        return time.perf_counter() - begin

    def turn(self, number: int) -> Epoch:
        busy = Consumption(self.feed, self._step)
        done = self.run(busy, number)
        reached = self._loops * len(busy.steps) / sum(busy.steps)
        return replace(done, figures={"loops_per_second": reached, "alone": reached / self._undisturbed})
