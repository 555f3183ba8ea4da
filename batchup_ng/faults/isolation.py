"""Finds the samples of a batch that cannot be made: reads its rows again where the exception was raised.

The worker of the batch does this, or the consumer's thread if it makes the batches itself. So an exception costs one
trip: the answer holds the good samples and the exceptions of the others. A sample is bad if it fails when it is read
alone, with the random numbers that it has in its batch. No sample is to blame if each can be made alone, or if all fail
alone in another way than they do together (a map that needs several samples). Then the batch is made again once. If it
fails again, the whole batch is to blame. If it succeeds, the exception did not come again: the policy "raise" raises
it, the other policies hand out the batch and note the exception.

An error of the program, such as a ``NameError``, is no fault of a sample: every policy raises it. The exception of a
signal handler on the consumer's thread in the middle of a map is no fault of a sample either.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from ..error_context import is_wrong_call
from ..errors import (
    AccountingError,
    BatchError,
    ClusterError,
    MapResultError,
    PoolBroken,
    PoolClosed,
    ReentrantIteration,
)
from ..sampling.plans.rows import take_rows, whole_samples

FAILURES = (Exception, GeneratorExit)
"""Exceptions that count as a failed read on the consumer's thread. There Ctrl-C and SystemExit end the program; in a
worker they are failures like any other."""

NOT_A_SAMPLE = (PoolClosed, ReentrantIteration, AccountingError, PoolBroken, ClusterError, MapResultError)
"""Errors that are never a sample's fault."""

MAX_ROUNDS = 3
"""How often the samples of one batch are isolated, if it still fails without the bad ones found so far."""


@dataclasses.dataclass(slots=True)
class PartialBatch:
    """The result of a batch with failed samples: the batch of the good ones, the exception of each bad one."""

    batch: Any = None  # of the good samples; None if `kept` is 0
    kept: int = 0  # number of samples in `batch`
    # The exception of each bad sample, by its place in the batch; only the first if the policy is "raise".
    failures: dict[int, BaseException] = dataclasses.field(default_factory=dict)
    error: BaseException | None = None  # for the whole batch, if no single sample is to blame
    gone: bool = False  # whether `error` did not come again
    retried: BaseException | None = None  # the first exception of rows that a later try could make
    of_program: bool = False  # whether the program is at fault; the policy does not count such errors

    def with_errors(self, change: Callable[[BaseException], Any]) -> PartialBatch:
        """Return a copy with each exception changed, for example to send it to another process."""
        failures = {place: change(error) for place, error in self.failures.items()}
        whole, retried = (None if error is None else change(error) for error in (self.error, self.retried))
        return dataclasses.replace(self, failures=failures, error=whole, retried=retried)


def of_program(error: BaseException) -> bool:
    """Return whether an exception is an error of the program, for any data.

    Such errors are a name or a module that does not exist, a misspelt attribute of a module, or a map that cannot be
    called with the columns of the batch. Other exceptions may be a sample's fault, including ``SyntaxError``
    (``ast.literal_eval``).
    """
    misspelt = isinstance(error, AttributeError) and isinstance(getattr(error, "obj", None), types.ModuleType)
    return isinstance(error, (NameError, ImportError)) or misspelt or is_wrong_call(error)


def isolable(error: BaseException, rows: Any) -> bool:
    """Return whether `error` may be a sample's fault and `rows` (perhaps a user's type) splits into samples."""
    if isinstance(error, NOT_A_SAMPLE) and not isinstance(error, BatchError):
        return False
    try:
        return whole_samples(rows)[1] > 0
    except TypeError:
        return False


def isolate(
    read: Callable[[Any, np.ndarray | None], Any],
    rows: Any,
    error: BaseException,
    action: str,
    retries: int,
    caught: Callable[[BaseException], bool],
) -> Any:
    """Find the failing samples of the batch of `rows`, whose read raised `error`; return a :class:`PartialBatch`.

    Args:
        read: Reads rows of the batch; the second argument is their places in the batch, None for all.
        rows: Its rows, as the plan gives them.
        error: The exception of the read.
        action: The action of the error policy; ``"raise"`` looks only for the first bad sample.
        retries: How often to make the whole batch again first.
        caught: Returns whether an exception is a failure; any other ends the search.
    """
    n = whole_samples(rows)[1]

    def tried(places: np.ndarray) -> tuple[Any, BaseException | None]:
        try:
            return read(*(rows, None) if len(places) == n else (take_rows(rows, places), places)), None
        except BaseException as raised:
            if not caught(raised):
                raise
            return None, raised

    def find_bad(places: np.ndarray, error: BaseException, first: bool) -> dict[int, BaseException]:
        bad: dict[int, BaseException] = {}
        all_fail = True
        for place in places:
            raised = error if n == 1 else tried(place.reshape(1))[1]
            all_fail = all_fail and raised is not None
            if raised is not None:
                bad[int(place)] = raised
                if action == "raise" and type(raised) is type(error):
                    break
        if all_fail and len(bad) > 1:  # bad: the samples that fail alone with the error of the whole batch
            bad = {place: one for place, one in bad.items() if type(one) is type(error)} if first else {}
        return bad

    if of_program(error):
        action = "raise"
    made: PartialBatch = search(rows, error, action, retries, tried, find_bad, action == "raise")
    wrong = {place: one for place, one in made.failures.items() if of_program(one)}
    if wrong or (made.error is not None and of_program(made.error)):
        return PartialBatch(failures=wrong, error=made.error, gone=made.gone, of_program=True)
    return made


def search(
    rows: Any,
    error: BaseException,
    action: str,
    again: int,
    read: Callable[[np.ndarray], tuple[Any, BaseException | None]],
    find_bad: Callable[[np.ndarray, BaseException, bool], dict[int, BaseException]],
    strict: bool = False,
) -> PartialBatch:
    """Find the failing samples of the batch of `rows`, which failed with `error`.

    Args:
        read: Makes the samples at some places together; returns the result and the exception.
        find_bad: Returns the exceptions of the bad samples at some places, given the exception of all of them together
            and whether it is the first search of this batch.
        strict: Whether an error that did not come again still fails the batch. A batch made by one of the `again`
            tries never fails.
    """
    probed, n = whole_samples(rows)
    places, bad = np.arange(n), dict[int, BaseException]()
    for _ in range(again):
        made, raised = read(places)
        if raised is None:
            return _together(made, bad, places, error)
        error = raised
    for _ in range(MAX_ROUNDS):
        found = find_bad(places[places < probed], error, not bad)
        bad = {**found, **bad}
        places = np.setdiff1d(places, list(found))
        if (found and action != "skip") or not len(places):
            return PartialBatch(failures=bad)
        made, raised = read(places)
        if raised is None:
            if strict and not found:
                return PartialBatch(error=error, gone=True)
            return _together(made, bad, places, None if found else error)
        error = raised
        if not found:
            break
    return PartialBatch(failures=bad, error=error)


def _together(
    made: Any, bad: dict[int, BaseException], places: np.ndarray, retried: BaseException | None
) -> PartialBatch:
    """Add the earlier failures and the first exception to the result of the samples at `places`."""
    if type(made) is PartialBatch:
        failures = {int(places[place]): error for place, error in made.failures.items()}
        return dataclasses.replace(made, failures={**failures, **bad}, retried=made.retried or retried)
    return PartialBatch(made, len(places), bad, retried=retried)
