"""The trial that hands out an order of rows, none of which is read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Any

from benchmarks.outcome import Epoch
from benchmarks.peers.base import Batch, Variant
from benchmarks.processes import forget_peak, peak_bytes, resident_bytes
from benchmarks.trials.epochs import Unfair
from benchmarks.workloads import Workload

REPEATS = 50
"""How often the iterator is saved and resumed."""


class Order:
    """Hands out row numbers, each of which is summed up; wants a process that has done nothing else.

    Settings: ``early``, the number of batches after which the early rate is taken; ``all``, whether the epoch goes on
    to its end. Figures: ``early_rate``, indices a second after the first batch; ``growth_bytes``, how far resident
    memory rose at its peak above what it was before; for an iterator that can be saved, medians in mid-epoch:
    ``state_seconds``, ``state_dict()``; ``resume_seconds``, the call that makes an iterator from that;
    ``resumed_batch_seconds``, the next batch of it.
    """

    def __init__(self, variant: Variant, workload: Workload, workers: int, settings: Mapping[str, float]) -> None:
        self._feed: Any = variant.open(workload, workers)
        self._workload = workload
        self._early = int(settings["early"])
        self._all = bool(settings["all"])

    def turn(self, number: int) -> Epoch:
        forget_peak()
        before = resident_bytes()
        done = self._handed_out(number)
        growth = peak_bytes() - before
        return replace(done, figures={**done.figures, "growth_bytes": growth, **self._resumed(number)})

    def _handed_out(self, number: int) -> Epoch:
        begin = time.perf_counter()
        count = samples = total = at_first = 0
        first = rate = 0.0
        for (rows,) in self._feed.epoch(number):
            total += int(rows.sum())
            count, samples = count + 1, samples + len(rows)
            if count == 1:
                first, at_first = time.perf_counter() - begin, samples
            if count == self._early:
                rate = (samples - at_first) / (time.perf_counter() - begin - first)
                if not self._all:
                    break
        seconds = time.perf_counter() - begin
        if self._all:
            self._check(samples, total)
        return Epoch(
            seconds=seconds,
            first_batch_seconds=first,
            batches=count,
            samples=samples,
            bytes=0,
            figures={"early_rate": rate},
        )

    def _check(self, samples: int, total: int) -> None:
        if (samples, total) != (self._workload.samples, self._workload.y_sum):
            raise Unfair(f"the {self._workload.samples} rows sum up to {self._workload.y_sum}; got {samples}, {total}")

    def _resumed(self, number: int) -> dict[str, float]:
        """What it takes to save and to resume, in mid-epoch."""
        if not hasattr(self._feed, "resumed"):
            return {}
        batches: Any = self._feed.epoch(number)
        for _ in range(self._early // 2):
            next(batches)
        times = [self._once(batches) for _ in range(REPEATS)]
        names = ("state_seconds", "resume_seconds", "resumed_batch_seconds")
        return dict(zip(names, map(median, zip(*times, strict=True)), strict=True))

    def _once(self, batches: Any) -> tuple[float, float, float]:
        clock = [time.perf_counter()]
        state = batches.state_dict()
        clock.append(time.perf_counter())
        again = self._feed.resumed(state)
        clock.append(time.perf_counter())
        batch: Batch = next(again)
        clock.append(time.perf_counter())
        if (batch[0] != next(batches)[0]).any():
            raise Unfair("the resumed iterator goes on with another batch")
        return clock[1] - clock[0], clock[2] - clock[1], clock[3] - clock[2]

    def close(self) -> None:
        self._feed.close()
