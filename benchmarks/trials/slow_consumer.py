"""The trial whose consumer is half as quick as the pipeline."""

from __future__ import annotations

import time
from dataclasses import replace

from benchmarks.outcome import Epoch
from benchmarks.trials.consumption import Consumption
from benchmarks.trials.epochs import Epochs


class SlowConsumer(Epochs):
    """Times an epoch at full speed, then runs one whose consumer sleeps, after each batch, for the time of two.

    It sleeps, as a program does whose device is busy. The second epoch is what is returned. Figures:
    ``pace_seconds``, a batch at full speed; ``step_seconds``, how long the consumer really took; the share of the
    epoch that it waited, as ``waited`` by a clock around ``next()`` and as ``reported`` by the loader's own ``stats()``
    where it has that; both for the whole epoch, and ``..._later`` for what follows the first batch.
    """

    def turn(self, number: int) -> Epoch:
        if number == 0:
            self.run(self.feed, 0)
        fast = self.run(self.feed, 2 * number + 1)
        pace = fast.seconds / fast.batches
        slow = Consumption(self.feed, lambda: time.sleep(2 * pace))
        done = self.run(slow, 2 * number + 2)
        return replace(done, figures={"pace_seconds": pace, **shares(slow, done.seconds)})


def shares(consumption: Consumption, seconds: float) -> dict[str, float]:
    """Of an epoch that took so many seconds, the shares that its consumer waited."""
    waits, later = consumption.waits, seconds - consumption.waits[0]
    figures = {
        "step_seconds": sum(consumption.steps) / len(consumption.steps),
        "waited": sum(waits) / seconds,
        "waited_later": sum(waits[1:]) / later,
    }
    if consumption.reported:
        begin, end = consumption.reported
        figures |= {"reported": end / seconds, "reported_later": (end - begin) / later}
    return figures
