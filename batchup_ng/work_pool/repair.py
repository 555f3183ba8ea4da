"""Which samples of a batch kill their worker or exceed their time, found by reading each alone: pure decisions.

An exception is isolated by the worker that met it (:mod:`batchup_ng.faults.isolation`). A crash or a time limit ends
the worker, so the consumer has each sample read by itself, on a worker that has nothing else, with the random
numbers that it has in its batch; one that ends its worker is to blame. If there is none, the batch is made again once,
and is to blame as a whole if it fails again. Exceptions are isolated by the worker that makes the remaining samples.

A time limit bounds a sample, and a batch is given the time of one, so that a sample that hangs is found soon. When that
is over, each sample is read with :data:`SHORT`. One that exceeds it is to blame; if there are several, each gets the
full time. If there is none the batch is just slow: it is made again with the time of all its samples, which the later
batches of the epoch have too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..errors import SampleTimeout
from ..faults.isolation import PartialBatch, search
from ..sampling.plans.rows import take_rows, whole_samples

SHORT = 0.5
"""Seconds that a single sample is given when looking for one that hangs."""


class Read(NamedTuple):
    """Rows to be read."""

    rows: Any  # as the plan gives them
    places: np.ndarray | None  # those that they have in the batch, for their random numbers; None for the whole batch
    exclusive: bool  # whether it needs a worker of its own
    timeout: float | None  # seconds that it may take


@dataclasses.dataclass(slots=True)
class Allowance:
    """The seconds that a sample and a batch of an epoch may take; None for any."""

    sample: float | None
    batch: float | None


@dataclasses.dataclass(frozen=True)
class Repair:
    """Finds out what becomes of one batch whose worker died or ran out of time."""

    rows: Any
    action: str  # what the error policy does about bad samples
    allowance: Allowance
    at_once: int  # how many reads the pool can run at once
    run: Callable[[list[Read]], list[Any]]  # gives for each the batch, a PartialBatch, or what ended its worker

    def made(self, error: BaseException, again: int) -> PartialBatch:
        """Return what becomes of the batch that `error` ended, which is made `again` times whole first."""
        made = search(self.rows, error, self.action, again, self._read, self._find_bad)
        if isinstance(made.retried, SampleTimeout):
            made.retried = None  # the batch has more time now, which is no failure
        return made

    def _read(self, places: np.ndarray) -> tuple[Any, BaseException | None]:
        whole = len(places) == whole_samples(self.rows)[1]
        rows = self.rows if whole else take_rows(self.rows, places)
        (made,) = self.run([Read(rows, None if whole else places, False, self.allowance.batch)])
        return (None, made) if isinstance(made, BaseException) else (made, None)

    def _find_bad(self, places: np.ndarray, error: BaseException, first: bool) -> dict[int, BaseException]:
        """Return what ended the worker of each sample that is to blame, by its place."""
        limit = self.allowance.sample
        if not isinstance(error, SampleTimeout) or limit is None:
            return self._probe(places, limit, self.action == "raise")
        bad = self._probe(places, min(SHORT, limit), False)
        late = np.array([place for place, one in bad.items() if isinstance(one, SampleTimeout)], dtype=np.int64)
        if len(late) > 1 and limit > SHORT:
            bad = {place: one for place, one in bad.items() if place not in late}
            bad.update(self._probe(late, limit, False))
        if not bad:
            self.allowance.batch = limit * whole_samples(self.rows)[1]
        told = SampleTimeout(f"a sample took longer than timeout={limit:g} s; raise it if that is right")
        return {place: told if isinstance(one, SampleTimeout) else one for place, one in bad.items()}

    def _probe(self, places: np.ndarray, timeout: float | None, first_only: bool) -> dict[int, BaseException]:
        """Return what ended the worker of each of these samples, of the first alone if that is enough."""
        bad: dict[int, BaseException] = {}
        for start in range(0, len(places), self.at_once):
            some = places[start : start + self.at_once]
            reads = [Read(take_rows(self.rows, place), place, True, timeout) for place in some.reshape(-1, 1)]
            for place, made in zip(some, self.run(reads), strict=True):
                if isinstance(made, BaseException):
                    bad[int(place)] = made
            if bad and first_only:
                break
        return bad
