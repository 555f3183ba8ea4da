"""Which samples of a batch cannot be made, found by reading its rows again where the exception was met.

The worker that has the batch does so, or the consumer's thread where it makes the batches itself, so that an exception
costs one trip: the answer holds the good samples and what was raised for the others. A sample is bad if it fails when
it is read alone, with the random numbers that it has in its batch. The rows are read again in halves, then in halves of
those that fail, so that one bad sample among n costs about 2 log2(n) reads. If each sample can be made alone, or if all
of a part fail alone in another way than they do together (a map that needs several samples), no sample is to blame: the
batch is made again once, and if it fails again the whole batch is to blame.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import AccountingError, BatchError, MapResultError, PoolBroken, PoolClosed, ReentrantIteration
from ..sampling.plans.rows import take_rows, whole_samples

FAILURES = (Exception, GeneratorExit)
"""What a failed read raises on the consumer's thread. There Ctrl-C and SystemExit end the program, in a worker they are
failures like any other."""

NOT_A_SAMPLE = (PoolClosed, ReentrantIteration, AccountingError, PoolBroken, MapResultError)
"""Errors for which no sample is to blame."""

MAX_ROUNDS = 3
"""How often the samples of one batch are isolated, if it still fails without those that were found bad."""

Read = Callable[[Any, "np.ndarray | None"], Any]
"""Returns the batch of some rows; the second argument is the places that they have in the batch, None for all."""


@dataclasses.dataclass(slots=True)
class PartialBatch:
    """The result of a batch in which samples failed: the batch of the good ones, the exception of each bad one.

    Attributes:
        batch: The batch of the samples that could be made; None where `kept` is 0.
        kept: How many samples it has.
        failures: What was raised for each bad sample, by its place in the batch: of the first alone where the policy is
            to raise it.
        error: What was raised for the whole batch, where no single sample is to blame; None else.
    """

    batch: Any = None
    kept: int = 0
    failures: dict[int, BaseException] = dataclasses.field(default_factory=dict)
    error: BaseException | None = None


def isolable(error: BaseException, rows: Any) -> bool:
    """Return whether `error` may be a sample's fault, and `rows` tell the samples apart.

    The rows of a source of the user's may not; other errors are faults of the pool, or of how the iterator is used.
    """
    if isinstance(error, NOT_A_SAMPLE) and not isinstance(error, BatchError):
        return False
    try:
        return whole_samples(rows)[1] > 0
    except TypeError:
        return False


def isolate(
    read: Read, rows: Any, error: BaseException, action: str, retries: int, caught: tuple[type[BaseException], ...]
) -> Any:
    """Return the batch of `rows`, whose read raised `error`, if it can be made now; else a :class:`PartialBatch`.

    Args:
        read: Reads rows of the batch.
        rows: Its rows, as the plan gives them.
        error: What was raised.
        action: What is done about bad samples. ``"raise"``: the first is looked for. ``"replace"``: all are.
            ``"skip"``: all are, and the others are made into a batch.
        retries: How often to make the whole batch again first.
        caught: The exceptions that are failures.
    """
    probed, n = whole_samples(rows)
    for _ in range(retries):
        made, raised = _tried(read, rows, None, caught)
        if raised is None:
            return made
        error = raised
    places, bad = np.arange(n), dict[int, BaseException]()
    for _ in range(MAX_ROUNDS):
        suspects = places[places < probed]
        wanted = type(error) if action == "raise" else None
        found, alone = _find_bad(read, rows, suspects, error, wanted, caught)
        seen = suspects[suspects <= max(alone)] if wanted is not None and alone else suspects
        if len(alone) == len(seen) > 1:  # none can be made alone: bad are those that fail as all do together
            found = {} if bad else {place: one for place, one in found.items() if type(one) is type(error)}
        bad = {**found, **bad}
        places = np.setdiff1d(places, list(found))
        if (found and action != "skip") or not len(places):
            return PartialBatch(failures=bad)
        whole = len(places) == n
        made, raised = _tried(read, rows if whole else take_rows(rows, places), None if whole else places, caught)
        if raised is None:
            return made if whole else PartialBatch(made, len(places), bad)
        error = raised
        if not found:
            break
    return PartialBatch(failures=bad, error=error)


def _tried(
    read: Read, rows: Any, places: np.ndarray | None, caught: tuple[type[BaseException], ...]
) -> tuple[Any, BaseException | None]:
    """Return what a read gives, or else what it raises."""
    try:
        return read(rows, places), None
    except caught as error:
        return None, error


def _find_bad(
    read: Read,
    rows: Any,
    places: np.ndarray,
    error: BaseException,
    wanted: type[BaseException] | None,
    caught: tuple[type[BaseException], ...],
) -> tuple[dict[int, BaseException], set[int]]:
    """Return what was raised for each bad sample at `places`, which raise `error` together, and which fail alone.

    If all fail alone, bad are those for which it is the same exception as for all together.

    Args:
        read: Reads rows of the batch.
        rows: Its rows.
        places: The samples that may be bad.
        error: What is raised for all of them.
        wanted: The exception after which there is no need to look further; None for all bad samples.
        caught: The exceptions that are failures.
    """
    if len(places) == 1 and whole_samples(rows)[1] == 1:
        return {int(places[0]): error}, {int(places[0])}
    bad: dict[int, BaseException] = {}
    alone: set[int] = set()
    for part in np.array_split(places, 2) if len(places) > 1 else [places]:
        _, raised = _tried(read, take_rows(rows, part), part, caught)
        if raised is None:
            continue
        found, failed = {int(part[0]): raised}, {int(part[0])}
        if len(part) > 1:
            found, failed = _find_bad(read, rows, part, raised, wanted, caught)
        bad.update(found)
        alone |= failed
        if any(type(one) is wanted for one in found.values()):
            break
    if len(alone) == len(places) > 1:
        bad = {place: one for place, one in bad.items() if type(one) is type(error)}
    return bad, alone
