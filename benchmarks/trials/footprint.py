"""The trial that looks at memory and descriptors after each epoch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from benchmarks.outcome import Epoch
from benchmarks.peers.base import Feed
from benchmarks.processes import footprint
from benchmarks.trials.epochs import Epochs

REST = 0.2
"""Seconds for which the consumer rests after each of the first batches of the first epochs, so that buffers fill."""

RESTS = 4
"""How many batches these are: with the one in its hands and the next there are more blocks than while it rests."""

FILLING = 2
"""How many epochs these are."""


class Footprints(Epochs):
    """Runs an epoch a turn. Figures: those of :class:`~benchmarks.processes.Footprint`, of all processes, after it.

    Buffers grow until they hold as much as they may, which at full speed they may not for many epochs; so the consumer
    rests in each of the first.
    """

    def turn(self, number: int) -> Epoch:
        feed = Resting(self.feed) if number < FILLING else self.feed
        done = self.run(feed, number)
        return replace(done, figures={name: float(value) for name, value in asdict(footprint()).items()})


class Resting(Feed):
    """A feed whose consumer rests after each of the first batches.

    Args:
        feed: The feed.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def epoch(self, number: int) -> Iterator[Any]:
        for k, batch in enumerate(self._feed.epoch(number)):
            yield batch
            if k < RESTS:
                time.sleep(REST)

    def close(self) -> None:
        self._feed.close()
