"""The registry of trials: what a peer does, in its own process, when it is its turn.

A new trial is a module with a class like :class:`~benchmarks.trials.base.Trial` and one line below.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.trials.base import MakesTrial
from benchmarks.trials.busy_consumer import BusyConsumer
from benchmarks.trials.cpu import CpuTime
from benchmarks.trials.draws import Draws
from benchmarks.trials.epochs import Epochs
from benchmarks.trials.footprint import Footprints
from benchmarks.trials.order import Order
from benchmarks.trials.ready import Ready
from benchmarks.trials.slow_consumer import SlowConsumer
from benchmarks.trials.startup import Startup

TRIALS: Mapping[str, MakesTrial] = {
    "epochs": Epochs,
    "cpu": CpuTime,
    "footprint": Footprints,
    "ready": Ready,
    "startup": Startup,
    "slow-consumer": SlowConsumer,
    "busy-consumer": BusyConsumer,
    "order": Order,
    "draws": Draws,
}
