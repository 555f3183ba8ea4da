"""Samplers that look at the class of each row."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import checks
from ..errors import ArgumentError
from ..randomness import OrderKey, uniform_draws, unit_floats, words_at
from .base import RandomAccessSampler, array_outline
from .permutation import keyed_permutation
from .standard import StandardSampler, row_numbers
from .weighted import class_numbers


class StratifiedSampler(StandardSampler):
    """Hands out each row once a repeat, each class spread evenly over the whole of it.

    So every stretch of an epoch, hence each batch, has the classes in about the proportions in which the data have them:
    of a class with the share p, n samples in a row hold between n·p - 2 and n·p + 2.

    Memory: 8 bytes a row and order that is under way.

    Args:
        y: Class of each row: ``(n,) int``, not negative.
        indices: The rows to hand out: ``(m,) int``; all where it is None.
        repeats: How often each is handed out; -1 for ever.

    Raises:
        ArgumentError: `y` is empty, has a negative class, or `repeats` is neither -1 nor at least 1.
    """

    def __init__(self, y: Any, indices: Any = None, repeats: int = 1) -> None:
        classes = class_numbers(y)
        self.indices = np.arange(len(classes)) if indices is None else row_numbers("indices", indices)
        self._members = _members(classes[self.indices])
        self._orders: dict[int, np.ndarray] = {}
        super().__init__(len(self.indices), repeats)

    def outline(self) -> list[Any]:
        return [*super().outline(), array_outline(self.indices), [len(rows) for rows in self._members]]

    def map_indices(self, indices: Any) -> Any:
        return self.indices[indices]

    def _rows(self, numbers: np.ndarray) -> np.ndarray:
        return np.asarray(self.indices[numbers])

    def _permuted(self, positions: np.ndarray, key: OrderKey, repeat: int) -> np.ndarray:
        word = key.word("stratified", repeat)
        order = self._orders.get(word)
        if order is None:
            order = self._order(word)
            self._orders = dict([*list(self._orders.items())[-1:], (word, order)])  # that of the repeat before, and this
        return np.asarray(order[positions])

    def _order(self, key: int) -> np.ndarray:
        def draws(number: int, n: int) -> np.ndarray:
            return unit_floats(words_at(key ^ number, np.arange(n, dtype=np.int64)))

        def shuffled(number: int, n: int) -> np.ndarray:
            return keyed_permutation(n, key ^ (number << 32))(np.arange(n, dtype=np.int64))

        return _spread(self._members, draws, shuffled)

    def _drawn_order(self, shuffle_rng: Any) -> np.ndarray:
        order = _spread(
            self._members,
            lambda number, n: uniform_draws(shuffle_rng, n),
            lambda number, n: np.asarray(shuffle_rng.permutation(n)),
        )
        return np.asarray(self.indices[order])


def _members(classes: np.ndarray) -> list[np.ndarray]:
    """Return the places of the rows of each class that occurs."""
    order = np.argsort(classes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(classes[order])) + 1) if len(order) else []


def _spread(members: list[np.ndarray], draws: Any, shuffled: Any) -> np.ndarray:
    """Return all members, those of each class at even distances from a start that is drawn, in a shuffled order.

    Args:
        members: The places of the rows of each class.
        draws: Called with the number of a class and how many; returns floats in [0, 1).
        shuffled: Called likewise; returns a permutation.
    """
    if not members:
        return np.arange(0)
    times = [(np.arange(len(own)) + draws(2 * i, len(own))) / len(own) for i, own in enumerate(members)]
    rows = [own[shuffled(2 * i + 1, len(own))] for i, own in enumerate(members)]
    return np.asarray(np.concatenate(rows)[np.argsort(np.concatenate(times), kind="stable")])


class BalancedBatchSampler(RandomAccessSampler):
    """Makes batches of the same number of samples of each class.

    A batch has `per_class` samples of each class that occurs, in ascending order of the classes, so its size must be
    :attr:`batch_size`. Each class goes through its own rows in an order of its own, shuffled anew each time; an epoch
    ends when the largest class was gone through once, so that smaller ones are seen several times.

    Args:
        y: Class of each row: ``(n,) int``, not negative.
        per_class: Samples of each class a batch.

    Attributes:
        batch_size: Samples of a batch.
        classes: The classes that occur: ``(n_classes,) int64``.

    Raises:
        ArgumentError: `y` is empty or has a negative class, or `per_class` is below 1.
    """

    def __init__(self, y: Any, per_class: int) -> None:
        numbers = class_numbers(y)
        self.per_class = checks.positive_int("per_class", per_class)
        self._members = _members(numbers)
        self.length = len(numbers)
        self.classes = np.unique(numbers)
        self.batch_size = self.per_class * len(self._members)
        most = max(len(rows) for rows in self._members)
        self._n_batches = math.ceil(most / self.per_class)

    def outline(self) -> list[Any]:
        whole = array_outline(np.concatenate(self._members))
        return [type(self).__name__, self.per_class, whole, [len(rows) for rows in self._members]]

    def num_indices_generated(self) -> Any:
        return self._n_batches * self.batch_size

    def check_batch_size(self, batch_size: int) -> None:
        """Raise :class:`~batchup_ng.errors.ArgumentError` if batches of that size would not be balanced."""
        if batch_size != self.batch_size:
            raise ArgumentError(
                f"batch_size must be {self.batch_size}, which is per_class={self.per_class} of each of "
                f"{len(self._members)} classes, not {batch_size}; pass batch_size=sampler.batch_size"
            )

    def rows_at(self, positions: np.ndarray, key: OrderKey | None) -> np.ndarray:
        batch, slot = np.divmod(positions, self.batch_size)
        which, within = np.divmod(slot, self.per_class)
        turn = batch * self.per_class + within
        rows = np.empty(len(positions), np.int64)
        for number in np.unique(which):
            mine = which == number
            rows[mine] = self._rows_of(int(number), turn[mine], key)
        return rows

    def _rows_of(self, number: int, turns: np.ndarray, key: OrderKey | None) -> np.ndarray:
        """Return the rows of a class at places of its own endless stream."""
        own = self._members[number]
        repeats, places = np.divmod(turns, len(own))
        if key is not None:
            for repeat in np.unique(repeats):
                mine = repeats == repeat
                word = key.word("balanced", number, int(repeat))
                places[mine] = keyed_permutation(len(own), word)(places[mine])
        return np.asarray(own[places])

    def shuffled_indices_batch_iterator(self, batch_size: int, shuffle_rng: Any) -> Iterator[np.ndarray]:
        """Return an iterator of the rows of each batch; each class draws a permutation when it is begun anew."""
        self.check_batch_size(checks.positive_int("batch_size", batch_size))
        return self._drawn(shuffle_rng)

    def _drawn(self, rng: Any) -> Iterator[np.ndarray]:
        streams = [_endless(own, rng) for own in self._members]
        for _ in range(self._n_batches):
            yield np.array([next(stream) for stream in streams for _ in range(self.per_class)])


def _endless(rows: np.ndarray, rng: Any) -> Iterator[int]:
    while True:
        yield from rng.permutation(rows)
