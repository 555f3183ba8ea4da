"""The rows of each batch at one node of the graph of sources, as a function of the batch's number.

The rows of a batch are a 1-D integer array. Sources made of others have a nest of arrays: a tuple for a composite, a
:class:`ChoiceBatch` for a choice. A plan of one sequence of samples (:class:`SequencePlan`) can be cut into batches
anywhere. Other plans order whole batches.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ... import batch as nests
from ...errors import ArgumentError, ArgumentTypeError
from ...randomness import OrderKey

FIRST_BLOCK_POSITIONS = 1024
"""Positions of a shuffled order in the first block. Each later one is twice as long, up to the sampler's block."""


class ChoiceBatch(NamedTuple):
    """The rows of a batch that comes whole from one source of several."""

    sample_indices: Any
    ds_index: int


class Sizes(NamedTuple):
    """The numbers of samples in the batches of a plan: the `usual` number, and `others` for the few exceptions.

    `others` maps the number of a batch to the samples of the shortest part of its rows and of the first part.
    """

    usual: int
    others: dict[int, tuple[int, int]]


class RowPlan:
    """The rows of each batch at one node: the base class of all plans, also for a sampler of your own.

    Attributes:
        n_batches: Number of batches: an int, or ``math.inf``.
        n_samples: Number of samples, an int or ``math.inf``, if they are one sequence that can be cut into batches
            anywhere; None, the default, if the plan orders whole batches.
    """

    n_batches: float
    n_samples: float | None = None
    sizes: Sizes | None = None
    """The sizes of batches, if known without making their rows; None, the default, if not."""

    @property
    def n_in_any_order(self) -> float | None:
        """The number of batches in every order of the source; None if it depends on the order."""
        return self.n_batches

    def samples_before(self, number: int) -> int:
        """Return how many samples the batches before `number` have."""
        if self.sizes is not None:
            usual, others = self.sizes
            return number * usual - sum(usual - first for other, (_, first) in others.items() if other < number)
        counted: list[int] = vars(self).setdefault("_counted", [0])
        while len(counted) <= number:
            counted.append(counted[-1] + nests.length(self.rows(len(counted) - 1)))
        return counted[number]

    def batches_until(self, n_samples: int) -> int:
        """Return how many batches hold the first `n_samples`, or all batches if there are fewer samples."""
        if self.sizes is not None:
            usual, others = self.sizes
            most = int(min(self.n_batches, -(-n_samples // usual) + len(others)))
            return bisect.bisect_left(range(most), n_samples, key=self.samples_before)
        number = 0
        while number < self.n_batches and self.samples_before(number) < n_samples:
            number += 1
        return number

    def has(self, number: int) -> bool:
        """Return whether there is a batch `number`; that may be known before the number of all batches."""
        return number < self.n_batches

    def rows(self, number: int) -> Any:
        """Return the rows of batch `number`, which must be in range."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def walk(self) -> Iterator[Any]:
        """Return an iterator of the rows of batch after batch. A listed plan is used up by it."""
        number = 0
        while self.has(number):
            yield self.rows(number)
            number += 1

    def rows_between(self, start: int, stop: int) -> Any:
        """Return the rows from one position to another, both in range, if the samples are one sequence."""
        raise TypeError("the samples of this plan are no sequence that may be cut anywhere; ask for its batches")


class SequencePlan(RowPlan):
    """Batches of `batch_size` samples cut from one sequence of `n_samples`, an int or ``math.inf``. `between` returns
    the rows from one position to another; a subclass may define ``rows_between`` instead.
    """

    def __init__(
        self, n_samples: float, batch_size: int, drop_last: bool, between: Callable[[int, int], Any] | None = None
    ) -> None:
        self.n_samples = self._total = n_samples
        self._batch_size = batch_size
        self.n_batches = count_batches(n_samples, batch_size, drop_last)
        self._n_short = 0 if drop_last or n_samples == math.inf else int(n_samples) % batch_size
        if between is not None:
            vars(self)["rows_between"] = between  # saves a call a batch

    @property
    def sizes(self) -> Sizes:  # type: ignore[override]
        others = {int(self.n_batches) - 1: (self._n_short, self._n_short)} if self._n_short else {}
        return Sizes(self._batch_size, others)

    def rows(self, number: int) -> Any:
        start = number * self._batch_size
        return self.rows_between(start, int(min(start + self._batch_size, self._total)))


class SamplerPlan(SequencePlan):
    """The rows of a source with a random-access sampler, in the order that `key` names; None means in order.

    The order is computed one block of positions at a time, and the latest block is kept: its batches share the fixed
    cost of NumPy's calls. The first blocks are small to make the first batch soon. Random access, which a shuffled
    choice needs, computes only the requested rows, unless the whole order is one block. Two threads may both compute a
    block; each uses its own.
    """

    def __init__(self, sampler: Any, batch_size: int, key: OrderKey | None, drop_last: bool) -> None:
        super().__init__(sampler.num_indices_generated(), batch_size, drop_last)
        self._sampler = sampler
        self._key = key
        self._size = min(FIRST_BLOCK_POSITIONS, sampler.block)
        self._block: tuple[int, int, np.ndarray] = (0, 0, np.arange(0))
        self._jumped = -1  # where the latest random access ended

    def rows_between(self, start: int, stop: int) -> np.ndarray:
        first, end, rows = self._block
        if not first <= start <= stop <= end:
            if not end or start == self._jumped or first <= start <= 2 * end - first:  # a rank among several skips some
                first, end = start, int(min(max(start + self._size, stop), self._total))
                self._size = min(2 * self._size, self._sampler.block)
            else:
                self._jumped, self._size = stop, min(FIRST_BLOCK_POSITIONS, self._sampler.block)
                if self._total > self._sampler.block:
                    return self._computed(start, stop)
                first, end = 0, int(self._total)
            rows = self._computed(first, end)
            self._block = first, end, rows
        return rows[start - first : stop - first]

    def _computed(self, start: int, stop: int) -> np.ndarray:
        rows = np.asarray(self._sampler.rows_at(np.arange(start, stop, dtype=np.int64), self._key))
        name = f"{type(self._sampler).__name__}.rows_at"
        if rows.shape != (stop - start,):
            raise ArgumentError(
                f"{name} must return one row for each position, of shape {(stop - start,)}, not {rows.shape}"
            )
        if rows.dtype.kind not in "iu" and len(rows):
            raise ArgumentTypeError(f"{name} must return row numbers, an integer array, not {rows.dtype}")
        return np.asarray(read_only(rows))  # they will be handed out again


def count_batches(n_samples: float, batch_size: int, drop_last: bool) -> float:
    """Return the number of batches of `n_samples`: an int, or ``math.inf``."""
    if n_samples == math.inf:
        return math.inf
    return int(n_samples) // batch_size if drop_last else -(-int(n_samples) // batch_size)


def map_rows(fn: Callable[..., Any], rows: Any, *others: Any) -> Any:
    """Return the rows of a batch, perhaps a nest, with `fn` applied to each array.

    `fn` also gets the arrays at the same place in `others`, nests of the same form.
    """
    if isinstance(rows, ChoiceBatch):
        return ChoiceBatch(map_rows(fn, *[each.sample_indices for each in (rows, *others)]), rows.ds_index)
    if isinstance(rows, tuple):
        return tuple([map_rows(fn, *parts) for parts in zip(rows, *others, strict=True)])
    return fn(rows, *others)


def first_rows(rows: Any, n: int) -> Any:
    """Return the first `n` of the rows of a batch."""
    return map_rows(lambda leaf: leaf[:n], rows)


def take_rows(rows: Any, offsets: np.ndarray) -> Any:
    """Return the rows of a batch at `offsets`: ``(n,) int``.

    A part that is shorter than the others gives only the rows that it has.
    """
    return map_rows(lambda leaf: np.asarray(leaf)[offsets[offsets < len(leaf)]], rows)


def read_only(rows: Any) -> Any:
    """Return the rows of a batch as arrays that cannot be written to.

    All columns are read by the same rows: an accessor that sorts them in place would misalign the other columns.
    """
    if isinstance(rows, np.ndarray):
        if rows.flags.writeable:
            rows = rows.view()
            rows.flags.writeable = False
        return rows
    return map_rows(read_only, rows) if type(rows) in (tuple, ChoiceBatch) else rows


def put_rows(rows: Any, place: int, row: Any) -> Any:
    """Return the rows of a batch with the sample at `place` replaced by `row`, a nest of the same form."""

    def with_other(leaf: Any, other: Any) -> np.ndarray:
        put: np.ndarray = np.array(leaf)
        put[place : place + 1] = other
        return put

    return map_rows(with_other, rows, row)


def one_row(rows: Any) -> Any:
    """Return the rows of a batch of one sample as plain numbers: an int, a list for a group, or a nest of these.

    >>> one_row((np.array([3]), ChoiceBatch(np.array([4]), 1)))
    (3, ChoiceBatch(sample_indices=4, ds_index=1))
    """
    return map_rows(lambda leaf: np.asarray(leaf[0]).tolist() if len(leaf) else None, rows)


def same_form(rows: Any, others: Any) -> bool:
    """Return whether a sample of `others` may replace one of `rows`: both are of the same sources."""
    if isinstance(rows, ChoiceBatch):
        same_source = isinstance(others, ChoiceBatch) and rows.ds_index == others.ds_index
        return same_source and same_form(rows.sample_indices, others.sample_indices)
    if isinstance(rows, tuple):
        return len(rows) == len(others) and all(same_form(*parts) for parts in zip(rows, others, strict=True))
    return len(others) > 0


def whole_samples(rows: Any) -> tuple[int, int]:
    """Return how many samples of a batch have a row in every part, and how many have one in any part."""
    if isinstance(rows, np.ndarray):  # nearly all batches
        return len(rows), len(rows)
    lengths: list[int] = []
    map_rows(lambda leaf: lengths.append(len(leaf)), rows)
    return min(lengths), max(lengths)


def planned_samples(rows: Any, batch: Any) -> int:
    """Return how many samples were planned for `batch`, from its `rows`; maps do not change that. If rows of the user's
    do not say, such as a slice, return the samples of `batch`.
    """
    if type(rows) is np.ndarray:  # nearly always: 1 µs a batch
        return len(rows)
    try:
        return whole_samples(rows)[1]
    except TypeError:
        return nests.length(batch)


def trim_rows(rows: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the rows of a composite with every leaf cut to the length of the shortest leaf."""
    shortest, longest = whole_samples(rows)
    return rows if shortest == longest else tuple([first_rows(part, shortest) for part in rows])
