"""The runner of an epoch that a pool makes: batches in plan order, faults repaired on the way.

Ownership. An :class:`EpochRunner` belongs to one batch iterator and is the buffer of the batches that are ahead. It
works only in the consumer's ``next``, under the buffer's lock. It has no thread, so nothing goes on after ``close``.

Across the boundary: the pool gets the rows and the key of each batch, with the shared constant that stands for the
source. It returns the batch, or a ``PartialBatch`` with the good samples and the exceptions of the others.

When a batch fails, the runner first fills the buffer, to keep the workers busy with later batches. If a worker met an
exception, it has already isolated the samples. If the worker was ended, :class:`~.repair.Repair` isolates them. Its
reads go to the same pool, ahead of queued tasks, while this thread waits for them.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import pickle
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .. import batch as batches
from .. import system_limits
from ..data_source.epoch.failures import Failures, rows_in_words
from ..data_source.epoch.opening import Epoch
from ..data_source.epoch.reading import MakeBatch
from ..error_context import raise_if_of_signal_handler, unless_of_signal_handler
from ..faults.isolation import FAILURES, PartialBatch, isolable
from ..faults.policy import ErrorPolicy
from ..graph.node import Node
from ..sampling.plans.epoch import PlannedBatch
from ..sampling.plans.rows import planned_samples
from .consumer_maps import ConsumerMaps
from .prefetch_buffer import Entry, Job, PrefetchBuffer
from .repair import Allowance, Read, Repair
from .task import Pool, Submission, TaskFuture, new_stream_id

DEFAULT_SHARE = 0.25
"""Share of the free memory for batches ahead, if the user sets no limit."""

DEFAULT_BYTES = 10**9
"""Upper limit of this memory, in bytes."""


@dataclasses.dataclass(slots=True)
class ByteBound:
    """The number of batches that may be ahead within a number of bytes. The epochs of a source share it."""

    size: int  # the most batches that may be ahead in any case
    buffer_bytes: int | None  # for all of them; None is a quarter of the free memory, 1 GB at most
    first: int  # how many may be ahead until the size of a batch is known
    largest: int = 0  # bytes of the largest batch that was seen
    least: int = 1  # how many may be ahead if one fits; a batch larger than `buffer_bytes` is made alone
    _limit: int = 0

    def __post_init__(self) -> None:
        self._limit = min(self.size, self.first)
        if self.buffer_bytes is None:
            self.buffer_bytes = int(min(system_limits.available() * DEFAULT_SHARE, DEFAULT_BYTES))
            self.least = 2

    def __str__(self) -> str:
        nbytes = self.buffer_bytes or 0
        return f"{self.size} batches or {f'{nbytes / 1e6:.0f} MB' if nbytes >= 1_000_000 else f'{nbytes} bytes'}"

    def limit(self) -> int:
        """Return how many batches may be ahead now."""
        return self._limit

    def saw(self, batch: Any) -> None:
        """Record the size of a batch."""
        nbytes = 0
        if type(batch) is tuple and all(type(part) is np.ndarray for part in batch):
            nbytes = sum([part.nbytes for part in batch])
        else:
            with unless_of_signal_handler():  # a user's object without a known size, such as a sparse tensor
                nbytes = batches.nbytes(batch)
        if nbytes > self.largest or not self.largest:
            self.largest = max(1, nbytes)
            fit = (self.buffer_bytes or 0) // self.largest
            # Reserve two: the batch in use and the one being handed over.
            self._limit = min(self.size, max(self.least if fit else 1, fit - 2))


class Making(NamedTuple):
    """The pool, the source and the options by which the pool makes its batches."""

    pool: Pool
    source: Node
    shared: Any  # the stand-in for the source in the arguments of a task
    policy: ErrorPolicy
    timeout: float | None  # seconds that a sample may take
    bound: ByteBound
    made: list[tuple[PlannedBatch, Any]]  # before there were workers; the epoch that begins with them takes them out


class EpochRunner(PrefetchBuffer):
    """Makes the batches of one epoch.

    The runner applies the maps to the batches that the pool made. `path` is the place of the outermost map in the
    graph. `before` is the iterator of the earlier epoch that shares the buffer with this one, if there is one.
    """

    def __init__(
        self, epoch: Epoch, making: Making, maps: ConsumerMaps, path: tuple[int, ...], before: weakref.ref[Any] | None
    ) -> None:
        pool, source, shared, on_error, timeout, bound, made = making
        policy = epoch.options.policy or on_error
        options, plan = epoch.options, epoch.plan
        assert plan is not None
        self._accounting = epoch.accounting
        self._accounting.arrays = getattr(shared, "arrays", "")
        self._failures = Failures(source, epoch, policy)
        # On the consumer's own thread as in a plain loop; in worker processes always. Threads ignore it.
        seeded = (options.shuffled or not pool.own_thread) and source.traits.runs_user_code
        pad_mask = options.shard.pad_mask and not maps.nodes
        self._make: Any = MakeBatch(policy.action, policy.retries, pad_mask, pool.own_thread, seeded)
        self._arguments = shared, pool.buffers
        self._at_once = pool.at_once
        self._made_before: list[tuple[PlannedBatch, Any]] = []
        with contextlib.suppress(IndexError):  # another epoch that begins now may take some; each batch goes to one
            while made:
                self._made_before.append(made.pop(0))
        self._maps = maps
        self._path = path
        self._source_path = path + (0,) * len(maps.nodes)
        self._bound = bound
        self._before = before
        self._transport = ""  # of the latest batch
        self._allowance = Allowance(timeout, timeout)
        context = contextvars.copy_context()  # from the call that opens the epoch, for all its batches
        # One stream for a series of epochs: no batch of the next epoch runs before a batch of the current one.
        of = None if before is None else before()
        self.stream_id = new_stream_id() if of is None else of.stream_id
        self._how = Submission(retryable=True, timeout=timeout, stream_id=self.stream_id, context=context)
        super().__init__(pool, self._jobs_of(plan if epoch.chosen is None else epoch.chosen))
        try:
            self.begin()
        except BaseException:
            self.close()
            raise

    def limit(self) -> int:
        """Return how many batches may be ahead, without the batches of the epoch before."""
        before = None if self._before is None else self._before()
        return self._bound.limit() - (0 if before is None else before.ahead())

    def describe(self, job: Job) -> str:
        planned: PlannedBatch = job.about
        return f"batch {planned.number} of epoch {planned.key.epoch}, rows {rows_in_words(planned.rows)},"

    def _jobs_of(self, plan: Iterable[PlannedBatch]) -> Iterator[Job]:
        for planned in plan:
            if self._source_path:
                planned = planned._replace(key=planned.key._replace(path=self._source_path))
            if self._how.timeout != self._allowance.batch:
                self._how = dataclasses.replace(self._how, timeout=self._allowance.batch)
            job = self._job(planned, self._how)
            yield job._replace(made=self._made_already(planned)) if self._made_before else job

    def _made_already(self, planned: PlannedBatch) -> TaskFuture | None:
        """Return the next batch that was made before there were workers. If another is planned, drop them all."""
        (before, batch), *self._made_before = self._made_before
        if not _same_batch(before, planned):
            self._made_before = []
            return None
        future = TaskFuture()
        future.begin()
        future.set_result(batch)
        future.transport = "memory"
        return future

    def close(self) -> None:
        self._made_before = []  # otherwise a loop that ended early would hold them
        super().close()

    def _job(self, planned: PlannedBatch, how: Submission) -> Job:
        shared, buffers = self._arguments
        return Job((self._make, (shared, planned.rows, planned.key, buffers), {}), how, planned)

    # -- the consumer ------------------------------------------------------------------------------------------

    def _next(self) -> Any:
        while True:
            try:
                entry = self.head()
            except StopIteration:
                if not self.closed:
                    self._failures.check_some_delivered()
                raise
            made = self._made(entry)
            planned: PlannedBatch = entry.job.about
            if type(made) is PartialBatch:
                made = self._resolved(planned, made)
                if made.kept:
                    return made.batch
                continue
            n = planned_samples(planned.rows, made)
            if self._maps.nodes:
                made = self._mapped(made, planned, n)
            self._accounting.settle(planned.number, n, n, 0, self._transport)
            return made

    def _made(self, entry: Entry) -> Any:
        """Return the batch or :class:`PartialBatch` of an entry that is done, and submit the next batches."""
        try:
            made = self._outcome(entry)
        finally:
            self.drop(entry)
        self.top_up()
        if not isinstance(made, BaseException):
            return made
        try:
            return self._repaired(entry.job, made)
        finally:
            del made  # its traceback holds this frame

    def _saw(self, made: Any, entry: Entry) -> None:
        """Record the size of a batch, and its transport."""
        self._transport = entry.future.transport
        if type(made) is not PartialBatch:
            self._bound.saw(made)
        elif made.kept:
            self._bound.saw(made.batch)

    def _mapped(self, batch: Any, planned: PlannedBatch, n: int, kept: np.ndarray | None = None) -> Any:
        """Apply the maps to a batch of `n` planned samples. If `kept` is given, it holds only the samples at `kept`."""
        key = planned.key._replace(path=self._path)
        return self._maps(batch, key, n) if kept is None else self._maps(batch, key.part(kept), len(kept))

    # -- faults ------------------------------------------------------------------------------------------------

    def _resolved(self, planned: PlannedBatch, failed: PartialBatch) -> PartialBatch:
        """Return the part of a failed batch that is handed out, or raise, by the error policy."""
        made = self._failures.resolved(planned, failed, lambda rows: self._made_beside(planned._replace(rows=rows)))
        if made.kept and self._maps.nodes:
            n = planned_samples(planned.rows, made.batch)
            skipped = self._failures.policy.action == "skip"
            kept = np.setdiff1d(np.arange(n), list(made.failures)) if skipped and made.failures else None
            made.batch = self._mapped(made.batch, planned, n, kept)
        self._failures.settle(planned, made, self._transport)
        return made

    def _made_beside(self, planned: PlannedBatch) -> Any:
        """Read rows out of turn. Return the batch or a :class:`PartialBatch`."""
        job = self._job(planned, dataclasses.replace(self._how, urgent=True))
        (made,) = self._run([job])
        return self._repaired(job, made) if isinstance(made, BaseException) else made

    def _repaired(self, job: Job, error: BaseException) -> Any:
        """Return the result of a batch whose worker died or ran out of time."""
        planned: PlannedBatch = job.about
        policy, allowance = self._failures.policy, self._allowance
        late = job.how.timeout is not None and job.how.timeout < (allowance.batch or 0.0)  # batches have more time now

        def run(reads: list[Read]) -> list[Any]:
            return self._run([self._job_of(planned, read) for read in reads])

        repair = Repair(planned.rows, policy.action, allowance, self._at_once, run)
        return repair.made(error, policy.retries + late)

    def _job_of(self, planned: PlannedBatch, read: Read) -> Job:
        """Return the job of a read out of turn."""
        how = dataclasses.replace(self._how, urgent=True, exclusive=read.exclusive, timeout=read.timeout)
        key = planned.key if read.places is None else planned.key.part(read.places)
        return self._job(planned._replace(rows=read.rows, key=key), how)

    def _run(self, jobs: list[Job]) -> list[Any]:
        """Run jobs out of turn. Return each batch, :class:`PartialBatch`, or exception of a worker that was ended."""
        entries: list[Entry] = []
        try:
            for job in jobs:
                entries.append(self.beside(job))
            for entry in entries:
                self.wait(entry)
            return [self._outcome(entry) for entry in entries]
        finally:
            for entry in entries:
                self.forget(entry)

    def _outcome(self, entry: Entry) -> Any:
        """Return the batch or :class:`PartialBatch` of an entry, or the exception if its worker was ended."""
        try:
            made = entry.future.result()
        except FAILURES as error:
            raise_if_of_signal_handler(error)
            if not isolable(error, entry.job.about.rows):
                raise
            return error
        if not entry.job.how.exclusive:
            self._saw(made, entry)
        return made


def _same_batch(one: PlannedBatch, other: PlannedBatch) -> bool:
    """Return whether two planned batches are the same: a batch is a function of its rows and its key."""
    with unless_of_signal_handler():  # the rows of a user's source may be objects that cannot be pickled
        return pickle.dumps((one.rows, one.key)) == pickle.dumps((other.rows, other.key))
    return False
