"""The plan of an epoch: which rows, drawn with which key, make up batch k.

A plan is index arithmetic only. It has a length, where the epoch ends, and random access: ``plan[k]`` needs no
``plan[0..k-1]``. The serial iterator walks it, the pools send its parts to workers, and a batch that was lost
is made again from it.

Each node of the graph of sources has a :class:`~batchup_ng.sampling.plans.rows.RowPlan` that computes its rows. If they
are one sequence of samples, a :class:`SamplesPlan` cuts batches from it, those of one rank, from any sample on. If
batches are what is in order, as those of a choice of sources, a :class:`BatchesPlan` numbers them; a :class:`DrawnPlan`
does so where the order is drawn from a generator with a state (BatchUp's ``RandomState``), batch after batch, exactly
when BatchUp would have drawn it. A :class:`PartPlan` is a rank's part of one of these two, or what is left of it.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...randomness import BatchKey
from .rows import ListedPlan, RowPlan, count_batches, join_rows, same_form, take_rows, whole_samples
from .sharding import ALONE, START, Reached, Shard, Shares

NEAR = 1000
"""How far another row is looked for where an epoch has no end: so many samples ahead; so many batches back where the
plan only knows what was drawn lately."""


class PlannedBatch(NamedTuple):
    """What a worker needs to make a batch.

    Attributes:
        number: Number of the batch among those of its epoch that this process hands out.
        rows: Row numbers: ``(n,) int``, or a nest of such arrays.
        key: Names the randomness of the batch.
    """

    number: int
    rows: Any
    key: BatchKey


class BatchPlan(Protocol):
    """The batches of one epoch, or a rank's part of them."""

    @property
    def first(self) -> int:
        """The number of the batch that iteration begins with; those before it were handed out in an earlier run."""
        ...

    @property
    def n_batches(self) -> float:
        """The number of batches, an int or ``math.inf``, for which ``len`` raises ``TypeError``."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> PlannedBatch: ...

    def __iter__(self) -> Iterator[PlannedBatch]: ...

    def reached(self, number: int) -> Reached:
        """Return how far the epoch is when all ranks have handed out the batches before `number`."""
        ...

    def other(self, draw: int, planned: PlannedBatch, place: int) -> Any:
        """Return the rows of one other sample of the epoch, to stand in for that at `place` of a batch.

        It is picked by `draw` (64 bits); None if that picks none.
        """
        ...


class _Numbered:
    """What all plans have in common."""

    first: int
    n_batches: float

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._size_in_words()}>"

    def _size_in_words(self) -> str:
        return "endless" if self.n_batches == math.inf else f"{self.n_batches} batches"

    def __len__(self) -> int:
        if self.n_batches > sys.maxsize:  # infinite, or more than len() can say
            raise TypeError("this epoch never ends, so it has no len(); bound it with batchup_ng.take(source, n)")
        return int(self.n_batches)

    def __getitem__(self, number: int) -> PlannedBatch:
        n_batches = self.n_batches
        if number < 0 and n_batches != math.inf:
            number += int(n_batches)
        if not self.first <= number < n_batches:
            raise IndexError(
                f"batch {number} is out of range for an epoch of batches {self.first} to {n_batches} (excluded)"
            )
        return self._planned(number)

    def __iter__(self) -> Iterator[PlannedBatch]:
        number = self.first
        while self._has(number):
            yield self._planned(number)
            number += 1

    def _has(self, number: int) -> bool:
        return number < self.n_batches

    def _planned(self, number: int) -> PlannedBatch:
        raise NotImplementedError(f"Abstract for type {type(self)}")


def _count(first: int, end: float) -> Iterator[int]:
    """Return an iterator of the numbers from `first` to `end`, which may be infinite."""
    return itertools.count(first) if end == math.inf else iter(range(first, int(end)))


class SamplesPlan(_Numbered):
    """A plan of an epoch that is one sequence of samples: it may be cut into batches anywhere.

    Args:
        rows: The rows at each position.
        batch_size: Samples of a batch.
        seed: Seed of the keys.
        epoch: Number of the epoch.
        drop_last: Whether to leave out last batches that are not whole.
        shard: Whose part of it; ``"error"`` in it refuses an end that cannot be shared out evenly.
        reached: From where on.
    """

    def __init__(
        self,
        rows: RowPlan,
        batch_size: int,
        seed: int,
        epoch: int,
        drop_last: bool = False,
        shard: Shard = ALONE,
        reached: Reached = START,
    ) -> None:
        assert rows.n_samples is not None
        self._rows = rows
        self._n_samples = rows.n_samples
        self._batch_size = batch_size
        self._seed = seed
        self._epoch = epoch
        self._rank = shard.rank
        self._step = batch_size * shard.world
        self._shares = Shares(self._n_samples, reached.samples, batch_size, shard, drop_last, "samples")
        self._reached = reached.samples
        self.first = reached.samples // self._step
        self.n_batches = self.first + self._shares.rounds

    def __iter__(self) -> Iterator[PlannedBatch]:
        return map(self._planned, _count(self.first, self.n_batches))

    def _planned(self, number: int) -> PlannedBatch:
        done = number - self.first  # what follows is Shares.of, without a call for each batch
        start = self._reached + done * self._step
        n = self._batch_size if done < self._shares.whole else self._shares.last
        own = start + self._rank * n
        batch = start // self._batch_size + self._rank
        if own + n <= self._n_samples:
            key = BatchKey(self._seed, self._epoch, batch, own)
            return PlannedBatch(number, self._rows.rows_between(own, own + n), key)
        positions = np.arange(own, own + n) % int(self._n_samples)
        key = BatchKey(self._seed, self._epoch, batch, own, (), positions - own)
        parts = [self._rows.rows_between(at, at + 1) for at in map(int, positions)]  # a few, once an epoch
        return PlannedBatch(number, join_rows(parts), key)

    def reached(self, number: int) -> Reached:
        samples = self._reached + (number - self.first) * self._step
        samples = int(min(samples, self._n_samples)) if number < self.n_batches else int(self._n_samples)
        return Reached(samples, int(count_batches(samples, self._batch_size, drop_last=False)))

    def other(self, draw: int, planned: PlannedBatch, place: int) -> Any:
        n = self._n_samples
        # Without an end: one of those before and soon after the sample, whatever batch it is in.
        at = draw % int(planned.key.position(place) + NEAR if n == math.inf else n)
        return self._rows.rows_between(at, at + 1)


class BatchesPlan(_Numbered):
    """A plan of an epoch that can only be cut into the batches that it has.

    `batch_size` is how many positions a batch takes in the stream; `seed` and `epoch` are those of the keys.
    """

    first = 0

    def __init__(self, rows: RowPlan, batch_size: int, seed: int, epoch: int) -> None:
        self._rows = rows
        self._batch_size = batch_size
        self._seed = seed
        self._epoch = epoch

    @property
    def n_batches(self) -> float:  # type: ignore[override]  # read when it is needed, for it may have to be counted
        return self._rows.n_batches

    def _planned(self, number: int) -> PlannedBatch:
        key = BatchKey(self._seed, self._epoch, number, number * self._batch_size)
        return PlannedBatch(number, self._rows.rows(number), key)

    def reached(self, number: int) -> Reached:
        return Reached(min(number * self._batch_size, (1 << 63) - 1), number)  # all positions are int64

    def _others(self, planned: PlannedBatch) -> range:
        """Return the batches among which to look for another sample."""
        own = planned.key.batch
        return range(max(0, own - NEAR), own + 1) if self.n_batches == math.inf else range(int(self.n_batches))

    def other(self, draw: int, planned: PlannedBatch, place: int) -> Any:
        among = self._others(planned)
        rows = self._rows.rows(among[(draw >> 32) % len(among)])
        n = whole_samples(rows)[0]
        if not n:
            return None
        row = take_rows(rows, np.array([(draw & 0xFFFFFFFF) % n]))
        return row if same_form(planned.rows, row) else None


class DrawnPlan(BatchesPlan):
    """A plan whose order is drawn, batch after batch, from a generator with a state.

    ``plan[k]`` draws up to k. :class:`~batchup_ng.sampling.plans.rows.ListedPlan` says what is remembered, and what
    `drawn`, `n_batches` and `count` are.
    """

    def __init__(
        self,
        drawn: Iterator[Any],
        batch_size: int,
        seed: int,
        epoch: int,
        n_batches: float | None,
        count: Callable[[], int],
    ) -> None:
        self._listed = ListedPlan(drawn, n_batches, count)
        super().__init__(self._listed, batch_size, seed, epoch)

    def _size_in_words(self) -> str:
        return "batches drawn as they are asked for" if self._listed.told is None else super()._size_in_words()

    def _has(self, number: int) -> bool:
        return self._listed.has(number)

    def _others(self, planned: PlannedBatch) -> range:
        own = planned.key.batch  # up to which batches were drawn in any case
        return range(max(0, own - NEAR), own + 1)


class PartPlan(_Numbered):
    """A rank's part of a plan that can only be cut into the batches that it has, or what is left of it.

    Args:
        whole: The plan of a world of one.
        shard: Whose part of it, as for :class:`SamplesPlan`.
        reached: From where on.
        drop_last: Whether to leave out rounds in which a rank would have no batch of its own.
    """

    def __init__(self, whole: BatchPlan, shard: Shard, reached: Reached, drop_last: bool) -> None:
        self._whole = whole
        self._shard = shard
        self._total = whole.n_batches
        self._reached = reached.batches
        self._shares = Shares(self._total, reached.batches, 1, shard, drop_last, "batches")
        self.first = reached.batches // shard.world
        self.n_batches = self.first + self._shares.rounds

    def _planned(self, number: int) -> PlannedBatch:
        _, own, _ = self._shares.of(number - self.first)
        if own < self._total:
            return self._whole[own]._replace(number=number)
        planned = self._whole[own % int(self._total)]
        behind = self._whole.reached(own).samples - planned.key.start
        key = planned.key._replace(start=planned.key.start + behind, offsets=None)
        n = whole_samples(planned.rows)[1]
        return PlannedBatch(number, planned.rows, key._replace(offsets=np.arange(n) - behind))

    def reached(self, number: int) -> Reached:
        batches = self._reached + (number - self.first) * self._shard.world
        return self._whole.reached(batches if number < self.n_batches else int(self._total))

    def other(self, draw: int, planned: PlannedBatch, place: int) -> Any:
        return self._whole.other(draw, planned, place)
