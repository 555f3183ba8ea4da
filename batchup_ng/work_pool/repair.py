"""What to read again when a batch could not be made, until it is known what to do: pure decisions.

:func:`repair` is a generator that yields lists of reads, is sent a list of their outcomes, and returns a
:class:`Verdict`. It knows neither pool nor clock: who drives it runs the reads, be it workers or a test.

How a sample is found to be bad. Each is read by itself, on a worker that has nothing else, with the random numbers
that it has in its batch; one that fails is bad. Where all fail the map may be one that needs a whole batch, so each
is read as a batch of copies of itself; samples of which that succeeds are not to blame. Where none fails, or all in
another way than the batch did, the batch is made again once; if it fails then as well, nobody can say which sample it
was.

Time limits bound a sample, and a batch of them is given the time of one at first, so that a sample that hangs is found
soon. When that is over, each sample is read with a short allowance. One that exceeds it is to blame; where there are
several, they get the full time. If there is none the batch is just slow, so it is made again with twice the allowance,
which all later batches of the stream have then too.
"""

from __future__ import annotations

import collections
import dataclasses
import statistics
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from ..errors import SampleTimeout, WorkerDied
from ..faults.isolation import MAX_REPLACEMENTS, MAX_ROUNDS, Verdict
from ..sampling.plans.rows import put_rows, take_rows, whole_samples

SHORT = 0.5
"""Seconds that a single sample is given at least when looking for one that hangs."""

MANY_TIMES = 20
"""Times the usual time of a whole batch that it is given, if that is more."""

LATELY = 31
"""Batches of which the usual time is reckoned."""


@dataclasses.dataclass(frozen=True, slots=True)
class Read:
    """Rows to be read.

    Attributes:
        rows: As the plan gives them.
        offsets: The places in the batch that they have, for their random numbers; None for the whole batch.
        exclusive: Whether it needs a worker of its own.
        timeout: Seconds that it may take; None for any.
    """

    rows: Any
    offsets: np.ndarray | None
    exclusive: bool
    timeout: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What a read gave: a batch, or an error."""

    batch: Any = None
    error: BaseException | None = None


@dataclasses.dataclass(slots=True)
class Allowance:
    """The time that the batches of a stream may take.

    Attributes:
        sample: Seconds that a sample may take: the user's limit; None for any.
        batch: Seconds that a batch may take, which grows as batches turn out to need more.
        times: Seconds that the latest batches took.
    """

    sample: float | None
    batch: float | None
    times: collections.deque[float] = dataclasses.field(default_factory=lambda: collections.deque(maxlen=LATELY))

    def short(self) -> float | None:
        """Return the seconds that a sample gets when looking for one that hangs."""
        usual = statistics.median(self.times) if self.times else 0.0
        return None if self.sample is None else min(self.sample, max(SHORT, MANY_TIMES * usual))

    def double(self, n: int) -> bool:
        """Give batches twice the time; return False if one of `n` samples has had the time of all of them."""
        if self.sample is None or self.batch is None or self.batch >= n * self.sample:
            return False
        self.batch = min(2 * self.batch, n * self.sample)
        return True


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A batch that could not be made.

    Attributes:
        rows: Its rows, as the plan gives them.
        error: What was raised.
        action: What to do about bad samples.
        retries: How often to make the whole batch again first.
        at_once: How many reads the pool can run at once.
        allowance: The time limits of the stream.
        given: Seconds that this batch was given.
        another: Returns the rows of one other sample for a place and attempt; None if there is none for that attempt.
    """

    rows: Any
    error: BaseException
    action: str
    retries: int
    at_once: int
    allowance: Allowance
    given: float | None
    another: Callable[[int, int], Any]

    def whole(self) -> Read:
        """Return the read of the whole batch, as it was planned."""
        return Read(self.rows, None, False, self.allowance.batch)

    def part(self, places: np.ndarray) -> Read:
        """Return the read of some of its samples."""
        return Read(take_rows(self.rows, places), places, False, self.allowance.batch)

    def probe(self, place: int, width: int, timeout: float | None) -> Read:
        """Return the read of one sample, as a batch of `width` copies of it."""
        places = np.full(width, place, dtype=np.int64)
        return Read(take_rows(self.rows, places), places, True, timeout)

    def probe_other(self, place: int, row: Any, width: int) -> Read:
        """Return the read of another row in the place of one sample."""
        places = np.full(width, place, dtype=np.int64)
        rows = take_rows(put_rows(self.rows, place, row), places)
        return Read(rows, places, True, self.allowance.sample)


def repair(case: Case) -> Generator[list[Read], list[Outcome], Verdict]:
    """Return what becomes of a batch that could not be made; yields what has to be read to know that."""
    again, error = yield from _made_again(case)
    if again is not None:
        return again
    probed, n = whole_samples(case.rows)
    verdict = Verdict(kept=n)
    rows, places = case.rows, np.arange(n)
    for _ in range(MAX_ROUNDS):
        finder = _Finder(dataclasses.replace(case, rows=rows, error=error), places[places < probed])
        bad = yield from finder.find()
        verdict.bad = {**bad, **verdict.bad}
        if bad and case.action == "raise":
            return verdict
        if case.action == "replace":
            rows, unreplaced = yield from _replaced(dataclasses.replace(case, rows=rows), sorted(bad), finder.width)
            if unreplaced is not None:
                verdict.error = bad[unreplaced]
                verdict.bad = {unreplaced: bad[unreplaced]}
                return verdict
        else:
            places = np.array([place for place in places if place not in bad], dtype=np.int64)
            verdict.kept = len(places)
            if not verdict.kept:
                return verdict
        outcome = yield from _without_bad(dataclasses.replace(case, rows=rows), None if len(places) == n else places)
        if outcome.error is None:
            verdict.made, verdict.batch = True, outcome.batch
            return verdict
        error = outcome.error
        if not bad:
            break
    verdict.error = error
    return verdict


def _without_bad(case: Case, places: np.ndarray | None) -> Generator[list[Read], list[Outcome], Outcome]:
    """Read the samples at `places`, None for all, with more time as long as it was only that which lacked."""
    while True:
        (outcome,) = yield [case.whole() if places is None else case.part(places)]
        n = whole_samples(case.rows)[1] if places is None else len(places)
        if not isinstance(outcome.error, SampleTimeout) or places is not None or not case.allowance.double(n):
            return outcome


def _made_again(case: Case) -> Generator[list[Read], list[Outcome], tuple[Verdict | None, BaseException]]:
    """Make the whole batch again, as often as the policy says, and where it was given less time than others now are."""
    error, tries = case.error, case.retries
    late = isinstance(error, SampleTimeout) and case.given is not None and case.given < (case.allowance.batch or 0.0)
    for _ in range(tries + late):
        (outcome,) = yield [case.whole()]
        if outcome.error is None:
            return Verdict(made=True, batch=outcome.batch, kept=whole_samples(case.rows)[1]), error
        error = outcome.error
    return None, error


class _Finder:
    """Finds the bad samples of a batch.

    Args:
        case: The batch.
        places: The samples that may be bad.

    Attributes:
        width: How many copies of a sample a read needs to succeed.
    """

    def __init__(self, case: Case, places: np.ndarray) -> None:
        self._case = case
        self._places = [int(place) for place in places]
        self.width = 1

    def find(self) -> Generator[list[Read], list[Outcome], dict[int, BaseException]]:
        """Return what was raised for each bad sample, by its place."""
        if isinstance(self._case.error, SampleTimeout):
            return (yield from self._overdue())
        limit = self._case.allowance.sample
        bad = yield from self._probed(self._places, 1, limit, self._case.action == "raise")
        n, width = len(self._places), whole_samples(self._case.rows)[1]
        if len(bad) < n or width < 2 or any(isinstance(error, (WorkerDied, SampleTimeout)) for error in bad.values()):
            return bad
        batch_limit = self._case.allowance.batch
        together = yield from self._probed(self._places, width, batch_limit, self._case.action == "raise")
        if len(together) == n:  # all fail in another way than the batch did: no sample is to blame
            return bad if any(type(error) is type(self._case.error) for error in bad.values()) else {}
        self.width = width
        return together

    def _probed(
        self, places: Sequence[int], width: int, timeout: float | None, first_only: bool
    ) -> Generator[list[Read], list[Outcome], dict[int, BaseException]]:
        """Return what was raised for each place; if `first_only`, only until one has failed and another has not."""
        bad: dict[int, BaseException] = {}
        for start in range(0, len(places), self._case.at_once):
            some = places[start : start + self._case.at_once]
            outcomes = yield [self._case.probe(place, width, timeout) for place in some]
            bad.update(_errors(some, outcomes))
            if first_only and 0 < len(bad) < start + len(some):
                break
        return bad

    def _overdue(self) -> Generator[list[Read], list[Outcome], dict[int, BaseException]]:
        """Return what was raised for the samples that take too long, or fail otherwise."""
        allowance = self._case.allowance
        short = allowance.short()
        bad = yield from self._probed(self._places, 1, short, False)
        suspects = [place for place, error in bad.items() if isinstance(error, SampleTimeout)]
        if len(suspects) > 1 and short != allowance.sample:
            for place in suspects:
                del bad[place]
            bad.update((yield from self._probed(suspects, 1, allowance.sample, False)))
        if not bad:
            allowance.double(len(self._places))
        return {place: _timed_out(error, allowance.sample) for place, error in bad.items()}


def _timed_out(error: BaseException, limit: float | None) -> BaseException:
    """Return `error`, told as a breach of the user's own limit if it is one of the short allowance."""
    if limit is None or not isinstance(error, SampleTimeout):
        return error
    return SampleTimeout(f"a sample took longer than timeout={limit:g} s; raise it if that is right")


def _replaced(
    case: Case, bad: Sequence[int], width: int
) -> Generator[list[Read], list[Outcome], tuple[Any, int | None]]:
    """Return the rows with another in each bad place, or the first place for which none was found."""
    rows = case.rows
    for place in bad:
        for attempt in range(MAX_REPLACEMENTS):
            row = case.another(place, attempt)
            if row is None:
                continue
            (outcome,) = yield [case.probe_other(place, row, width)]
            if outcome.error is None:
                rows = put_rows(rows, place, row)
                break
        else:
            return rows, place
    return rows, None


def _errors(places: Sequence[int], outcomes: Sequence[Outcome]) -> dict[int, BaseException]:
    pairs = zip(places, outcomes, strict=True)
    return {place: outcome.error for place, outcome in pairs if outcome.error is not None}
