"""The runner of an epoch that a pool makes: batches in plan order, faults seen to on the way.

Who owns what. A :class:`EpochRunner` belongs to one batch iterator and owns a buffer of the batches that are ahead,
with the accounting of the epoch. All of it happens in the consumer's ``next``, under the buffer's turn: there is no
thread of its own, nothing that can go on after ``close``.

What crosses the boundary: for each batch its rows and its key, with the shared constant that stands for the source.

What happens when a batch fails: the buffer is filled first, so that the workers go on with later batches. Then the
generator of ``repair`` says what to read; those reads go to the same pool, before what is queued, and this thread waits
for them. What comes of it is a batch, with fewer or other samples if the policy lets that pass, no batch, or an
exception that names the sample.
"""

from __future__ import annotations

import contextvars
import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from .. import batch as batches
from .. import system_limits
from ..data_source.base import AbstractDataSource
from ..data_source.consumer_maps import ConsumerMaps
from ..data_source.epoch.accounting import Accounting
from ..data_source.epoch.epochs import Seam
from ..data_source.epoch.failures import Failures
from ..data_source.epoch.iterator import reader
from ..errors import MapResultError, RemoteTraceback
from ..faults.isolation import FAILURES, Verdict, of_a_sample
from ..faults.policy import ErrorPolicy
from ..faults.replacements import Replacements
from ..faults.sample_errors import listed
from ..sampling.plans.epoch import BatchPlan, PlannedBatch
from ..sampling.plans.rows import whole_samples
from ..sampling.plans.sharding import ALONE, Shard
from .prefetch_buffer import Entry, Job, PrefetchBuffer
from .repair import Allowance, Case, Outcome, Read, repair
from .task import Submission, Submits, Task, new_stream_id

DEFAULT_SHARE = 0.25
"""The part of the free memory that batches ahead may have where the user does not say how much."""

DEFAULT_BYTES = 10**9
"""The most that this may be, in bytes."""


@dataclasses.dataclass(slots=True)
class ByteBound:
    """How many batches may be ahead, so that they stay within a number of bytes; shared by the epochs of a source.

    Attributes:
        size: The most batches that may be ahead in any case.
        buffer_bytes: Bytes that all may take.
        first: How many may be ahead while nobody knows how large a batch is.
        least: How many may be ahead of batches that fit at all; one that is larger than all bytes is made alone.
        largest: Bytes of the largest batch that was seen.
    """

    size: int
    buffer_bytes: int
    first: int
    least: int = 1
    largest: int = 0
    _limit: int = 0

    def __post_init__(self) -> None:
        self._limit = min(self.size, self.first)

    def __str__(self) -> str:
        nbytes = self.buffer_bytes
        return f"{self.size} batches or {f'{nbytes / 1e6:.0f} MB' if nbytes >= 1_000_000 else f'{nbytes} bytes'}"

    def limit(self) -> int:
        """Return how many batches may be ahead now."""
        return self._limit

    def saw(self, batch: Any) -> None:
        """Take note of the size of a batch."""
        try:
            nbytes = batches.nbytes(batch)
        except Exception:  # an object of the user's that cannot tell, as a sparse tensor
            nbytes = 0
        if nbytes > self.largest or not self.largest:
            self.largest = max(1, nbytes)
            fit = self.buffer_bytes // self.largest
            # Two less than fit: the consumer has one in its hands, and is given another.
            self._limit = min(self.size, max(self.least if fit else 1, fit - 2))


def byte_bound(size: int, buffer_bytes: int | None, first: int) -> ByteBound:
    """Return the bound of a source; without `buffer_bytes` a quarter of the free memory, 1 GB at most."""
    if buffer_bytes is not None:
        return ByteBound(size, buffer_bytes, first)
    return ByteBound(size, int(min(system_limits.available() * DEFAULT_SHARE, DEFAULT_BYTES)), first, least=2)


@dataclasses.dataclass(frozen=True, slots=True)
class Making:
    """What makes the batches of an epoch.

    Attributes:
        pool: Runs the reads.
        buffers: Where workers take memory from.
        shared: Stands for the source in the arguments of a task.
        source: The source itself.
        at_once: How many tasks the pool runs at once.
        policy: What to do about samples that fail.
        timeout: Seconds that a sample may take; None for any.
        bound: How far ahead to be.
    """

    pool: Submits
    buffers: Any
    shared: Any
    source: AbstractDataSource
    at_once: int
    policy: ErrorPolicy
    timeout: float | None
    bound: ByteBound


TRANSPORTS = {"slot": "slots", "pipe": "pipe", "inline": "inline", "memory": "memory"}
"""How ``stats`` calls the transport that a future names."""

NO_MAPS = ConsumerMaps(())

_NOTHING = object()


class EpochRunner:
    """Makes the batches of one epoch.

    Args:
        making: What makes them.
        plan: Says which.
        path: The place of the source in the graph, for the random numbers.
        n_samples: Samples of the epoch, of those a rank's share; None where that is not known.
        shard: Whose part of the epoch it is.
        seeded: Whether global generators are seeded for each batch where it is made.
        maps: Maps that are applied here, to what the pool made.
        seam: Leads to the next epoch, with which this one shares the buffer; None where there is none.
    """

    def __init__(
        self,
        making: Making,
        plan: BatchPlan,
        path: tuple[int, ...],
        n_samples: int | None,
        shard: Shard = ALONE,
        seeded: bool = False,
        maps: ConsumerMaps = NO_MAPS,
        seam: Seam | None = None,
    ) -> None:
        self.accounting = Accounting(arrays=getattr(making.shared, "arrays", ""))
        self._making = making
        self._read = reader(shard.pad_mask and not maps.nodes, seeded)
        self._failures = Failures(making.source, making.policy, self.accounting, n_samples, shard.world)
        self._maps = maps
        self._seam = seam
        self._plan = plan
        self._path = path  # of the outermost map
        self._source_path = path + (0,) * len(maps.nodes)
        self._allowance = Allowance(making.timeout, making.timeout)
        context = contextvars.copy_context()  # that of the call that opens the epoch, for all batches of it
        self._how = Submission(retryable=True, timeout=making.timeout, stream_id=new_stream_id(), context=context)
        held = 2 * making.at_once  # what they run, and as much again
        limit = making.bound.limit if seam is None else functools.partial(_room, making.bound, seam)
        self._buffer = PrefetchBuffer(making.pool, self._jobs(), limit, _described, held)
        self._buffer.begin()
        if seam is not None:
            seam.runner = self

    def _jobs(self) -> Iterator[Job]:
        for planned in self._plan:
            if self._source_path:
                planned = planned._replace(key=planned.key._replace(path=self._source_path))
            yield self._job(planned)

    def _job(self, planned: PlannedBatch) -> Job:
        making = self._making
        task: Task = (self._read, (making.shared, planned.rows, planned.key, making.buffers), {})
        if self._how.timeout != self._allowance.batch:
            self._how = dataclasses.replace(self._how, timeout=self._allowance.batch)
        return Job(task, self._how, planned)

    def check_caller(self) -> None:
        self._buffer.check_caller()

    def ready(self) -> int:
        return self._buffer.ready()

    def ahead(self) -> int:
        return self._buffer.ahead()

    def fill(self) -> None:
        with self._buffer as buffer:
            buffer.fill()

    @property
    def max_ahead(self) -> int:
        """The most batches that were ever under way or done at once."""
        return self._buffer.max_ahead

    def close(self) -> None:
        self._buffer.cancel()
        if self._seam is not None:
            self._seam.runner = None  # which refers to this one

    def abandon(self) -> None:
        self.close()

    # -- the consumer ------------------------------------------------------------------------------------------

    def __next__(self) -> Any:
        with self._buffer as buffer:
            while True:
                try:
                    entry = buffer.head()
                except StopIteration:
                    if not buffer.closed:
                        self._failures.check_some_delivered()
                    raise
                batch = self._result(entry)
                if batch is not _NOTHING:
                    return batch

    def _result(self, entry: Entry) -> Any:
        """Return the batch of an entry that is done, or :data:`_NOTHING` if none of its samples could be made."""
        try:
            batch = entry.future.result()
        except BaseException as error:
            self._buffer.drop(entry)
            if entry.job.about is None or not _of_a_sample(error, entry):
                raise
            failure = error
        else:
            self._buffer.drop(entry)
            self._note(batch, entry)
            self._fill()
            planned: PlannedBatch = entry.job.about
            n = whole_samples(planned.rows)[1]
            if self._maps.nodes:
                batch = self._mapped(batch, planned, n)
            self.accounting.settle(planned.number, n, n, 0, TRANSPORTS.get(entry.future.transport, ""))
            return batch
        self._fill()
        try:
            return self._repaired(entry, failure)
        finally:
            del failure  # its traceback holds this frame

    def _fill(self) -> None:
        """Submit what there is room for, batches of the next epoch when all of this one are submitted."""
        self._buffer.fill()
        if self._seam is not None and self._buffer.used_up:
            self._seam.go_on()

    def _mapped(self, batch: Any, planned: PlannedBatch, n: int, left_out: Iterable[int] = ()) -> Any:
        """Return what the maps behind the pool make of a batch of `n` samples, of which some places were left out."""
        key = planned.key._replace(path=self._path)
        gone = set(left_out)
        if gone:
            kept = np.array([place for place in range(n) if place not in gone], dtype=np.int64)
            key, n = key.part(kept), len(kept)
        return self._maps(batch, key, n)

    def _note(self, batch: Any, entry: Entry) -> None:
        """Take note of what a batch cost."""
        self._making.bound.saw(batch)
        if self._making.timeout is not None and (seconds := entry.future.running_for()) is not None:
            self._allowance.times.append(seconds)

    # -- faults ------------------------------------------------------------------------------------------------

    def _repaired(self, entry: Entry, error: BaseException) -> Any:
        """Return the batch that a failed one becomes, or :data:`_NOTHING`; raises what the policy says."""
        planned: PlannedBatch = entry.job.about
        allowed = self._allowance.batch
        verdict = self._verdict(planned, self._case(planned, entry.job.how.timeout, error))
        if self._allowance.batch != allowed:
            self._buffer.resubmit(lambda job: self._job(job.about))
        self._failures.check(planned, verdict)
        batch = _NOTHING
        if verdict.made:
            batch = verdict.batch
            if self._maps.nodes:
                left_out = () if self._making.policy.action == "replace" else verdict.bad
                batch = self._mapped(batch, planned, whole_samples(planned.rows)[1], left_out)
        self._failures.enter(planned, verdict)
        return batch

    def _case(self, planned: PlannedBatch, given: float | None, error: BaseException) -> Case:
        policy, at_once = self._making.policy, self._making.at_once
        another = Replacements(self._plan, planned).another
        return Case(planned.rows, error, policy.action, policy.retries, at_once, self._allowance, given, another)

    def _verdict(self, planned: PlannedBatch, case: Case) -> Verdict:
        """Run the reads that `repair` asks for, until it knows."""
        steps = repair(case)
        try:
            reads = next(steps)
            while True:
                reads = steps.send(self._outcomes(planned, reads))
        except StopIteration as end:
            verdict: Verdict = end.value
            return verdict

    def _outcomes(self, planned: PlannedBatch, reads: list[Read]) -> list[Outcome]:
        entries: list[Entry] = []
        try:
            for read in reads:
                entries.append(self._buffer.beside(self._extra(planned, read)))
            return [self._outcome(entry, read) for entry, read in zip(entries, reads, strict=True)]
        finally:
            for entry in entries:
                self._buffer.forget(entry)

    def _extra(self, planned: PlannedBatch, read: Read) -> Job:
        """Return the job of a read out of turn."""
        key = planned.key if read.offsets is None else planned.key.part(read.offsets)
        task: Task = (self._read, (self._making.shared, read.rows, key, self._making.buffers), {})
        how = Submission(
            retryable=True, urgent=True, exclusive=read.exclusive, timeout=read.timeout, context=self._how.context
        )
        return Job(task, how, planned._replace(rows=read.rows))

    def _outcome(self, entry: Entry, read: Read) -> Outcome:
        self._buffer.wait(entry)
        try:
            batch = entry.future.result()
        except BaseException as error:
            # A map that needs whole batches may return no batch for one sample: that is no answer for the batch.
            if not (isinstance(error, MapResultError) or _of_a_sample(error, entry)):
                raise
            return Outcome(error=error)
        if read.exclusive:
            return Outcome()  # it was only to know whether it can be made
        self._note(batch, entry)
        transport = TRANSPORTS.get(entry.future.transport, "")
        if transport:
            self.accounting.transports[transport] += 1
        return Outcome(batch=batch)


def _room(bound: ByteBound, seam: Seam) -> int:
    """Return how many batches may be ahead beside those of the epoch before."""
    return bound.limit() - seam.taken()


def _of_a_sample(error: BaseException, entry: Entry) -> bool:
    """Return whether `error` was raised in making a batch, and not by a fault of the pool or by Ctrl-C meanwhile."""
    if not of_a_sample(error):
        return False
    if isinstance(error, FAILURES):
        return True
    return isinstance(error.__cause__, RemoteTraceback) or getattr(entry.future, "error", None) is error


def _described(job: Job) -> str:
    """Return which batch a job is for, in words."""
    planned: PlannedBatch = job.about
    return f"batch {planned.number} of epoch {planned.key.epoch}, rows {listed(planned.rows)},"
