"""Plans of a choice among several sources, with an order that is a function of seed and epoch."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from ...randomness import OrderKey
from .permutation import keyed_permutation, sent_to
from .rows import ChoiceBatch, RowPlan, Sizes


class RoundRobinPlan(RowPlan):
    """One batch of each source a round, in an order that `key` shuffles each round. The plan ends at the turn of a
    source with no batch left.
    """

    def __init__(self, parts: tuple[RowPlan, ...], key: OrderKey | None) -> None:
        self._parts = parts
        self._key = key
        self.n_batches = min(part.n_batches for part in parts)
        if self.n_batches != math.inf:
            rounds = int(self.n_batches)
            last_round = [parts[self._source(rounds, turn)].n_batches > rounds for turn in range(len(parts))]
            self.n_batches = rounds * len(parts) + last_round.index(False)

    @property
    def n_in_any_order(self) -> float | None:
        counts = {part.n_in_any_order for part in self._parts}
        return None if None in counts or len(counts) > 1 else self.n_batches

    def _source(self, which_round: int, turn: int) -> int:
        if self._key is None:
            return turn
        return sent_to(len(self._parts), self._key.word("round", which_round), turn)

    @functools.cached_property
    def sizes(self) -> Sizes | None:  # type: ignore[override]
        def number_of(source: int, own: int) -> int:
            turns = range(len(self._parts))
            return own * len(self._parts) + next(turn for turn in turns if self._source(own, turn) == source)

        return _joint_sizes(self._parts, number_of, self.n_batches)

    def rows(self, number: int) -> ChoiceBatch:
        which_round, turn = divmod(number, len(self._parts))
        source = self._source(which_round, turn)
        return ChoiceBatch(self._parts[source].rows(which_round), source)


class StratifiedPlan(RowPlan):
    """All batches of all sources, which must all end: shuffled by `key`. Without a key, each source is spread evenly
    over the epoch, by a table of 8 bytes a batch.
    """

    def __init__(self, parts: tuple[RowPlan, ...], key: OrderKey | None) -> None:
        self._parts = parts
        counts = [int(part.n_batches) for part in parts]
        self.n_batches = sum(counts)
        self._bounds = np.cumsum([0, *counts])
        self._word = None if key is None else key.word("stratified")
        self._even = even_order(counts) if key is None else np.arange(0)

    @property
    def n_in_any_order(self) -> float | None:
        return None if any(part.n_in_any_order is None for part in self._parts) else self.n_batches

    @functools.cached_property
    def sizes(self) -> Sizes | None:  # type: ignore[override]
        def number_of(source: int, own: int) -> int:
            at = int(self._bounds[source]) + own
            if self._word is None:
                return int(np.flatnonzero(self._even == at)[0])
            return keyed_permutation(int(self.n_batches), self._word).back(at)

        return _joint_sizes(self._parts, number_of, self.n_batches)

    def rows(self, number: int) -> ChoiceBatch:
        n = int(self.n_batches)
        at = int(self._even[number]) if self._word is None else sent_to(n, self._word, number)
        source = int(np.searchsorted(self._bounds, at, side="right")) - 1
        return ChoiceBatch(self._parts[source].rows(at - int(self._bounds[source])), source)


def _joint_sizes(parts: Sequence[RowPlan], number_of: Callable[[int, int], int], n_batches: float) -> Sizes | None:
    """Return the samples of the batches of several sources; `number_of` gives the place of a source's own batch."""
    each = [part.sizes for part in parts]
    known = [one for one in each if one is not None]
    if len(known) < len(each) or len({one.usual for one in known}) > 1:
        return None
    others = {number_of(source, own): n for source, one in enumerate(known) for own, n in one.others.items()}
    return Sizes(known[0].usual, {number: n for number, n in others.items() if number < n_batches})


def even_order(counts: list[int]) -> np.ndarray:
    """Return the order of the batches of several sources that spreads each source evenly: ``(sum(counts),) int``.

    Batches are numbered source after source. Sources with fewer batches are spaced out over the epoch. Up to some
    million batches, the order is BatchUp's for its stratified choice; beyond, the accumulated rounding errors of
    BatchUp move a batch by a place.

    >>> even_order([4, 2]).tolist()
    [0, 4, 1, 2, 5, 3]
    """
    most = max(counts, default=0)
    # Batch j of n is due in the first round t of `most` with t * n / most >= j.
    due = [-(-np.arange(n, dtype=np.int64) * most // n) for n in counts if n]
    return np.argsort(np.concatenate([*due, np.arange(0)]), kind="stable")  # by source within a round
