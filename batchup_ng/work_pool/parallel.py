"""Data sources whose batches are made by the workers of a pool.

Ownership. Each ``batch_iterator`` owns one runner. Workers get the source once, as a shared constant, then the rows and
the key of each batch.
"""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import validation
from ..data_source.base import AbstractDataSource, EpochSource, PlannedDataSource
from ..data_source.epoch.iterator import BatchIterator
from ..data_source.epoch.opening import Epoch, Runner
from ..data_source.epoch_options import EpochOptions
from ..data_source.hooks import SourceNode, Traits, combined, listed_plan, samples_in_words
from ..data_source.looking import key_in_order, numbered_length, read_in_order
from ..data_source.map import ConsumerMaps, MapDataSource
from ..display import arguments
from ..errors import ArgumentTypeError
from ..faults.policy import RAISE, ErrorPolicy, error_policy
from ..randomness import OrderKey
from ..sampling.plans.drawn import ANY_ORDER, listed_epoch
from ..sampling.plans.epoch import BatchesPlan, BatchPlan, PlannedBatch
from ..sampling.plans.listed import ListedPlan
from .epoch_runner import EpochRunner, Making
from .prefetch_buffer import ByteBound
from .task import Pool

LONGEST = 1e6
"""Longest time limit in seconds: eleven days, which every clock and lock can count."""


class WithConsumerMaps(EpochSource):
    """A source whose batches a pool makes, with maps after the pool.

    Its ``map``, ``map_samples`` and ``collate`` return such a source too. Their function is called in the consumer's
    process, in its ``next``, and its results are handed out unchanged. Use such maps to hand batches over to a
    framework, and for views. Put slow work before the pool. The function gets the same random numbers as before the
    pool. A map may return another number of samples. ``collate`` gets each sample as a tuple of rows, regardless of the
    data set. An exception names the map and the batch; ``on_error=`` does not apply to it.
    """

    _maps: tuple[MapDataSource, ...] = ()

    def __init__(self, source: AbstractDataSource, size: int, pool: Pool, buffer_bytes: int | None, first: int) -> None:
        size = validation.positive_int("batch_buffer_size", size)
        self.buffer_bytes = None if buffer_bytes is None else validation.positive_int("buffer_bytes", buffer_bytes)
        self._bound = ByteBound(size, self.buffer_bytes, first)
        self._source = source
        self._pool = pool

    def children(self) -> tuple[AbstractDataSource, ...]:
        return (self._source,)

    def own_traits(self) -> Traits:
        return combined([Traits(of_pool=True), *[node.own_traits() for node in self._maps]])

    def stream(self, options: EpochOptions, path: tuple[int, ...]) -> Iterator[Any]:
        options = options.opened() if self.has_plan else options
        epoch = Epoch(self, options, options, self.plan_of(options) if self.has_plan else None)
        with BatchIterator(epoch, self.start(epoch, path=path)) as iterator:
            yield from iterator

    def _facts(self) -> list[str]:
        told = {name: getattr(self, name, None) for name in ("timeout", "on_error")}
        options = [f"{name}={value!r}" for name, value in told.items() if value not in (None, RAISE)]
        maps = [[word for word in arguments(node) if not word.startswith("resizes")] for node in self._maps]
        samples = samples_in_words(self._source if self.has_plan else self)
        return [samples, f"at most {self._bound} ahead", *options, f"by {self._pool!r}",
                *[f"then {', '.join(words)}" for words in maps]]  # fmt: skip

    def fingerprint(self) -> list[Any]:
        return self._maps[-1].fingerprint() if self._maps else self._source.fingerprint()

    def num_samples(self, **kwargs: Any) -> Any:
        return self._source.num_samples(**kwargs)

    def _noted_source(self) -> SourceNode:
        return self if self._maps else self._source  # a program may make the pool's source again for each epoch

    def _numbered_length(self) -> int:
        return numbered_length("source", self._source)

    def _in_order(self, positions: np.ndarray) -> Any:
        batch = read_in_order(self._source, positions, path=(0,) * len(self._maps))
        return ConsumerMaps(self._maps)(batch, key_in_order(positions), len(positions))

    def _followed_by(self, kind: str, fn: Callable[..., Any], **options: Any) -> EpochSource:
        node: MapDataSource = self._functions[kind](self, fn, **options)
        node.resizes = True  # any map may do so here
        made = copy.copy(self)
        made._maps = (*self._maps, node)
        vars(made).pop("_unnumbered", None)
        return made


class ParallelDataSource(WithConsumerMaps):
    """A source whose batches are made by the workers of a pool: see ``pool.parallel_data_source``."""

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
        # If all threads make one batch together, the first batch arrives sooner without others.
        by_all = pool.lends_threads and ds.traits.spreads_reads
        super().__init__(ds, batch_buffer_size, pool, buffer_bytes, first=1 if by_all else pool.at_once + 1)
        self.on_error = error_policy(on_error)
        self.timeout = None if timeout is None else validation.number_between("timeout", timeout, 0.0, LONGEST)
        self._making = Making(pool, ds, pool.shared_constant(ds), self.on_error, self.timeout, self._bound, [])

    @property
    def has_plan(self) -> bool:
        return True

    def plan_of(self, options: EpochOptions) -> BatchPlan:
        source = self._source
        if isinstance(source, PlannedDataSource):
            return source.plan_of(options)
        options = options.opened()
        size, drop_last = options.batch_size, options.drop_last

        def row_plan(size: int, key: OrderKey | None, drop_last: bool) -> ListedPlan:
            # A source with only BatchUp's methods may list another number of rows in another order.
            endless = math.inf if source.num_samples() == math.inf else None
            return listed_plan(source, size, key and key.random_state("rng"), drop_last, endless)

        rows = listed_epoch(row_plan, size, options.order_key(), drop_last, source.num_samples())
        return BatchesPlan(rows, size, options.seed, options.epoch, drop_last, options.shard, options.reached)

    def hand_out_first(self, made: list[tuple[PlannedBatch, Any]]) -> None:
        """Let the next epoch that begins hand out batches that are already made, if it plans the same batches."""
        self._making.made[:] = made

    def start(self, epoch: Epoch, before: weakref.ref[Any] | None = None, path: tuple[int, ...] = ()) -> Runner:
        maps = ConsumerMaps(self._maps, epoch.options.shard.pad_mask)
        return EpochRunner(epoch, self._making, maps, path, before)

    def stream_count(self, options: EpochOptions) -> float | None:
        return self._source.row_plan(options.batch_size, ANY_ORDER, options.drop_last).n_in_any_order
