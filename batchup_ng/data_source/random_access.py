"""Sources whose samples have row numbers. A sampler determines the order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import validation
from ..errors import ArgumentError, ArgumentTypeError
from ..randomness import OrderKey
from ..sampling.base import AbstractSampler, RandomAccessSampler
from ..sampling.block_shuffle import BlockShuffleSampler
from ..sampling.plans.rows import RowPlan, read_only
from ..sampling.standard import StandardSampler, SubsetSampler, check_row_numbers
from ..sampling.weighted import WeightedSampler
from .base import PlannedDataSource
from .hooks import Traits, listed_plan, written_by_user

PART_BLOCKS = 4
"""Number of storage blocks that one block spans if a source has only part of the rows. It begins and ends within
storage blocks, which are read twice."""


class RandomAccessDataSource(PlannedDataSource):
    """A source that makes a batch from row numbers: the base class for custom storage.

    A custom source defines ``samples_by_indices_nomapping(indices)``. It returns the batch, a tuple of arrays, of the
    row numbers `indices`: ``(n,) int``, read-only.

    Args:
        length: Number of rows.
        indices: The rows to hand out: ``(n,) int``. Default: all.
        repeats: How often an epoch hands out each row; -1 for no end.
        sampler: The order of the rows, instead of `indices` and `repeats`.
        include_indices: Whether each batch begins with the array of its row numbers.

    Raises:
        ArgumentError: `repeats` is neither -1 nor at least 1, or a sampler was given together with it or `indices`.
    """

    def __init__(
        self,
        length: int,
        indices: Any = None,
        repeats: int = 1,
        sampler: AbstractSampler | None = None,
        include_indices: bool = False,
    ) -> None:
        if sampler is None:
            validation.repeats(repeats)
            sampler = StandardSampler(length, repeats) if indices is None else SubsetSampler(indices, repeats)
            if isinstance(sampler, SubsetSampler):
                check_row_numbers("indices", sampler.indices, length)
        elif repeats != 1:
            raise ArgumentError(f"repeats should be 1 when sampler is provided, not {repeats}; give it to the sampler")
        elif indices is not None:
            raise ArgumentError("indices should be None when sampler is provided; use a SubsetSampler")
        elif not isinstance(sampler, AbstractSampler):
            raise ArgumentTypeError(f"sampler must be an AbstractSampler, not a {type(sampler).__name__}")
        elif length is not None:  # BatchUp did not look at the length when it was given a sampler
            sampler.check_rows(length)
        self.include_indices = include_indices
        self.sampler = sampler

    @property
    def is_random_access(self) -> bool:
        return True

    def own_traits(self) -> Traits:
        return Traits(runs_user_code=written_by_user(self), uses_shuffle=True, orders_rows=True)

    def fingerprint(self) -> list[Any]:
        return [type(self).__name__, self.sampler.fingerprint()]

    def num_samples(self, **kwargs: Any) -> Any:
        return self.sampler.num_indices_generated()

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        """Return the batch of the row numbers `indices`."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def samples_by_indices(self, indices: Any) -> Any:
        return self.samples_by_indices_nomapping(read_only(self.sampler.map_indices(indices)))

    def _facts(self) -> list[str]:
        whole = type(self.sampler) is StandardSampler and self.sampler.repeats == 1
        made_from = ("length=", "data=", *(["sampler="] if whole else []))
        return [fact for fact in super()._facts() if not fact.startswith(made_from)]

    def _lists_rows_itself(self) -> bool:
        """Return whether a subclass overrides ``batch_indices_iterator``, as was possible in BatchUp."""
        return type(self).batch_indices_iterator is not PlannedDataSource.batch_indices_iterator

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        if self._lists_rows_itself():
            endless = math.inf if self.num_samples() == math.inf else None
            return listed_plan(self, batch_size, key and key.random_state("listed"), drop_last, endless)
        chosen = None if key is None or key.blocks is None else key.blocks.get(id(self))
        sampler = self.sampler if chosen is None else self._in_blocks(*chosen)
        return sampler.row_plan(batch_size, key, drop_last)

    def check_batch_size(self, batch_size: int) -> None:
        self.sampler.check_batch_size(batch_size)

    def order_blocks(self, found: tuple[int, int] | None = None) -> tuple[int, int] | None:
        found = found or self.natural_blocks()
        if found is None or self._lists_rows_itself():
            return None
        if not isinstance(self.sampler, StandardSampler):
            raise ArgumentError(
                f"shuffle='blocks' chooses a sampler, and this source has a {type(self.sampler).__name__}; leave one "
                f"of the two out"
            )
        return blocks_of_part(found, self.sampler.indices)

    def _in_blocks(self, block: int, window: int) -> AbstractSampler:
        """Return a sampler of the same rows whose shuffled order is cheap for storage."""
        sampler = self.sampler
        assert isinstance(sampler, StandardSampler)
        made = BlockShuffleSampler(sampler.length, block, window, sampler.repeats)
        made.indices = sampler.indices
        return made

    def permutes_rows(self) -> bool:
        whole = isinstance(self.sampler, StandardSampler) and self.sampler.repeats == 1
        return whole and not self._lists_rows_itself()

    def rows_at(self, positions: np.ndarray) -> Any:
        if not isinstance(self.sampler, RandomAccessSampler) or isinstance(self.sampler, WeightedSampler):
            raise ArgumentTypeError(
                f"the samples of a source with a {type(self.sampler).__name__} have no numbers of their own, so it "
                f"cannot be indexed, nor be part of concat, filter, mix, subset, split or zip; leave its sampler out"
            )
        return self.sampler.rows_at(positions, None)


def joint_blocks(found: Iterable[tuple[int, int] | None]) -> tuple[int, int] | None:
    """Return the :meth:`~PlansRows.natural_blocks` of samples whose parts are in several places.

    The result is the longest block that fits into the smallest window, in rows: a megabyte of labels has more rows than
    may be mixed of the images.
    """
    known = [each for each in found if each is not None]
    if not known:
        return None
    room = min(block * window for block, window in known)
    longest = max(block for block, _ in known if block <= room)
    return longest, room // longest


def blocks_of_part(found: tuple[int, int], rows: np.ndarray | None) -> tuple[int, int]:
    """Return the blocks of positions in `rows`, a part of the rows of storage with blocks `found`. None is all rows.

    Raises:
        ArgumentError: the rows do not increase. Neighbours would then not be read together.
    """
    if rows is None or len(rows) < 2:
        return found
    if (rows[1:] <= rows[:-1]).any():
        raise ArgumentError("shuffle='blocks' needs the rows of a subset, or indices=, in increasing order; sort them")
    block, window = found
    blocks = min(PART_BLOCKS, max(1, window // 4 - 1))  # fewer if the window is small, to mix several
    share = len(rows) / (int(rows[-1]) - int(rows[0]) + 1)
    return max(1, round(blocks * block * share)), max(1, window // (blocks + 1))
