"""What is done about the bad samples of an epoch, as its error policy says, with a pool or without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...error_context import shortened, without_frames
from ...errors import SampleWarning, TooManyErrors
from ...faults.isolation import PartialBatch
from ...faults.policy import ErrorPolicy, SampleError
from ...faults.sample_errors import NamesSamples, blamed, unblamed
from ...randomness import word
from ...sampling.plans.epoch import BatchPlan, PlannedBatch
from ...sampling.plans.rows import one_row, put_rows, take_rows, whole_samples
from ...warn import warn_consumer
from .accounting import Accounting

MAX_SHOWN = 1000
"""Characters of an error's text that are shown within another."""

MAX_REPLACEMENTS = 32
"""How many other rows are tried in the place of a bad one."""


class Failures:
    """Applies the error policy of one epoch to the batches that failed.

    Args:
        source: Knows what a sample is called.
        plan: Has the rows of other samples.
        policy: What to do about bad samples, and how many there may be.
        accounting: Where they are entered.
        n_samples: Samples of the epoch, of those a rank's share; None where that is not known.
        world: How many ranks share the epoch.
    """

    def __init__(
        self,
        source: NamesSamples,
        plan: BatchPlan,
        policy: ErrorPolicy,
        accounting: Accounting,
        n_samples: int | None,
        world: int,
    ) -> None:
        self._source = source
        self._plan = plan
        self.policy = policy
        self._accounting = accounting
        self._n_samples = n_samples
        self._world = world

    def resolved(self, planned: PlannedBatch, failed: PartialBatch, make: Callable[[Any], Any]) -> PartialBatch:
        """Return what is handed out of a batch that failed, the failures recorded; raise if the policy says so.

        Args:
            planned: The batch.
            failed: What is known of it.
            make: Makes the batch of other rows, with its key: the batch or a :class:`PartialBatch`.

        Raises:
            BatchError: the policy says so, or no single sample is to blame.
            TooManyErrors: more samples failed than the policy allows.
        """
        if failed.failures and self.policy.action == "raise":
            place = min(failed.failures)
            raise blamed(self._source, planned, place, failed.failures[place])
        if failed.error is not None:
            raise unblamed(planned, failed.error)
        if self.policy.action == "replace":
            failed = self._replaced(planned, failed, make)
        for place, failure in sorted(failed.failures.items()):
            self._record(planned, place, failure)
        if not failed.kept:
            self._check_alone(planned)
        self._check_limit(self._accounting.planned + whole_samples(planned.rows)[1])
        return failed

    def settle(self, planned: PlannedBatch, made: PartialBatch, transport: str) -> None:
        """Enter in the accounting what became of a batch that failed, once it is handed out."""
        n, failed = whole_samples(planned.rows)[1], len(made.failures)
        replaced = failed if self.policy.action == "replace" else 0
        came_by = transport if made.kept else ""
        self._accounting.settle(planned.number, n, made.kept, failed - replaced, came_by, replaced)

    def check_some_delivered(self) -> None:
        """Raise :class:`TooManyErrors` at the end of an epoch of which every sample failed."""
        accounting = self._accounting
        if accounting.failed and not accounting.delivered:
            raise TooManyErrors(
                f"all {accounting.failed} samples of this epoch failed; {self._last()}", list(accounting.errors)
            )

    def _replaced(self, planned: PlannedBatch, failed: PartialBatch, make: Callable[[Any], Any]) -> PartialBatch:
        """Return the batch with other rows in the places of those that failed, tried until all can be made."""
        rows, failures, bad = planned.rows, dict(failed.failures), failed.failures
        attempts = dict.fromkeys(bad, 0)
        while bad:
            for place in sorted(bad):
                other = None
                while other is None and attempts.setdefault(place, 0) < MAX_REPLACEMENTS:
                    other = self._other(planned, place, attempts[place])
                    attempts[place] += 1
                if other is None:
                    raise blamed(self._source, planned, place, failures[place])
                rows = put_rows(rows, place, other)
            made = make(rows)
            if type(made) is not PartialBatch:
                return PartialBatch(made, whole_samples(rows)[1], failures)
            if made.error is not None:
                raise unblamed(planned, made.error)
            bad = made.failures
            failures = {**bad, **failures}
        raise AssertionError("a batch was replaced of which no sample failed")

    def _other(self, planned: PlannedBatch, place: int, attempt: int) -> Any:
        """Return the rows of one other sample: a function of seed, epoch, position and attempt; None if it is none."""
        key = planned.key
        row = self._plan.other(word("replace", key.seed, key.epoch, key.position(place), attempt), planned, place)
        own = one_row(take_rows(planned.rows, np.array([place])))
        return None if row is None or one_row(row) == own else row

    def _record(self, planned: PlannedBatch, place: int, failure: BaseException) -> None:
        """Enter a sample that failed in the accounting; the first of an epoch is warned of."""
        error = blamed(self._source, planned, place, failure)
        without_frames(error)
        epoch = planned.key.epoch
        self._accounting.errors.append(
            SampleError(error.row, planned.key.position(place), planned.number, epoch, error.source, error)
        )
        if len(self._accounting.errors) == 1:
            done = "replaced" if self.policy.action == "replace" else "left out"
            warn_consumer(
                f"on_error={self.policy.action!r} {done} a sample, the first of this epoch: "
                f"{shortened(str(error), MAX_SHOWN)}; "
                f"the iterator's .errors lists all of them",
                SampleWarning,
            )

    def _check_alone(self, planned: PlannedBatch) -> None:
        """Raise :class:`TooManyErrors` if a batch of which nothing is left is one of an epoch that is shared out.

        Without it this rank would be a batch behind the others for good: they would wait for it at the end, and states
        that they take at the same time would differ. It is not in the accounting, so that a state saved now begins with
        it.
        """
        if self._world > 1:
            raise TooManyErrors(
                f"every sample of batch {planned.number} failed, which cannot be left out in an epoch that "
                f"{self._world} ranks share: each must hand out as many batches as the others; on_error='replace' "
                f"keeps them in step; {self._last()}",
                list(self._accounting.errors),
            )

    def _check_limit(self, so_far: int) -> None:
        """Raise :class:`TooManyErrors` if more samples failed than may of `so_far` that were planned up to this batch.

        The batch, which is not handed out then, is not in the accounting, so that a state saved now begins with it.
        """
        accounting = self._accounting
        # A rank whose epoch was shared out later has handed out more than a rank's share of all.
        n_samples = None if self._n_samples is None else max(self._n_samples, so_far)
        limit, rule = self.policy.limit(n_samples, so_far)
        n = accounting.failed_before + len(accounting.errors)
        if n > limit:
            samples = "1 sample" if n == 1 else f"{n} samples"
            raise TooManyErrors(
                f"{samples} of this epoch failed, more than {rule} allows; {self._last()}", list(accounting.errors)
            )

    def _last(self) -> str:
        text = shortened(str(self._accounting.errors[-1].error), MAX_SHOWN)
        return f"the latest: {text}; .errors lists them all"
