"""Data sources whose batches are made by a pool.

Who owns what. Each ``batch_iterator`` owns one runner, or for a source that only streams one work stream; what crosses
to the workers is the source, once, as a shared constant, then for each batch its rows and key.
"""

from __future__ import annotations

import contextvars
import copy
import dataclasses
import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar

import numpy as np

from .. import validation
from ..batch_layout import finished
from ..data_source.base import (
    AbstractDataSource,
    CollateDataSource,
    EpochSource,
    MapDataSource,
    PlannedDataSource,
    SampleMapDataSource,
    behind_pool,
    part_of,
    whole_stream,
)
from ..data_source.consumer_maps import ConsumerMaps
from ..data_source.draws import Draws
from ..data_source.epoch.accounting import Accounting
from ..data_source.epoch.checkpoint import open_epoch
from ..data_source.epoch.epochs import Seam
from ..data_source.epoch.iterator import BatchIterator, Engine, Epoch, count_of
from ..data_source.epoch.stream_checkpoint import inner_state, open_stream
from ..data_source.epoch_options import EpochOptions, known_count
from ..data_source.hooks import SourceNode, samples_in_words
from ..data_source.looking import key_in_order, numbered_length, read_in_order
from ..display import arguments
from ..errors import ArgumentTypeError
from ..faults.policy import RAISE, ErrorPolicy, error_policy
from ..memory_pool import Buffers
from ..randomness import BatchKey
from ..sampling.plans.epoch import BatchPlan, DrawnPlan
from .epoch_runner import TRANSPORTS, ByteBound, EpochRunner, Making, byte_bound
from .stream import WorkStream
from .task import ONCE, Future, Submission, Task

LONGEST = 1e6
"""Seconds that a time limit may be: eleven days, which every clock and lock can count."""


class Pool(Protocol):
    """What the sources need of a pool."""

    @property
    def buffers(self) -> Any:
        """Where workers take memory from; travels to them as an argument."""
        ...

    @property
    def own_thread(self) -> bool:
        """Whether tasks run on the consumer's own thread."""
        ...

    def submit(self, task: Task, how: Submission = ONCE) -> Future: ...

    def shared_constant(self, x: Any) -> Any: ...

    def producer(self, source: AbstractDataSource, stays: bool = False) -> Producer:
        """Return a pool of one worker that can iterate over `source`, with what ends it."""
        ...


class Producer(NamedTuple):
    """A pool of one worker, which makes the batches of a stream.

    Attributes:
        pool: The pool.
        close: Ends it, and waits until it has ended.
        abandon: Lets it end some time soon; takes no lock, so that it may run inside any code, as the collector does.
    """

    pool: Pool
    close: Callable[[], None]
    abandon: Callable[[], None]


class _WithConsumerMaps(EpochSource):
    """A source that a pool works for, with maps behind the pool, which are applied in the consumer's process."""

    _not_parts = ("_maps",)
    _source: AbstractDataSource
    _maps: tuple[MapDataSource, ...] = ()

    def fingerprint(self) -> list[Any]:
        return self._maps[-1].fingerprint() if self._maps else self._source.fingerprint()

    def num_samples(self, **kwargs: Any) -> Any:
        return self._source.num_samples(**kwargs)

    def calls_user_functions(self) -> bool:
        return self._source.calls_user_functions()

    def has_random_maps(self) -> bool:
        return self._source.has_random_maps() or any(node.rng is not None for node in self._maps)

    def _notes_epochs_at(self) -> SourceNode:
        return self if self._maps else self._source  # for a source of a pool may be made anew for each epoch

    def _numbered_length(self) -> int:
        return numbered_length("source", self._source)

    def _in_order(self, positions: np.ndarray) -> Any:
        batch = read_in_order(self._source, positions, path=(0,) * len(self._maps))
        return ConsumerMaps(self._maps)(batch, key_in_order(positions), len(positions))

    def rows_at(self, positions: Any) -> Any:
        raise self._belongs_before("concat, mix, split, subset or zip")

    def with_index(self) -> NoReturn:
        raise self._belongs_before("with_index")

    def filter(self, predicate: Callable[..., Any], columns: Any = None) -> NoReturn:
        raise self._belongs_before("filter")

    def _belongs_before(self, what: str) -> ArgumentTypeError:
        return ArgumentTypeError(
            f"{what} arranges samples by number, which a {type(self).__name__} leaves to the source that it was made "
            f"of; apply it to that source, then give the result to the pool: pool.parallel_data_source(result)"
        )

    def _maps_in_words(self) -> list[str]:
        told = [[word for word in arguments(node) if not word.startswith("resizes")] for node in self._maps]
        return [f"then {', '.join(words)}" for words in told]

    def map(
        self: WithMaps, fn: Callable[..., Any], *, rng: str | None = None, resizes: bool = True
    ) -> WithMaps:
        """Return this source with `fn` applied behind the pool: in the consumer's process, in its ``next``.

        What `fn` returns is handed out as it is. That is the place to hand batches over to a framework, and for views;
        work that takes long belongs before the pool. The arguments are those of :meth:`AbstractDataSource.map`, and so
        are the random numbers; `resizes` is true of any map here. An exception names the map and the batch,
        ``on_error=`` does not apply to it.
        """
        return self._followed_by(MapDataSource(self, fn, rng=rng, resizes=resizes))

    def map_samples(self: WithMaps, fn: Callable[..., Any], *, rng: str | None = None) -> WithMaps:
        """Return this source with `fn` applied to each sample behind the pool: see :meth:`map`."""
        return self._followed_by(SampleMapDataSource(self, fn, rng=rng))

    def collate(self: WithMaps, fn: Callable[[list[Any]], Any]) -> WithMaps:
        """Return this source with `fn` applied to the list of samples behind the pool: see :meth:`map`.

        A sample is what the batch has of it here, a tuple of rows. A function that wants the samples as a data set gave
        them belongs before the pool.
        """
        return self._followed_by(CollateDataSource(self, fn))

    def _followed_by(self: WithMaps, node: MapDataSource) -> WithMaps:
        made = copy.copy(self)
        made._maps = (*self._maps, node)
        vars(made).pop("_unnumbered", None)
        return made


WithMaps = TypeVar("WithMaps", bound=_WithConsumerMaps)


class ParallelDataSource(_WithConsumerMaps):
    """A source whose batches are those of another, made by the workers of a pool, in the same order.

    Made by ``pool.parallel_data_source``.

    Args:
        ds: The source, which is random access.
        batch_buffer_size: The most batches that are under way or done, ahead of the consumer.
        pool: Makes the batches.
        buffer_bytes: How many bytes these may take, with the two that the consumer has at hand; None: a quarter of the
            memory that is free, 1 GB at most.
        on_error: What to do about samples that fail.
        timeout: Seconds that a sample may take; None for any.

    Raises:
        ArgumentError: an option has a value that it cannot have.
        ArgumentTypeError: `ds` is no source, or not random access; an option is of a wrong kind.
    """

    of_pool = True

    def __init__(
        self,
        ds: AbstractDataSource,
        batch_buffer_size: int,
        pool: Pool,
        *,
        buffer_bytes: int | None = None,
        on_error: str | ErrorPolicy = "raise",
        timeout: float | None = None,
    ) -> None:
        if not isinstance(ds, AbstractDataSource):
            raise ArgumentTypeError(
                f"ds must implement `data_source.AbstractDataSource`, and is a {type(ds).__name__}; wrap arrays and "
                f"accessors in ArrayDataSource([...])"
            )
        if not ds.is_random_access:
            raise ArgumentTypeError(
                f"ds must be random access; it is of type {type(ds)}; for a source that only streams use "
                f"pool.prefetch(ds)"
            )
        size = validation.positive_int("batch_buffer_size", batch_buffer_size)
        self.buffer_bytes = None if buffer_bytes is None else validation.positive_int("buffer_bytes", buffer_bytes)
        self.on_error = error_policy(on_error)
        self.timeout = None if timeout is None else validation.number_between("timeout", timeout, 0.0, LONGEST)
        at_once = getattr(pool, "processes", 1) * getattr(pool, "threads", 1)
        self._source = ds
        self._own_thread = pool.own_thread
        self._making = Making(
            pool=pool,
            buffers=pool.buffers,
            shared=pool.shared_constant(ds),
            source=ds,
            at_once=at_once,
            policy=self.on_error,
            timeout=self.timeout,
            bound=byte_bound(size, self.buffer_bytes, at_once + 1),
        )

    def plan_of(self, options: EpochOptions) -> BatchPlan:
        return plan_for(self._source, options)

    def _facts(self) -> list[str]:
        told = {"timeout": self.timeout, "on_error": self.on_error}
        options = [f"{name}={value!r}" for name, value in told.items() if value not in (None, RAISE)]
        ahead = f"at most {self._making.bound} ahead"
        by = f"by {self._making.pool!r}"
        return [samples_in_words(self._source), ahead, *options, by, *self._maps_in_words()]

    def begin_epoch(self, options: EpochOptions, state: Any, seam: Seam | None = None) -> Epoch:
        return open_epoch(self, options, state, seam)

    def start_plan(self, plan: BatchPlan, options: EpochOptions, seam: Seam | None) -> tuple[EpochRunner, Accounting]:
        runner = self._runner(plan, options, (), seam)
        return runner, runner.accounting

    def _runner(
        self, plan: BatchPlan, options: EpochOptions, path: tuple[int, ...], seam: Seam | None = None
    ) -> EpochRunner:
        n = self._source.num_samples()
        n_samples = -(-int(n) // options.shard.world) if known_count(n) else None
        # On the consumer's own thread, as in a plain loop; worker processes do so by themselves.
        seeded = self._own_thread and options.shuffled and self._source.uses_global_rng()
        maps = ConsumerMaps(self._maps, options.shard.pad_mask)
        making = self._making
        if options.policy is not None:
            making = dataclasses.replace(making, policy=options.policy)
        return EpochRunner(making, plan, path, n_samples, options.shard, seeded, maps, seam)

    def stream(self, options: EpochOptions, path: tuple[int, ...]) -> Iterator[Any]:
        plan = self.plan_of(options)
        runner = self._runner(plan, options, path)
        epoch = Epoch(runner, options.epoch, lambda: plan.n_batches, accounting=runner.accounting)
        with BatchIterator(epoch) as iterator:
            yield from iterator

    def stream_count(self, options: EpochOptions) -> float | None:
        return self._source.count(options.batch_size, options.drop_last)


def plan_for(source: AbstractDataSource, options: EpochOptions) -> BatchPlan:
    """Return the plan of `source`, be it one of ours or one that only has BatchUp's methods."""
    if isinstance(source, PlannedDataSource):
        return source.plan_of(options)
    size, rng = options.batch_size, options.drawing_rng()
    draws = None if options.rng is None else options.draws or Draws(options.rng)

    def draw() -> Iterator[Any]:
        return source.drawn_rows(size, rng, options.drop_last)

    def count() -> int:
        if source.num_samples() is None:
            raise ArgumentTypeError("the number of batches of this source is not known, so it has no len()")
        again = options.drawing_rng() if draws is None else draws.copy()
        return sum(1 for _ in source.drawn_rows(size, again, options.drop_last))

    rows = draw() if draws is None else draws.of(draw)
    n_batches = math.inf if source.num_samples() == math.inf else None
    return part_of(DrawnPlan(rows, size, options.seed, options.epoch, n_batches, count), options)


class PrefetchDataSource(_WithConsumerMaps):
    """A source that only streams, whose batches one background worker makes ahead. Made by ``pool.prefetch``.

    Args:
        source: The source.
        batch_buffer_size: The most batches to keep done, ahead of the consumer.
        pool: Gives the worker.
        buffer_bytes: How many bytes these may take, with the two that the consumer has at hand; None: a quarter of the
            memory that is free, 1 GB at most.

    Raises:
        ArgumentTypeError: `source` is no source.
    """

    of_pool = True

    def __init__(
        self, source: AbstractDataSource, batch_buffer_size: int, pool: Pool, *, buffer_bytes: int | None = None
    ) -> None:
        if not isinstance(source, AbstractDataSource):
            raise ArgumentTypeError(
                f"source must be a data source, not a {type(source).__name__}; wrap a function that returns an "
                f"iterator of batches in CallableDataSource, an iterator in IteratorDataSource"
            )
        size = validation.positive_int("batch_buffer_size", batch_buffer_size)
        self.buffer_bytes = None if buffer_bytes is None else validation.positive_int("buffer_bytes", buffer_bytes)
        self._bound = byte_bound(size, self.buffer_bytes, first=2)
        self._source = source
        self._pool = pool

    def begin_epoch(self, options: EpochOptions, state: Any, seam: Seam | None = None) -> Epoch:
        return open_stream(self, options, state)

    def heeds_shuffle(self) -> bool:
        return self._source.heeds_shuffle() or self.has_random_maps()

    def _facts(self) -> list[str]:
        ahead = f"at most {self._bound} ahead"
        return [samples_in_words(self), ahead, f"by {self._pool!r}", *self._maps_in_words()]

    def stream_owner(self) -> Any:
        return self._source.checkpointable()

    def start_stream(self, options: EpochOptions, accounting: Accounting) -> Engine:
        return self._runner(options, (), accounting)

    def stream(self, options: EpochOptions, path: tuple[int, ...]) -> Iterator[Any]:
        accounting = Accounting()
        epoch = Epoch(self._runner(options, path, accounting), options.epoch, accounting=accounting)
        with BatchIterator(epoch) as iterator:
            yield from iterator

    def stream_count(self, options: EpochOptions) -> float | None:
        return self._source.stream_count(options)

    def _runner(self, options: EpochOptions, path: tuple[int, ...], accounting: Accounting) -> _ProducerRunner:
        # A generator with a state is drawn from in this process, or each epoch would draw from a copy of the same.
        producer = self._pool.producer(self._source, stays=options.rng is not None)
        try:
            place = path + (0,) * len(self._maps)
            tasks = self._tasks(producer.pool, _Produced(self._source, options, place))
            stream = WorkStream(producer.pool, tasks, self._bound.size, self._bound.limit)
        except BaseException:
            producer.close()
            raise
        key = BatchKey(options.seed, options.epoch, path=path)
        return _ProducerRunner(stream, producer, ConsumerMaps(self._maps), key, accounting, self._bound)

    def _tasks(self, pool: Pool, epoch: _Produced) -> Iterator[Any]:
        shared = pool.shared_constant(epoch)
        while True:
            yield next_of, (shared, pool.buffers)


class _Produced:
    """An epoch of a source in the one worker that iterates over it."""

    def __init__(self, source: AbstractDataSource, options: EpochOptions, path: tuple[int, ...]) -> None:
        self._source = source
        self._behind_pool = behind_pool(source)
        self._options = options
        self._path = path
        self._iterator: Iterator[Any] | None = None
        self._context: contextvars.Context | None = None
        self._error: BaseException | None = None

    def next(self, buffers: Buffers) -> tuple[Any, ...]:
        """Return ``(batch, state)``, or ``()`` at the end; after an error the same error.

        The state is that of the stream after the batch; None if it has none.

        Args:
            buffers: Where the memory of a batch comes from that is not as it is to be handed out.
        """
        if self._error is not None:
            raise self._error
        try:
            if self._iterator is None or self._context is None:
                self._iterator = whole_stream(self._source, self._options, self._path)
                self._context = contextvars.copy_context()
            # All in one context, or a `with` of a generator's would not find what it has set.
            batch = self._context.run(next, self._iterator)
            if not self._behind_pool:
                batch = finished(batch, buffers)
            return batch, inner_state(self._source.checkpointable(), self._options)
        except StopIteration:
            return ()
        except BaseException as error:
            self._error = error
            raise


def next_of(epoch: _Produced, buffers: Buffers) -> tuple[Any, ...]:
    """Return the next batch of `epoch`: the task of every batch of a stream."""
    return epoch.next(buffers)


class _ProducerRunner:
    """Hands out what one producer made, until its end.

    Args:
        stream: Its batches.
        producer: Makes them.
        maps: Maps that are applied here.
        key: Names the randomness of the epoch at the outermost of these.
        accounting: The accounting to keep.
        bound: How far ahead to be.
    """

    def __init__(
        self,
        stream: WorkStream,
        producer: Producer,
        maps: ConsumerMaps,
        key: BatchKey,
        accounting: Accounting,
        bound: ByteBound,
    ) -> None:
        self._stream = stream
        self._producer = producer
        self._maps = maps
        self._key = key
        self._accounting = accounting
        self._bound = bound
        self._latest: Any = None
        self._finalizer = weakref.finalize(self, producer.abandon)

    def check_caller(self) -> None:
        self._stream.check_caller()

    def __next__(self) -> Any:
        item = next(self._stream)
        if not item:
            self.close()
            raise StopIteration
        batch, latest = item
        self._bound.saw(batch)
        self._stream.fill()
        n, accounting = count_of(batch), self._accounting
        batch = self._maps(batch, self._key._replace(batch=accounting.batches, start=accounting.planned), n)
        accounting.settle(accounting.batches, n, n, 0, TRANSPORTS.get(self._stream.transport, ""))
        self._latest = latest
        return batch

    def latest_state(self) -> Any:
        """Return the state of the stream after the batch that was handed out last; None before the first."""
        return self._latest

    def ready(self) -> int:
        return self._stream.ready()

    def close(self) -> None:
        self._stream.close()
        if self._finalizer.detach() is not None:
            self._producer.close()

    def abandon(self) -> None:
        self._stream.close()
        self._finalizer()
