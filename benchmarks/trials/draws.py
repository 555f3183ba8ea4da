"""The trial that draws rows by their weights."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median
from typing import Any

import numpy as np

from benchmarks.outcome import Epoch
from benchmarks.peers.base import Variant
from benchmarks.processes import forget_peak, peak_bytes, resident_bytes
from benchmarks.trials.epochs import Unfair
from benchmarks.workloads import Workload

LONG_ENOUGH = 10.0
"""Seconds after which nobody draws on."""


class Draws:
    """Sets up, then draws batches; wants a process that has done nothing else.

    ``first_batch_seconds`` is the set-up with its first batch. Settings: ``batches``, how many follow at most. Figures:
    ``batch_seconds`` and ``longest_batch_seconds``, the median and the longest of them; ``mean_batch_seconds``;
    ``cumsum_seconds``, one ``numpy.cumsum`` of the weights, in the same process; ``growth_bytes``, how far resident
    memory rose at its peak above what it was with the weights alone.
    """

    def __init__(self, variant: Variant, workload: Workload, workers: int, settings: Mapping[str, float]) -> None:
        self._feed: Any = variant.open(workload, workers)
        self._most = int(settings["batches"])

    def turn(self, number: int) -> Epoch:
        begin = time.perf_counter()
        np.cumsum(self._feed.weights)
        cumsum = time.perf_counter() - begin
        forget_peak()
        before = resident_bytes()
        rows, times = self._drawn(number)
        growth = peak_bytes() - before
        if not self._feed.weights[rows].all():
            raise Unfair("a row of weight 0 was drawn")
        first, later = times[0], times[1:]
        figures = {
            "batch_seconds": median(later),
            "mean_batch_seconds": sum(later) / len(later),
            "longest_batch_seconds": max(later),
            "cumsum_seconds": cumsum,
            "growth_bytes": growth,
        }
        return Epoch(
            seconds=sum(times),
            first_batch_seconds=first,
            batches=len(times),
            samples=len(rows),
            bytes=0,
            figures=figures,
        )

    def _drawn(self, number: int) -> tuple[Any, list[float]]:
        """The rows that were drawn, with the time of each batch; the first has the set-up."""
        drawn: list[Any] = []
        times: list[float] = []
        while len(times) <= self._most and sum(times[1:]) < LONG_ENOUGH:
            begin = time.perf_counter()
            if not times:
                batches = self._feed.epoch(number)
            drawn.append(next(batches)[0])
            times.append(time.perf_counter() - begin)
        return np.concatenate(drawn), times

    def close(self) -> None:
        self._feed.close()
