"""The sampler that mixes parts of the data in given proportions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .. import checks
from ..errors import ArgumentError
from ..randomness import OrderKey
from .base import RandomAccessSampler
from .permutation import keyed_permutation

PERIOD = 1000
"""Positions after which the parts have been handed out in just their proportions, to a thousandth."""


class InterleaveSampler(RandomAccessSampler):
    """Hands out rows of several parts of the data in given proportions, for as long as one likes.

    The rows lie part after part, as :func:`~batchup_ng.concat` puts sources: rows 0 to ``lengths[0] - 1`` are the first.
    In each stretch of 1000 positions the parts have their proportions, in an order that is shuffled with the rest, else
    evenly spread. Each part goes through its own rows in an order of its own, shuffled anew each time.

    Args:
        lengths: How many rows each part has.
        proportions: How much of each to hand out, not negative, in any unit; equal without.
        length: Positions of an epoch; None never ends.

    Raises:
        ArgumentError: there are no parts, their number is not that of the proportions, these are all 0, negative or not
            finite, or a part that is to be handed out is empty.
    """

    def __init__(self, lengths: Sequence[int], proportions: Any = None, length: int | None = None) -> None:
        self.lengths = [checks.integer(f"lengths[{i}]", n) for i, n in enumerate(lengths)]
        shares = np.ones(len(self.lengths)) if proportions is None else np.asarray(proportions, dtype=float)
        self.length = None if length is None else checks.positive_int("length", length)
        _check(self.lengths, shares)
        self._counts = _whole_counts(shares)
        self._period = int(self._counts.sum())
        self._schedule = _even_schedule(self._counts)
        self._starts = np.cumsum([0, *self.lengths])
        self._lengths = np.array(self.lengths)

    def outline(self) -> list[Any]:
        return [type(self).__name__, self.lengths, self._counts.tolist(), self.length]

    def num_indices_generated(self) -> Any:
        return math.inf if self.length is None else self.length

    def rows_at(self, positions: np.ndarray, key: OrderKey | None) -> np.ndarray:
        periods, within = np.divmod(positions, self._period)
        rows = np.empty(len(positions), np.int64)
        for period in np.unique(periods):
            mine = periods == period
            part, earlier = self._parts_of(int(period), key)
            parts = part[within[mine]]
            turns = int(period) * self._counts[parts] + earlier[within[mine]]
            rows[mine] = self._rows_of(parts, turns, key)
        return rows

    def _parts_of(self, period: int, key: OrderKey | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the part of each position of a period, and how often it came earlier in it."""
        part = self._schedule
        if key is not None:
            part = part[keyed_permutation(self._period, key.word("mixed", period))(np.arange(self._period))]
        order = np.argsort(part, kind="stable")
        earlier = np.empty(self._period, np.int64)
        earlier[order] = np.arange(self._period) - np.repeat(np.cumsum(self._counts) - self._counts, self._counts)
        return part, earlier

    def _rows_of(self, parts: np.ndarray, turns: np.ndarray, key: OrderKey | None) -> np.ndarray:
        repeats, places = np.divmod(turns, self._lengths[parts])
        if key is not None:
            for number, repeat in sorted(set(zip(parts.tolist(), repeats.tolist(), strict=True))):
                mine = (parts == number) & (repeats == repeat)
                permute = keyed_permutation(self.lengths[number], key.word("part", number, repeat))
                places[mine] = permute(places[mine])
        return np.asarray(self._starts[parts] + places)

    def shuffled_indices_batch_iterator(self, batch_size: int, shuffle_rng: Any) -> Iterator[np.ndarray]:
        """Return an iterator of the rows of each batch, in the order of a seed that is drawn once."""
        size = checks.positive_int("batch_size", batch_size)
        key = OrderKey(int(np.asarray(shuffle_rng.permutation(2**31 - 1 if False else 1 << 20))[0]), 0)
        return self._drawn(size, key)

    def _drawn(self, size: int, key: OrderKey) -> Iterator[np.ndarray]:
        start, total = 0, self.num_indices_generated()
        while start < total:
            stop = int(min(start + size, total))
            yield self.rows_at(np.arange(start, stop), key)
            start = stop
