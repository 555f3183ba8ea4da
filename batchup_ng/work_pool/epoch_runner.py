"""The runner of an epoch that a pool makes: batches in plan order, failures isolated on the way.

Ownership. An :class:`EpochRunner` belongs to one batch iterator. It has the buffer of the batches that are ahead, and
works only in the consumer's ``next``, with the buffer's lock. It has no thread, so nothing goes on after ``close``.

Across the boundary: the pool gets the rows and the key of each batch, with the shared constant that stands for the
source. It returns the batch, or a ``PartialBatch`` with the good samples and the exceptions of the others.

When a batch fails, the runner first fills the buffer, to keep the workers busy with later batches. If a worker met an
exception, it has already isolated the samples. If the worker was ended, this thread isolates them by the same function.
Its :class:`~.rereading.Rereader` submits to the same pool, ahead of queued tasks, and waits for the results.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import pickle
import weakref
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from ..batch import NOTHING_LEFT
from ..data_source.epoch.accounting import count_of
from ..data_source.epoch.failures import Failures, check_replaced, rows_in_words
from ..data_source.epoch.prepared import Epoch
from ..data_source.epoch.reading import MakeBatch
from ..data_source.epoch.runner import Give
from ..error_context import raise_if_of_signal_handler, unless_of_signal_handler
from ..errors import SampleTimeout
from ..faults.isolation import READ_FAILURES, PartialBatch, isolable
from ..faults.policy import ErrorPolicy
from ..graph.node import Node
from ..meters.batch_times import Meter
from ..sampling.plans.epoch import PlannedBatch
from ..sampling.plans.rows import planned_samples
from .consumer_maps import ConsumerMaps
from .prefetch_buffer import BufferedRunner, ByteBound, Entry, PrefetchBuffer
from .rereading import Read, Rereader, TimeLimits
from .task import Pool, Submission, Task, TaskFuture, new_flow_id

RESTS_OF, RARELY, QUIET_STEPS, FEWEST_RESTED = 32, 4, 4, 3
"""Workers may rest at one of so many batches if the buffer is full, and so many times more rarely if it is not. A rest
aims at so many steps of the loop without workers. It leaves out at least so many submissions."""


def rest(batches: int, ready: int, limit: int, at_once: int) -> int:
    """Return for how many batches no tasks are submitted from now on.

    In a rest, workers run out of work for some steps of the loop. If these steps are shorter, workers slow the loop,
    which no other measurement shows. A rest uses up to half of the finished batches, so the loop does not wait.

    Args:
        batches: Number of batches that the loop has got.
        ready: Number of finished batches, at least twice :data:`FEWEST_RESTED`.
        limit: Number of batches that may be ahead.
        at_once: Number of tasks that the pool runs at once.
    """
    every = RESTS_OF if ready + at_once >= limit else RARELY * RESTS_OF
    return 0 if batches % every else min(ready // 2, at_once + QUIET_STEPS)


class ParallelSetup(NamedTuple):
    """What all epochs of a source over a pool have in common: the pool, the source and the options of its batches."""

    pool: Pool
    source: Node
    stand_in: Any  # the stand-in for the source in the arguments of a task
    runs_user_code: bool  # whether the user's code makes the batches
    policy: ErrorPolicy
    timeout: float | None  # seconds that a sample may take
    bound: ByteBound
    # Batches made before there were workers. The epoch that begins with them takes them out.
    ready_made: list[tuple[PlannedBatch, Any]]
    meter: Meter | None  # None if nothing is measured
    tuner: Any = None  # looks whether another number of workers would be better; None if their number is fixed


@dataclasses.dataclass
class EpochTasks:
    """The tasks of one epoch: the task of each planned batch, or of some of its rows, with its options."""

    setup: ParallelSetup
    make: Any  # a MakeBatch
    how: Submission
    limits: TimeLimits
    path: tuple[int, ...]  # the place of the source in the graph
    ready_made: list[tuple[PlannedBatch, Any]]  # the first batches, if they were made before there were workers

    def in_turn(self, plan: Iterable[PlannedBatch]) -> Iterator[Task]:
        """Yield the task of each planned batch, with the time that a batch has by then."""
        make, source, buffers = self.make, self.setup.stand_in, self.setup.pool.buffers
        path, limits = self.path, self.limits
        for planned in plan:
            if path:
                planned = planned._replace(key=planned.key._replace(path=path))
            if self.how.timeout != limits.batch:
                self.how = dataclasses.replace(self.how, timeout=limits.batch)
            ready_made = self._next_ready_made(planned) if self.ready_made else None
            yield Task((make, (source, planned.rows, planned.key, buffers), {}), self.how, planned, ready_made)

    def out_of_turn(self, planned: PlannedBatch, read: Read) -> Task:
        """Return the task of a read of `planned` or of some of its rows, ahead of queued tasks."""
        how = dataclasses.replace(self.how, urgent=True, exclusive=read.exclusive, timeout=read.timeout)
        key = planned.key if read.places is None else planned.key.part(read.places)
        about = planned._replace(rows=read.rows, key=key)
        arguments = self.setup.stand_in, read.rows, key, self.setup.pool.buffers
        return Task((self.make, arguments, {}), how, about)

    def _next_ready_made(self, planned: PlannedBatch) -> TaskFuture | None:
        """Return the next batch that was made before there were workers. If another is planned, drop them all."""
        made_for, batch = self.ready_made.pop(0)
        if not _same_batch(made_for, planned):
            self.ready_made.clear()
            return None
        return TaskFuture.of(batch, "memory")


class EpochRunner(BufferedRunner):
    """Makes the batches of one epoch.

    The runner applies the maps to the batches that the pool made. `path` is the place of the outermost map in the
    graph. `earlier` is the iterator of the earlier epoch that shares the room with this one, if there is one.
    """

    def __init__(
        self,
        epoch: Epoch,
        setup: ParallelSetup,
        maps: ConsumerMaps,
        path: tuple[int, ...],
        earlier: weakref.ref[Any] | None,
    ) -> None:
        pool, source, timeout = setup.pool, setup.source, setup.timeout
        policy = epoch.options.policy or setup.policy
        options, plan = epoch.options, epoch.plan
        assert plan is not None
        if policy.action == "replace":
            check_replaced(source)
        self._accounting = epoch.accounting
        self._accounting.arrays = getattr(setup.stand_in, "arrays", "")
        self._failures = Failures(source, epoch, policy)
        self._maps = maps
        self._path = path
        self._bound = setup.bound
        self._earlier = earlier
        self._pool = pool
        self._transport = ""  # of the latest batch
        self._resting = 0  # for how many batches no tasks are submitted
        # On the consumer's own thread as in a plain loop; in worker processes always. Threads ignore it.
        seeded = (options.shuffled or not pool.own_thread) and setup.runs_user_code
        pad_mask = options.shard.pad_mask and not maps.nodes
        types = None if policy.types is None else pool.shared_constant(policy.types)
        self.meter, self._tuner = setup.meter, setup.tuner
        metered = setup.meter is not None
        make = MakeBatch(policy.action, policy.retries, pad_mask, pool.own_thread, seeded, types, metered)
        # One flow for a series of epochs: no batch of the next epoch runs before a batch of the current one.
        of = None if earlier is None else earlier()
        self.flow_id = new_flow_id() if of is None else of.flow_id
        context = contextvars.copy_context()  # from the call that opens the epoch, for all its batches
        how = Submission(retryable=True, timeout=timeout, flow_id=self.flow_id, context=context)
        ready_made: list[tuple[PlannedBatch, Any]] = []
        with contextlib.suppress(IndexError):  # another epoch that begins now may take some; each batch goes to one
            while setup.ready_made:
                ready_made.append(setup.ready_made.pop(0))
        source_path = path + (0,) * len(maps.nodes)
        self._limits = TimeLimits(timeout, timeout)
        self._tasks = EpochTasks(setup, make, how, self._limits, source_path, ready_made)
        tasks = self._tasks.in_turn(plan if epoch.requested is None else epoch.requested)
        self._buffer = PrefetchBuffer(pool, tasks, setup.bound, _in_words)
        try:
            self._buffer.begin(0 if of is None else of.ahead())
        except BaseException:
            self.close()
            raise

    def _ahead_in_earlier(self) -> int:
        """Return how many batches of the earlier epoch are ahead."""
        earlier = None if self._earlier is None else self._earlier()
        return 0 if earlier is None else earlier.ahead()

    # -- any thread --------------------------------------------------------------------------------------------

    @property
    def used_up(self) -> bool:
        return self._buffer.used_up and not self._buffer.closed

    def fill(self) -> None:
        self._buffer.fill(self._ahead_in_earlier())

    def close(self) -> None:
        self._tasks.ready_made.clear()  # otherwise a loop that ended early would hold them
        self._buffer.close()

    # -- the consumer ------------------------------------------------------------------------------------------

    def _next(self) -> Any:
        meter, asked, ready = self.meter, monotonic(), -1
        if meter is not None and meter.asked():
            ready = self._buffer.ready()
            if ready // 2 >= FEWEST_RESTED:
                self._resting = rest(meter.batches, ready, self._bound.limit, self._pool.at_once) or self._resting
            if self._tuner is not None:
                self._tuner.look()
                asked = monotonic()  # a look is no wait for the batch
        while True:
            try:
                entry = self._buffer.take()
            except StopIteration:
                if not self._buffer.closed:
                    self._failures.check_some_delivered()
                raise
            outcome = self._batch_of(entry)
            planned: PlannedBatch = entry.task.about
            if type(outcome) is PartialBatch:
                outcome = self._resolved(planned, outcome)
                if outcome.is_handed_out:
                    outcome, n = outcome.batch, count_of(outcome.batch)
                    break
                continue
            n = planned_samples(planned.rows, outcome)
            if self._maps.nodes:
                outcome = self._mapped(outcome, planned, n)
            if outcome is NOTHING_LEFT:
                outcome = self._filled(planned, n)
            self._accounting.record(planned.number, n, n, 0, "" if outcome is NOTHING_LEFT else self._transport)
            if outcome is not NOTHING_LEFT:
                break
        if meter is not None:
            epoch, number, future = planned.key.epoch, planned.number, entry.future
            meter.add(n, (epoch, number, n, entry.submitted, future.settled, asked, monotonic(), ready, future.made))
        return outcome

    def _batch_of(self, entry: Entry) -> Any:
        """Return the batch or :class:`PartialBatch` of an entry that is done, and submit the next batches."""
        outcome = self._outcome(entry)
        if self._resting:
            self._resting -= 1
        else:
            self._buffer.top_up(0 if self._earlier is None else self._ahead_in_earlier())
        if not isinstance(outcome, BaseException):
            return outcome
        try:
            return self._isolated(entry.task, outcome)
        finally:
            del outcome  # its traceback holds this frame

    def _outcome(self, entry: Entry) -> Any:
        """Return the batch or :class:`PartialBatch` of an entry, or the exception if its worker was ended."""
        try:
            outcome = entry.future.result()
        except READ_FAILURES as error:
            raise_if_of_signal_handler(error)
            if not isolable(error, entry.task.about.rows):
                raise
            return error
        if entry.task.how.exclusive:  # of a sample that is read alone
            return outcome
        self._transport = entry.future.transport
        if type(outcome) is not PartialBatch:
            self._bound.saw(outcome)
        elif outcome.kept:
            self._bound.saw(outcome.batch)
        return outcome

    def _mapped(self, batch: Any, planned: PlannedBatch, n: int, kept: np.ndarray | None = None) -> Any:
        """Apply the maps to a batch of `n` planned samples. If `kept` is given, it holds only the samples at `kept`."""
        key = planned.key._replace(path=self._path)
        return self._maps(batch, key, n) if kept is None else self._maps(batch, key.part(kept), len(kept))

    def results_by(self, give: Give | None) -> None:
        self._maps = self._maps._replace(give=give)

    def _filled(self, planned: PlannedBatch, n: int) -> Any:
        """Return a batch in place of a batch of `n` samples with none left, or NOTHING_LEFT to leave it out."""
        return self._failures.filled(
            planned,
            lambda rows: self._read_beside(planned._replace(rows=rows)),
            lambda batch: self._mapped(batch, planned, n),
        )

    # -- faults ------------------------------------------------------------------------------------------------

    def _resolved(self, planned: PlannedBatch, failed: PartialBatch) -> PartialBatch:
        """Return the part of a failed batch that is handed out, or raise, by the error policy."""
        outcome = self._failures.resolved(planned, failed, lambda rows: self._read_beside(planned._replace(rows=rows)))
        if outcome.kept and self._maps.nodes:
            n = planned_samples(planned.rows, outcome.batch)
            skipped = self._failures.policy.action == "skip"
            kept = np.setdiff1d(np.arange(n), list(outcome.failures)) if skipped and outcome.failures else None
            outcome.batch = self._mapped(outcome.batch, planned, n, kept)
        if outcome.batch is NOTHING_LEFT:
            outcome.batch = self._filled(planned, planned_samples(planned.rows, outcome.batch))
        self._failures.record(planned, outcome, self._transport)
        return outcome

    def _read_beside(self, planned: PlannedBatch) -> Any:
        """Read rows out of turn. Return the batch or a :class:`PartialBatch`."""
        read = Read(planned.rows, None, False, self._limits.batch)
        (outcome,) = self._run(planned, [read])
        if not isinstance(outcome, BaseException):
            return outcome
        return self._isolated(self._tasks.out_of_turn(planned, read), outcome)

    def _isolated(self, task: Task, error: BaseException) -> Any:
        """Return the result of a batch whose worker died or ran out of time."""
        planned: PlannedBatch = task.about
        policy, limits = self._failures.policy, self._limits

        def run(reads: list[Read]) -> list[Any]:
            return self._run(planned, reads)

        if isinstance(error, SampleTimeout) and (task.how.timeout or 0.0) < (limits.batch or 0.0):
            (outcome,) = run([Read(planned.rows, None, False, limits.batch)])  # batches have had more time since
            if not isinstance(outcome, BaseException):
                return outcome
            error = outcome
        return Rereader(planned.rows, limits, self._pool.at_once, run).isolated(error, policy)

    def _run(self, planned: PlannedBatch, reads: list[Read]) -> list[Any]:
        """Read rows of a batch out of turn. Return what :meth:`_outcome` returns for each read."""
        tasks = [self._tasks.out_of_turn(planned, read) for read in reads]
        with self._buffer.out_of_turn(tasks) as entries:
            return [self._outcome(entry) for entry in entries]


def _in_words(task: Task) -> str:
    planned: PlannedBatch = task.about
    return f"batch {planned.number} of epoch {planned.key.epoch}, rows {rows_in_words(planned.rows)},"


def _same_batch(one: PlannedBatch, other: PlannedBatch) -> bool:
    """Return whether two planned batches are the same: a batch is a function of its rows and its key."""
    with unless_of_signal_handler():  # the rows of a user's source may be objects that cannot be pickled
        return pickle.dumps((one.rows, one.key)) == pickle.dumps((other.rows, other.key))
    return False
