"""Applies an epoch's error policy to bad samples, with a pool or without."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import log
from ...batch import NOTHING_LEFT
from ...error_context import described, map_in_words, raise_if_of_signal_handler, shortened, text_of, without_frames
from ...errors import ArgumentError, BatchError, SampleReadError, SampleWarning, TooManyErrors
from ...faults.isolation import PartialBatch
from ...faults.policy import FEW_SAMPLES, ErrorPolicy
from ...graph.node import Node
from ...graph.rows import samplers_by_length
from ...randomness import word
from ...sampling.plans.epoch import PlannedBatch
from ...sampling.plans.rows import one_row, put_rows, take_rows, whole_samples
from ...warn import warn_consumer
from .prepared import Epoch

MAX_SHOWN = 1000
"""Maximum length of an error's text within another error, in characters."""

MAX_REPLACEMENTS = 32
"""Maximum number of other rows to try in place of a bad one."""

SAMPLES_TRIED = 1024
"""Number of other samples to try in place of a batch with no sample left."""

MADE_AT_A_LATER_TRY = "which could be made at a later try"
"""Text for a batch whose exception did not recur."""

FAILED_SAMPLE, FAILED_BATCH = "sample", "batch"
"""The warnings of a bad sample, and of a batch that was made again. One of each kind is enough for a source, because
mostly the same samples fail in each epoch."""


def check_replaced(node: Node) -> None:
    """Raise :class:`ArgumentError` if rows of any length must not replace those of a batch of `node`."""
    limits = [sampler.max_tokens for sampler in samplers_by_length(node)]
    if any(limits):
        raise ArgumentError(
            f"on_error='replace' would put rows of any length into batches of at most {max(filter(None, limits))} "
            f"tokens; pass on_error='skip'"
        )


@dataclasses.dataclass(frozen=True)
class Failures:
    """Applies the error policy of one epoch to the batches that failed."""

    source: Node  # knows the names of samples
    epoch: Epoch
    policy: ErrorPolicy

    def resolved(self, planned: PlannedBatch, failed: PartialBatch, make: Callable[[Any], Any]) -> PartialBatch:
        """Record the failures of a batch and return what remains to hand out. Raise if the policy requires it.

        `make` makes the batch from other rows with the same key. It returns the batch or a :class:`PartialBatch`.
        """
        self._check_passes(planned, failed)
        if failed.failures and self.policy.action == "replace":
            failed = self._replaced(planned, failed, make)
        for place, failure in sorted(failed.failures.items()):
            self._record(planned, place, failure)
        if failed.retried is not None:
            self._record_retried(planned, failed.retried)
        if not failed.kept:
            self._check_alone(planned)
            self._check_first(len(failed.failures))
        self._check_limit(self.epoch.accounting.planned + whole_samples(planned.rows)[1])
        return failed

    def _check_passes(self, planned: PlannedBatch, failed: PartialBatch) -> None:
        """Raise an error that the policy does not allow to pass."""
        action = self.policy.action
        hint = "" if action == "raise" else f"; on_error={action!r} raises errors of the program, see ErrorPolicy.types"
        if failed.failures and (failed.of_program or action == "raise"):
            place = min(failed.failures)
            raise self._blamed(planned, place, failed.failures[place], hint)
        if failed.error is not None:
            gone = f"{MADE_AT_A_LATER_TRY}; ErrorPolicy(retries=1) lets that pass"
            why = gone if failed.gone else "since no single row is to blame"
            raise _unblamed(planned, failed.error, why, hint if failed.of_program else "")

    def filled(
        self, planned: PlannedBatch, make: Callable[[Any], Any], finish: Callable[[Any], Any] = lambda batch: batch
    ) -> Any:
        """Return a batch of other rows in place of a batch with no sample left.

        It is :data:`~batchup_ng.batch.NOTHING_LEFT` if the batch may be left out. It may not if ranks share the epoch,
        because they must hand out equally many batches, or if it was requested by its number. The other rows are drawn
        as for ``on_error="replace"``. `make` makes the batch from rows, `finish` applies the maps after a pool.

        Raises:
            ArgumentError: no sample is kept of any rows that were tried.
        """
        world = self.epoch.options.shard.world
        if world == 1 and self.epoch.requested is None:
            return NOTHING_LEFT
        n = whole_samples(planned.rows)[1]
        for attempt in range(-(-SAMPLES_TRIED // n)):
            rows = planned.rows
            for place in range(n):
                other = self._other(planned, place, attempt)
                rows = rows if other is None else put_rows(rows, place, other)
            made = make(rows)
            if type(made) is PartialBatch:
                self._check_passes(planned._replace(rows=rows), made)
                if made.failures:
                    continue
                made = made.batch
            made = finish(made)
            if made is not NOTHING_LEFT:
                return made
        why = f"{world} ranks share the epoch" if world > 1 else "it was asked for by its number"
        raise ArgumentError(
            f"a lazy filter keeps no sample of batch {planned.number}, nor any of {SAMPLES_TRIED:,} others in its "
            f"place; the batch cannot be left out because {why}: filter without lazy=True, or use larger batches"
        )

    def record(self, planned: PlannedBatch, made: PartialBatch, transport: str) -> None:
        """Record the outcome of a batch that failed in the accounting, once it is handed out."""
        n, failed = whole_samples(planned.rows)[1], len(made.failures)
        replaced = failed if self.policy.action == "replace" else 0
        came_by = transport if made.is_handed_out else ""
        self.epoch.accounting.record(planned.number, n, made.kept, failed - replaced, came_by, replaced)

    def check_some_delivered(self) -> None:
        """Raise :class:`TooManyErrors` at the end of an epoch if every sample failed."""
        if self.epoch.accounting.failed and not self.epoch.accounting.delivered:
            raise self._too_many(f"all {self.epoch.accounting.failed} samples of this epoch failed")

    def _replaced(self, planned: PlannedBatch, failed: PartialBatch, make: Callable[[Any], Any]) -> PartialBatch:
        """Return the batch with other rows in place of those that failed. Try until all samples can be made."""
        rows, failures, bad, retried = planned.rows, dict(failed.failures), failed.failures, failed.retried
        attempts = dict.fromkeys(bad, 0)
        while bad:
            for place in sorted(bad):
                other = None
                while other is None and attempts.setdefault(place, 0) < MAX_REPLACEMENTS:
                    other = self._other(planned, place, attempts[place])
                    attempts[place] += 1
                if other is None:
                    raise self._blamed(planned, place, failures[place])
                rows = put_rows(rows, place, other)
            made = make(rows)
            if type(made) is not PartialBatch:
                made = PartialBatch(made, whole_samples(rows)[1])
            self._check_passes(planned._replace(rows=rows), made)
            bad = made.failures
            failures = {**bad, **failures}
            retried = retried or made.retried
            if not bad:
                return dataclasses.replace(made, failures=failures, retried=retried)
        raise AssertionError("a batch was replaced of which no sample failed")

    def _other(self, planned: PlannedBatch, place: int, attempt: int) -> Any:
        """Return the rows of one other sample, a function of seed, epoch, position and attempt, or None."""
        key, plan = planned.key, self.epoch.plan
        assert plan is not None
        row = plan.other(word("replace", key.seed, key.epoch, key.position(place), attempt), planned, place)
        own = one_row(take_rows(planned.rows, np.array([place])))
        return None if row is None or one_row(row) == own else row

    def _record(self, planned: PlannedBatch, place: int, failure: BaseException) -> None:
        """Record a sample that failed in the accounting. Warn of the first of a source."""
        error, errors = self._blamed(planned, place, failure), self.epoch.accounting.errors
        without_frames(error)
        errors.append(error)
        done = "replaced" if self.policy.action == "replace" else "left out"
        log.note("on_error=%r %s a sample: %s", self.policy.action, done, error)
        self._warn(f"on_error={self.policy.action!r} {done} a sample", error)

    def _record_retried(self, planned: PlannedBatch, failure: BaseException) -> None:
        """Record a batch that succeeded at a later attempt in the accounting. Warn of the first of a source."""
        error = _unblamed(planned, failure, MADE_AT_A_LATER_TRY)
        without_frames(error)
        self.epoch.accounting.note_retried(error)
        log.note("a batch failed and was made again: %s", error)
        self._warn("a batch failed and was made again", error)

    def _warn(self, what: str, error: BatchError) -> None:
        """Warn of the first tolerated error of its kind in this source."""
        kind, warned = FAILED_BATCH if error.row is None else FAILED_SAMPLE, self.epoch.node.notes.warned
        if kind not in warned:
            warned.add(kind)
            warn_consumer(
                f"{what}: {shortened(str(error), MAX_SHOWN)}; others of this source are not warned of; the iterator's "
                f".errors lists those of its epoch",
                SampleWarning,
            )

    def _check_alone(self, planned: PlannedBatch) -> None:
        """Raise :class:`TooManyErrors` for an empty batch if ranks share the epoch, or if it was requested by number.

        Without the error, this rank would lag one batch for good. A state that is saved now begins with the batch.
        """
        if self.epoch.requested is not None:
            raise self._too_many(
                f"every sample of batch {planned.number} failed, which was asked for by its number and so cannot be "
                f"left out; on_error='replace' puts others in their place"
            )
        world = self.epoch.options.shard.world
        if world > 1:
            raise self._too_many(
                f"every sample of batch {planned.number} failed, which cannot be left out in an epoch that {world} "
                f"ranks share: each must hand out as many batches as the others; on_error='replace' keeps them in step"
            )

    def _check_first(self, failed: int) -> None:
        """Raise :class:`TooManyErrors` if all samples so far failed, including `failed` samples of this batch.

        A limit set by the user replaces this check.
        """
        accounting, policy = self.epoch.accounting, self.policy
        unlimited = policy.max_errors is None and policy.max_rate is None
        n, batches = accounting.failed + failed, accounting.batches + 1
        if unlimited and not accounting.delivered and batches > 1 and n >= FEW_SAMPLES:
            where = map_in_words(accounting.errors[-1])
            raise self._too_many(
                f"every sample fails{where and ': '}{where}; all {n} of the first {batches} batches did, and the epoch "
                f"ends here unless an ErrorPolicy says how many may, such as max_rate=1.0"
            )

    def _check_limit(self, so_far: int) -> None:
        """Raise :class:`TooManyErrors` if too many samples failed of `so_far`, the number planned up to this batch.

        A state that is saved then begins with this batch.
        """
        n = self.epoch.node.num_samples()
        share = None if n in (None, math.inf) else -(-int(n) // self.epoch.options.shard.world)
        # If the epoch was begun with fewer ranks, this rank may have handed out more than its share.
        limit, rule = self.policy.limit(None if share is None else max(share, so_far), so_far)
        n = self.epoch.accounting.failed_before + len(self.epoch.accounting.errors)
        if n > limit:
            raise self._too_many(f"{n} sample{'s' * (n > 1)} of this epoch failed, more than {rule} allows")

    def _too_many(self, why: str) -> TooManyErrors:
        errors = self.epoch.accounting.errors
        text = shortened(str(errors[-1]), MAX_SHOWN)
        return TooManyErrors(f"{why}; the latest: {text}; .errors lists them all", errors)

    def _blamed(self, planned: PlannedBatch, place: int, error: BaseException, hint: str = "") -> BatchError:
        """Return the error that names the sample at `place` in a batch. `error` is its exception."""
        rows = take_rows(planned.rows, np.array([place]))
        row, position = one_row(rows), planned.key.position(place)
        name = error.source if isinstance(error, SampleReadError) else None
        if name is None:
            try:
                name = self.source.sample_name(rows)
            except Exception as raised:  # the error itself matters more than a missing name
                raise_if_of_signal_handler(raised)
        already_named = name is None or (isinstance(name, str) and repr(name) in text_of(error))
        known = "" if already_named else f", source {name!r}"
        attributes = {"row": row, "position": position, "source": name}
        return _described(planned, error, f"row {row}, position {position}{known}", attributes, hint)


def _unblamed(planned: PlannedBatch, error: BaseException, why: str, hint: str = "") -> BatchError:
    """Return the error of a batch if no single sample is to blame. `why` is the reason, in words."""
    where = f"in the whole batch, {why}: rows {rows_in_words(planned.rows)}"
    return _described(planned, error, where, {}, hint)


def _described(
    planned: PlannedBatch, error: BaseException, which: str, attributes: dict[str, Any], hint: str
) -> BatchError:
    epoch, number = planned.key.epoch, planned.number
    # A copy, because the rows are a view into a long block of rows.
    rows = take_rows(planned.rows, np.arange(whole_samples(planned.rows)[1]))
    attributes = {**attributes, "rows": rows, "epoch": epoch, "batch": number}
    return described(error, which, f"epoch {epoch}, batch {number}{hint}", attributes)


def rows_in_words(rows: Any) -> str:
    """Return the rows of a batch in words."""
    if isinstance(rows, tuple):
        return f"({', '.join(map(rows_in_words, rows))})"
    return np.array2string(np.asarray(rows), separator=", ", threshold=200, max_line_width=10**9).replace("\n", "")
