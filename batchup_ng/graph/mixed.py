"""Nodes that mix parts which have an order of their own: draws by weight, or batches that a sampler makes.

The samples of a part usually have numbers, and a mixture goes through them in its own order. A part that draws its rows
keeps its draws: the mixture takes one after the other, and begins the next epoch of the part after the last. If a part
orders whole batches, so does the mixture: each batch comes whole from one part, and weights are shares of batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError, InOrderNotSupported
from ..randomness import OrderKey
from ..sampling.base import BatchSampler, RandomAccessSampler
from ..sampling.mixture import MixtureSampler
from ..sampling.plans.combined import RoundsPlan
from ..sampling.plans.drawn import DrawnKey
from ..sampling.plans.rows import ChoiceBatch, RowPlan
from ..sampling.row_sets import MAX_ROWS, PART_BITS
from ..sampling.weighted import WeightedSampler
from .choice import ChoiceNode
from .node import Node, numbered_length
from .rearranged import ConcatNode
from .rounds import TakeNode
from .rows import RowsNode
from .wrapped import SameOrderNode


def ordering(node: Node) -> tuple[list[Any], Node]:
    """Return the node that orders the samples of `node`, after the nodes above it, which keep their positions."""
    above: list[Any] = []
    while isinstance(node, (SameOrderNode, TakeNode)):
        above.append(node)
        node = node.source
    return above, node


def mixed(nodes: Sequence[Node], weights: Any, length: Any, max_repeats: Any, until: Any) -> Node:
    """Return a node that mixes others.

    Raises:
        ArgumentTypeError: the samples of one have neither numbers, nor a sampler that draws rows or makes batches.
    """
    lengths, samplers = [], {}
    for i, node in enumerate(nodes):
        try:
            lengths.append(numbered_length(f"sources[{i}]", node))
        except ArgumentTypeError:
            sampler = getattr(ordering(node)[1], "sampler", None)
            if isinstance(sampler, BatchSampler):
                return MixBatchesNode(nodes, weights, length, max_repeats, until)
            if not isinstance(sampler, WeightedSampler) or node.traits.filters:
                raise
            n = node.num_samples()
            if n == math.inf and (length is None or max_repeats is not None):
                raise ArgumentError(
                    f"sources[{i}] draws without end, so it is never used up; pass num_samples= to its sample(...), or "
                    f"length= to mix without max_repeats="
                ) from None
            lengths.append(MAX_ROWS if n == math.inf else int(n))
            samplers[i] = sampler
    if not samplers:
        return ConcatNode(nodes, MixtureSampler(lengths, weights, length, max_repeats=max_repeats, until=until))
    return MixNode(nodes, PartsSampler(lengths, samplers, weights, length, max_repeats, until))


class PartsSampler(MixtureSampler):
    """A mixture some of whose parts draw their rows by samplers of their own, by the number of the part."""

    def __init__(
        self,
        lengths: Sequence[int],
        samplers: Mapping[int, RandomAccessSampler],
        weights: Any,
        length: Any,
        max_repeats: Any,
        until: Any,
    ) -> None:
        super().__init__(lengths, weights, length, max_repeats=max_repeats, until=until)
        self.samplers = samplers
        self.n_rows = None
        self._starts = np.arange(len(lengths), dtype=np.int64) << PART_BITS

    def rows_at(self, positions: np.ndarray, key: OrderKey | None) -> np.ndarray:
        if key is None:
            raise InOrderNotSupported(
                "In-order sampling not supported by a mixture with a part that draws its rows; pass shuffle=, best as "
                "an int seed"
            )
        return super().rows_at(positions, key)

    def rows_of(self, parts: np.ndarray, numbers: np.ndarray, key: OrderKey | None) -> np.ndarray:
        own = np.isin(parts, list(self.samplers))
        found = np.empty_like(numbers)
        found[~own] = super().rows_of(parts[~own], numbers[~own], key)
        for part in np.unique(parts[own]):
            epochs, places = np.divmod(numbers, self._sizes[part])
            for epoch in np.unique(epochs[parts == part]):
                mine = np.flatnonzero((parts == part) & (epochs == epoch))
                rows = self.samplers[part].rows_at(places[mine], key and key.child(int(part)).child(int(epoch)))
                found[mine] = rows + self._starts[part]
        return found


class MixNode(ConcatNode):
    """A mixture some of whose parts draw their rows. A row is the number of its part and its row in the part."""

    name = "MixDataSource"

    def __init__(self, sources: Sequence[Node], sampler: PartsSampler) -> None:
        self.sources = list(sources)
        self._bounds = np.arange(len(self.sources) + 1, dtype=np.int64) << PART_BITS
        self._compare()
        RowsNode.__init__(self, sampler)

    def own_rows(self, part: int, rows: np.ndarray) -> np.ndarray:
        drawn = part in cast(PartsSampler, self.sampler).samplers
        return rows - self._bounds[part] if drawn else super().own_rows(part, rows)

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        if isinstance(key, DrawnKey):
            key = key.seeded()
        return super().row_plan(batch_size, key, drop_last)


class MixBatchesNode(ChoiceNode):
    """A mixture of the batches of its parts: weights are shares of batches, and `length` counts batches."""

    name = "MixBatchesDataSource"

    def __init__(self, datasets: Sequence[Node], weights: Any, length: Any, max_repeats: Any, until: Any) -> None:
        super().__init__(datasets)
        for i, node in enumerate(self.datasets):
            if not node.is_random_access:
                raise ArgumentTypeError(
                    f"sources[{i}] only streams, and mix needs sources with random access; use a ChoiceDataSource"
                )
        self.weights, self.length, self.max_repeats, self.until = weights, length, max_repeats, until
        self._checked = self._sampler([MAX_ROWS] * len(self.datasets))

    def _sampler(self, lengths: list[int]) -> MixtureSampler:
        return MixtureSampler(lengths, self.weights, self.length, max_repeats=self.max_repeats, until=self.until)

    def fingerprint(self) -> list[Any]:
        checked = self._checked
        options = [checked.schedule.plain(), checked.given_length, checked.max_repeats, checked.until == "first"]
        return [self.name, *options, *[source.fingerprint() for source in self.datasets]]

    def num_samples(self, **options: Any) -> Any:
        """Return the number of samples of all sources, or that the epoch has no end."""
        return math.inf if self._checked.given_length == -1 else super().num_samples(**options)

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        if isinstance(key, DrawnKey):
            key = key.seeded()
        parts = [self._part(i, node, batch_size, key, drop_last) for i, node in enumerate(self.datasets)]
        return MixBatchesPlan(self._sampler([n for n, _ in parts]), [plan for _, plan in parts], key)

    def _part(
        self, i: int, node: Node, batch_size: int, key: OrderKey | None, drop_last: bool
    ) -> tuple[int, RowPlan]:
        """Return the number of batches in the first epoch of a part, and its epochs one after the other."""

        def epoch(number: int) -> RowPlan:
            return node.row_plan(batch_size, key and key.child(i).child(number), drop_last)

        first = epoch(0)
        n = first.n_batches
        if n == math.inf:
            if self.length is None or self.max_repeats is not None:
                raise ArgumentError(f"sources[{i}] has no end, so it is never used up; give it one by take(n)")
            return MAX_ROWS, first
        if self.max_repeats is not None and first.n_in_any_order is None:
            raise ArgumentError(
                f"max_repeats must be left out with sources[{i}], whose epochs differ in their number of batches; pass "
                f"length= instead"
            )
        return int(n), RoundsPlan(epoch, -1, first.n_in_any_order)


class MixBatchesPlan(RowPlan):
    """The batches of several plans without end, in the order of a mixture."""

    def __init__(self, sampler: MixtureSampler, parts: Sequence[RowPlan], key: OrderKey | None) -> None:
        self._sampler, self._parts, self._key = sampler, parts, key
        self.n_batches = sampler.num_indices_generated()

    @property
    def n_in_any_order(self) -> float | None:
        fixed = self._sampler.given_length is not None
        return self.n_batches if fixed or all(part.n_in_any_order is not None for part in self._parts) else None

    def rows(self, number: int) -> ChoiceBatch:
        parts, numbers = self._sampler.phases.samples_at(np.array([number], np.int64), self._key)
        part = int(parts[0])
        return ChoiceBatch(self._parts[part].rows(int(numbers[0])), part)
