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
from ..faults.isolation import MAX_ROUNDS, PartialBatch
from ..sampling.plans.rows import take_rows, whole_samples

SHORT = 0.5
"""Seconds that a single sample is given when looking for one that hangs."""


class Read(NamedTuple):
    """Rows to be read.

    Attributes:
        rows: As the plan gives them.
        places: The places in the batch that they have, for their random numbers; None for the whole batch.
        exclusive: Whether it needs a worker of its own.
        timeout: Seconds that it may take; None for any.
    """

    rows: Any
    places: np.ndarray | None
    exclusive: bool
    timeout: float | None


@dataclasses.dataclass(slots=True)
class Allowance:
    """The time that the batches of an epoch may take.

    Attributes:
        sample: Seconds that a sample may take: the user's limit; None for any.
        batch: Seconds that a batch may take.
    """

    sample: float | None
    batch: float | None

    def of_all(self, n: int) -> None:
        """Give batches the time of `n` samples."""
        self.batch = None if self.sample is None else n * self.sample


class Repair:
    """Finds out what becomes of one batch whose worker died or ran out of time.

    Args:
        rows: Its rows, as the plan gives them.
        action: What is done about bad samples.
        allowance: The time limits of the epoch.
        at_once: How many reads the pool can run at once.
        run: Runs some reads; returns for each the batch, a :class:`PartialBatch`, or the exception that ended it.
    """

    def __init__(
        self, rows: Any, action: str, allowance: Allowance, at_once: int, run: Callable[[list[Read]], list[Any]]
    ) -> None:
        self._rows = rows
        self._probed, self._n = whole_samples(rows)
        self._action = action
        self._allowance = allowance
        self._at_once = at_once
        self._run = run

    def made(self, error: BaseException, again: int) -> Any:
        """Return the batch if it can be made now, else a :class:`PartialBatch`.

        Args:
            error: What ended it.
            again: How often to make the whole batch again first.
        """
        everything = np.arange(self._n)
        for _ in range(again):
            made = self._read(everything)
            if not isinstance(made, BaseException):
                return made
            error = made
        places, bad = everything, dict[int, BaseException]()
        for _ in range(MAX_ROUNDS):
            found = self._find_bad(places[places < self._probed], error)
            bad = {**found, **bad}
            places = np.setdiff1d(places, list(found))
            if (found and self._action != "skip") or not len(places):
                return PartialBatch(failures=bad)
            made = self._read(places)
            if not isinstance(made, BaseException):
                return _together(made, bad, places)
            error = made
            if not found:
                break
        return PartialBatch(failures=bad, error=error)

    def _read(self, places: np.ndarray) -> Any:
        whole = len(places) == self._n
        rows = self._rows if whole else take_rows(self._rows, places)
        return self._run([Read(rows, None if whole else places, False, self._allowance.batch)])[0]

    def _find_bad(self, places: np.ndarray, error: BaseException) -> dict[int, BaseException]:
        """Return what ended the worker of each sample that is to blame, by its place."""
        limit = self._allowance.sample
        if not isinstance(error, SampleTimeout) or limit is None:
            return self._probe(places, limit, self._action == "raise")
        bad = self._probe(places, min(SHORT, limit), False)
        late = np.array([place for place, one in bad.items() if isinstance(one, SampleTimeout)], dtype=np.int64)
        if len(late) > 1 and limit > SHORT:
            bad = {place: one for place, one in bad.items() if place not in late}
            bad.update(self._probe(late, limit, False))
        if not bad:
            self._allowance.of_all(self._n)
        told = SampleTimeout(f"a sample took longer than timeout={limit:g} s; raise it if that is right")
        return {place: told if isinstance(one, SampleTimeout) else one for place, one in bad.items()}

    def _probe(self, places: np.ndarray, timeout: float | None, first_only: bool) -> dict[int, BaseException]:
        """Return what ended the worker of each of these samples, of the first alone if that is enough."""
        bad: dict[int, BaseException] = {}
        for start in range(0, len(places), self._at_once):
            some = places[start : start + self._at_once]
            reads = [Read(take_rows(self._rows, place), place, True, timeout) for place in some.reshape(-1, 1)]
            for place, made in zip(some, self._run(reads), strict=True):
                if isinstance(made, BaseException):
                    bad[int(place)] = made
            if bad and first_only:
                break
        return bad


def _together(made: Any, bad: dict[int, BaseException], places: np.ndarray) -> Any:
    """Return what the samples at `places` gave together with what was found bad before."""
    if type(made) is PartialBatch:
        failures = {int(places[place]): error for place, error in made.failures.items()}
        return dataclasses.replace(made, failures={**failures, **bad})
    return PartialBatch(made, len(places), bad) if bad else made
