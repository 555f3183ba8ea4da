"""The node that draws each batch from one of several nodes."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .. import validation
from ..errors import ArgumentTypeError
from ..memory.leases import Buffers
from ..randomness import BatchKey, OrderKey
from ..sampling.base import num_batches
from ..sampling.plans.choice import RoundRobinPlan, StratifiedPlan, even_order
from ..sampling.plans.drawn import DrawnKey
from ..sampling.plans.listed import ListedPlan
from ..sampling.plans.rows import ChoiceBatch, RowPlan, read_only
from .node import Node, Notes, Streaming, Traits
from .user import taken_by


class ChoiceNode(Node):
    """A node that draws each batch whole from one of several nodes.

    Args:
        datasets: The parts.
        stratified: Whether an epoch has all batches of all parts, each part spread over the whole epoch.
    """

    name = "ChoiceDataSource"

    def __init__(self, datasets: Sequence[Node], stratified: bool = False) -> None:
        super().__init__()
        self.datasets = list(datasets)
        self.stratified = validation.true_or_false("stratified", stratified)

    def own_traits(self) -> Traits:
        return Traits(uses_shuffle=True)

    def children(self) -> tuple[Node, ...]:
        return tuple(self.datasets)

    def with_children(self, children: Sequence[Node]) -> ChoiceNode:
        made = copy.copy(self)
        made.datasets, made._notes = list(children), Notes()
        return made

    def fingerprint(self) -> list[Any]:
        return [self.name, self.stratified, *[source.fingerprint() for source in self.datasets]]

    def num_samples(self, **options: Any) -> Any:
        """Return the number of samples of all sources. A source of unknown length counts as 0, as in BatchUp."""
        return sum(n for n in (source.num_samples(**options) for source in self.datasets) if n is not None)

    def samples_by_indices(self, indices: Any) -> Any:
        if not self.is_random_access:
            raise self.no_random_access("samples_by_indices")
        return self._chosen(indices).samples_by_indices(read_only(indices.sample_indices))

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        return self._chosen(rows).read(rows.sample_indices, key.child(int(rows.ds_index)), buffers)

    def read_kept(self, rows: Any, key: BatchKey, buffers: Buffers) -> tuple[Any, np.ndarray | None]:
        return self._chosen(rows).read_kept(rows.sample_indices, key.child(int(rows.ds_index)), buffers)

    def read_samples(self, rows: Any, key: BatchKey, buffers: Buffers) -> list[Any]:
        source, number = self._chosen(rows), int(rows.ds_index)
        return source.read_samples(rows.sample_indices, key.child(number), buffers)

    def sample_name(self, rows: Any) -> str | None:
        return self._chosen(rows).sample_name(rows.sample_indices)

    def _chosen(self, rows: Any) -> Node:
        if not isinstance(rows, ChoiceBatch):
            raise ArgumentTypeError(f"indices should be a ChoiceBatch, not a {type(rows)}")
        return self.datasets[rows.ds_index]

    def _spread(self, counts: Sequence[float | None]) -> bool:
        """Return whether an epoch has all batches of all sources."""
        return self.stratified and not any(n in (None, math.inf) for n in counts)

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        each = enumerate(self.datasets)
        parts = tuple([one.row_plan(batch_size, key and key.child(i), drop_last) for i, one in each])
        if isinstance(key, DrawnKey):
            return self._drawn(parts, key.rng)
        kind = StratifiedPlan if self._spread([part.n_batches for part in parts]) else RoundRobinPlan
        return kind(parts, key)

    def _drawn(self, parts: Sequence[RowPlan], rng: Any) -> RowPlan:
        """Return the rows of each batch, with the turns of the sources drawn from `rng` as BatchUp drew them."""
        counts = [part.n_in_any_order for part in parts]
        turns = _in_turn([part.walk() for part in parts], self._turns(counts, rng))
        known = None if None in counts else sum(n for n in counts if n is not None)
        alike = self._spread(counts) or len(set(counts)) == 1
        return ListedPlan((ChoiceBatch(rows, i) for i, rows in turns), known if alike else None)

    def stream(self, options: Streaming, path: tuple[int, ...]) -> Iterator[Any]:
        parts = [iter(source.stream(options.child(i), (*path, i))) for i, source in enumerate(self.datasets)]
        counts = [self._count(i, options) for i in range(len(parts))]
        key = options.order_key()
        turns = self._turns(counts, key and key.random_state("rng"))
        if self._spread(counts):
            yield from _all_of(parts, turns)
        else:
            for _, batch in _in_turn(parts, turns):
                yield batch

    def _count(self, i: int, options: Streaming) -> float | None:
        """Return about how many batches a source streams; None if that is unknown."""
        source = self.datasets[i]
        n = source.stream_count(options.child(i))
        if n is None:  # as of an iterator, which may ignore the batch size
            n = source.num_samples(**taken_by(source.num_samples, options.given))
            n = n if n in (None, math.inf) else num_batches(n, options.batch_size)
        return n

    def _turns(self, counts: list[Any], rng: Any) -> Iterator[int]:
        """Yield the number of the source of each batch, drawn from `rng` one by one. None is in order."""
        n = len(counts)
        while not self._spread(counts):
            yield from range(n) if rng is None else map(int, rng.permutation(n))
        known = [int(count) for count in counts]
        turns = np.repeat(np.arange(n), known)
        if rng is None:
            turns = turns[even_order(known)]
        else:
            rng.shuffle(turns)
        yield from map(int, turns)


def _in_turn(parts: Sequence[Iterator[Any]], turns: Iterator[int]) -> Iterator[tuple[int, Any]]:
    """Yield the number and the next item of the part at each turn. Stop when that part has no more."""
    for i in turns:
        try:
            item = next(parts[i])
        except StopIteration:
            return
        yield i, item


def _all_of(parts: Sequence[Iterator[Any]], turns: Iterator[int]) -> Iterator[Any]:
    """Yield all items of all parts, in the order of the turns as far as it goes."""
    for i in turns:
        yield from itertools.islice(parts[i], 1)
    for part in parts:
        yield from part
