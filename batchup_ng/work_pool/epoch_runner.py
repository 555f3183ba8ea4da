"""The runner of an epoch that a pool makes: batches in plan order, faults repaired on the way.

Who owns what. An :class:`EpochRunner` belongs to one batch iterator and is the buffer of the batches that are ahead.
All of it happens in the consumer's ``next``, under the buffer's lock: there is no thread of its own, nothing that can
go on after ``close``.

What crosses the boundary: for each batch its rows and its key, with the shared constant that stands for the source;
back comes the batch, or a ``PartialBatch`` that holds its good samples and what was raised for the others.

What happens when a batch fails: the buffer is filled first, so that the workers go on with later batches. A worker has
isolated an exception already. A worker that was ended leaves that to :class:`~.repair.Repair`, whose reads go to the
same pool, before what is queued, while this thread waits for them.
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
from ..data_source.base import AbstractDataSource
from ..data_source.epoch.failures import Failures, rows_in_words
from ..data_source.epoch.opening import CLOSED, Epoch
from ..data_source.epoch.reading import MakeBatch
from ..data_source.hooks import any_node
from ..data_source.map import ConsumerMaps
from ..error_context import raise_if_of_signal_handler, unless_of_signal_handler
from ..errors import PoolClosed
from ..faults.isolation import FAILURES, PartialBatch, isolable
from ..faults.policy import ErrorPolicy
from ..sampling.plans.epoch import PlannedBatch
from ..sampling.plans.rows import planned_samples
from .prefetch_buffer import Entry, Job, PrefetchBuffer
from .repair import Allowance, Read, Repair
from .task import Pool, Submission, TaskFuture, new_stream_id

DEFAULT_SHARE = 0.25
"""The part of the free memory that batches ahead may have where the user does not say how much."""

DEFAULT_BYTES = 10**9
"""The most that this may be, in bytes."""


@dataclasses.dataclass(slots=True)
class ByteBound:
    """How many batches may be ahead, so that they stay within a number of bytes; shared by the epochs of a source."""

    size: int  # the most batches that may be ahead in any case
    buffer_bytes: int | None  # that all may take; None is a quarter of the free memory, 1 GB at most
    first: int  # how many may be ahead until the size of a batch is known
    largest: int = 0  # bytes of the largest batch that was seen
    least: int = 1  # how many may be ahead of batches that fit at all; one that is larger than all is made alone
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
        """Take note of the size of a batch."""
        nbytes = 0
        if type(batch) is tuple and all(type(part) is np.ndarray for part in batch):
            nbytes = sum([part.nbytes for part in batch])
        else:
            with unless_of_signal_handler():  # an object of the user's that cannot tell, as a sparse tensor
                nbytes = batches.nbytes(batch)
        if nbytes > self.largest or not self.largest:
            self.largest = max(1, nbytes)
            fit = (self.buffer_bytes or 0) // self.largest
            # Two less than fit: the consumer has one in its hands, and is given another.
            self._limit = min(self.size, max(self.least if fit else 1, fit - 2))


class Making(NamedTuple):
    """How a pool makes the batches of a source."""

    pool: Pool
    source: AbstractDataSource
    shared: Any  # stands for the source in the arguments of a task
    policy: ErrorPolicy
    timeout: float | None  # seconds that a sample may take
    bound: ByteBound
    made: list[tuple[PlannedBatch, Any]]  # before there were workers; taken out here by the epoch that begins with them


class EpochRunner(PrefetchBuffer):
    """Makes the batches of one epoch.

    The maps, of which the outermost has its place in the graph at `path`, are applied here, to what the pool made.
    `before` is the iterator of the epoch with which this one shares the buffer, if there is one.
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
        # On the consumer's own thread as in a plain loop; in worker processes always. Threads pay no heed to it.
        seeded = (options.shuffled or not pool.own_thread) and any_node(source, "runs_user_code")
        pad_mask = options.shard.pad_mask and not maps.nodes
        self._make: Any = MakeBatch(policy.action, policy.retries, pad_mask, pool.own_thread, seeded)
        self._arguments = shared, pool.buffers
        self._at_once = pool.at_once
        self._made_before: list[tuple[PlannedBatch, Any]] = []
        with contextlib.suppress(IndexError):  # another epoch that begins just now may take some; each goes to one
            while made:
                self._made_before.append(made.pop(0))
        self._maps = maps
        self._path = path
        self._source_path = path + (0,) * len(maps.nodes)
        self._bound = bound
        self._before = before
        self._transport = ""  # of the latest batch
        self._allowance = Allowance(timeout, timeout)
        context = contextvars.copy_context()  # that of the call that opens the epoch, for all batches of it
        # One stream for a series of epochs: no batch of the next goes before one of the epoch under way.
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
        """Return how many batches may be ahead beside those of the epoch before."""
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
        """Return the next batch that was made before there were workers. Drop them all if another is planned."""
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
        self._made_before = []  # or a loop that was left early would hold them
        super().close()

    def _job(self, planned: PlannedBatch, how: Submission) -> Job:
        shared, buffers = self._arguments
        return Job((self._make, (shared, planned.rows, planned.key, buffers), {}), how, planned)

    # -- the consumer ------------------------------------------------------------------------------------------

    def __next__(self) -> Any:
        with self._lock:
            if self.closed and not self.at_end:
                raise PoolClosed(CLOSED)
            try:
                return self._next()
            except StopIteration:
                raise
            except BaseException:
                self.closed = True  # with the lock: another thread that waits must not take the batch behind this one
                raise

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
        """Return what an entry that is done gives, a batch or a :class:`PartialBatch`; the next are submitted."""
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
        """Take note of the size of a batch, and of how it came."""
        self._transport = entry.future.transport
        if type(made) is not PartialBatch:
            self._bound.saw(made)
        elif made.kept:
            self._bound.saw(made.batch)

    def _mapped(self, batch: Any, planned: PlannedBatch, n: int, kept: np.ndarray | None = None) -> Any:
        """Return what the maps behind the pool make of a batch of `n` samples, of which those at `kept` are there."""
        key = planned.key._replace(path=self._path)
        return self._maps(batch, key, n) if kept is None else self._maps(batch, key.part(kept), len(kept))

    # -- faults ------------------------------------------------------------------------------------------------

    def _resolved(self, planned: PlannedBatch, failed: PartialBatch) -> PartialBatch:
        """Return what is handed out of a batch that failed; raises what the policy says."""
        made = self._failures.resolved(planned, failed, lambda rows: self._made_beside(planned._replace(rows=rows)))
        if made.kept and self._maps.nodes:
            n = planned_samples(planned.rows, made.batch)
            skipped = self._failures.policy.action == "skip"
            kept = np.setdiff1d(np.arange(n), list(made.failures)) if skipped and made.failures else None
            made.batch = self._mapped(made.batch, planned, n, kept)
        self._failures.settle(planned, made, self._transport)
        return made

    def _made_beside(self, planned: PlannedBatch) -> Any:
        """Return what rows give that are read out of turn: a batch or a :class:`PartialBatch`."""
        job = self._job(planned, dataclasses.replace(self._how, urgent=True))
        (made,) = self._run([job])
        return self._repaired(job, made) if isinstance(made, BaseException) else made

    def _repaired(self, job: Job, error: BaseException) -> Any:
        """Return what a batch gives whose worker died or ran out of time."""
        planned: PlannedBatch = job.about
        policy, allowance = self._failures.policy, self._allowance
        late = job.how.timeout is not None and job.how.timeout < (allowance.batch or 0.0)  # less than batches have now

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
        """Return what jobs out of turn give: for each the batch, a :class:`PartialBatch`, or what ended its worker."""
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
        """Return what an entry gives: the batch, a :class:`PartialBatch`, or what ended its worker."""
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
    with unless_of_signal_handler():  # the rows of a source of the user's may be objects that cannot be pickled
        return pickle.dumps((one.rows, one.key)) == pickle.dumps((other.rows, other.key))
    return False
