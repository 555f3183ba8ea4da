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
from benchmarks.stops import crash, resume
from benchmarks.training import training
from benchmarks.workloads.base import Batch, Workload, probe
from benchmarks.workloads.numbers import burn

LONG_TURN_SECONDS = 1.0


class Unfair(RuntimeError):
    """The peer did not deliver each sample once and unchanged."""


def epochs(feed: Feed, workload: Workload, number: int, settings: Mapping[str, float]) -> Epoch:
    """Run an epoch, or as many as the settings say.

    The first turn has one epoch, because it is shown separately. Its background work ends before the next variant's
    turn, as after each turn of a variant that reads the next epoch ahead. If epochs are short, a turn has several, to
    reach a steady state: after a wait, a variant starts with the caches that others have filled. A turn of
    :data:`LONG_TURN_SECONDS` begins no other epoch.

    Settings: ``epochs``, the most in a turn, default 1; ``rest``, the most seconds to come to rest. Figures:
    ``cpu_seconds``, user and system, of all processes; ``consumer_cpu_seconds``, of this process alone;
    ``growth_bytes``, the peak of this process's resident memory minus its resident memory before the turn; at the end,
    the figures of :func:`~benchmarks.processes.footprint`, of all processes; and the feed's own ``figures``.
    """
    count = int(settings.get("epochs", 1)) if number else 1
    meter = CpuMeter()
    before = psutil.Process().memory_info().rss
    begin = time.process_time()
    done: list[Epoch] = []
    while len(done) < count and sum(epoch.seconds for epoch in done) < LONG_TURN_SECONDS:
        done.append(run_epoch(partial(feed.epoch, number * count + len(done)), workload, check_x=number == 0))
    figures = {"consumer_cpu_seconds": time.process_time() - begin, "cpu_seconds": meter.seconds()}
    figures |= {"growth_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0 - before, **footprint()}
    figures |= getattr(feed, "figures", {})
    if number == 0 or getattr(feed, "reads_on", False):  # of the next epoch, behind its last batch
        come_to_rest(settings.get("rest", 0.0))
    totals: dict[str, Any] = {
        name: sum(getattr(epoch, name) for epoch in done) for name in ("seconds", "batches", "samples", "bytes")
    }
    return Epoch(**totals, first_batch_seconds=done[0].first_batch_seconds, figures=figures)


def started(feed: Feed, workload: Workload, number: int, settings: Mapping[str, float]) -> Epoch:
    """Run a first epoch, then a later turn of :func:`epochs` at once; return the figures of the later turn.

    This is for variants that cannot wait during the turns of others, because they never rest or hold too much memory.
    ``first_batch_seconds`` is taken from the first epoch.
    """
    first = epochs(feed, workload, 0, {})
    return replace(epochs(feed, workload, 1, settings), first_batch_seconds=first.first_batch_seconds)


def run_epoch(
    begin: Callable[[], Iterator[Batch]], workload: Workload, *, check_x: bool, check_y: bool = True
) -> Epoch:
    """Consume one epoch. Touch each batch in the same small way for all libraries.

    Args:
        begin: Asks the loader for the iterator.
        workload: The workload, with the expected count and sums.
        check_x: Whether to sum a value of each sample too. It costs more than a touch, so only first epochs do it.
        check_y: Whether to sum the labels.

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
        if check_y:
            y_sum += int(y.sum())
        if check_x:
            x_sum += int(probe(x).sum())
    seconds = time.perf_counter() - clock
    _check("samples", samples, workload.samples)
    if check_y:
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
    return run_epoch(lambda: batches, workload, check_x=False, check_y=False)


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
    waits: list[float] = []
    steps: list[float] = []
    done = run_epoch(lambda: consumed(feed, 2 * number + 1, step, waits, steps), workload, check_x=False)
    return replace(done, figures={"pace_seconds": pace, **shares(waits, steps, done.seconds, alone)})


def consumed(
    feed: Feed, number: int, step: Callable[[], Any], waits: list[float], steps: list[float]
) -> Iterator[Batch]:
    """Yield the batches of an epoch. Run a step after each, while the batch is held.

    Seconds in ``next()`` are appended to `waits`, for each batch, then for the end; the first include the start of the
    epoch. Seconds of each step are appended to `steps`.
    """
    begin = time.perf_counter()
    batches = feed.epoch(number)
    while True:
        batch = next(batches, None)
        waits.append(time.perf_counter() - begin)
        if batch is None:
            return
        yield batch
        steps.append(seconds_of(step))
        begin = time.perf_counter()


def shares(waits: list[float], steps: list[float], seconds: float, alone: float) -> dict[str, float]:
    """Return the figures of an epoch that took `seconds`, with a step that alone takes `alone`."""
    return {
        "step_seconds": mean(steps),
        "alone": alone / mean(steps),
        "waited": sum(waits) / seconds,
        "waited_later": sum(waits[1:]) / (seconds - waits[0]),
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
        "copy_seconds": seconds_of(np.ones(workload.nbytes, np.uint8).copy),
    }
    return replace(first, figures=figures)


TRIALS: Mapping[str, Callable[[Feed, Workload, int, Mapping[str, float]], Epoch]] = {
    each.__name__: each for each in (epochs, started, operation, consumer, startup, training, resume, crash)
}
