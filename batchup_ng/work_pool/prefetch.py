"""Data sources that one background worker iterates over, ahead of the consumer.

Ownership. Each ``batch_iterator`` owns one runner with a pool of one worker, which ends with it. The worker gets the
epoch once, as a shared constant. It returns the batches, each with the state of the stream.
"""

from __future__ import annotations

import contextvars
import dataclasses
import itertools
import weakref
from collections.abc import Iterator
from typing import Any

from ..batch import NOTHING_LEFT
from ..batch_layout import finished
from ..data_source.epoch.accounting import count_of
from ..data_source.epoch.checkpoint import inner_state, put_back
from ..data_source.epoch.prepared import Epoch
from ..data_source.epoch.runner import Give, Runner
from ..data_source.epoch_options import EpochOptions
from ..data_source.source import AbstractDataSource
from ..errors import ArgumentTypeError
from ..graph.node import Node, nodes_of
from ..graph.streams import IteratorNode
from ..memory.leases import Buffers
from ..randomness import BatchKey
from .consumer_maps import ConsumerMaps
from .parallel import PoolNode, WithConsumerMaps, checked_buffer
from .prefetch_buffer import BufferedRunner, ByteBound, PrefetchBuffer
from .task import Pool, Submission, Task, new_flow_id


class PrefetchNode(PoolNode):
    """A node whose batches one background worker makes ahead. The arguments were checked."""

    def __init__(self, source: Node, pool: Pool, size: int, buffer_bytes: int | None = None) -> None:
        pool.check_open()
        super().__init__(source, pool)
        self.bound = ByteBound(size, buffer_bytes, first=2)

    def checkpointable(self) -> Any:
        return self.source.checkpointable()

    def stream_count(self, options: Any) -> float | None:
        return self.source.stream_count(options)

    def start(self, epoch: Epoch, earlier: weakref.ref[Any] | None = None, path: tuple[int, ...] = ()) -> Runner:
        owner, options = self.checkpointable(), epoch.options
        if epoch.saved is not None:
            put_back(owner, epoch.saved)
        state = inner_state(owner, options)
        # A generator with a state stays in this process, otherwise each epoch would draw from a copy of the same state.
        producer = self.pool.producer(self.source, stays=options.generator is not None)
        try:
            source_path = path + (0,) * len(self.maps)
            from_pool = self.source.traits.of_pool
            made = _Produced(self.source, options, source_path, from_pool)
            produced = producer.shared_constant(made)
            if produced is not made:  # it is in another process
                for node in nodes_of(self.source):
                    if isinstance(node, IteratorNode):
                        node.is_moved()
            maps = ConsumerMaps(self.maps)
            return ProducerRunner(epoch, producer, produced, bound=self.bound, maps=maps, path=path, state=state)
        except BaseException:
            producer.close()
            raise


class PrefetchDataSource(WithConsumerMaps, node=PrefetchNode):
    """A source whose batches are made ahead by one background worker: see ``pool.prefetch``."""

    def __init__(
        self, source: AbstractDataSource, buffer: int, pool: Pool, *, buffer_bytes: int | str | None = None
    ) -> None:
        if not isinstance(source, AbstractDataSource):
            raise ArgumentTypeError(
                f"source must be a data source, not a {type(source).__name__}; wrap a function that returns an "
                f"iterator of batches in CallableDataSource, an iterator in IteratorDataSource"
            )
        self._show(PrefetchNode(source.node, pool, *checked_buffer("buffer", buffer, buffer_bytes)))


@dataclasses.dataclass
class _Produced:
    """An epoch of a source, in the worker that iterates over it."""

    source: Node
    options: EpochOptions
    path: tuple[int, ...]
    from_pool: bool  # whether a pool makes its batches; then they are ready to be handed out
    iterator: Iterator[Any] | None = None
    context: contextvars.Context | None = None
    error: BaseException | None = None
    traceback: Any = None  # of the error

    def next(self, buffers: Buffers) -> tuple[Any, ...]:
        """Return ``(batch, state after it from :func:`inner_state`)``, or ``()`` at the end: the task of every batch.

        After an error, raise the same error again.
        """
        if self.error is not None:
            raise self.error.with_traceback(self.traceback)  # otherwise the traceback would grow with each task
        try:
            if self.iterator is None or self.context is None:
                self.iterator = self.source.stream(self.options, self.path)
                self.context = contextvars.copy_context()
            # All in one context, otherwise a `with` in a generator would not find the variables that it set.
            batch = self.context.run(next, self.iterator)
            if not self.from_pool:
                batch = finished(batch, buffers)
            return batch, inner_state(self.source.checkpointable(), self.options)
        except StopIteration:
            return ()
        except BaseException as error:
            self.error, self.traceback = error, error.__traceback__
            raise


class ProducerRunner(BufferedRunner):
    """Hands out the batches of one producer, until its end."""

    def __init__(
        self,
        epoch: Epoch,
        producer: Pool,  # of one worker, which makes the batches
        produced: Any,  # the stand-in for the epoch in the arguments of a task
        *,
        bound: ByteBound,
        maps: ConsumerMaps,
        path: tuple[int, ...],
        state: Any = None,  # of the stream before its first batch
    ) -> None:
        self._maps = maps
        self._key = BatchKey(epoch.options.seed, epoch.options.epoch, path=path)
        self._accounting = epoch.accounting
        self._bound = bound
        self._producer = producer
        self.latest = state
        how = Submission(flow_id=new_flow_id(), context=contextvars.copy_context())
        tasks = itertools.repeat(Task((_Produced.next, (produced, producer.buffers), {}), how, None))
        self._buffer = PrefetchBuffer(producer, tasks, bound, _in_words)
        self._buffer.begin()
        self._finalizer = weakref.finalize(self, producer.abandon)

    def _next(self) -> Any:
        while (batch := self._batch()) is NOTHING_LEFT:
            pass
        return batch

    def _batch(self) -> Any:
        """Return the next batch of the stream, or NOTHING_LEFT if lazy filters keep no sample of it."""
        future = self._buffer.take().future
        try:
            item, transport = future.result(), future.transport
        finally:
            del future  # otherwise an exception's traceback and the future would refer to each other
        if not item:
            self._buffer.at_end = True
            self.close()
            raise StopIteration
        batch, latest = item
        self._bound.saw(batch)
        self._buffer.top_up()
        n, accounting = count_of(batch), self._accounting
        batch = self._maps(batch, self._key._replace(batch=accounting.batches, start=accounting.planned), n)
        accounting.record(accounting.batches, n, n, 0, "" if batch is NOTHING_LEFT else transport)
        self.latest = latest
        return batch

    def results_by(self, give: Give | None) -> None:
        self._maps = self._maps._replace(give=give)

    def close(self) -> None:
        self._buffer.close()
        self._producer.close()
        self._finalizer.detach()

    def abandon(self) -> None:
        self._buffer.close()
        self._finalizer()


def _in_words(task: Task) -> str:
    return "a batch of the stream"
