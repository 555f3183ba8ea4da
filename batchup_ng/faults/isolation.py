"""Finds the samples of a batch that cannot be made: reads each of its samples again alone.

:func:`isolate` decides, a :class:`Reader` reads. If a sample raises an exception, the worker of the batch isolates with
its own reader, or the consumer's thread if it makes the batches itself. So an exception costs one trip: the answer
holds the good samples and the exceptions of the others. If a worker died or was ended because its time was up, the
consumer isolates with a reader that submits: each sample on a worker without other tasks
(:mod:`batchup_ng.work_pool.rereading`).

A sample is bad if it fails when it is read alone, with the random numbers that it has in its batch. No sample is to
blame if each can be made alone, or if all raise another exception alone than they do together (a map that needs several
samples). Then the batch is made again once. If it fails again, the whole batch is to blame. If it succeeds, the failure
did not come again. An exception then still ends the epoch if the policy is "raise"; the other policies hand out the
batch and note the exception. The end of a worker may be the fault of another program, so it only is noted, with any
policy.

An error of the program, such as a ``NameError``, is no fault of a sample: every policy raises it
(:mod:`batchup_ng.faults.blame`). The exception of a signal handler on the consumer's thread in the middle of a map is
no fault of a sample either.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from ..batch import NOTHING_LEFT
from ..errors import (
    AccountingError,
    BatchError,
    ClusterError,
    MapCallError,
    MapResultError,
    PoolBroken,
    PoolClosed,
    ReentrantIteration,
    SampleTimeout,
    WorkerDied,
)
from ..sampling.plans.rows import whole_samples
from .blame import of_program

READ_FAILURES = (Exception, GeneratorExit)
"""Exceptions that count as a failed read on the consumer's thread. There Ctrl-C and SystemExit end the program; in a
worker they are failures like any other."""

NOT_A_SAMPLE = (PoolClosed, ReentrantIteration, AccountingError, PoolBroken, ClusterError, MapCallError, MapResultError)
"""Errors that are never a sample's fault."""

WORKER_ENDED = (WorkerDied, SampleTimeout)
"""Errors of a batch whose worker ended before it answered. Each sample that ends its worker alone is to blame."""

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

    @property
    def is_handed_out(self) -> bool:
        """Whether it has samples for the loop: some could be made, and lazy filters keep some of these."""
        return bool(self.kept) and self.batch is not NOTHING_LEFT

    def with_errors(self, change: Callable[[BaseException], Any]) -> PartialBatch:
        """Return a copy with each exception changed, for example to send it to another process."""
        failures = {place: change(error) for place, error in self.failures.items()}
        whole, retried = (None if error is None else change(error) for error in (self.error, self.retried))
        return dataclasses.replace(self, failures=failures, error=whole, retried=retried)


class Rule(Protocol):
    """The part of an :class:`~batchup_ng.ErrorPolicy` that decides which samples of a batch are to blame."""

    @property
    def action(self) -> str: ...
    @property
    def retries(self) -> int: ...
    @property
    def types(self) -> tuple[type[BaseException], ...] | None: ...


class Reader(Protocol):
    """Reads samples of one batch, given by their places. Returns failures. If it raises, the search ends."""

    def together(self, places: np.ndarray) -> Any:
        """Return the batch of these samples, a :class:`PartialBatch`, or the exception of reading them."""

    def alone(self, places: np.ndarray, error: BaseException) -> Iterator[Any]:
        """Read each of these samples alone, after all together failed with `error`. Yield its batch or exception.

        :func:`isolate` may stop at the first exception.
        """


def isolable(error: BaseException, rows: Any) -> bool:
    """Return whether `error` may be a sample's fault and `rows` (perhaps a user's type) splits into samples."""
    if _never_of_sample(error):
        return False
    try:
        return whole_samples(rows)[1] > 0
    except TypeError:
        return False


def isolate(reader: Reader, rows: Any, error: BaseException, rule: Rule) -> PartialBatch:
    """Find the failing samples of the batch of `rows`, which failed with `error`, and make the others.

    Args:
        reader: Reads samples of the batch.
        rows: Its rows, as the plan gives them.
        error: The exception of the batch.
        rule: The error policy. With ``"raise"``, only the first bad sample is looked for. A batch that a retry made
            never fails.
    """
    probed, n = whole_samples(rows)
    places, bad = np.arange(n), dict[int, BaseException]()
    for _ in range(rule.retries):
        made = reader.together(places)
        if not isinstance(made, BaseException):
            return _merged(made, bad, places, error)
        error = made
    for _ in range(MAX_ROUNDS):
        of_whole = _is_of_program(error, rule)
        action = "raise" if of_whole else rule.action
        found = _to_blame(reader, places[places < probed], error, action, not bad)
        wrong = {place: one for place, one in found.items() if _is_of_program(one, rule)}
        if wrong:
            return PartialBatch(failures=wrong, of_program=True)
        if of_whole and rule.action != "raise":  # bad samples in the batch must not hide it
            gone = not isinstance(reader.together(places), BaseException)
            return PartialBatch(error=error, gone=gone, of_program=True)
        bad = {**found, **bad}
        places = np.setdiff1d(places, list(found))
        if (found and action != "skip") or not len(places):
            return PartialBatch(failures=bad)
        made = reader.together(places)
        if not isinstance(made, BaseException):
            if not found and action == "raise" and not isinstance(error, WORKER_ENDED):
                return PartialBatch(error=error, gone=True)
            return _merged(made, bad, places, None if found else error)
        error = made
        if not found:
            break
    return PartialBatch(failures=bad, error=error)


def _never_of_sample(error: BaseException) -> bool:
    return isinstance(error, NOT_A_SAMPLE) and not isinstance(error, BatchError)


def _is_of_program(error: BaseException, rule: Rule) -> bool:
    """Return whether `rule` counts an exception as an error of the program. The end of a worker is none."""
    return not isinstance(error, WORKER_ENDED) and (_never_of_sample(error) or of_program(error, rule.types))


def _to_blame(
    reader: Reader, places: np.ndarray, error: BaseException, action: str, first: bool
) -> dict[int, BaseException]:
    """Return the exception of each sample that is to blame, by its place.

    `first` is whether this is the first search of the batch. Later, if all that is left fails, it fails as a whole.
    """
    bad, all_fail, ended = dict[int, BaseException](), True, isinstance(error, WORKER_ENDED)
    for place, made in zip(places.tolist(), reader.alone(places, error), strict=True):
        if not isinstance(made, BaseException):
            all_fail = False
            continue
        bad[place] = made
        if action == "raise" and (ended or type(made) is type(error)):
            break
    if all_fail and len(bad) > 1 and not ended:
        bad = {place: one for place, one in bad.items() if type(one) is type(error)} if first else {}
    return bad


def _merged(
    made: Any, bad: dict[int, BaseException], places: np.ndarray, retried: BaseException | None
) -> PartialBatch:
    """Add the earlier failures and the first exception to the result of the samples at `places`.

    An error of the program that a worker found stands alone.
    """
    if type(made) is PartialBatch:
        failures = {int(places[place]): error for place, error in made.failures.items()}
        if made.of_program:
            return dataclasses.replace(made, failures=failures)
        return dataclasses.replace(made, failures={**failures, **bad}, retried=made.retried or retried)
    return PartialBatch(made, len(places), bad, retried=retried)
