"""The plain trial: epochs at full speed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from benchmarks.outcome import Epoch
from benchmarks.peers.base import Feed, Variant
from benchmarks.processes import come_to_rest
from benchmarks.workloads import Workload, probe


class Unfair(RuntimeError):
    """The peer did not deliver each sample once, as it is."""


class Epochs:
    """Runs one epoch or several each turn; other trials build on it.

    The first turn has one epoch, for it is shown apart; what that began in the background ends before others have their
    turn. Where an epoch is short, several make a turn a steady state: a
    variant that has waited while others ran begins with caches that are theirs.

    Args:
        variant: The peer.
        workload: What it must deliver.
        workers: Threads or processes, for a variant that has any.
        settings: ``epochs`` a turn, 1 where it is not given; ``rest``, the seconds that it may take to come to rest.
    """

    def __init__(self, variant: Variant, workload: Workload, workers: int, settings: Mapping[str, float]) -> None:
        self.workload = workload
        self.workers = workers
        self.settings = settings
        self.feed: Feed = variant.open(workload, workers)
        self._same_pixels = variant.same_pixels

    def turn(self, number: int) -> Epoch:
        if number == 0:
            done = self.run(self.feed, 0)
            come_to_rest(self.settings.get("rest", 0.0))
            return done
        count = int(self.settings.get("epochs", 1))
        return together([self.run(self.feed, number * count + k) for k in range(count)])

    def run(self, feed: Feed, number: int) -> Epoch:
        """Consume the epoch of that number from a feed; the first one is checked more."""
        return run_epoch(feed, number, self.workload, check_x=number == 0 and self._same_pixels)

    def close(self) -> None:
        self.feed.close()


def run_epoch(feed: Feed, number: int, workload: Workload, *, check_x: bool) -> Epoch:
    """Consume one epoch, touching each batch in the same small way whoever made it.

    Args:
        feed: The loader.
        number: The epoch's number, from 0.
        workload: What it must deliver.
        check_x: Whether to sum a value of each sample too; only asked of the first epoch, being dearer than a touch.

    Raises:
        Unfair: Count or sums are not those of the workload.
    """
    begin = time.perf_counter()
    first = 0.0
    count = samples = nbytes = y_sum = x_sum = 0
    for batch in feed.epoch(number):
        if count == 0:
            first = time.perf_counter() - begin
        x, y = batch[0], batch[-1]
        int(x[(0,) * x.ndim])
        count += 1
        samples += len(x)
        nbytes += x.nbytes if x is y else x.nbytes + y.nbytes
        y_sum += int(y.sum())
        if check_x:
            x_sum += int(probe(x).sum())
    seconds = time.perf_counter() - begin
    _check("samples", samples, workload.samples)
    _check("sum of y", y_sum, workload.y_sum)
    if check_x:
        _check("sum of x", x_sum, workload.x_sum)
    return Epoch(seconds=seconds, first_batch_seconds=first, batches=count, samples=samples, bytes=nbytes)


def _check(what: str, got: int, wanted: int) -> None:
    if got != wanted:
        raise Unfair(f"{what} of an epoch must be {wanted}; the peer delivered {got}")


def together(epochs: list[Epoch]) -> Epoch:
    """Several epochs as one, which began with the first of them."""
    return replace(
        epochs[0],
        seconds=sum(epoch.seconds for epoch in epochs),
        batches=sum(epoch.batches for epoch in epochs),
        samples=sum(epoch.samples for epoch in epochs),
        bytes=sum(epoch.bytes for epoch in epochs),
    )
