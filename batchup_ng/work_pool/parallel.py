"""Data sources whose batches are made by a pool.

Who owns what. Each ``batch_iterator`` owns one engine, or for a source that only streams one work stream; what crosses
to the workers is the source, once, as a shared constant, then for each batch its rows and key.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from .. import checks
from ..data_source.base import AbstractDataSource, PlannedDataSource, part_of, whole_stream
from ..data_source.books import Books
from ..data_source.draws import Draws
from ..data_source.iterator import BatchIterator, Epoch
from ..data_source.node import samples_in_words
from ..data_source.options import EpochOptions, epoch_options, known_count
from ..data_source.resume import open_epoch
from ..data_source.resume_stream import inner_state, open_stream
from ..errors import ArgumentTypeError
from ..sampling.plan import BatchPlan, DrawnPlan
from .engine import ROADS, BatchEngine
from .making import ByteBound, Making
from .policy import ErrorPolicy, error_policy
from .stream import WorkStream
from .submission import ONCE, Future, Submission, Task

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

    def shared_constant(self, x: Any, *, arrays: str = "auto") -> Any: ...

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


class ParallelDataSource(AbstractDataSource):
    """A source whose batches are those of another, made by the workers of a pool, in the same order.

    Made by ``pool.parallel_data_source``.

    Args:
        ds: The source, which is random access.
        batch_buffer_size: The most batches that are under way or done, ahead of the consumer.
        pool: Makes the batches.
        buffer_bytes: How many bytes these may take, with the two that the consumer has at hand; None for any number.
        on_error: What to do about samples that fail.
        timeout: Seconds that a sample may take; None for any.
        arrays: How large arrays reach the workers, where the pool has several ways.

    Raises:
        ArgumentError: an option has a value that it cannot have.
        ArgumentTypeError: `ds` is no source, or not random access; an option is of a wrong kind.
    """

    def __init__(
        self,
        ds: AbstractDataSource,
        batch_buffer_size: int,
        pool: Pool,
        *,
        buffer_bytes: int | None = None,
        on_error: str | ErrorPolicy = "raise",
        timeout: float | None = None,
        arrays: str = "auto",
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
        size = checks.positive_int("batch_buffer_size", batch_buffer_size)
        self.buffer_bytes = None if buffer_bytes is None else checks.positive_int("buffer_bytes", buffer_bytes)
        self.on_error = error_policy(on_error)
        self.timeout = None if timeout is None else checks.number_between("timeout", timeout, 0.0, LONGEST)
        at_once = getattr(pool, "processes", 1) * getattr(pool, "threads", 1)
        self._source = ds
        self._own_thread = pool.own_thread
        self._making = Making(
            pool=pool,
            buffers=pool.buffers,
            shared=pool.shared_constant(ds, arrays=arrays),
            source=ds,
            at_once=at_once,
            policy=self.on_error,
            timeout=self.timeout,
            bound=ByteBound(size, self.buffer_bytes, at_once + 1),
        )

    def outline(self) -> list[Any]:
        return self._source.outline()

    def __getitem__(self, which: Any) -> Any:
        return self._source[which]

    def _facts(self) -> list[str]:
        told = {"buffer_bytes": self.buffer_bytes, "timeout": self.timeout, "on_error": self.on_error}
        options = [f"{name}={value!r}" for name, value in told.items() if value not in (None, ErrorPolicy())]
        return [samples_in_words(self._source), *options, f"by {self._making.pool!r}"]

    def num_samples(self, **kwargs: Any) -> Any:
        return self._source.num_samples(**kwargs)

    def plan(self, batch_size: int, shuffle: Any = None, **options: Any) -> BatchPlan:
        """Return the plan of an epoch, which is that of the source itself."""
        checks.no_unknown("plan", options, ("epoch", "drop_last"))
        given = options if shuffle is None else {"shuffle": shuffle, **options}
        return plan_for(self._source, epoch_options(batch_size, given))

    def batch_iterator(
        self, batch_size: int, shuffle: Any = None, *, state: Any = None, **options: Any
    ) -> BatchIterator:
        """Return an iterator of the batches of one epoch, which starts to fill its buffer now.

        The options are those of the source's own ``batch_iterator``, and so are the batches and their order.
        """
        given = options if shuffle is None else {"shuffle": shuffle, **options}
        return self._epoch(epoch_options(batch_size, given), (), state)

    def _epoch(self, options: EpochOptions, path: tuple[int, ...], state: Any = None) -> BatchIterator:
        n = self._source.num_samples()

        def engine_of(plan: BatchPlan, options: EpochOptions) -> tuple[BatchEngine, Books]:
            n_samples = -(-int(n) // options.shard.world) if known_count(n) else None
            # On the consumer's own thread, as in a plain loop; worker processes do so by themselves.
            seeded = self._own_thread and options.shuffled and self._source.draws_globally()
            engine = BatchEngine(self._making, plan, path, n_samples, options.shard, seeded)
            return engine, engine.books

        def plan_of(options: EpochOptions) -> BatchPlan:
            return plan_for(self._source, options)

        return BatchIterator(open_epoch(self._source, options, state, plan_of, engine_of))

    def stream(self, options: EpochOptions, path: tuple[int, ...]) -> Iterator[Any]:
        yield from self._epoch(options, path)

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


class PrefetchDataSource(AbstractDataSource):
    """A source that only streams, whose batches one background worker makes ahead. Made by ``pool.prefetch``.

    Args:
        source: The source.
        batch_buffer_size: How many batches to keep done, ahead of the consumer.
        pool: Gives the worker.

    Raises:
        ArgumentTypeError: `source` is no source.
    """

    def __init__(self, source: AbstractDataSource, batch_buffer_size: int, pool: Pool) -> None:
        if not isinstance(source, AbstractDataSource):
            raise ArgumentTypeError(
                f"source must be a data source, not a {type(source).__name__}; wrap a function that returns an "
                f"iterator of batches in CallableDataSource, an iterator in IteratorDataSource"
            )
        self._buffer_size = checks.positive_int("batch_buffer_size", batch_buffer_size)
        self._source = source
        self._pool = pool

    def outline(self) -> list[Any]:
        return self._source.outline()

    def num_samples(self, **kwargs: Any) -> Any:
        return self._source.num_samples(**kwargs)

    def _facts(self) -> list[str]:
        return [samples_in_words(self), f"by {self._pool!r}"]

    def calls_user_functions(self) -> bool:
        return self._source.calls_user_functions()

    def batch_iterator(self, batch_size: int, *, state: Any = None, **options: Any) -> BatchIterator:
        """Return an iterator of the batches of one epoch, which starts to fill its buffer now.

        The options are those of the source's own ``batch_iterator``, and so are the batches and their order.
        """
        given = epoch_options(batch_size, options, takes_any=self._source.calls_user_functions())
        return BatchIterator(open_stream(self._source, given, state, lambda options: self._engine(options, ())))

    def stream(self, options: EpochOptions, path: tuple[int, ...]) -> Iterator[Any]:
        with BatchIterator(Epoch(self._engine(options, path))) as iterator:
            yield from iterator

    def stream_count(self, options: EpochOptions) -> float | None:
        return self._source.stream_count(options)

    def _engine(self, options: EpochOptions, path: tuple[int, ...]) -> _ProducerEngine:
        # A generator with a state is drawn from in this process, or each epoch would draw from a copy of the same.
        producer = self._pool.producer(self._source, stays=options.rng is not None)
        try:
            tasks = self._tasks(producer.pool, _Produced(self._source, options, path))
            stream = WorkStream(producer.pool, tasks, self._buffer_size)
        except BaseException:
            producer.close()
            raise
        return _ProducerEngine(stream, producer)

    def _tasks(self, pool: Pool, epoch: _Produced) -> Iterator[Any]:
        shared = pool.shared_constant(epoch)
        while True:
            yield next_of, (shared,)


class _Produced:
    """An epoch of a source in the one worker that iterates over it."""

    def __init__(self, source: AbstractDataSource, options: EpochOptions, path: tuple[int, ...]) -> None:
        self._source = source
        self._options = options
        self._path = path
        self._iterator: Iterator[Any] | None = None
        self._error: BaseException | None = None

    def next(self) -> tuple[Any, ...]:
        """Return ``(batch, state)``, or ``()`` at the end; after an error the same error.

        The state is that of the stream after the batch; None if it has none.
        """
        if self._error is not None:
            raise self._error
        try:
            if self._iterator is None:
                self._iterator = whole_stream(self._source, self._options, self._path)
            return next(self._iterator), inner_state(self._source, self._options)
        except StopIteration:
            return ()
        except BaseException as error:
            self._error = error
            raise


def next_of(epoch: _Produced) -> tuple[Any, ...]:
    """Return the next batch of `epoch`: the task of every batch of a stream."""
    return epoch.next()


class _ProducerEngine:
    """Hands out what one producer made, until its end."""

    def __init__(self, stream: WorkStream, producer: Producer) -> None:
        self._stream = stream
        self._producer = producer
        self._latest: Any = None
        self._finalizer = weakref.finalize(self, producer.abandon)

    @property
    def road(self) -> str:
        return ROADS.get(self._stream.road, "")

    def check_caller(self) -> None:
        self._stream.check_caller()

    def __next__(self) -> Any:
        item = next(self._stream)
        if not item:
            self.close()
            raise StopIteration
        batch, self._latest = item
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
