"""Which of several sources each batch comes from, where the order is a function of seed and epoch."""

from __future__ import annotations

import functools
import math

import numpy as np

from ...randomness import OrderKey
from .permutation import AskedOneByOne, keyed_permutation
from .rows import ChoiceBatch, OfBatches, RowPlan

MANY = 65_536
"""How many places of it are looked through at a time."""


class _ChoicePlan(OfBatches):
    """Batches that come each from one of several sources, of which each has one at most that is not whole, its last.

    That holds where the parts are regular; then it is enough to know where those few batches stand to tell how many
    samples come before any batch.

    Args:
        parts: A plan for each source.
    """

    n_batches: float

    def __init__(self, parts: tuple[RowPlan, ...]) -> None:
        self._parts = parts

    def samples_before(self, number: int) -> int | None:
        if self._short is None:
            return None
        whole, short = self._short
        return number * whole - sum(lacking for place, lacking in short if place < number)

    @functools.cached_property
    def _short(self) -> tuple[int, list[tuple[int, int]]] | None:
        """The size of whole batches; the place and what is lacking of each that is not; None if that is not all."""
        lengths = {}
        for i, part in enumerate(self._parts):
            if part.n_batches not in (0, math.inf):
                ends = [part.samples_before(int(part.n_batches) - back) for back in (0, 1)]
                if ends[0] is None or ends[1] is None:
                    return None
                lengths[i] = ends[0] - ends[1]
        firsts = [part.samples_before(1) for part in self._parts if part.n_batches > 0]
        if not all(part.regular for part in self._parts) or None in firsts:
            return None
        whole = max([n for n in firsts if n is not None], default=0)
        short = {i: whole - n for i, n in lengths.items() if n < whole}
        return whole, [(place, short[i]) for i, place in self._places_of_last(list(short)).items()]

    def _places_of_last(self, sources: list[int]) -> dict[int, int]:
        """Return which batch of all is the last one of each of these sources."""
        raise NotImplementedError(f"Abstract for type {type(self)}")


class RoundRobinPlan(_ChoicePlan):
    """A batch of each source in turn, until the turn comes to a source that has none left.

    Args:
        parts: A plan for each source.
        key: Shuffles the order within each round; None keeps it.
    """

    def __init__(self, parts: tuple[RowPlan, ...], key: OrderKey | None) -> None:
        super().__init__(parts)
        self._key = key
        self._shortest = min(part.n_batches for part in parts)
        self.n_batches = self._count()

    @property
    def steady(self) -> bool:
        alike = self._key is None or all(part.n_batches == self._shortest for part in self._parts)
        return alike and all(part.steady for part in self._parts)

    def _count(self) -> float:
        shortest = self._shortest
        if shortest == math.inf:
            return math.inf
        last_round = [self._parts[i].n_batches > shortest for i in self._order(int(shortest))]
        return int(shortest) * len(self._parts) + last_round.index(False)

    def _places_of_last(self, sources: list[int]) -> dict[int, int]:
        rounds = {i: int(self._parts[i].n_batches) - 1 for i in sources}
        return {
            i: number * len(self._parts) + int(np.flatnonzero(self._order(number) == i)[0])
            for i, number in rounds.items()
            if number <= self._shortest  # others are not reached
        }

    def _order(self, number: int) -> np.ndarray:
        """Return the order of the sources in one round: ``(n_sources,) int``."""
        turns = np.arange(len(self._parts))
        if self._key is None:
            return turns
        return keyed_permutation(len(self._parts), self._key.word("round", number))(turns)

    def rows(self, number: int) -> ChoiceBatch:
        which_round, turn = divmod(number, len(self._parts))
        source = int(self._order(which_round)[turn])
        return ChoiceBatch(self._parts[source].rows(which_round), source)


class StratifiedPlan(_ChoicePlan):
    """All batches of all sources, each source spread over the whole epoch.

    Args:
        parts: A plan for each source, all of which end.
        key: Shuffles all the batches, those of one source among themselves too; None spaces them evenly, by tables of
            16 bytes a batch, made at once: some tenths of a second for a million.
    """

    def __init__(self, parts: tuple[RowPlan, ...], key: OrderKey | None) -> None:
        super().__init__(parts)
        counts = [int(part.n_batches) for part in parts]
        self.n_batches: float = sum(counts)
        self._key = key
        self._bounds = np.cumsum([0, *counts])
        if key is not None:
            self._word = key.word("stratified")
            self._shuffled = AskedOneByOne(int(self.n_batches), self._word)
        else:
            self._sources = interleaved(counts)
            self._numbers = _occurrences(self._sources)

    @property
    def steady(self) -> bool:
        return all(part.steady for part in self._parts)

    def _places_of_last(self, sources: list[int]) -> dict[int, int]:
        if self._key is None:
            return {i: int(np.flatnonzero(self._sources == i)[-1]) for i in sources}
        found: dict[int, int] = {}
        last = {int(self._bounds[i + 1]) - 1: i for i in sources}
        for start in range(0, int(self.n_batches), MANY):  # mostly all batches, but not their rows: 20 ms for a million
            if len(found) == len(last):
                break
            some = np.arange(start, min(start + MANY, int(self.n_batches)))
            order = keyed_permutation(int(self.n_batches), self._word)(some)
            places = np.flatnonzero(np.isin(order, list(last)))
            found.update({last[int(order[place])]: start + int(place) for place in places})
        return found

    def rows(self, number: int) -> ChoiceBatch:
        if self._key is None:
            source, within = int(self._sources[number]), int(self._numbers[number])
        else:
            at = self._shuffled(number)
            source = int(np.searchsorted(self._bounds, at, side="right")) - 1
            within = at - int(self._bounds[source])
        return ChoiceBatch(self._parts[source].rows(within), source)


def _occurrences(sources: np.ndarray) -> np.ndarray:
    """Return, for each entry, how many equal entries stand before it."""
    result = np.empty_like(sources)
    for source in np.unique(sources):
        mine = sources == source
        result[mine] = np.arange(np.count_nonzero(mine))
    return result


def interleaved(counts: list[int]) -> np.ndarray:
    """Return which source each batch comes from when sources are spread evenly: ``(sum(counts),) int``.

    Source i appears ``counts[i]`` times; the batches of the sources with fewer batches are spaced out over the epoch.
    The order is BatchUp's for its stratified choice, up to some million batches, where the rounding errors that it
    adds up move a batch by a place. Takes 16 bytes a batch while it is made.

    >>> interleaved([4, 2]).tolist()
    [0, 1, 0, 0, 1, 0]
    """
    most = max(counts, default=0)
    # Batch j of n is due in the first of `most` rounds, t, with t * n / most >= j.
    due = [-(-np.arange(n, dtype=np.int64) * most // n) for n in counts if n]
    order = np.argsort(np.concatenate([*due, np.arange(0)]), kind="stable")  # sources in turn within a round
    turns: np.ndarray = np.repeat(np.arange(len(counts)), counts)[order]
    return turns
