"""Data sources that one background worker iterates over, ahead of the consumer.

Who owns what. Each ``batch_iterator`` owns one runner with a pool of one worker, which ends with it. What crosses to
the worker is the epoch, once, as a shared constant; back come its batches, each with the state of the stream.
"""

from __future__ import annotations

import contextvars
import itertools
import weakref
from collections.abc import Iterator
from typing import Any, Protocol

from .. import validation
from ..batch_layout import finished
from ..data_source.base import AbstractDataSource, whole_stream
from ..data_source.consumer_maps import ConsumerMaps
from ..data_source.epoch.accounting import count_of
from ..data_source.epoch.iterator import BatchIterator
from ..data_source.epoch.opening import Epoch, Runner
from ..data_source.epoch.stream_checkpoint import inner_state, put_back
from ..data_source.epoch_options import EpochOptions
from ..data_source.hooks import any_node, samples_in_words
from ..errors import ArgumentTypeError
from ..memory_pool import Buffers
from ..randomness import BatchKey
from .epoch_runner import ByteBound, byte_bound
from .parallel import Pool, WithConsumerMaps
from .prefetch_buffer import BufferedRunner, Job, PrefetchBuffer
from .task import Submission, new_stream_id


class Producer(Pool, Protocol):
    """A pool of one worker, which makes the batches of a stream."""

    def close(self) -> None: ...

    def abandon(self) -> None: ...


class HasProducers(Protocol):
    """The part of a pool that gives workers of their own."""

    def producer(self, source: AbstractDataSource, stays: bool = False) -> Producer: ...


class PrefetchDataSource(WithConsumerMaps):
    """A source whose batches one background worker makes ahead: see ``pool.prefetch``.

    Raises:
        ArgumentTypeError: `source` is no source.
    """

    of_pool = True
    heeds_shuffle = False

    def __init__(
        self, source: AbstractDataSource, batch_buffer_size: int, pool: HasProducers, *, buffer_bytes: int | None = None
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

    def _facts(self) -> list[str]:
        ahead = f"at most {self._bound} ahead"
        return [samples_in_words(self), ahead, f"by {self._pool!r}", *self._maps_in_words()]

    def checkpointable(self) -> Any:
        return self._source.checkpointable()

    def start(self, epoch: Epoch, before: weakref.ref[Any] | None = None) -> Runner:
        owner = self.checkpointable()
        put_back(owner, epoch.saved)
        return self._runner(epoch, (), inner_state(owner, epoch.options))

    def stream(self, options: EpochOptions, path: tuple[int, ...]) -> Iterator[Any]:
        epoch = Epoch(self, options, options, None)
        with BatchIterator(epoch, self._runner(epoch, path)) as iterator:
            yield from iterator

    def stream_count(self, options: EpochOptions) -> float | None:
        return self._source.stream_count(options)

    def _runner(self, epoch: Epoch, path: tuple[int, ...], state: Any = None) -> ProducerRunner:
        options = epoch.options
        # A generator with a state is drawn from in this process, or each epoch would draw from a copy of the same.
        producer = self._pool.producer(self._source, stays=options.rng is not None)
        try:
            place = path + (0,) * len(self._maps)
            produced = producer.shared_constant(_Produced(self._source, options, place))
            maps = ConsumerMaps(self._maps)
            return ProducerRunner(epoch, producer, produced, bound=self._bound, maps=maps, path=path, state=state)
        except BaseException:
            producer.close()
            raise


class _Produced:
    """An epoch of a source in the one worker that iterates over it."""

    def __init__(self, source: AbstractDataSource, options: EpochOptions, path: tuple[int, ...]) -> None:
        self._source = source
        self._behind_pool = any_node(source, "of_pool")
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


class ProducerRunner(BufferedRunner):
    """Hands out what one producer makes, until its end.

    Args:
        epoch: What was asked for.
        producer: Makes the batches.
        produced: Stands for the epoch in the arguments of a task.
        bound: How far ahead to be.
        maps: Maps that are applied here.
        path: The place in the graph of the outermost of these, for the random numbers.
        state: The state of the stream before its first batch; None if it has none.
    """

    def __init__(
        self,
        epoch: Epoch,
        producer: Producer,
        produced: Any,
        *,
        bound: ByteBound,
        maps: ConsumerMaps,
        path: tuple[int, ...],
        state: Any = None,
    ) -> None:
        self._producer = producer
        self._maps = maps
        self._key = BatchKey(epoch.options.seed, epoch.options.epoch, path=path)
        self._accounting = epoch.accounting
        self._bound = bound
        self._latest = state
        how = Submission(stream_id=new_stream_id(), context=contextvars.copy_context())
        job = Job((next_of, (produced, producer.buffers), {}), how, None)
        self._buffer = PrefetchBuffer(producer, itertools.repeat(job), bound.limit, lambda _: "a batch of the stream")
        self._buffer.begin()
        self._finalizer = weakref.finalize(self, producer.abandon)

    def __next__(self) -> Any:
        with self._buffer as buffer:
            entry = buffer.head()
            try:
                item, transport = entry.future.result(), entry.future.transport
            finally:
                buffer.drop(entry)
                del entry  # or the traceback of an exception would hold the future, which holds the exception
            if not item:
                self.close()
                raise StopIteration
            batch, latest = item
            self._bound.saw(batch)
            buffer.fill()
            n, accounting = count_of(batch), self._accounting
            batch = self._maps(batch, self._key._replace(batch=accounting.batches, start=accounting.planned), n)
            accounting.settle(accounting.batches, n, n, 0, transport)
            self._latest = latest
            return batch

    def latest_state(self) -> Any:
        return self._latest

    def close(self) -> None:
        super().close()
        if self._finalizer.detach() is not None:
            self._producer.close()

    def abandon(self) -> None:
        super().close()
        self._finalizer()
