"""Which part of a mixture each position of an epoch has, and the how-many-th sample of that part.

An epoch is made of phases. Within a phase the weights are constant: it consists of periods with a whole number of
samples of each part. A table holds how many samples of each part come before each phase. So any position is found
without a walk from the start.

A phase whose end is known before ends there with a part of a period. That part has the first places of the period in
order, so its counts are the same in every shuffled order, and close to the weights. A phase that is cut later, by new
weights in mid-epoch, keeps the order of all its positions before the cut. Then the counts depend on the order. The
samples of the cut period that are left come first in the phases after it (:class:`Left`).

The samples of a part are numbered in two ways. A draw counts how many samples of the part stand before a position. A
number says which sample it is in the sequence of the part. The two differ only after a cut.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..errors import ArgumentError
from ..randomness import OrderKey, words_at
from .plans.batched_permutation import each_permuted
from .schedules import Step

NO_LIMIT = 1 << 62
"""The limit of a part that never leaves."""


class Left(NamedTuple):
    """The samples of a part that an earlier phase left: draw ``draw + i`` is sample ``numbers[i]``, ascending.

    Draws before and after them are the samples of the same number.
    """

    draw: int
    numbers: np.ndarray

    @property
    def end(self) -> int:
        """The draw after them."""
        return self.draw + len(self.numbers)


@dataclasses.dataclass(eq=False)
class Phase:
    """Positions from `start` on with constant weights.

    Attributes:
        start: Its first position.
        counts: Samples of each part in a period, ``(n_parts,) int64``.
        before: Samples of each part before the phase, ``(n_parts,) int64``.
        end: The position after its last one; None if it was not known when the phase was made.
        left: The samples that earlier phases left of a part, by its number.
    """

    start: int
    counts: np.ndarray
    before: np.ndarray
    end: int | None = None
    left: Mapping[int, Left] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def period(self) -> int:
        """The number of positions of a period."""
        return int(self.counts.sum())

    @functools.cached_property
    def ends(self) -> np.ndarray:
        """Where the samples of each part end, if a period had them part after part."""
        ends: np.ndarray = np.cumsum(self.counts)
        return ends

    @functools.cached_property
    def even(self) -> tuple[np.ndarray, np.ndarray]:
        """The part at each place of a period in order, and how often it came earlier in the period.

        The k-th of n samples of a part stands where ``(k + 1/2) / n`` of the period is over.
        """
        parts = np.repeat(np.arange(len(self.counts)), self.counts)
        earlier = np.arange(len(parts)) - np.repeat(self.ends - self.counts, self.counts)
        order = np.argsort((earlier + 0.5) / self.counts[parts], kind="stable")
        return parts[order], earlier[order]

    def draws_at(self, positions: np.ndarray, key: OrderKey | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the part at each of `positions`, and its draw: how many samples of that part come before."""
        periods, places = np.divmod(positions - self.start, self.period)
        if key is None:
            parts, earlier = (table[places] for table in self.even)
        else:
            parts, earlier = self._shuffled(periods, places, key)
        return parts, self.before[parts] + periods * self.counts[parts] + earlier

    def _shuffled(self, periods: np.ndarray, places: np.ndarray, key: OrderKey) -> tuple[np.ndarray, np.ndarray]:
        word = key.word("mixed", self.start) if self.start else key.word("mixed")
        whole, rest = (NO_LIMIT, 0) if self.end is None else divmod(self.end - self.start, self.period)
        sizes = np.where(periods == whole, max(rest, 1), self.period)
        places = each_permuted(places, sizes, words_at(word, periods))
        parts = np.searchsorted(self.ends, places, side="right")
        earlier = places - (self.ends - self.counts)[parts]
        cut = np.flatnonzero(periods == whole)
        if len(cut):
            parts[cut], earlier[cut] = (table[places[cut]] for table in self.even)
        return parts, earlier

    def numbers_of(self, parts: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Return the numbers of the samples that are these draws of `parts`."""
        for part, left in self.left.items():
            mine = np.flatnonzero((parts == part) & (draws >= left.draw) & (draws < left.end))
            if len(mine):
                draws[mine] = left.numbers[draws[mine] - left.draw]
        return draws

    def left_at(self, position: int, key: OrderKey | None) -> dict[int, Left]:
        """Return what is left of each part if the phase is cut before `position`; parts left as in order are not in it.
        """
        before = self.counts_before(position, key)
        end = self.start + -(-(position - self.start) // self.period) * self.period
        end = end if self.end is None else min(end, self.end)
        parts, draws = self.draws_at(np.arange(position, end, dtype=np.int64), key)
        after = before + np.bincount(parts, minlength=len(before))
        found = {}
        for part in {*np.unique(parts).tolist(), *self.left}:
            own = draws[parts == part]
            if part in self.left:  # some may be left from earlier
                own = np.concatenate([own, np.arange(after[part], max(after[part], self.left[part].end))])
            numbers = np.sort(self.numbers_of(np.full(len(own), part), own))
            if len(numbers) and (numbers != np.arange(len(numbers)) + before[part]).any():
                found[part] = Left(int(before[part]), numbers)
        return found

    def counts_before(self, position: int, key: OrderKey | None) -> np.ndarray:
        """Return how many samples of each part come before `position` of the phase, or its end, in the epoch."""
        periods, rest = divmod(position - self.start, self.period)
        counted: np.ndarray = self.before + periods * self.counts
        if not rest:
            return counted
        if position == self.end:
            parts = self.even[0][:rest]
        else:
            parts, _ = self.draws_at(np.arange(position - rest, position, dtype=np.int64), key)
        return np.asarray(counted + np.bincount(parts, minlength=len(self.counts)))

    def first_used_up(self, limits: np.ndarray) -> int | None:
        """Return the first position before which a part has reached its limit of samples; None if there is none."""
        used = self.counts > 0
        left = (limits - self.before)[used]
        if (limits[used] >= NO_LIMIT).all():
            return None
        periods = int(((left - 1) // self.counts[used]).min())
        parts, earlier = self.even
        allowed = limits - self.before - periods * self.counts
        return self.start + periods * self.period + int(np.flatnonzero(earlier + 1 >= allowed[parts])[0]) + 1


class Phases:
    """The phases of an epoch, one after the other.

    Attributes:
        each: The phases.
        end: The position after the last one; None if the last phase has no end.
    """

    def __init__(self, n_parts: int) -> None:
        self.each: list[Phase] = []
        self.end: int | None = None
        self._starts: list[int] = []
        self._n_parts = n_parts

    def samples_at(self, positions: np.ndarray, key: OrderKey | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the part at each position, and the number of its sample in the part: ``(n,) int64`` each."""
        if len(self.each) == 1 or not len(positions):
            parts, draws = self.each[0].draws_at(positions, key)
            return parts, self.each[0].numbers_of(parts, draws)
        which = np.searchsorted(self._starts, positions, side="right") - 1
        parts, numbers = np.empty_like(positions), np.empty_like(positions)
        for number in np.unique(which):
            mine, phase = np.flatnonzero(which == number), self.each[number]
            parts[mine], draws = phase.draws_at(positions[mine], key)
            numbers[mine] = phase.numbers_of(parts[mine], draws)
        return parts, numbers

    def left_at(self, position: int, key: OrderKey | None) -> dict[int, Left]:
        """Return what is left of each part if the epoch is cut before `position`."""
        return self._at(position).left_at(position, key) if self.each else {}

    def _at(self, position: int) -> Phase:
        return self.each[max(0, bisect.bisect_right(self._starts, position) - 1)]

    def counts_before(self, position: int, key: OrderKey | None) -> np.ndarray:
        """Return how many samples of each part come before `position`: ``(n_parts,) int64``."""
        if not self.each:
            return np.zeros(self._n_parts, np.int64)
        return self._at(position).counts_before(position, key)

    def begin(
        self,
        start: int,
        stairs: Sequence[Step],
        limits: np.ndarray,
        key: OrderKey | None = None,
        *,
        first: bool = False,
        left: Mapping[int, Left] | None = None,
    ) -> None:
        """Let other weights apply from `start` on.

        Args:
            start: The first position with these weights. Phases after it are dropped.
            stairs: Positions with the samples of each part in a period from there on.
            limits: The most samples of each part in the epoch. A part that has reached it leaves, and the others go on
                by their weights.
            key: Of the order, if `start` may be inside a phase.
            first: Whether the epoch ends when the first part leaves.
            left: The samples that earlier phases left of the parts.

        Raises:
            ArgumentError: all parts with a weight have left, and the weights of others begin later.
        """
        before = self.counts_before(start, key)
        kept = bisect.bisect_left(self._starts, start)
        del self.each[kept:], self._starts[kept:]
        at = start
        ends: list[int | None] = [*[position for position, _ in stairs[1:]], None]
        for (_, counts), end in zip(stairs, ends, strict=True):
            while end is None or at < end:
                if first and (before >= limits).any():
                    self.end = at
                    return
                used = np.where(before < limits, counts, 0)
                if not used.any():
                    self._check_end(at, end)
                    self.end = at
                    return
                used = used // np.gcd.reduce(used) if (used != counts).any() else counts
                phase = Phase(at, used, before, left=left or {})
                used_up = phase.first_used_up(limits)
                phase.end = used_up if end is None else end if used_up is None else min(end, used_up)
                self.each.append(phase)
                self._starts.append(at)
                if phase.end is None or (first and phase.end == used_up):
                    self.end = phase.end
                    return
                before, at = phase.counts_before(phase.end, key), phase.end

    @staticmethod
    def _check_end(at: int, end: int | None) -> None:
        if end is not None:
            raise ArgumentError(
                f"all parts with a weight are used up after {at} samples, and the next weights begin after {end}; give "
                f"another part a weight before, or allow more repeats by max_repeats="
            )

    def first_with(self, needed: np.ndarray) -> int:
        """Return the first end of a period with at least `needed` samples of each part before it, ``(n_parts,)``.

        If all parts are used up, that is the end.

        Raises:
            ArgumentError: a part never has that many.
        """
        short = np.flatnonzero(needed > 0)
        for phase, later in itertools.zip_longest(self.each, self.each[1:]):
            short = np.flatnonzero(phase.before < needed)
            if not len(short):
                return phase.start
            end = phase.end if later is None else later.start
            if (phase.counts[short] > 0).all():
                periods = int((-(-(needed - phase.before)[short] // phase.counts[short])).max())
                found = phase.start + periods * phase.period
                if end is None or found <= end:
                    return found
        if self.end is not None:
            short = np.flatnonzero(self.counts_before(self.end, None) < needed)
            if not len(short):
                return self.end
        raise ArgumentError(
            f"part {int(short[0])} has no weight at the last point, and not all its rows were handed out before, so "
            f"the epoch has no end; pass length=, or give the part a weight there"
        )
