"""Samplers that hand out each row once a repeat."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import validation
from ..errors import ArgumentError, ArgumentTypeError
from ..randomness import OrderKey
from .base import AbstractSampler, RandomAccessSampler, array_fingerprint, given_array, whole_numbers
from .plans.drawn import DrawnKey
from .plans.permutation import check_length, keyed_permutation
from .plans.rows import RowPlan, SamplerPlan

REPEATS_IN_BLOCK = 64
"""The most repeats that a block of positions reaches into: each has an order of its own, some 0.1 ms to set up."""


class RepeatedSampler(RandomAccessSampler):
    """Base of samplers that hand out each of `length` rows once a repeat, `repeats` times, -1 without end."""

    @validation.known_names({})
    def __init__(self, length: int, repeats: int = 1) -> None:
        self.length = validation.integer("length", length)
        self.repeats = validation.repeats(repeats)
        check_length("length", self.length)
        if self.length == 0 and self.repeats == -1:
            raise ArgumentError("repeats is -1 with no rows to repeat, which would never give a batch; pass some rows")
        self.block = min(self.block, REPEATS_IN_BLOCK * max(1, self.length))

    def fingerprint(self) -> list[Any]:
        return [type(self).__name__, self.length, self.repeats]

    def check_rows(self, length: int) -> None:
        super().check_rows(length)
        if self.length > length and self.n_rows is None:
            raise ArgumentError(
                f"sampler hands out {self.length} rows, but there are {length}; pass that as its length"
            )

    def num_indices_generated(self) -> Any:
        return np.inf if self.repeats == -1 else self.length * self.repeats

    def rows_at(self, positions: np.ndarray, key: OrderKey | None) -> np.ndarray:
        if len(positions) == 0:
            return np.asarray(self.map_indices(positions))
        if key is None:
            return np.asarray(self.map_indices(positions if self.repeats == 1 else positions % self.length))
        first, last = int(positions.min()) // self.length, int(positions.max()) // self.length
        if first == last:  # the usual case: dividing and sorting positions would take as long as the order itself
            return self._shuffled(positions - first * self.length, key, first)
        repeats, places = np.divmod(positions, self.length)
        rows = np.empty_like(places)
        for number in np.unique(repeats):
            mine = repeats == number
            rows[mine] = self._shuffled(places[mine], key, int(number))
        return rows

    def _shuffled(self, places: np.ndarray, key: OrderKey, repeat: int) -> np.ndarray:
        """Return the rows of the data at places in [0, length) of a shuffled repeat."""
        raise NotImplementedError(f"Abstract for type {type(self)}")


class StandardSampler(RepeatedSampler):
    """Hands out the rows 0 to ``length - 1``, each once a repeat: in order, or in a new shuffled order each repeat.

    Args:
        length: How many rows there are, at most 2^62.
        repeats: How often each row is handed out; -1 without end. A batch may continue from one repeat into the next.

    Raises:
        ArgumentError: `length` or `repeats` is out of range, or there are no rows to repeat without end.
    """

    def _shuffled(self, places: np.ndarray, key: OrderKey, repeat: int) -> np.ndarray:
        return np.asarray(self.map_indices(keyed_permutation(self.length, key.word("shuffle", repeat))(places)))

    def lap_order(self, key: OrderKey | None) -> Callable[[np.ndarray, int, int], np.ndarray]:
        """Return the function of (places, lap, n) that gives the rows at places of a repeat over n rows."""
        if key is None:
            return lambda places, lap, n: places
        return lambda places, lap, n: keyed_permutation(n, key.word("shuffle", lap))(places)

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        if isinstance(key, DrawnKey):
            return AbstractSampler.row_plan(self, batch_size, key, drop_last)
        return SamplerPlan(self, batch_size, key, drop_last)

    def _drawn_order(self, shuffle_rng: Any) -> np.ndarray:
        """Return all rows in an order drawn from `shuffle_rng`, as BatchUp drew it."""
        return np.asarray(self.map_indices(shuffle_rng.permutation(self.length)))

    def shuffled_indices_batch_iterator(self, batch_size: int, shuffle_rng: Any) -> Iterator[np.ndarray]:
        """Return an iterator of the rows of each batch, one ``permutation`` drawn a repeat.

        As in BatchUp, a sampler with repeats draws one permutation more at the end of the last repeat and does not
        use it. So it leaves the generator in the same state as BatchUp.
        """
        return self._drawn(validation.positive_int("batch_size", batch_size), shuffle_rng)

    def _drawn(self, batch_size: int, shuffle_rng: Any) -> Iterator[np.ndarray]:
        if self.length == 0:
            return
        rows, left = self._drawn_order(shuffle_rng), self.repeats
        while left:
            batch, rows = rows[:batch_size], rows[batch_size:]
            over = len(batch) < batch_size  # over the end of a repeat
            while left and over and (len(batch) < batch_size or not len(rows)):
                left -= 1
                if self.repeats != 1:
                    rows = self._drawn_order(shuffle_rng)
                if left:
                    more = batch_size - len(batch)
                    batch, rows = np.concatenate([batch, rows[:more]]), rows[more:]
            if len(batch):
                yield batch


class SubsetSampler(StandardSampler):
    """Hands out the rows that `indices` lists, each once a repeat.

    Args:
        indices: Row numbers: ``(n,) int``. A boolean mask is refused; BatchUp took it for rows 0 and 1, or failed.
        repeats: How often each row is handed out; -1 without end.
    """

    @validation.known_names({})
    def __init__(self, indices: Any, repeats: int = 1) -> None:
        self.indices: np.ndarray = row_numbers("indices", indices)
        super().__init__(len(self.indices), repeats)

    def fingerprint(self) -> list[Any]:
        return [*super().fingerprint(), array_fingerprint(self.indices)]

    def check_rows(self, length: int) -> None:
        check_row_numbers("sampler.indices", self.indices, length)


def row_numbers(name: str, indices: Any) -> np.ndarray:
    """Return `indices` as an array of its own, ``(n,) int64``; refuse anything but row numbers."""
    rows = given_array(name, indices, "pass a list of row numbers")
    if rows.dtype.kind == "b":
        raise ArgumentTypeError(f"{name} must be row numbers, not a mask; pass numpy.flatnonzero(mask)")
    return whole_numbers(name, rows, "pass an integer array").copy()  # guards against changes of the user's array


def check_row_numbers(name: str, rows: np.ndarray, length: int) -> None:
    """Raise :class:`ArgumentError` if data of `length` rows lack one of `rows`; negative ones count from the end."""
    if len(rows):
        low, high = int(rows.min()), int(rows.max())
        if low < -length or high >= length:
            bad = high if high >= length else low
            raise ArgumentError(f"{name} must be row numbers below {length}, the length of the data; one is {bad}")
