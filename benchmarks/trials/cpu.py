"""The trial that counts the CPU time of all processes over some epochs."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.outcome import Epoch
from benchmarks.processes import CpuMeter
from benchmarks.trials.epochs import Epochs


class CpuTime(Epochs):
    """Runs several epochs a turn, so that what one costs is well above the noise.

    Settings: ``epochs`` a turn. Figures: ``cpu_seconds``, user and system, of all processes.
    """

    def turn(self, number: int) -> Epoch:
        meter = CpuMeter()
        done = super().turn(number)
        return replace(done, figures={"cpu_seconds": meter.seconds()})
