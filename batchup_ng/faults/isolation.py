"""Which samples of a batch cannot be made, found by reading its rows again where the exception was met.

A sample is bad if it fails when it is read alone, with the random numbers that it has in its batch. The rows of the
batch are read again in halves, then in halves of those that fail, so that one bad sample among n costs about 2 log2(n)
reads. Where each sample can be made alone, or all fail in another way than the batch did (a map that needs a whole
batch), no sample is to blame: the batch is made again once, and if it fails again the whole batch is to blame.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import AccountingError, BatchError, MapResultError, PoolBroken, PoolClosed, ReentrantIteration
from ..sampling.plans.rows import put_rows, take_rows, whole_samples
from .policy import ErrorPolicy

FAILURES = (Exception, GeneratorExit)
"""What a failed read raises. Ctrl-C and SystemExit end the program, they are no failure of a sample."""

NOT_A_SAMPLE = (PoolClosed, ReentrantIteration, AccountingError, PoolBroken, MapResultError)
"""Errors for which no sample is to blame."""

MAX_REPLACEMENTS = 32
"""How many other rows are tried in the place of a bad one."""

MAX_ROUNDS = 3
"""How often the samples of one batch are isolated, if it still fails without those that were found bad."""

Read = Callable[[Any, "np.ndarray | None"], Any]
"""Returns the batch of some rows; the second argument is the places that they have in the batch, None for all."""


@dataclasses.dataclass(slots=True)
class Verdict:
    """What became of a batch that failed.

    Attributes:
        made: Whether there is a batch.
        batch: The batch, of those samples that could be made.
        bad: What was raised for each sample that is bad, by its place.
        kept: How many samples the batch has.
        error: What is to be raised, where no single sample is to blame.
    """

    made: bool = False
    batch: Any = None
    bad: dict[int, BaseException] = dataclasses.field(default_factory=dict)
    kept: int = 0
    error: BaseException | None = None


def of_a_sample(error: BaseException) -> bool:
    """Return whether `error` may be a sample's fault, and not that of the pool or of how the iterator is used."""
    return isinstance(error, BatchError) or not isinstance(error, NOT_A_SAMPLE)


def isolable(rows: Any) -> bool:
    """Return whether the rows of a batch tell its samples apart; those of a source of the user's may not."""
    try:
        return whole_samples(rows)[1] > 0
    except TypeError:
        return False


def isolate(
    read: Read, rows: Any, error: BaseException, policy: ErrorPolicy, another: Callable[[int, int], Any]
) -> Verdict:
    """Return what becomes of the batch of `rows`, whose read raised `error`.

    Args:
        read: Reads rows of the batch.
        rows: Its rows, as the plan gives them.
        error: What was raised.
        policy: What to do about bad samples.
        another: Returns the rows of one other sample for a place and attempt; None if there is none for that attempt.
    """
    probed, n = whole_samples(rows)
    for _ in range(policy.retries):
        try:
            return Verdict(True, read(rows, None), kept=n)
        except FAILURES as raised:
            error = raised
    verdict, places = Verdict(kept=n), np.arange(n)
    for _ in range(MAX_ROUNDS):
        suspects = places[places < probed]
        bad = _find_bad(read, rows, suspects, error, policy.action == "raise")
        if len(bad) == len(suspects) > 1 and not any(type(raised) is type(error) for raised in bad.values()):
            bad = {}
        verdict.bad = {**bad, **verdict.bad}
        if bad and policy.action == "raise":
            return verdict
        if policy.action == "replace":
            for place in sorted(bad):
                replaced = _replaced(read, rows, place, another)
                if replaced is None:
                    return Verdict(bad={place: bad[place]}, error=bad[place])
                rows = replaced
        else:
            places = np.setdiff1d(places, list(bad))
            verdict.kept = len(places)
            if not verdict.kept:
                return verdict
        try:
            verdict.batch = read(rows, None) if len(places) == n else read(take_rows(rows, places), places)
        except FAILURES as raised:
            error = raised
            if not bad:
                break
            continue
        verdict.made = True
        return verdict
    verdict.error = error
    return verdict


def _find_bad(
    read: Read, rows: Any, places: np.ndarray, error: BaseException, first_only: bool
) -> dict[int, BaseException]:
    """Return what was raised for each bad sample at `places`, which fail together with `error`."""
    if len(places) == 1 and whole_samples(rows)[1] == 1:
        return {int(places[0]): error}
    bad: dict[int, BaseException] = {}
    parts = np.array_split(places, 2) if len(places) > 1 else [places]
    for part in parts:
        try:
            read(take_rows(rows, part), part)
        except FAILURES as raised:
            if first_only and type(raised) is not type(error):
                continue  # of a map that needs a whole batch, say
            bad.update({int(part[0]): raised} if len(part) == 1 else _find_bad(read, rows, part, raised, first_only))
        if bad and first_only:
            break
    return bad


def _replaced(read: Read, rows: Any, place: int, another: Callable[[int, int], Any]) -> Any:
    """Return `rows` with another sample's row at `place`, which can be made there; None if none was found."""
    only = np.array([place])
    for attempt in range(MAX_REPLACEMENTS):
        row = another(place, attempt)
        if row is None:
            continue
        replaced = put_rows(rows, place, row)
        try:
            read(take_rows(replaced, only), only)
        except FAILURES:
            continue
        return replaced
    return None
