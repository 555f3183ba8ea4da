"""What is done about the bad samples of an epoch, as its error policy says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...error_context import shortened, without_frames
from ...errors import BatchError, SampleWarning, TooManyErrors
from ...faults.isolation import Verdict, isolate
from ...faults.policy import ErrorPolicy, SampleError
from ...faults.replacements import Replacements
from ...faults.sample_errors import NamesSamples, blamed, unblamed
from ...randomness import BatchKey
from ...sampling.plans.epoch import BatchPlan, PlannedBatch
from ...sampling.plans.rows import whole_samples
from ...warn import warn_consumer
from .accounting import Accounting

MAX_SHOWN = 1000
"""Characters of an error's text that are shown within another."""


class Failures:
    """Applies the error policy of one epoch to the batches that failed.

    Args:
        source: Knows what a sample is called.
        policy: What to do about bad samples, and how many there may be.
        accounting: Where they are entered; kept as an attribute.
        n_samples: Samples of the epoch, of those a rank's share; None where that is not known.
        world: How many ranks share the epoch.
    """

    def __init__(
        self, source: NamesSamples, policy: ErrorPolicy, accounting: Accounting, n_samples: int | None, world: int
    ) -> None:
        self._source = source
        self._policy = policy
        self.accounting = accounting
        self._n_samples = n_samples
        self._world = world

    def isolate(
        self, read: Callable[[Any, BatchKey], Any], plan: BatchPlan, planned: PlannedBatch, error: BaseException
    ) -> Verdict:
        """Return what becomes of a batch whose read raised `error`.

        Args:
            read: Reads the rows of some of its samples, with the key of these.
            plan: Has the rows of other samples.
            planned: The batch.
            error: What was raised.
        """

        def read_part(rows: Any, places: np.ndarray | None) -> Any:
            return read(rows, planned.key if places is None else planned.key.part(places))

        return isolate(read_part, planned.rows, error, self._policy, Replacements(plan, planned).another)

    def check(self, planned: PlannedBatch, verdict: Verdict) -> None:
        """Raise what the policy says of a batch that failed; else record the samples that are left out or replaced.

        Raises:
            BatchError: the policy says so, or no single sample is to blame.
            TooManyErrors: more samples failed than the policy allows.
        """
        policy = self._policy
        if verdict.error is not None or (verdict.bad and policy.action == "raise"):
            raise self._error(planned, verdict)
        for place, failure in sorted(verdict.bad.items()):
            self._record(planned, place, failure)
        if not verdict.made:
            self._check_alone(planned)
        n = whole_samples(planned.rows)[1]
        self._check_limit(self.accounting.planned + n)

    def enter(self, planned: PlannedBatch, verdict: Verdict) -> None:
        """Enter in the accounting what became of a batch that failed and is handed out with fewer or other samples."""
        policy, n = self._policy, whole_samples(planned.rows)[1]
        replaced = len(verdict.bad) if policy.action == "replace" else 0
        self.accounting.settle(planned.number, n, verdict.kept, len(verdict.bad) - replaced, "", replaced)

    def check_some_delivered(self) -> None:
        """Raise :class:`TooManyErrors` at the end of an epoch of which every sample failed."""
        accounting = self.accounting
        if accounting.failed and not accounting.delivered:
            raise TooManyErrors(
                f"all {accounting.failed} samples of this epoch failed; {self._last()}", list(accounting.errors)
            )

    def _error(self, planned: PlannedBatch, verdict: Verdict) -> BatchError:
        """Return the error that is to be raised."""
        if verdict.bad and not (verdict.error is not None and self._policy.action == "skip"):
            place = min(verdict.bad)
            return blamed(self._source, planned, place, verdict.bad[place])
        assert verdict.error is not None
        return unblamed(planned, verdict.error)

    def _record(self, planned: PlannedBatch, place: int, failure: BaseException) -> None:
        """Enter a sample that failed in the accounting; the first of an epoch is warned of."""
        error = blamed(self._source, planned, place, failure)
        without_frames(error)
        epoch = planned.key.epoch
        self.accounting.errors.append(
            SampleError(error.row, planned.key.position(place), planned.number, epoch, error.source, error)
        )
        if len(self.accounting.errors) == 1:
            done = "replaced" if self._policy.action == "replace" else "left out"
            warn_consumer(
                f"a sample is {done}, as on_error= says, the first of this epoch: {shortened(str(error), MAX_SHOWN)}; "
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
                list(self.accounting.errors),
            )

    def _check_limit(self, so_far: int) -> None:
        """Raise :class:`TooManyErrors` if more samples failed than may of `so_far` that were planned up to this batch.

        The batch, which is not handed out then, is not in the accounting, so that a state saved now begins with it.
        """
        accounting = self.accounting
        # A rank whose epoch was shared out later has handed out more than a rank's share of all.
        n_samples = None if self._n_samples is None else max(self._n_samples, so_far)
        limit, rule = self._policy.limit(n_samples, so_far)
        n = accounting.failed_before + len(accounting.errors)
        if n > limit:
            samples = "1 sample" if n == 1 else f"{n} samples"
            raise TooManyErrors(
                f"{samples} of this epoch failed, more than {rule} allows; {self._last()}", list(accounting.errors)
            )

    def _last(self) -> str:
        text = shortened(str(self.accounting.errors[-1].error), MAX_SHOWN)
        return f"the latest: {text}; .errors lists them all"
