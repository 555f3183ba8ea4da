"""Trials: the work of a peer, in its own process, during its turn.

A trial is a function of the feed, the workload, the number of the turn (from 0) and the settings of the part. If it
raises, the variant has failed. ``TRIALS`` lists them all.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from statistics import mean
from typing import Any

import numpy as np
import psutil

from benchmarks.peers.base import Feed
from benchmarks.processes import CpuMeter, come_to_rest, footprint, private_bytes, tree
from benchmarks.records import Epoch
from benchmarks.training import training
from benchmarks.workloads.base import Batch, Workload, probe
from benchmarks.workloads.python import burn


class Unfair(RuntimeError):
    """The peer did not deliver each sample once and unchanged."""


def epochs(feed: Feed, workload: Workload, number: int, settings: Mapping[str, float]) -> Epoch:
    """Run an epoch, or as many as the settings say.

    The first turn has one epoch, because it is shown separately. Its background work ends before the next variant's
    turn. If epochs are short, a turn has several, to reach a steady state: after a wait, a variant starts with the
    caches that others have filled.

    Settings: ``epochs``, per turn, default 1; ``rest``, the most seconds to come to rest. Figures: ``cpu_seconds``,
    user and system, of all processes; ``consumer_cpu_seconds``, of this process alone; ``growth_bytes``, the peak of
    this process's resident memory minus its resident memory before the turn; at the end, the figures of
    :func:`~benchmarks.processes.footprint`, of all processes; and the feed's own ``figures``.
    """
    count = int(settings.get("epochs", 1)) if number else 1
    meter = CpuMeter()
    before = psutil.Process().memory_info().rss
    begin = time.process_time()
    numbers = range(number * count, (number + 1) * count)
    done = [run_epoch(partial(feed.epoch, k), workload, check_x=number == 0) for k in numbers]
    figures = {"consumer_cpu_seconds": time.process_time() - begin, "cpu_seconds": meter.seconds()}
    figures |= {"growth_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0 - before, **footprint()}
    figures |= getattr(feed, "figures", {})
    if number == 0:
        come_to_rest(settings.get("rest", 0.0))
    return Epoch(
        seconds=sum(epoch.seconds for epoch in done),
        first_batch_seconds=done[0].first_batch_seconds,
        batches=sum(epoch.batches for epoch in done),
        samples=sum(epoch.samples for epoch in done),
        bytes=sum(epoch.bytes for epoch in done),
        figures=figures,
    )


def started(feed: Feed, workload: Workload, number: int, settings: Mapping[str, float]) -> Epoch:
    """Run a first epoch, then a later turn of :func:`epochs` at once; return the figures of the later turn.

    This is for variants that cannot wait during the turns of others, because they never rest or hold too much memory.
    ``first_batch_seconds`` is taken from the first epoch.
    """
    first = epochs(feed, workload, 0, {})
    return replace(epochs(feed, workload, 1, settings), first_batch_seconds=first.first_batch_seconds)


def run_epoch(begin: Callable[[], Iterator[Batch]], workload: Workload, *, check_x: bool) -> Epoch:
    """Consume one epoch. Touch each batch in the same small way for all libraries.

    Args:
        begin: Asks the loader for the iterator.
        workload: The workload, with the expected count and sums.
        check_x: Whether to sum a value of each sample too. It costs more than a touch, so only first epochs do it.

    Raises:
        Unfair: the count or a sum is not the expected one.
    """
    clock = time.perf_counter()
    first = 0.0
    count = samples = nbytes = y_sum = x_sum = 0
    for batch in begin():
        if count == 0:
            first = time.perf_counter() - clock
        x, y = batch[0], batch[-1]
        int(x[(0,) * x.ndim])
        count += 1
        samples += len(x)
        nbytes += x.nbytes if x is y else x.nbytes + y.nbytes
        y_sum += int(y.sum())
        if check_x:
            x_sum += int(probe(x).sum())
    seconds = time.perf_counter() - clock
    _check("samples", samples, workload.samples)
    _check("sum of y", y_sum, workload.y_sum)
    if check_x:
        _check("sum of x", x_sum, workload.x_sum, workload.x_slack)
    return Epoch(seconds=seconds, first_batch_seconds=first, batches=count, samples=samples, bytes=nbytes)


def _check(what: str, got: int, wanted: int, slack: int = 0) -> None:
    if abs(got - wanted) > slack:
        raise Unfair(f"{what} of an epoch must be {wanted}; the peer delivered {got}")


def operation(feed: Feed, workload: Workload, number: int, settings: Mapping[str, float]) -> Epoch:
    """Time the operation of a feed on batches that are ready when the epoch begins, once on each batch."""
    batches = feed.epoch(number)
    clock = time.perf_counter()
    first, count, samples, nbytes = 0.0, 0, 0, 0
    for x, _ in batches:
        first = first or time.perf_counter() - clock
        count, samples, nbytes = count + 1, samples + len(x), nbytes + x.nbytes
    seconds = time.perf_counter() - clock
    _check("samples", samples, workload.samples)
    return Epoch(seconds=seconds, first_batch_seconds=first, batches=count, samples=samples, bytes=nbytes)


class Consumption:
    """A feed that runs a step after each batch and holds the batch during the step.

    Attributes:
        waits: Seconds in ``next()``, for each batch, then for the end. The first includes the start of the epoch.
        steps: Seconds of each step.
    """

    def __init__(self, feed: Feed, step: Callable[[], Any]) -> None:
        self._feed = feed
        self._step = step
        self.waits: list[float] = []
        self.steps: list[float] = []

    def epoch(self, number: int) -> Iterator[Batch]:
        """Yield the batches of epoch `number`."""
        begin = time.perf_counter()
        batches = self._feed.epoch(number)
        while True:
            batch = next(batches, None)
            self.waits.append(time.perf_counter() - begin)
            if batch is None:
                return
            yield batch
            self.steps.append(seconds_of(self._step))
            begin = time.perf_counter()


def seconds_of(step: Callable[[], Any]) -> float:
    """Return the seconds of a step."""
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def consumer(feed: Feed, workload: Workload, number: int, settings: Mapping[str, float]) -> Epoch:
    """Time an epoch at full speed, then run one with a step after each batch. Turn 0 has only the epoch at full speed.

    Settings: with ``loops``, the step holds the interpreter for so many loops of Python. Without it, the step sleeps,
    like a program whose device is busy: it asks for batches at ``load`` times the rate at full speed, default 0.5.
    Figures: ``pace_seconds``, a batch at full speed; ``step_seconds``; ``alone``, the speed of the step as a share of
    its speed without a loader; ``waited``, the share of the epoch that the consumer spent in ``next()``;
    ``waited_later``, the same without the first batch.
    """
    fast = run_epoch(partial(feed.epoch, 2 * number), workload, check_x=number == 0)
    if number == 0:
        return fast
    loops, pace = int(settings.get("loops", 0)), fast.seconds / fast.batches
    step = partial(burn, 1, loops) if loops else partial(time.sleep, pace / settings.get("load", 0.5))
    alone = min(seconds_of(step) for _ in range(10))
    slow = Consumption(feed, step)
    done = run_epoch(partial(slow.epoch, 2 * number + 1), workload, check_x=False)
    return replace(done, figures={"pace_seconds": pace, **shares(slow, done.seconds, alone)})


def shares(slow: Consumption, seconds: float, alone: float) -> dict[str, float]:
    """Return the figures of an epoch that took `seconds`."""
    first, *later = slow.waits
    step = mean(slow.steps)
    return {
        "step_seconds": step,
        "alone": alone / step,
        "waited": sum(slow.waits) / seconds,
        "waited_later": sum(later) / (seconds - first),
    }


def startup(feed: Feed, workload: Workload, number: int, settings: Mapping[str, float]) -> Epoch:
    """Start, run two epochs, close, start again.

    ``first_batch_seconds`` runs from the request for the pool and the parallel source to the first batch. Figures:
    ``next_first_batch_seconds``, the same for the second epoch; ``again_seconds``, the same for another new pool, after
    the first is closed; ``worker_private_bytes``, of the largest started process, after two epochs; ``growth_bytes``,
    the growth of the memory of all processes over the two epochs; ``copy_seconds``, one plain copy of as many bytes as
    the data into untouched memory.
    """
    before = footprint()["pss"]
    first, second = (run_epoch(partial(feed.epoch, k), workload, check_x=k == 0) for k in range(2))
    growth = footprint()["pss"] - before
    private = max((private_bytes(pid) for pid in tree() if pid != os.getpid()), default=0)
    feed.close()
    again = run_epoch(partial(feed.epoch, 2), workload, check_x=False)
    feed.close()
    figures = {
        "next_first_batch_seconds": second.first_batch_seconds,
        "again_seconds": again.first_batch_seconds,
        "worker_private_bytes": private,
        "growth_bytes": growth,
        "copy_seconds": _copy_seconds(workload.nbytes),
    }
    return replace(first, figures=figures)


def _copy_seconds(nbytes: int) -> float:
    data = np.ones(nbytes, np.uint8)
    begin = time.perf_counter()
    data.copy()
    return time.perf_counter() - begin


TRIALS: Mapping[str, Callable[[Feed, Workload, int, Mapping[str, float]], Epoch]] = {
    "epochs": epochs,
    "started": started,
    "operation": operation,
    "consumer": consumer,
    "startup": startup,
    "training": training,
}
