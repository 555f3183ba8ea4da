"""What a sampler is: the order in which rows are handed out."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from .. import validation
from ..display import call_words
from ..errors import ArgumentError, ArgumentTypeError
from ..randomness import OrderKey, seed_draw

CHUNK = 1 << 17
"""Entries of an array that are read in one go: 1 MB of int64."""


def given_array(name: str, values: Any, remedy: str) -> np.ndarray:
    """Return what a user gave, one number a row, as an array of whatever dtype and shape.

    Raises:
        ArgumentTypeError: it is a list of lists of different lengths.
    """
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ArgumentTypeError(f"{name} must be one-dimensional, and is a list of lists; {remedy}") from error


def as_int64(name: str, numbers: np.ndarray, copy: bool = True) -> np.ndarray:
    """Return whole numbers, ``(n,)``, as int64; a copy, unless `copy` is False and they are.

    Raises:
        ArgumentError: one is above 2^63 - 1, and would come out negative.
    """
    most = int(numbers.max()) if len(numbers) else 0
    if most >= 1 << 63:
        raise ArgumentError(f"{name} must be below 2^63, and one is {most}; did an unsigned dtype take a negative one?")
    return numbers.astype(np.int64, copy=copy)


def array_outline(array: np.ndarray) -> list[Any]:
    """Return what tells an array from others: its length, its dtype, a digest (SHA-256) of all its entries.

    It is the same on every machine. 10^8 int64 take 0.7 s where the figures in docs/samplers.md were measured.

    Args:
        array: Numbers: ``(n,)``.
    """
    plain = array.dtype.newbyteorder("<")
    read = hashlib.sha256()
    for start in range(0, len(array), CHUNK):
        read.update(np.ascontiguousarray(array[start : start + CHUNK], dtype=plain).data)
    return [len(array), plain.str, read.hexdigest()[:32]]


_kept: dict[int, tuple[weakref.ref[np.ndarray], list[Any]]] = {}
"""Outlines of arrays, by the arrays' ids, for as long as there are the arrays."""


def kept_outline(array: np.ndarray) -> list[Any]:
    """Return :func:`array_outline` of an array that nobody changes, such as a sampler's own; reads it only once.

    What is known of an array is kept here and not with its sampler, so that it does not travel to workers.
    """
    name = id(array)
    found = _kept.get(name)
    if found is not None and found[0]() is array:
        return found[1]
    fingerprint = array_outline(array)
    _kept[name] = weakref.ref(array, lambda _: _kept.pop(name, None)), fingerprint
    return fingerprint


def num_batches(n: int, batch_size: int) -> int:
    """Return the number of batches of `batch_size` that `n` samples fill, the last perhaps not whole.

    >>> num_batches(10, 4)
    3
    """
    return -(-n // validation.positive_int("batch_size", batch_size))


class AbstractSampler:
    """Makes the row numbers of each batch.

    A sampler of one's own defines the two iterators; one that can tell the row at any position derives from
    :class:`RandomAccessSampler` instead, which makes its epochs cheap to enter anywhere.
    """

    def __repr__(self) -> str:
        return call_words(self)

    def num_indices_generated(self) -> Any:
        """Return how many rows an epoch has: an int, ``numpy.inf``, or None where that is not known."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def fingerprint(self) -> list[Any]:
        """Return what the order depends on beside the seed, in strings, numbers and lists, for a saved state.

        This one tells the class and the number of rows, nothing of the options of a sampler of one's own. If those
        change the order, define it, or a state that was saved with other options is taken for one of this sampler.
        """
        return [type(self).__name__, str(self.num_indices_generated())]

    def check_rows(self, length: int) -> None:
        """Raise :class:`~batchup_ng.errors.ArgumentError` if this is not a sampler for data of `length` rows.

        A source asks it once, when it is made; a sampler of one's own need not define it.
        """

    def map_indices(self, indices: Any) -> Any:
        """Return the rows of the data for `indices`, which count within what the sampler draws from."""
        return indices

    def in_order_indices_batch_iterator(self, batch_size: int) -> Iterator[np.ndarray]:
        """Return an iterator of the rows of each batch, in order: ``(batch_size,) int``, the last perhaps shorter."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def shuffled_indices_batch_iterator(self, batch_size: int, shuffle_rng: Any) -> Iterator[np.ndarray]:
        """Return an iterator of the rows of each batch, in an order drawn from `shuffle_rng` as it goes."""
        raise NotImplementedError(f"Abstract for type {type(self)}")


class RandomAccessSampler(AbstractSampler):
    """A sampler that can tell the row at any position of an epoch, in constant memory.

    Attributes:
        block: How many positions of a shuffled order are asked for at once, once an epoch is under way: so many that
            the calls of NumPy are a small share of the work, so few that nobody waits for them.
        in_batches: Whether batches are what is in order, so that an epoch is never cut but between two of them.
    """

    block: int = 32768
    in_batches: ClassVar[bool] = False

    def rows_at(self, positions: np.ndarray, key: OrderKey | None) -> np.ndarray:
        """Return the rows at `positions` of the epoch that `key` names; None is in order.

        Args:
            positions: Positions in the stream of the epoch: ``(n,) int64``, not negative, in range.
            key: Names seed and epoch.

        Returns:
            Row numbers: ``(n,) int``.
        """
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def check_batch_size(self, batch_size: int) -> None:
        """Raise :class:`~batchup_ng.errors.ArgumentError` if batches of that size would not be what this is for."""

    def check_in_order(self) -> None:
        """Raise :class:`~batchup_ng.errors.InOrderNotSupported` if there is no order but a drawn one."""

    def in_order_indices_batch_iterator(self, batch_size: int) -> Iterator[np.ndarray]:
        self.check_in_order()
        return self._walk(self._checked_size(batch_size), None)

    def shuffled_indices_batch_iterator(self, batch_size: int, shuffle_rng: Any) -> Iterator[np.ndarray]:
        """Return an iterator of the rows of each batch, in the order of a seed.

        The seed is drawn once, when the first batch is asked for: one ``random_sample()`` of a ``RandomState``, one
        ``random()`` of a ``Generator``.
        """
        return self._walk(self._checked_size(batch_size), shuffle_rng)

    def _checked_size(self, batch_size: int) -> int:
        batch_size = validation.positive_int("batch_size", batch_size)
        self.check_batch_size(batch_size)
        return batch_size

    def _walk(self, batch_size: int, rng: Any) -> Iterator[np.ndarray]:
        key = None if rng is None else OrderKey(seed_draw(rng), 0)
        total, start, size = self.num_indices_generated(), 0, batch_size
        while start < total:
            stop = int(min(start + size, total))
            rows = checked_order(self, np.arange(start, stop), key)
            for first in range(0, len(rows), batch_size):
                yield rows[first : first + batch_size]
            start = stop
            if key is not None and 2 * size <= self.block:
                size = 2 * size  # as a plan does: the first are few, for somebody waits


def checked_order(sampler: RandomAccessSampler, positions: np.ndarray, key: OrderKey | None) -> np.ndarray:
    """Return ``sampler.rows_at(positions, key)``, a row for each position: ``(n,) int``.

    Raises:
        ArgumentError: it gave more or fewer rows, which would lose samples.
        ArgumentTypeError: it gave something else than whole numbers.
    """
    rows = np.asarray(sampler.rows_at(positions, key))
    name = f"{type(sampler).__name__}.rows_at"
    if rows.shape != positions.shape:
        raise ArgumentError(
            f"{name} must return one row for each position, of shape {positions.shape}, not {rows.shape}"
        )
    if rows.dtype.kind not in "iu" and len(rows):
        raise ArgumentTypeError(f"{name} must return row numbers, an integer array, not {rows.dtype}")
    return rows.view()  # the sampler's own array stays as it is
