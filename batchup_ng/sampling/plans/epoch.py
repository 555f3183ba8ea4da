"""The plan of an epoch: the rows and the random key of batch k.

A plan is index arithmetic only. It has a length, if the epoch ends, and random access: ``plan[k]`` needs no
``plan[0..k-1]``. It covers one rank's part of the epoch, from the point where the epoch goes on.

The :class:`~batchup_ng.sampling.plans.rows.RowPlan` of a source computes its rows. If they are one sequence of samples,
a :class:`SamplesPlan` cuts batches from it. If it orders whole batches, such as for a choice of sources, a
:class:`BatchesPlan` numbers them.

An epoch has one sequence of samples, the same in every world, but for an order by blocks with a group for each rank. In
a world of W processes with batches of B samples, global batch k is the positions k·B·W to (k+1)·B·W in it. Rank r takes
the r-th B of them: batch k·W + r in a world of one. If an epoch can only be cut into its own batches, global batch k is
the batches k·W to (k+1)·W. The rest at the end is shared out evenly: see :class:`Shard`. Rank r takes the r-th part of
the samples left, or every W-th of them in an order by blocks, whose groups come in turn there.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...errors import ArgumentError
from ...randomness import BatchKey
from .listed import ListedPlan
from .rows import RowPlan, count_batches, map_rows, same_form, take_rows, whole_samples

REPLACEMENT_RANGE = 1000
"""Range of the search for another row: in an endless epoch, so many samples ahead, or so many batches back if the plan
orders whole batches. In a listed epoch, always so many batches back."""


UNEVEN_OPTIONS = ("pad", "drop", "error")
"""Options for samples at the end that cannot be shared out evenly."""


class Shard(NamedTuple):
    """The part of one of several processes that share the batches of an epoch.

    `uneven` applies if the number of samples left at the end is no multiple of `world`. ``"pad"``: each rank gets as
    many as the first rank; the first samples of the epoch fill the gaps. ``"drop"``: leave out the last ``n % world``.
    ``"error"``: refuse to begin. With `pad_mask` each batch ends with an array that separates samples from padding.
    """

    rank: int = 0
    world: int = 1
    uneven: str = "pad"
    pad_mask: bool = False


ALONE = Shard()


class Reached(NamedTuple):
    """The progress of an epoch, of all ranks together: positions in it, batches in a world of one."""

    samples: int = 0
    batches: int = 0


START = Reached()


def _shares(total: float, reached: int, size: int, shard: Shard, whole_only: bool, unit: str) -> tuple[float, int]:
    """Return the number of rounds in which each rank takes `size`, and the share of a rank in one more round, or 0.

    `total` is the amount in `unit`; `reached` of it was handed out. With `whole_only` there is no last round. If the
    end cannot be shared out evenly and the shard says ``"error"``, raise :class:`ArgumentError`.
    """
    if total == math.inf:
        return math.inf, 0
    whole, left = divmod(max(0, int(total) - reached), size * shard.world)
    share, over = divmod(0 if whole_only else left, shard.world)
    if over and shard.uneven == "error":
        raise ArgumentError(
            f"uneven is 'error', and the {left} {unit} at the end of this epoch cannot be shared out evenly among "
            f"{shard.world} ranks; pass uneven='pad' or 'drop'"
        )
    return whole, share + (over > 0 and shard.uneven == "pad")


class PlannedBatch(NamedTuple):
    """A batch of a plan, for a worker to make.

    Attributes:
        number: Number of the batch among the batches of its epoch that this process hands out.
        rows: Row numbers: ``(n,) int``, or a nest of such arrays.
        key: Key of the random numbers of the batch.
    """

    number: int
    rows: Any
    key: BatchKey


@dataclasses.dataclass(eq=False, repr=False)
class BatchPlan:
    """The batches of one epoch, or a rank's part of them.

    Attributes:
        rows: The rows of the epoch of a world of one.
        batch_size: Samples of a batch, or the number of positions that it takes in the epoch.
        seed: Seed of the keys.
        epoch: Number of the epoch.
        drop_last: Whether to leave out a last batch or a last round of batches that is not whole.
        shard: The rank's part; ``"error"`` in it refuses an end that cannot be shared out evenly.
        start: How far the epoch was handed out before.
        in_turns: Whether the samples of a rest go to the ranks one by one.
        first: Number of the first batch of the iteration; an earlier run handed out the batches before it.
        n_batches: The number of batches, an int or ``math.inf``; ``len`` raises ``TypeError`` for ``math.inf``.
        planned: The number of the first batch that no iteration over the plan has reached. It may be too small after
            the batches of a :class:`BatchesPlan`.
    """

    rows: RowPlan
    batch_size: int
    seed: int
    epoch: int
    drop_last: bool = False
    shard: Shard = ALONE
    start: Reached = START
    in_turns: bool = False
    in_samples = False  # whether the epoch is one sequence of samples, which can be cut into batches anywhere
    first: int = dataclasses.field(init=False)
    n_batches: float = dataclasses.field(init=False)
    planned: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        """Compute the number of batches."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of epoch {self.epoch}>"

    def __len__(self) -> int:
        if self.n_batches > sys.maxsize:  # infinite, or more than len() can return
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
        endless = self.n_batches == math.inf
        numbers = itertools.count(self.first) if endless else range(self.first, int(self.n_batches))
        return map(self._noted, numbers)  # no generator, whose end a signal may interrupt

    def _noted(self, number: int) -> PlannedBatch:
        self.planned = number + 1
        return self._planned(number)

    def _planned(self, number: int) -> PlannedBatch:
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def reached(self, number: int) -> Reached:
        """Return the progress of the epoch when all ranks have handed out the batches before `number`."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def other(self, draw: int, planned: PlannedBatch, place: int) -> Any:
        """Return the rows of another sample of the epoch, to replace the sample at `place` of a batch.

        `draw` (64 bits) picks it; None if that picks none.
        """
        raise NotImplementedError(f"Abstract for type {type(self)}")


class SamplesPlan(BatchPlan):
    """A plan of an epoch that is one sequence of samples: it can be cut into batches anywhere."""

    in_samples = True

    def __post_init__(self) -> None:
        assert self.rows.n_samples is not None
        size, begun = self.batch_size, self.start.samples
        self._n_samples, self._begun, self._rank = self.rows.n_samples, begun, self.shard.rank
        self._step = size * self.shard.world
        self._whole, self._last = _shares(self._n_samples, begun, size, self.shard, self.drop_last, "samples")
        self.first = begun // self._step
        self.n_batches = self.first + self._whole + (self._last > 0)

    def _planned(self, number: int) -> PlannedBatch:
        done = number - self.first
        start = self._begun + done * self._step
        is_last = done >= self._whole
        n = self._last if is_last else self.batch_size
        step = self.shard.world if is_last and self.in_turns else 1
        own = start + self._rank * (n if step == 1 else 1)
        batch = start // self.batch_size + self._rank
        end = own + (n - 1) * step + 1
        if step == 1 and end <= self._n_samples:
            return PlannedBatch(number, self.rows.rows_between(own, end), BatchKey(self.seed, self.epoch, batch, own))
        total = int(self._n_samples)
        positions = np.arange(own, end, step)
        real = positions[positions < total]
        positions %= total
        rows = [self.rows.rows_between(at, at + 1) for at in positions[len(real) :].tolist()]  # a few, once an epoch
        if len(real):
            between = self.rows.rows_between(own, int(real[-1]) + 1)
            rows.insert(0, take_rows(between, real - own))
        key = BatchKey(self.seed, self.epoch, batch, own, (), positions - own)
        return PlannedBatch(number, map_rows(lambda *leaves: np.concatenate(leaves), *rows), key)

    def reached(self, number: int) -> Reached:
        samples = self._begun + (number - self.first) * self._step
        samples = int(min(samples, self._n_samples)) if number < self.n_batches else int(self._n_samples)
        return Reached(samples, int(count_batches(samples, self.batch_size, drop_last=False)))

    def other(self, draw: int, planned: PlannedBatch, place: int) -> Any:
        n = self._n_samples
        # In an endless epoch: a sample before or soon after this one, in any batch.
        at = draw % int(planned.key.position(place) + REPLACEMENT_RANGE if n == math.inf else n)
        return self.rows.rows_between(at, at + 1)


class BatchesPlan(BatchPlan):
    """A plan of an epoch that can only be cut into its own batches."""

    def __post_init__(self) -> None:
        begun, world = self.start.batches, self.shard.world
        self.first = begun // world
        self._end: float | None = None  # of a part; None for the whole epoch, which is counted only when needed
        if world > 1 or self.start != START:
            left_out = self.drop_last and world > 1
            whole, last = _shares(self.rows.n_batches, begun, 1, self.shard, left_out, "batches")
            self._end = self.first + whole + last

    @property
    def n_batches(self) -> float:  # type: ignore[override]
        return self.rows.n_batches if self._end is None else self._end

    def __iter__(self) -> Iterator[PlannedBatch]:
        if self._end is not None:
            return super().__iter__()
        return map(self._planned, itertools.takewhile(self.rows.has, itertools.count()))  # counts nothing beforehand

    def _planned(self, number: int) -> PlannedBatch:
        own = number if self._end is None else self.reached(number).batches + self.shard.rank
        if self._end is None or own < self.rows.n_batches:
            key = BatchKey(self.seed, self.epoch, own, own * self.batch_size)
            return PlannedBatch(number, self.rows.rows(own), key)
        start = min(own * self.batch_size, (1 << 63) - 1)  # all positions are int64
        again = own % int(self.rows.n_batches)
        rows = self.rows.rows(again)
        offsets = np.arange(whole_samples(rows)[1]) - (start - again * self.batch_size)
        return PlannedBatch(number, rows, BatchKey(self.seed, self.epoch, again, start, (), offsets))

    def reached(self, number: int) -> Reached:
        batches = self.start.batches + (number - self.first) * self.shard.world
        if self._end is not None and number >= self._end:
            batches = int(self.rows.n_batches)
        return Reached(min(batches * self.batch_size, (1 << 63) - 1), batches)

    def _others(self, own: int) -> range:
        """Return the batches to search for a replacement of a sample of batch `own`."""
        listed = isinstance(self.rows, ListedPlan)  # it has the batches up to `own` in any case
        far = listed or self.rows.n_batches == math.inf
        return range(max(0, own - REPLACEMENT_RANGE), own + 1) if far else range(int(self.rows.n_batches))

    def other(self, draw: int, planned: PlannedBatch, place: int) -> Any:
        among = self._others(planned.key.batch)
        rows = self.rows.rows(among[(draw >> 32) % len(among)])
        n = whole_samples(rows)[0]
        if not n:
            return None
        row = take_rows(rows, np.array([(draw & 0xFFFFFFFF) % n]))
        return row if same_form(planned.rows, row) else None
