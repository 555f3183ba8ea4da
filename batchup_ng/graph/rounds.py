"""Nodes that hand out a part of the epochs of another node, or several epochs as one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from .. import batch as nests
from .. import validation
from ..batch import as_batch
from ..randomness import OrderKey
from ..sampling.plans.combined import RoundsPlan, first_samples
from ..sampling.plans.drawn import ANY_ORDER, DrawnKey
from ..sampling.plans.listed import ListedPlan
from ..sampling.plans.rows import RowPlan, first_rows
from .node import Node, Streaming
from .wrapped import WrapperNode


class TakeNode(WrapperNode):
    """The first samples of each epoch."""

    name = "TakeDataSource"

    def __init__(self, source: Node, n: int) -> None:
        super().__init__(source)
        self.n = validation.positive_int("n", n)

    def form(self) -> Any:
        return self.source.form()

    def only(self, names: Sequence[Any]) -> Node | None:
        part = self.source.only(names)
        return None if part is None else self.with_children([part])

    def fingerprint(self) -> list[Any]:
        return [self.name, self.n, self.source.fingerprint()]

    def num_samples(self, **options: Any) -> Any:
        n = self.source.num_samples(**options)
        return None if n is None else min(n, self.n)

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        part = self.source.row_plan(batch_size, key, drop_last)
        if isinstance(key, DrawnKey):
            n_batches = self.row_plan(batch_size, ANY_ORDER, drop_last).n_in_any_order
            return ListedPlan(_first(part.walk(), self.n, first_rows, drop_last), n_batches)
        return first_samples(part, batch_size, self.n, drop_last)

    def rows_at(self, positions: Any) -> Any:
        return self.source.rows_at(positions)

    def stream(self, options: Streaming, path: tuple[int, ...]) -> Iterator[Any]:
        return _first(map(as_batch, self.source.stream(options, (*path, 0))), self.n, nests.trim, options.drop_last)


def _first(parts: Iterable[Any], n: int, cut: Callable[[Any, int], Any], drop_last: bool) -> Iterator[Any]:
    """Yield the batches, or rows of batches, of the first `n` samples."""
    for part in parts:
        if nests.length(part) > n:
            if drop_last:
                return
            part = cut(part, n)
        yield part
        n -= nests.length(part)
        if n == 0:
            return


class RoundsNode(WrapperNode):
    """Several epochs of a node, one after the other."""

    name = "RoundsDataSource"

    def __init__(self, source: Node, times: int) -> None:
        super().__init__(source)
        self.times = validation.repeats(times)

    def form(self) -> Any:
        return self.source.form()

    def fingerprint(self) -> list[Any]:
        return [self.name, self.times, self.source.fingerprint()]

    def num_samples(self, **options: Any) -> Any:
        n = self.source.num_samples(**options)
        if n is None or n == 0:
            return n
        return math.inf if self.times == -1 else n * self.times

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        def round_plan(which: int) -> RowPlan:
            return self.source.row_plan(batch_size, None if key is None else key.child(which), drop_last)

        if isinstance(key, DrawnKey):
            n_batches = self.row_plan(batch_size, ANY_ORDER, drop_last).n_in_any_order
            return ListedPlan(_until_empty(round_plan(which).walk() for which in self._rounds()), n_batches)
        first = round_plan(0)
        return first if first.n_batches == math.inf else RoundsPlan(round_plan, self.times, first.n_in_any_order)

    def _rounds(self) -> Iterator[int]:
        return itertools.count() if self.times == -1 else iter(range(self.times))

    def stream(self, options: Streaming, path: tuple[int, ...]) -> Iterator[Any]:
        return _until_empty(iter(self.source.stream(options.child(which), (*path, which))) for which in self._rounds())


def _until_empty(rounds: Iterable[Iterator[Any]]) -> Iterator[Any]:
    """Yield the items of each round, until a round is empty."""
    for each in rounds:
        first = next(each, None)
        if first is None:
            return
        yield first
        yield from each
