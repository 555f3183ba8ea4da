"""The rows of each batch at one node of the graph of sources, as a function of the batch's number.

The rows of a batch are a 1-D integer array, or, for sources made of others, a nest of them: a tuple for a
composite, a :class:`ChoiceBatch` for a choice.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from ... import batch as batches
from ...errors import ArgumentError
from ...randomness import OrderKey
from ..base import RandomAccessSampler, checked_order, num_batches

FIRST_BLOCK = 1024
"""Positions of a shuffled order that are computed at first; then twice as many each time, up to the sampler's block,
as long as they are asked for one after the other."""

EMPTY = 1000
"""Rounds without a batch, one after the other, after which nobody waits for one."""


class ChoiceBatch(NamedTuple):
    """The rows of a batch that comes whole from one of several sources."""

    sample_indices: Any
    ds_index: int


class RowPlan(Protocol):
    """The rows of each batch at one node of the graph of sources, as a function of the batch's number."""

    @property
    def n_batches(self) -> float:
        """Number of batches: an int, or ``math.inf``."""
        ...

    @property
    def regular(self) -> bool:
        """Whether every batch but the last is whole, so that batch k begins at sample k × batch size."""
        ...

    @property
    def n_samples(self) -> float | None:
        """How many samples there are, an int or ``math.inf``, where they are one sequence that may be cut into batches
        anywhere; None where batches are what is in order."""
        ...

    @property
    def steady(self) -> bool:
        """Whether the plan has as many batches with any other key, where it has one: in order is always the same."""
        ...

    def samples_before(self, number: int) -> int | None:
        """Return how many samples the batches before `number` have; None where only their rows tell.

        Args:
            number: Up to the number of batches, which asks for the samples of all.
        """
        ...

    def rows(self, number: int) -> Any:
        """Return the rows of that batch; `number` is in range."""
        ...

    def rows_between(self, start: int, stop: int) -> Any:
        """Return the rows from one position to another, where the samples are one sequence; both are in range."""
        ...


class OfBatches:
    """What plans have in common in which batches are what is in order."""

    regular: ClassVar[bool] = False
    n_samples: ClassVar[None] = None

    @property
    def steady(self) -> bool:
        return False

    def samples_before(self, number: int) -> int | None:
        return None

    def rows_between(self, start: int, stop: int) -> Any:
        raise TypeError("the samples of this plan are no sequence that may be cut anywhere; ask for its batches")


class SamplerPlan:
    """The rows of a source that has a sampler.

    The order is computed for a block of positions at a time, of which the latest is kept: what a call of NumPy costs
    besides its work is then shared by the batches of the block. The first blocks are small, for somebody waits.
    Who asks for batches at random, as a shuffled choice does, gets no more computed than he asks for, unless the order
    is so short that it is one block.

    Args:
        sampler: Tells the row at any position.
        batch_size: Samples of a whole batch.
        key: Names the order; None is in order.
        drop_last: Whether to leave out a last batch that is not whole.
    """

    regular: ClassVar[bool] = True
    steady: ClassVar[bool] = True

    def __init__(self, sampler: RandomAccessSampler, batch_size: int, key: OrderKey | None, drop_last: bool) -> None:
        self._sampler = sampler
        self._batch_size = batch_size
        self._key = key
        self._total = sampler.num_indices_generated()
        self.n_samples = None if sampler.in_batches else self._total
        self.n_batches = count_batches(self._total, batch_size, drop_last)
        self._size = min(FIRST_BLOCK, sampler.block)
        self._block: tuple[int, int, np.ndarray] = (0, 0, np.arange(0))
        self._jumped = -1  # the end of what was asked for at random last

    def samples_before(self, number: int) -> int:
        return int(min(number * self._batch_size, self._total))

    def rows(self, number: int) -> Any:
        return self.rows_between(self.samples_before(number), self.samples_before(number + 1))

    def rows_between(self, start: int, stop: int) -> Any:
        first, end, rows = self._block
        if not first <= start <= stop <= end:
            # Two threads may both compute it; each uses its own.
            if end and not self._goes_on(start):
                self._jumped, self._size = stop, min(FIRST_BLOCK, self._sampler.block)
                if self._total > self._sampler.block:
                    return self._computed(start, stop)
                first, end = 0, int(self._total)
            else:
                first, end = start, int(min(max(start + self._size, stop), self._total))
                self._size = min(2 * self._size, self._sampler.block)
            rows = self._computed(first, end)
            self._block = first, end, rows
        return rows[start - first : stop - first]

    def _goes_on(self, start: int) -> bool:
        """Return whether who asks for rows from there on goes through the order, perhaps as one rank of several."""
        first, end, _ = self._block
        return start == self._jumped or first <= start <= 2 * end - first

    def _computed(self, start: int, stop: int) -> np.ndarray:
        rows = checked_order(self._sampler, np.arange(start, stop, dtype=np.int64), self._key)
        rows.flags.writeable = False  # it will be handed out again
        return rows


@dataclasses.dataclass(frozen=True)
class TogetherPlan:
    """The rows of several sources side by side; ends with the first of them.

    Attributes:
        parts: A plan for each source.
        trim: Whether batches are cut to the shortest of the parts.
    """

    parts: tuple[RowPlan, ...]
    trim: bool

    @property
    def n_batches(self) -> float:
        return min(part.n_batches for part in self.parts)

    @property
    def regular(self) -> bool:
        return all(part.regular for part in self.parts)

    @property
    def steady(self) -> bool:
        return all(part.steady for part in self.parts)

    def samples_before(self, number: int) -> int | None:
        if not self.trim:
            return self.parts[0].samples_before(number)
        known = [n for n in (part.samples_before(number) for part in self.parts) if n is not None]
        return None if self.n_samples is None or len(known) < len(self.parts) else min(known)

    @functools.cached_property
    def n_samples(self) -> float | None:
        counts = [part.n_samples for part in self.parts]
        known = [n for n in counts if n is not None]
        if len(known) < len(counts) or not (self.trim or len(set(known)) == 1):
            return None
        return min(known)

    def rows_between(self, start: int, stop: int) -> Any:
        return tuple([part.rows_between(start, stop) for part in self.parts])

    def rows(self, number: int) -> Any:
        rows = tuple([part.rows(number) for part in self.parts])
        return trim_rows(rows) if self.trim else rows


class FirstPlan:
    """The first `n_samples` samples of a plan.

    Where batches of the plan may be short in mid-epoch, the plan is asked how many samples come before them. Where it
    cannot tell, the rows of all batches up to the end are made once, when this is made, to add up their lengths: 20 to
    200 µs a batch. Such are a choice among choices or among buckets, several epochs of a choice or of buckets, a
    composite that cuts one of these, and plans of one's own.

    Args:
        part: The plan to cut.
        batch_size: Samples of a whole batch.
        n_samples: How many samples to keep.
        drop_last: Whether to leave out a last batch that is not whole.
    """

    def __init__(self, part: RowPlan, batch_size: int, n_samples: int, drop_last: bool) -> None:
        self._part = part
        self._batch_size = batch_size
        self._n_samples = n_samples
        self.regular = part.regular
        self.n_samples = None if part.n_samples is None else min(part.n_samples, n_samples)
        self._starts: list[int] | None = None
        self.n_batches: float
        if part.regular:
            self.n_batches = min(part.n_batches, count_batches(n_samples, batch_size, drop_last))
        elif part.samples_before(0) is not None:
            self.n_batches = self._found(drop_last)
        else:
            self._starts = self._added_up(drop_last)
            self.n_batches = len(self._starts) - 1

    @property
    def steady(self) -> bool:
        return self.regular and self._part.steady

    def _found(self, drop_last: bool) -> int:
        """Return the number of batches, found in as many steps as it has bits."""

        def before(number: int) -> int:
            return self._part.samples_before(number) or 0

        most = int(min(self._part.n_batches, self._n_samples, sys.maxsize - 1))  # none of them is empty
        found = min(most, bisect.bisect_left(range(most + 1), self._n_samples, key=before))
        return found - (drop_last and before(found) > self._n_samples)

    def _added_up(self, drop_last: bool) -> list[int]:
        """Return at which sample each batch starts, and where the last one ends."""
        starts = [0]
        while starts[-1] < self._n_samples and len(starts) <= self._part.n_batches:
            end = starts[-1] + rows_length(self._part.rows(len(starts) - 1))
            if end > self._n_samples and drop_last:
                break
            starts.append(end)
        return starts

    def samples_before(self, number: int) -> int | None:
        n = self._part.samples_before(number) if self._starts is None else self._starts[number]
        return None if n is None else min(n, self._n_samples)

    def rows(self, number: int) -> Any:
        start = number * self._batch_size if self.regular else self.samples_before(number) or 0
        return first_rows(self._part.rows(number), self._n_samples - start)

    def rows_between(self, start: int, stop: int) -> Any:
        return self._part.rows_between(start, stop)


class RoundsPlan(OfBatches):
    """One plan after another, each made when it is first needed.

    Where rounds may differ in their number of batches, a batch is found by counting the rounds up to it, and the number
    of all, which the first batch asks for unless there is no end, by counting all of them: some 30 µs a round, so half
    a minute for a million. Such are shuffled epochs of a choice that goes round sources of different numbers of
    batches, of what is made of one, and of plans of one's own.

    Args:
        make: Returns the plan of a round.
        rounds: How many rounds there are; -1 for ever.
        n_each: Number of batches of each round; None where that is not known, and the first round tells whether it is
            the same for all.

    Raises:
        ArgumentError: (from ``rows``) rounds without an end have no batch.
    """

    def __init__(self, make: Callable[[int], RowPlan], rounds: int, n_each: float | None) -> None:
        self._make = functools.lru_cache(maxsize=4)(make)
        self._rounds = rounds
        if n_each is None and self._make(0).steady:
            n_each = self._make(0).n_batches
        self._n_each = n_each
        self._ends = [0]

    @property
    def steady(self) -> bool:
        return self._n_each is not None

    @functools.cached_property
    def n_batches(self) -> float:
        if self._n_each == 0:
            return 0
        if self._rounds == -1:
            return math.inf
        if self._n_each is not None:
            return self._rounds * self._n_each
        while len(self._ends) <= self._rounds:
            self._count_round()
        return self._ends[-1]

    def _count_round(self) -> None:
        self._ends.append(self._ends[-1] + int(self._make(len(self._ends) - 1).n_batches))
        if self._rounds == -1 and len(self._ends) > EMPTY and self._ends[-1] == self._ends[-1 - EMPTY]:
            raise ArgumentError(
                f"{EMPTY} epochs in a row of the source that is to be repeated for ever have no batch; give it more "
                f"samples, or drop_last=False"
            )

    def samples_before(self, number: int) -> int | None:
        first = self._make(0)
        if not first.regular or not self._n_each:
            return None
        which, within = divmod(number, int(self._n_each))
        each, rest = first.samples_before(int(self._n_each)), first.samples_before(within)
        return None if each is None or rest is None else which * each + rest

    def rows(self, number: int) -> Any:
        if self._n_each is not None:
            which, within = divmod(number, int(self._n_each))
            return self._make(which).rows(within)
        while self._ends[-1] <= number:
            self._count_round()
        which = bisect.bisect_right(self._ends, number) - 1
        return self._make(which).rows(number - self._ends[which])


def count_batches(n_samples: float, batch_size: int, drop_last: bool) -> float:
    """Return the number of batches that `n_samples` make: an int, or ``math.inf``."""
    if n_samples == math.inf:
        return math.inf
    return int(n_samples) // batch_size if drop_last else num_batches(int(n_samples), batch_size)


def first_rows(rows: Any, n: int) -> Any:
    """Return the first `n` of the rows of a batch, which may be a nest."""
    if isinstance(rows, ChoiceBatch):
        return ChoiceBatch(first_rows(rows.sample_indices, n), rows.ds_index)
    if isinstance(rows, tuple):
        return tuple([first_rows(part, n) for part in rows])
    return rows[:n]


def take_rows(rows: Any, offsets: np.ndarray) -> Any:
    """Return those of the rows of a batch, which may be a nest, that stand at `offsets`: ``(n,) int``.

    A part that is shorter than the others gives those that it has.
    """
    if isinstance(rows, ChoiceBatch):
        return ChoiceBatch(take_rows(rows.sample_indices, offsets), rows.ds_index)
    if isinstance(rows, tuple):
        return tuple([take_rows(part, offsets) for part in rows])
    leaf = np.asarray(rows)
    return leaf[offsets[offsets < len(leaf)]]


def read_only(rows: Any) -> Any:
    """Return the rows of a batch, which may be a nest, such that code which reads them cannot change them.

    Several columns are read by the same rows: one that sorted them in place would give the others other samples.
    """
    if isinstance(rows, np.ndarray):
        if rows.flags.writeable:
            rows = rows.view()
            rows.flags.writeable = False
        return rows
    if isinstance(rows, ChoiceBatch):
        return ChoiceBatch(read_only(rows.sample_indices), rows.ds_index)
    return tuple([read_only(part) for part in rows]) if type(rows) is tuple else rows


def join_rows(parts: Sequence[Any]) -> Any:
    """Return the rows of several batches, or nests of one form, one after the other."""
    if isinstance(parts[0], tuple):
        return tuple([join_rows(leaves) for leaves in zip(*parts, strict=True)])
    return np.concatenate(parts)


def put_rows(rows: Any, place: int, row: Any) -> Any:
    """Return the rows of a batch with those of one other sample, a nest like them, at `place`."""
    if isinstance(rows, ChoiceBatch):
        return ChoiceBatch(put_rows(rows.sample_indices, place, row.sample_indices), rows.ds_index)
    if isinstance(rows, tuple):
        return tuple([put_rows(part, place, other) for part, other in zip(rows, row, strict=True)])
    leaf = np.array(rows)
    leaf[place : place + 1] = row
    return leaf


def one_row(rows: Any) -> Any:
    """Return the rows of a batch of one sample as plain numbers: an int, a list of a group's, or a nest of them.

    >>> one_row((np.array([3]), ChoiceBatch(np.array([4]), 1)))
    (3, ChoiceBatch(sample_indices=4, ds_index=1))
    """
    if isinstance(rows, ChoiceBatch):
        return ChoiceBatch(one_row(rows.sample_indices), int(rows.ds_index))
    if isinstance(rows, tuple):
        return tuple([one_row(part) for part in rows])
    return (rows[0].tolist() if np.ndim(rows) > 1 else int(rows[0])) if len(rows) else None


def same_form(rows: Any, others: Any) -> bool:
    """Return whether the samples of two batches are of the same sources, so that one may stand among the other's."""
    if isinstance(rows, ChoiceBatch):
        same_source = isinstance(others, ChoiceBatch) and rows.ds_index == others.ds_index
        return same_source and same_form(rows.sample_indices, others.sample_indices)
    if isinstance(rows, tuple):
        return len(rows) == len(others) and all(same_form(*parts) for parts in zip(rows, others, strict=True))
    return len(others) > 0


def whole_samples(rows: Any) -> tuple[int, int]:
    """Return how many samples the rows of a batch stand for: of which every part has its row, and of which any has."""
    if isinstance(rows, np.ndarray):
        return len(rows), len(rows)
    lengths = list(_leaf_lengths(rows))
    return min(lengths), max(lengths)


def planned_samples(rows: Any, batch: Any) -> int:
    """Return how many samples were planned for `batch`, which was made of `rows`, whatever maps made of them.

    Where a source of the user's lists rows that do not tell, such as a slice, it is how many the batch has.
    """
    if isinstance(rows, np.ndarray):
        return len(rows)
    try:
        return whole_samples(rows)[1]
    except TypeError:
        return batches.length(batch)


def rows_length(rows: Any) -> int:
    """Return how many samples the rows of a batch stand for, read from the first leaf of a nest."""
    return batches.length(rows)


def trim_rows(rows: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the rows of a composite with every leaf cut to the length of the shortest."""
    lengths = set(_leaf_lengths(rows))
    if len(lengths) == 1:
        return rows
    return tuple([first_rows(part, min(lengths)) for part in rows])


def _leaf_lengths(rows: Any) -> Iterator[int]:
    if isinstance(rows, ChoiceBatch):
        yield from _leaf_lengths(rows.sample_indices)
    elif isinstance(rows, tuple):
        for part in rows:
            yield from _leaf_lengths(part)
    else:
        yield len(rows)
