"""The base classes of samplers. A sampler decides the order of the rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import validation
from ..batch import refuse_masked
from ..display import call_words
from ..errors import ArgumentError, ArgumentTypeError
from ..randomness import OrderKey
from ..randomness.numpy_rng import seed_draw
from .plans.listed import ListedPlan
from .plans.rows import RowPlan, SamplerPlan, count_batches


def given_array(name: str, values: Any, remedy: str) -> np.ndarray:
    """Return a user's numbers, one a row, as an array, ``(n,)``."""
    refuse_masked(name, values)
    try:
        given = np.asarray(values)
    except ValueError as error:
        raise ArgumentTypeError(f"{name} must be one-dimensional, and is a list of lists; {remedy}") from error
    if given.ndim != 1:
        raise ArgumentError(f"{name} must be one-dimensional, not of shape {given.shape}; {remedy}")
    return given


def whole_numbers(name: str, values: Any, remedy: str, kinds: str = "iu") -> np.ndarray:
    """Return a user's whole numbers, one a row, as ``(n,) int64``; no copy if they are that already."""
    given = given_array(name, values, remedy)
    if given.dtype.kind not in kinds and len(given):
        raise ArgumentTypeError(f"{name} must be whole numbers, not {given.dtype}; {remedy}")
    most = int(given.max()) if len(given) else 0
    if most >= 1 << 63:
        raise ArgumentError(f"{name} must be below 2^63, and one is {most}; did an unsigned dtype take a negative one?")
    return given.astype(np.int64, copy=False)


def array_fingerprint(array: np.ndarray) -> list[Any]:
    """Return a fingerprint of an array ``(n,)`` of numbers: its length, its dtype, a digest of all its entries.

    It is the same on every machine. 10^8 int64 take 0.7 s on the machine of the figures in docs/samplers.md.
    """
    plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return [len(array), plain.dtype.str, hashlib.sha256(plain.data).hexdigest()[:32]]


def num_batches(n: int, batch_size: int) -> int:
    """Return the number of batches of `batch_size` that `n` samples fill, including a last partial batch.

    >>> num_batches(10, 4)
    3
    """
    return int(count_batches(n, validation.positive_int("batch_size", batch_size), drop_last=False))


class AbstractSampler:
    """Makes the row numbers of each batch.

    A sampler of your own defines the two iterators. If it can compute the row at any position, derive it from
    :class:`RandomAccessSampler` instead: then an epoch can start anywhere at little cost.
    """

    n_rows: int | None = None
    """How many rows the data must have; None for any number."""

    batch_size: int | None = None
    """The batch size that a loader takes if the user gives none; None if any size will do."""

    def __repr__(self) -> str:
        return call_words(self)

    def num_indices_generated(self) -> Any:
        """Return how many rows an epoch has: an int, ``numpy.inf``, or None if that is not known."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def fingerprint(self) -> list[Any]:
        """Return the options that the order depends on besides the seed: strings, numbers and lists, for a state.

        The default is the class and the number of rows. If the order depends on other options of your sampler, define
        this method. Otherwise a state that was saved with other options passes for one of this sampler.
        """
        return [type(self).__name__, str(self.num_indices_generated())]

    def check_rows(self, length: int) -> None:
        """Raise :class:`~batchup_ng.errors.ArgumentError` if this sampler does not fit data of `length` rows.

        A source calls it once, when it is made.
        """
        if self.n_rows is not None and self.n_rows != length:
            raise ArgumentError(
                f"sampler is for data of {self.n_rows} rows, but there are {length}; make it for as many rows"
            )

    def check_batch_size(self, batch_size: int) -> None:
        """Raise :class:`~batchup_ng.errors.ArgumentError` if this sampler makes no batches of that size."""

    def check_world(self, world: int) -> None:
        """Raise :class:`~batchup_ng.errors.ArgumentError` if so many ranks cannot share an epoch."""

    def map_indices(self, indices: Any) -> Any:
        """Return the rows of the data for `indices`, which count within the rows that the sampler draws from."""
        return indices

    def in_order_indices_batch_iterator(self, batch_size: int) -> Iterator[np.ndarray]:
        """Return an iterator of the rows of each batch, in order: ``(batch_size,) int``; the last may be shorter."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def shuffled_indices_batch_iterator(self, batch_size: int, shuffle_rng: Any) -> Iterator[np.ndarray]:
        """Return an iterator of the rows of each batch, in an order drawn from `shuffle_rng` as it goes."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        """Return the rows of each batch of the epoch that `key` names; None means in order.

        Args:
            batch_size: The most samples that a batch may have.
            key: Seed and epoch, or a generator.
            drop_last: Whether to leave out a last batch that is not whole.
        """
        if key is None:
            drawn = self.in_order_indices_batch_iterator(batch_size)
        else:
            drawn = self.shuffled_indices_batch_iterator(batch_size, key.random_state("listed"))
        if drop_last:
            drawn = (rows for rows in drawn if len(rows) >= batch_size)
        n = self.num_indices_generated()
        return ListedPlan(drawn, None if n is None else count_batches(n, batch_size, drop_last))


def planned_rows(node: Any, batch_size: int, rng: Any, drop_last: bool) -> Iterator[Any]:
    """Yield the rows of each batch of a sampler's or source's ``row_plan``; its seed is drawn once from `rng`."""
    yield from node.row_plan(batch_size, None if rng is None else OrderKey(seed_draw(rng), 0), drop_last).walk()


class PlannedSampler(AbstractSampler):
    """A sampler that defines ``row_plan``: its order is a function of a key."""

    indices: np.ndarray | None = None
    """The rows of the data that it draws from, ``(n,) int64``; None means all rows, none chosen."""

    def map_indices(self, indices: Any) -> Any:
        return indices if self.indices is None else self.indices[indices]

    def in_order_indices_batch_iterator(self, batch_size: int) -> Iterator[np.ndarray]:
        self.row_plan(validation.positive_int("batch_size", batch_size), None, False)  # refuses a sampler with no order
        return planned_rows(self, batch_size, None, False)

    def shuffled_indices_batch_iterator(self, batch_size: int, shuffle_rng: Any) -> Iterator[np.ndarray]:
        """Return an iterator of the rows of each batch, in the order of a seed.

        The seed is drawn once, with the first batch: one ``random_sample()`` of a ``RandomState``, one ``random()`` of
        a ``Generator``.
        """
        self.row_plan(validation.positive_int("batch_size", batch_size), OrderKey(0, 0), False)
        return planned_rows(self, batch_size, shuffle_rng, False)


class RandomAccessSampler(PlannedSampler):
    """A sampler that computes the row at any position of an epoch, in constant memory.

    Attributes:
        block: How many positions of a shuffled order are computed at once in the course of an epoch: enough to make
            the fixed cost of NumPy's calls a small share, few enough that no batch waits for long.
    """

    block: int = 32768

    def rows_at(self, positions: np.ndarray, key: OrderKey | None) -> np.ndarray:
        """Return the rows at `positions` of the epoch that `key` names; None means in order.

        Args:
            positions: Positions in the epoch: ``(n,) int64``, not negative, in range.
            key: Seed and epoch.

        Returns:
            Row numbers: ``(n,) int``.
        """
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        return SamplerPlan(self, batch_size, key, drop_last)


class BatchSampler(PlannedSampler):
    """A sampler that decides which rows share a batch.

    A subclass of your own defines ``row_plan``, ``num_indices_generated``, and a ``fingerprint`` with its options. Its
    plan derives from :class:`~batchup_ng.sampling.plans.rows.RowPlan`: an epoch is shared out among ranks, and resumed,
    batch by batch, with the same batch size. If epochs may differ in the number of batches, ``n_in_any_order`` of the
    plan is None.
    """

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        raise NotImplementedError(f"Abstract for type {type(self)}")
