"""The trial that looks at memory and descriptors after each epoch."""

from __future__ import annotations

from dataclasses import asdict, replace

from benchmarks.outcome import Epoch
from benchmarks.processes import footprint
from benchmarks.trials.epochs import Epochs


class Footprints(Epochs):
    """Runs an epoch a turn. Figures: those of :class:`~benchmarks.processes.Footprint`, of all processes, after it."""

    def turn(self, number: int) -> Epoch:
        done = super().turn(number)
        return replace(done, figures={name: float(value) for name, value in asdict(footprint()).items()})
