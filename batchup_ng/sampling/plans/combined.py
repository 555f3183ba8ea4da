"""The rows of plans that are made of other plans: side by side, the first samples, one epoch after the other."""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...errors import ArgumentError
from .rows import RowPlan, SequencePlan, Sizes, first_rows, trim_rows

EMPTY_EPOCHS = 1000
"""Epochs in a row without a batch at which an endless repeat is refused."""


def side_by_side(parts: Sequence[RowPlan], trim: bool, batch_size: int, drop_last: bool) -> RowPlan:
    """Return the rows of several sources side by side, up to the end of the shortest source.

    If `trim`, batches are cut to the shortest of the parts. Other arguments: see :class:`SequencePlan`.
    """
    known = [part.n_samples for part in parts if part.n_samples is not None]
    if len(known) < len(parts) or not (trim or len(set(known)) == 1):
        return _TogetherPlan(parts, trim)

    def between(start: int, stop: int) -> Any:
        return tuple([part.rows_between(start, stop) for part in parts])

    return SequencePlan(min(known), batch_size, drop_last, between)


class _TogetherPlan(RowPlan):
    """Batches of several plans side by side."""

    def __init__(self, parts: Sequence[RowPlan], trim: bool) -> None:
        self._parts = parts
        self._trim = trim

    @functools.cached_property
    def n_batches(self) -> float:  # type: ignore[override]  # computed on first use
        return min(part.n_batches for part in self._parts)

    @property
    def n_in_any_order(self) -> float | None:
        counts = [part.n_in_any_order for part in self._parts]
        return None if None in counts else min(n for n in counts if n is not None)

    def walk(self) -> Iterator[Any]:
        together = zip(*[part.walk() for part in self._parts], strict=False)
        return map(trim_rows, together) if self._trim else together

    @functools.cached_property
    def sizes(self) -> Sizes | None:  # type: ignore[override]
        each = [part.sizes for part in self._parts]
        known = [one for one in each if one is not None]
        if len(known) < len(each) or len({one.usual for one in known}) > 1:
            return None
        usual, others = known[0].usual, {}
        for number in {number for one in known for number in one.others if number < self.n_batches}:
            found = [one.others.get(number, (usual, usual)) for one in known]
            shortest = min(least for least, _ in found)
            others[number] = (shortest, shortest if self._trim else found[0][1])
        return Sizes(usual, others)

    def rows(self, number: int) -> Any:
        rows = tuple([part.rows(number) for part in self._parts])
        return trim_rows(rows) if self._trim else rows


def first_samples(part: RowPlan, batch_size: int, n_samples: int, drop_last: bool) -> RowPlan:
    """Return the first `n_samples` samples of a plan; `batch_size` and `drop_last` must match the plan."""
    if part.n_samples is None:
        return _FirstBatches(part, n_samples, drop_last)
    return SequencePlan(min(part.n_samples, n_samples), batch_size, drop_last, part.rows_between)


class _FirstBatches(RowPlan):
    """The first samples of a plan of batches."""

    def __init__(self, part: RowPlan, n_samples: int, drop_last: bool) -> None:
        self._part = part
        self._n_samples = n_samples
        self._drop_last = drop_last

    @functools.cached_property
    def n_batches(self) -> float:  # type: ignore[override]  # computed on first use
        number = self._part.batches_until(self._n_samples)
        return number - (self._drop_last and self._part.samples_before(number) > self._n_samples)

    @property
    def n_in_any_order(self) -> float | None:
        return None

    @functools.cached_property
    def sizes(self) -> Sizes | None:  # type: ignore[override]
        if self._part.sizes is None:
            return None
        last, (usual, others) = int(self.n_batches) - 1, self._part.sizes
        kept = {number: size for number, size in others.items() if number <= last}
        if last >= 0:
            left = self._n_samples - self._part.samples_before(last)
            shortest, first = kept.get(last, (usual, usual))
            kept[last] = min(shortest, left), min(first, left)
        return Sizes(usual, kept)

    def samples_before(self, number: int) -> int:
        return min(self._part.samples_before(number), self._n_samples)

    def rows(self, number: int) -> Any:
        rows = self._part.rows(number)
        if number + 1 < self.n_batches:
            return rows
        return first_rows(rows, self._n_samples - self._part.samples_before(number))


class RoundsPlan(RowPlan):
    """`rounds` plans one after the other, -1 without end, each made on first use.

    `n_each` is the number of batches of each plan; None if they may differ. Then a batch is found by counting the
    rounds up to it, and an endless plan refuses 1000 rounds in a row without a batch.
    """

    def __init__(self, make: Callable[[int], RowPlan], rounds: int, n_each: float | None) -> None:
        self._make = functools.lru_cache(maxsize=4)(make)
        self._rounds = rounds
        self._n_each = n_each
        self._ends = [0]
        self._samples = [0]  # before each round

    @functools.cached_property
    def n_batches(self) -> float:  # type: ignore[override]  # counted on first use
        if self._n_each == 0:
            return 0
        if self._rounds == -1:
            return math.inf
        if self._n_each is not None:
            return self._rounds * self._n_each
        while len(self._ends) <= self._rounds:
            self._count_round()
        return self._ends[-1]

    @property
    def n_in_any_order(self) -> float | None:
        return None if self._n_each is None and self._rounds != -1 else self.n_batches

    def _count_round(self) -> None:
        self._ends.append(self._ends[-1] + int(self._make(len(self._ends) - 1).n_batches))
        if self._rounds == -1 and len(self._ends) > EMPTY_EPOCHS and self._ends[-1] == self._ends[-1 - EMPTY_EPOCHS]:
            raise ArgumentError(
                f"{EMPTY_EPOCHS} epochs in a row of the source that is to be repeated without end have no batch; give "
                f"it more samples, or drop_last=False"
            )

    def samples_before(self, number: int) -> int:
        which, within = self._found(number) if number else (0, 0)
        return self._samples_of(which) + (self._make(which).samples_before(within) if within else 0)

    def batches_until(self, n_samples: int) -> int:
        which = 0
        while self._first_of(which + 1) < self.n_batches and self._samples_of(which + 1) < n_samples:
            which += 1
        return self._first_of(which) + self._make(which).batches_until(n_samples - self._samples_of(which))

    def rows(self, number: int) -> Any:
        which, within = self._found(number)
        return self._make(which).rows(within)

    def _found(self, number: int) -> tuple[int, int]:
        """Return the round of a batch and its number in that round; the number of rounds and 0 for the end."""
        if self._n_each is not None:
            return divmod(number, int(self._n_each or 1))
        while self._ends[-1] <= number and len(self._ends) - 1 != self._rounds:
            self._count_round()
        which = bisect.bisect_right(self._ends, number) - 1
        return which, number - self._ends[which]

    def _first_of(self, which: int) -> int:
        """Return the number of the first batch of a round."""
        if self._n_each is not None:
            return which * int(self._n_each)
        while len(self._ends) <= which:
            self._count_round()
        return self._ends[which]

    def _samples_of(self, which: int) -> int:
        """Return how many samples the rounds before round `which` have."""
        while len(self._samples) <= which:
            before = self._make(len(self._samples) - 1)
            self._samples.append(self._samples[-1] + before.samples_before(int(before.n_batches)))
        return self._samples[which]
