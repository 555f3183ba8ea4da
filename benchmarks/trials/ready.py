"""The trial that waits for a new pool's workers."""

from __future__ import annotations

import time
from collections.abc import Mapping

from benchmarks.outcome import Epoch
from benchmarks.peers.base import Variant
from benchmarks.trials.epochs import Epochs
from benchmarks.trials.startup import Unstartable, starter
from benchmarks.workloads import Workload


class Ready:
    """Makes a pool without data; the clock runs until each worker has answered a trivial task.

    Figures: none; ``seconds`` is the time. A process that has made a pool before has its helpers running, so this wants
    rounds that are ``fresh``.
    """

    def __init__(self, variant: Variant, workload: Workload, workers: int, settings: Mapping[str, float]) -> None:
        self._feed = starter(Epochs(variant, workload, workers, settings))
        self._workers = workers

    def turn(self, number: int) -> Epoch:
        begin = time.perf_counter()
        answered = len(set(self._feed.ready()))
        seconds = time.perf_counter() - begin
        if answered != self._workers:
            raise Unstartable(f"{self._workers} workers were to answer; {answered} did")
        return Epoch(seconds=seconds, first_batch_seconds=seconds, batches=0, samples=0, bytes=0)

    def close(self) -> None:
        self._feed.close()
