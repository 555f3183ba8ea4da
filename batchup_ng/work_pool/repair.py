"""Which samples of a batch kill their worker or exceed their time, found by reading each alone: pure decisions.

The worker that met an exception isolates it (:mod:`batchup_ng.faults.isolation`). A crash or a time limit ends the
worker. The consumer then has each sample read alone, on a worker without other tasks, with the random numbers that the
sample has in its batch. A sample that ends its worker is to blame. If there is no such sample, the batch is made again
once. If it fails again, the whole batch is to blame. The worker that makes the remaining samples isolates exceptions.

A time limit applies to one sample. A batch first gets the time of one sample, to find a sample that hangs soon. If the
batch exceeds it, each sample is read with the limit :data:`SHORT`. A single sample that exceeds it is to blame. If
there are several, each is read with the full time. If there is none, the batch is just slow. It is made again with the
time of all its samples, and later batches of the epoch get this time too.
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
"""Seconds for each sample in the search for a sample that hangs."""


class Read(NamedTuple):
    """Rows to be read."""

    rows: Any  # as the plan gives them
    places: np.ndarray | None  # in the batch, for their random numbers; None for the whole batch
    exclusive: bool  # whether it needs a worker of its own
    timeout: float | None  # seconds that it may take


@dataclasses.dataclass(slots=True)
class Allowance:
    """Seconds that a sample and a batch of an epoch may take; None for no limit."""

    sample: float | None
    batch: float | None


@dataclasses.dataclass(frozen=True)
class Repair:
    """The search for the bad samples of one batch whose worker died or ran out of time."""

    rows: Any
    action: str  # the error policy's action for bad samples
    allowance: Allowance
    at_once: int  # how many reads the pool can run at once
    run: Callable[[list[Read]], list[Any]]  # returns each batch, PartialBatch, or exception of an ended worker

    def made(self, error: BaseException, again: int) -> PartialBatch:
        """Return the result of the batch that failed with `error`. First make it whole up to `again` times."""
        made = search(self.rows, error, self.action, again, self._read, self._find_bad)
        if isinstance(made.retried, SampleTimeout):
            made.retried = None  # no failure: the batch has more time now
        return made

    def _read(self, places: np.ndarray) -> tuple[Any, BaseException | None]:
        whole = len(places) == whole_samples(self.rows)[1]
        rows = self.rows if whole else take_rows(self.rows, places)
        (made,) = self.run([Read(rows, None if whole else places, False, self.allowance.batch)])
        return (None, made) if isinstance(made, BaseException) else (made, None)

    def _find_bad(self, places: np.ndarray, error: BaseException, first: bool) -> dict[int, BaseException]:
        """Return the exception of each sample that is to blame, by its place."""
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
        """Read each sample alone. Return the exceptions that ended a worker, by place; if `first_only`, the first."""
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
