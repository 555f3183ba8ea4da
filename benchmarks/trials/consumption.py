"""A consumer that takes its time over each batch, with a clock around each wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.peers.base import Batch, Feed


class Consumption:
    """A feed whose epochs are slowed down by a step after each batch, which is held for so long.

    Attributes:
        waits: Seconds in ``next()``, for each batch of the last epoch, then for its end; the first has what it takes
            to begin the epoch too.
        steps: Seconds of each step of the last epoch.
        reported: What the iterator's own ``stats()`` gave as ``wait_seconds``, after the first batch and at the end;
            empty where it has no such method.

    Args:
        feed: The loader.
        step: What the consumer does with a batch.
    """

    def __init__(self, feed: Feed, step: Callable[[], Any]) -> None:
        self._feed = feed
        self._step = step
        self.waits: list[float] = []
        self.steps: list[float] = []
        self.reported: list[float] = []

    def epoch(self, number: int) -> Iterator[Batch]:
        self.waits, self.steps, self.reported = [], [], []
        begin = time.perf_counter()
        batches = self._feed.epoch(number)
        while True:
            batch = next(batches, None)
            received = time.perf_counter()
            self.waits.append(received - begin)
            if len(self.waits) == 1 or batch is None:
                self._note(batches)
            if batch is None:
                return
            yield batch
            begin = time.perf_counter()
            self._step()
            now = time.perf_counter()
            self.steps.append(now - begin)
            begin = now

    def _note(self, batches: Any) -> None:
        stats = getattr(batches, "stats", None)
        if stats is not None:
            self.reported.append(stats()["wait_seconds"])

    def close(self) -> None:
        """The feed is its owner's."""
