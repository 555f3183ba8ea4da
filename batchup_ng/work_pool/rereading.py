"""Reads samples of a batch again whose worker ended, each on a worker without other tasks, within limits of time.

A crash or a time limit ends the worker of a batch, so it cannot isolate the samples. The consumer does, by
:func:`~batchup_ng.faults.isolation.isolate` with this reader. A sample that ends its worker is to blame. The worker
that makes the remaining samples isolates their exceptions.

A time limit applies to one sample. A batch first gets the time of one sample, to find a sample that hangs soon. If the
batch exceeds it, each sample is read with the limit :data:`SEARCH_SECONDS`. A single sample that exceeds it is to
blame. If there are several, each is read with the full time. If there is none, the batch is just slow. It is made again
with the time of all its samples, and later batches of the epoch get this time too. This is no failure, unless the
samples were so quick that a sample of the first try must have exceeded its time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..errors import SampleTimeout
from ..faults.isolation import PartialBatch, Rule, isolate
from ..sampling.plans.rows import take_rows, whole_samples

SEARCH_SECONDS = 0.5
"""Seconds for each sample in the search for a sample that hangs."""


class Read(NamedTuple):
    """Rows to be read."""

    rows: Any  # as the plan gives them
    places: np.ndarray | None  # in the batch, for their random numbers; None for the whole batch
    exclusive: bool  # whether it needs a worker of its own
    timeout: float | None  # seconds that it may take


@dataclasses.dataclass(slots=True)
class TimeLimits:
    """Seconds that a sample and a batch of an epoch may take; None for no limit."""

    sample: float | None
    batch: float | None


@dataclasses.dataclass
class Rereader:
    """Reads samples of one batch by submitting: a :class:`~batchup_ng.faults.isolation.Reader`."""

    rows: Any
    limits: TimeLimits
    at_once: int  # how many reads the pool can run at once
    run: Callable[[list[Read]], list[Any]]  # returns each batch, PartialBatch, or exception of an ended worker
    _slow: bool = False  # whether the batch just needs more time

    def isolated(self, error: BaseException, rule: Rule) -> PartialBatch:
        """Return the result of the batch, whose worker ended with `error`."""
        made = isolate(self, self.rows, error, rule)
        if self._slow and isinstance(made.retried, SampleTimeout):
            made.retried = None
        return made

    def together(self, places: np.ndarray) -> Any:
        whole = len(places) == whole_samples(self.rows)[1]
        rows = self.rows if whole else take_rows(self.rows, places)
        (made,) = self.run([Read(rows, None if whole else places, False, self.limits.batch)])
        return made

    def alone(self, places: np.ndarray, error: BaseException) -> Iterator[Any]:
        limit = self.limits.sample
        if isinstance(error, SampleTimeout) and limit is not None:
            return iter(self._timed(places, limit))
        return self._each(places, limit)

    def _timed(self, places: np.ndarray, limit: float) -> list[Any]:
        """Return what comes of each sample, within `limit` seconds."""
        short = min(SEARCH_SECONDS, limit)
        made = list(self._each(places, short))
        late = [k for k, one in enumerate(made) if isinstance(one, SampleTimeout)]
        if len(late) > 1 and limit > short:
            for k, one in zip(late, self._each(places[late], limit), strict=True):
                made[k] = one
        if not any(isinstance(one, BaseException) for one in made):
            self.limits.batch = limit * whole_samples(self.rows)[1]
            self._slow = bool(late) or len(places) * short > limit
        late_error = SampleTimeout(f"a sample took longer than timeout={limit:g} s; raise it if that is right")
        return [late_error if isinstance(one, SampleTimeout) else one for one in made]

    def _each(self, places: np.ndarray, timeout: float | None) -> Iterator[Any]:
        """Read each sample on a worker of its own, as many at a time as there are workers."""
        for start in range(0, len(places), self.at_once):
            some = places[start : start + self.at_once].reshape(-1, 1)
            yield from self.run([Read(take_rows(self.rows, place), place, True, timeout) for place in some])
