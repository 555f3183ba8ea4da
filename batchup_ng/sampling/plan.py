"""The plan of an epoch: which rows, drawn with which key, make up batch k.

A plan is index arithmetic only. It has a length, where the epoch ends, and random access: ``plan[k]`` needs no
``plan[0..k-1]``. The serial iterator walks it, the pools send its parts to workers, and a batch that was lost
is made again from it.

There are two kinds. Where the order is a function (in order, or shuffled by an int seed), each node of the graph of
sources has a small :class:`~batchup_ng.sampling.row_plan.RowPlan` that computes the rows of batch k, and an
:class:`EpochPlan` numbers them. Where the order is drawn
from a generator with a state (BatchUp's ``RandomState``), a :class:`DrawnPlan` draws batch after batch, exactly
when BatchUp would have, and remembers what it drew.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from ..randomness import BatchKey
from .row_plan import RowPlan

REMEMBERED = 4096
"""How many of the latest batches an endless drawn plan can still give again."""


class PlannedBatch(NamedTuple):
    """What a worker needs to make a batch.

    Attributes:
        number: Number of the batch in its epoch.
        rows: Row numbers: ``(n,) int``, or a nest of such arrays.
        key: Names the randomness of the batch.
    """

    number: int
    rows: Any
    key: BatchKey


class BatchPlan(Protocol):
    """The batches of one epoch."""

    @property
    def n_batches(self) -> float:
        """The number of batches, an int or ``math.inf``, for which ``len`` raises ``TypeError``."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> PlannedBatch: ...

    def __iter__(self) -> Iterator[PlannedBatch]: ...


class EpochPlan:
    """A plan whose order is a function of seed and epoch: any batch on its own.

    Args:
        rows: The rows of each batch.
        batch_size: Positions that a batch takes in the stream.
        seed: Seed of the keys.
        epoch: Number of the epoch.
    """

    def __init__(self, rows: RowPlan, batch_size: int, seed: int, epoch: int) -> None:
        self._rows = rows
        self._batch_size = batch_size
        self._seed = seed
        self._epoch = epoch
        self.n_batches = rows.n_batches

    def __len__(self) -> int:
        return finite_length(self.n_batches)

    def __getitem__(self, number: int) -> PlannedBatch:
        return self._planned(checked_number(number, self.n_batches))

    def __iter__(self) -> Iterator[PlannedBatch]:
        number = 0
        while number < self.n_batches:
            yield self._planned(number)
            number += 1

    def _planned(self, number: int) -> PlannedBatch:
        key = BatchKey(self._seed, self._epoch, number, number * self._batch_size)
        return PlannedBatch(number, self._rows.rows(number), key)


class DrawnPlan:
    """A plan whose order is drawn, batch after batch, from a generator with a state.

    ``plan[k]`` draws up to k. Batches already drawn are remembered: all of them where the epoch ends, the latest
    :data:`REMEMBERED` where it does not. Safe to use from several threads.

    Args:
        drawn: Yields the rows of one batch after the other.
        batch_size: Positions that a batch takes in the stream.
        seed: Seed of the keys.
        epoch: Number of the epoch.
        n_batches: Number of batches, ``math.inf``, or None where only drawing tells.
        count: Counts the batches by drawing from a copy of the generator, where `n_batches` is None.
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
        self._drawn = drawn
        self._batch_size = batch_size
        self._seed = seed
        self._epoch = epoch
        self._n_batches = n_batches
        self._count = count
        self._memory: dict[int, Any] = {}
        self._next = 0
        self._lock = threading.Lock()

    @property
    def n_batches(self) -> float:
        if self._n_batches is None:
            self._n_batches = self._count()
        return self._n_batches

    def __len__(self) -> int:
        return finite_length(self.n_batches)

    def __getitem__(self, number: int) -> PlannedBatch:
        number = checked_number(number, self.n_batches)
        with self._lock:
            while self._next <= number and self._draw():
                pass
            if number not in self._memory:
                raise IndexError(
                    f"batch {number} of this endless epoch was drawn too long ago; a generator's draws are only "
                    f"remembered for {REMEMBERED} batches: pass an int seed as shuffle= to enter anywhere"
                )
            return self._planned(number)

    def __iter__(self) -> Iterator[PlannedBatch]:
        number = 0
        while True:
            with self._lock:
                if number == self._next and not self._draw():
                    return
                planned = self._planned(number)
            yield planned
            number += 1

    def _planned(self, number: int) -> PlannedBatch:
        key = BatchKey(self._seed, self._epoch, number, number * self._batch_size)
        return PlannedBatch(number, self._memory[number], key)

    def _draw(self) -> bool:
        try:
            self._memory[self._next] = next(self._drawn)
        except StopIteration:
            if self._n_batches is None:
                self._n_batches = self._next
            return False
        if self._n_batches == math.inf:
            self._memory.pop(self._next - REMEMBERED, None)
        self._next += 1
        return True


def finite_length(n_batches: float) -> int:
    """Return `n_batches` as an int.

    Raises:
        TypeError: it is infinite.
    """
    if n_batches == math.inf:
        raise TypeError("this epoch never ends, so it has no len(); bound it with batchup_ng.take(source, n)")
    return int(n_batches)


def checked_number(number: int, n_batches: float) -> int:
    """Return the number of a batch, a negative one counted from the end.

    Raises:
        IndexError: there is no such batch.
    """
    if number < 0 and n_batches != math.inf:
        number += int(n_batches)
    if not 0 <= number < n_batches:
        raise IndexError(f"batch {number} is out of range for an epoch of {n_batches} batches")
    return number
