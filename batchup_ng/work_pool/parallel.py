"""Nodes whose batches the workers of a pool make, and the sources that show them.

Ownership. Each ``batch_iterator`` owns one runner. Workers get the node of the source once, as a shared constant, then
the rows and the key of each batch.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import validation
from ..data_source.epoch.iterator import BatchIterator
from ..data_source.epoch.opening import RunsEpochs, epoch_plan
from ..data_source.epoch.prepared import Epoch
from ..data_source.epoch.runner import Runner
from ..data_source.looking import key_in_order, read_in_order
from ..data_source.planned import PlannedDataSource
from ..data_source.reader_facts import class_names, report
from ..data_source.source import AbstractDataSource
from ..display import arguments
from ..errors import ArgumentError, ArgumentTypeError
from ..faults.policy import RAISE, ErrorPolicy, error_policy
from ..graph.columns import ColumnsNode
from ..graph.map import MapNode
from ..graph.node import Classes, Node, Notes, Traits, combined, numbered_length, samples_in_words
from ..meters.batch_times import Meter
from ..sampling.plans.drawn import ANY_ORDER
from ..sampling.plans.epoch import PlannedBatch
from .consumer_maps import ConsumerMaps
from .epoch_runner import EpochRunner, ParallelSetup
from .prefetch_buffer import ByteBound
from .task import Pool

LONGEST_TIMEOUT = 1e6
"""Longest time limit in seconds: eleven days, which every clock and lock can count."""


class PoolNode(RunsEpochs):
    """A node whose batches a pool makes, with maps after the pool.

    Args:
        source: The node that the workers read.
        pool: The pool.
        options: Facts for ``repr``, by name.

    Attributes:
        bound: How many batches may be ahead. A subclass sets it.
    """

    bound: ByteBound
    is_random_access = False  # no other node reads rows through it; its epochs may have a plan
    maps: tuple[MapNode | ColumnsNode, ...] = ()

    def __init__(self, source: Node, pool: Pool, **options: Any) -> None:
        super().__init__()
        self.source = source
        self.pool = pool
        self._options = options

    @property
    def epoch_notes(self) -> Notes:
        return self.notes if self.maps else self.source.notes  # a program may make this node again for each epoch

    def children(self) -> tuple[Node, ...]:
        return (self.source,)

    def own_traits(self) -> Traits:
        return combined([Traits(of_pool=True), *[node.own_traits() for node in self.maps]])

    def fingerprint(self) -> list[Any]:
        return self.described_as().fingerprint()

    def described_as(self) -> Node:
        return self.maps[-1] if self.maps else self.source

    def num_samples(self, **options: Any) -> Any:
        return self.source.num_samples(**options)

    def classes(self) -> Classes | None:
        return self.maps[-1].classes() if self.maps else self.source.classes()

    def followed_by(self, node: MapNode | ColumnsNode) -> PoolNode:
        """Return this node with one more map.

        Raises:
            ArgumentError: the map draws numbers for each sample after a lazy filter. Only the worker knows which
                samples are left.
        """
        if isinstance(node, MapNode):
            if node.rng == "sample" and self.traits.filters:
                raise ArgumentError(
                    "rng='sample' after a pool needs to know which samples a lazy filter has left; apply the map "
                    "before the pool, or filter without lazy=True"
                )
            node.resizes = True  # any map may do so here
        made = copy.copy(self)
        made.maps = (*self.maps, node)
        made._notes = Notes()
        return made

    def stream(self, options: Any, path: tuple[int, ...]) -> Iterator[Any]:
        options = options.opened() if self.has_plan else options
        epoch = Epoch(self, options, options, epoch_plan(self, options) if self.has_plan else None)
        with BatchIterator(epoch, self.start(epoch, path=path)) as iterator:
            yield from iterator

    def _facts(self) -> list[str]:
        options = [f"{name}={value!r}" for name, value in self._options.items() if value not in (None, RAISE)]
        maps = [[word for word in arguments(node) if not word.startswith("resizes")] for node in self.maps]
        samples = samples_in_words(self.source if self.has_plan else self)
        return [samples, f"at most {self.bound} ahead", *options, f"by {self.pool!r}",
                *[f"then {', '.join(words)}" for words in maps]]  # fmt: skip


class ParallelNode(PoolNode):
    """A node whose batches are made by the workers of a pool, each from its rows. The arguments were checked."""

    has_plan = True

    def __init__(
        self,
        source: Node,
        pool: Pool,
        size: int,
        *,
        buffer_bytes: int | None = None,
        on_error: ErrorPolicy = RAISE,
        timeout: float | None = None,
        measure: bool = True,
    ) -> None:
        super().__init__(source, pool, timeout=timeout, on_error=on_error)
        traits = source.traits
        # If all threads make one batch together, the first batch arrives sooner without others.
        by_all = pool.lends_threads and traits.spreads_reads
        # On the consumer's thread nothing is made ahead.
        bound = ByteBound(1 if pool.own_thread else size, buffer_bytes, 1 if by_all else pool.at_once + 1)
        self.bound = bound
        self.buffer_asked = bound.size
        self.meter = Meter(pool) if measure else None
        stand_in = pool.shared_constant(source)
        self.setup = ParallelSetup(
            pool, source, stand_in, traits.runs_user_code, on_error, timeout, bound, [], self.meter
        )

    def hand_out_first(self, ready_made: list[tuple[PlannedBatch, Any]]) -> None:
        """Let the next epoch that begins hand out batches that are already made, if it plans the same batches."""
        self.setup.ready_made[:] = ready_made

    def start(self, epoch: Epoch, earlier: weakref.ref[Any] | None = None, path: tuple[int, ...] = ()) -> Runner:
        maps = ConsumerMaps(self.maps, epoch.options.shard.pad_mask)
        return EpochRunner(epoch, self.setup, maps, path, earlier)

    def stream_count(self, options: Any) -> float | None:
        return self.source.row_plan(options.batch_size, ANY_ORDER, options.drop_last).n_in_any_order


class WithConsumerMaps(PlannedDataSource):
    """A source whose batches a pool makes, with maps after the pool.

    Its ``map``, ``map_samples``, ``collate``, ``select``, ``drop`` and ``rename`` return such a source too. A function
    is called in the consumer's process, in its ``next``, and its results are handed out unchanged. Use such maps to
    hand batches over to a framework, and for views. Put slow work before the pool. The function gets the same random
    numbers as before the pool. A map may return another number of samples. ``collate`` gets each sample as a tuple of
    rows, regardless of the data set. An exception names the map and the batch; ``on_error=`` does not apply to it.
    """

    _node: PoolNode

    def _graph(self) -> Node:
        node = self._node.source
        for each in self._node.maps:
            node = each.with_children([node])
        return node

    def _numbered_length(self) -> int:
        return numbered_length("source", self._node.source)

    def _in_order(self, positions: np.ndarray) -> Any:
        maps = self._node.maps
        batch = read_in_order(self._node.source, positions, path=(0,) * len(maps))
        return ConsumerMaps(maps)(batch, key_in_order(positions), len(positions))

    def _followed_by(self, node: Any) -> PlannedDataSource:
        made = copy.copy(self)
        made._show(self._node.followed_by(node))
        return made


class ParallelDataSource(WithConsumerMaps, node=ParallelNode):
    """A source whose batches are made by the workers of a pool: see ``pool.parallel_data_source``."""

    class_names = class_names
    report = report

    _node: ParallelNode

    def __init__(
        self,
        ds: AbstractDataSource,
        batch_buffer_size: int,
        pool: Pool,
        *,
        buffer_bytes: int | str | None = None,
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
        size, self.buffer_bytes = checked_buffer("batch_buffer_size", batch_buffer_size, buffer_bytes)
        self.on_error = error_policy(on_error)
        self.timeout = checked_timeout(timeout)
        self._show(
            ParallelNode(
                ds.node, pool, size, buffer_bytes=self.buffer_bytes, on_error=self.on_error, timeout=self.timeout
            )
        )


def checked_buffer(name: str, size: Any, buffer_bytes: Any) -> tuple[int, int | None]:
    """Return the options of the buffer of a pool's source, checked. Errors call `size` by `name`."""
    return validation.positive_int(name, size), checked_bytes(buffer_bytes)


def checked_bytes(buffer_bytes: Any) -> int | None:
    """Return the limit of the bytes ahead, checked. None is the default."""
    if isinstance(buffer_bytes, str):
        buffer_bytes = validation.size_in_bytes("buffer_bytes", buffer_bytes)
    return None if buffer_bytes is None else validation.positive_int("buffer_bytes", buffer_bytes)


def checked_timeout(timeout: Any) -> float | None:
    """Return the time limit of a sample in seconds, checked."""
    return None if timeout is None else validation.number_between("timeout", timeout, 0.0, LONGEST_TIMEOUT)
