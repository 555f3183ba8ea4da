"""Nodes whose samples have row numbers. A sampler determines the order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .. import batch as nests
from ..errors import ArgumentError, ArgumentTypeError
from ..randomness import OrderKey
from ..sampling.base import AbstractSampler, RandomAccessSampler
from ..sampling.block_shuffle import BlockShuffleSampler, OrderBlocks
from ..sampling.buckets import BucketSampler
from ..sampling.feedback import FeedbackSampler
from ..sampling.packing import PackSampler
from ..sampling.plans.listed import ListedPlan
from ..sampling.plans.rows import RowPlan, read_only
from ..sampling.standard import StandardSampler
from ..sampling.weighted import WeightedSampler
from .node import NEEDS_NUMBERS, Node, Traits, nodes_of

WITHOUT_ORDER = (WeightedSampler, FeedbackSampler)
"""Samplers that draw rows at random, so samples have no numbers."""

PART_BLOCKS = 4
"""Number of storage blocks that one block spans if a node has only part of the rows. It begins and ends within storage
blocks, which are read twice."""

RowLister = Callable[..., Iterator[Any]]
"""BatchUp's ``batch_indices_iterator``: it takes a batch size and ``shuffle=``, and yields the rows of each batch."""


def samplers_by_length(root: Node) -> list[BucketSampler | PackSampler]:
    """Return the samplers that decide, by the lengths of rows, which rows share a batch of `root`."""
    found = [node.sampler for node in nodes_of(root, below_orders=False) if isinstance(node, RowsNode)]
    return [sampler for sampler in found if isinstance(sampler, (BucketSampler, PackSampler))]


class UserMethods(NamedTuple):
    """The methods that a user's class overrides; None for each that it does not."""

    lister: RowLister | None = None  # ``batch_indices_iterator``
    reader: Callable[[Any], Any] | None = None  # ``samples_by_indices_nomapping``
    fingerprint: Callable[[], list[Any]] | None = None


NO_USER_METHODS = UserMethods()
"""The methods of a class of the library."""


class RowsNode(Node):
    """A node with numbered rows.

    Args:
        sampler: The order of the rows.
        own: Methods of a user's class that go before those of the node.
    """

    def __init__(self, sampler: AbstractSampler, own: UserMethods = NO_USER_METHODS) -> None:
        super().__init__()
        self.sampler = sampler
        self.own = own

    def own_traits(self) -> Traits:
        return Traits(uses_shuffle=True, orders_rows=True)

    def fingerprint(self) -> list[Any]:
        return self.described() if self.own.fingerprint is None else self.own.fingerprint()

    def described(self) -> list[Any]:
        """Return the fingerprint of the node, unless a user's class has another."""
        return [self.name, self.sampler.fingerprint()]

    def num_samples(self, **options: Any) -> Any:
        return self.sampler.num_indices_generated()

    def samples_by_indices(self, indices: Any) -> Any:
        return self.by_rows(read_only(self.sampler.map_indices(indices)))

    def by_rows(self, rows: Any) -> Any:
        """Return the batch of `rows`, which are read-only, for the user's own call."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        if self.own.lister is not None:
            endless = math.inf if self.num_samples() == math.inf else None
            return listed_plan(self.own.lister, batch_size, key and key.random_state("listed"), drop_last, endless)
        blocks = None if key is None or key.blocks is None else key.blocks.get(id(self))
        sampler = self.sampler if blocks is None else self._in_blocks(*blocks, size=batch_size)
        return sampler.row_plan(batch_size, key, drop_last)

    @property
    def own_batch_size(self) -> int | None:
        return self.sampler.batch_size

    def check_batch_size(self, batch_size: int) -> None:
        self.sampler.check_batch_size(batch_size)

    def check_world(self, world: int) -> None:
        self.sampler.check_world(world)

    def order_blocks(self, found: tuple[int, int] | None = None) -> tuple[int, int] | None:
        found = found or self.natural_blocks()
        if found is None or self.own.lister is not None:
            return None
        if not isinstance(self.sampler, StandardSampler):
            raise ArgumentError(
                f"shuffle='blocks' chooses a sampler, and this source has a {type(self.sampler).__name__}; leave one "
                f"of the two out"
            )
        return blocks_of_part(found, self.sampler.indices)

    def _in_blocks(self, order: OrderBlocks, of_epoch: int, *, size: int) -> AbstractSampler:
        """Return a sampler of the same rows whose shuffled order is cheap for storage.

        The batches of the epoch have `of_epoch` samples, and those of this node `size`.
        """
        sampler = self.sampler
        assert isinstance(sampler, StandardSampler)
        run = max(1, order.batch_size * size // of_epoch)
        made = BlockShuffleSampler(sampler.length, order.block, order.window, sampler.repeats, order.groups, run)
        made.indices = sampler.indices
        made.run_at_end = max(1, size // of_epoch)  # the rows of one sample of the epoch
        return made

    def permutes_rows(self) -> bool:
        whole = isinstance(self.sampler, StandardSampler) and self.sampler.repeats == 1
        return whole and self.own.lister is None

    def rows_at(self, positions: np.ndarray) -> Any:
        if not isinstance(self.sampler, RandomAccessSampler) or isinstance(self.sampler, WITHOUT_ORDER):
            raise ArgumentTypeError(
                f"the samples of a source with a {type(self.sampler).__name__} have no numbers of their own, so it "
                f"{NEEDS_NUMBERS}; leave its sampler out, and give one to the result: train.sample(...)"
            )
        return self.sampler.rows_at(positions, None)

    def _facts(self) -> list[str]:
        whole = type(self.sampler) is StandardSampler and self.sampler.repeats == 1
        made_from = ("length=", "data=", "names=", "own=", "numbers=", "places=", *(["sampler="] if whole else []))
        return [fact for fact in super()._facts() if not fact.startswith(made_from)]


def sampler_for(length: int, sampler: Any) -> AbstractSampler:
    """Return the user's `sampler`. Raise if it is none, or is for another number of rows than `length`."""
    if not isinstance(sampler, AbstractSampler):
        raise ArgumentTypeError(f"sampler must be an AbstractSampler, not a {type(sampler).__name__}")
    if length is not None:  # BatchUp did not look at the length when it was given a sampler
        sampler.check_rows(length)
    return sampler


def listed_plan(lister: RowLister, batch_size: int, rng: Any, drop_last: bool, n_expected: float | None) -> ListedPlan:
    """Return the rows that a ``batch_indices_iterator`` lists, in order or drawn from `rng`.

    `n_expected` is the number of batches, if the source says it.
    """

    def listed() -> Iterator[Any]:
        for rows in lister(batch_size, shuffle=rng):
            if not drop_last or nests.length(rows) >= batch_size:
                yield rows

    return ListedPlan(listed(), n_expected)


def joint_blocks(found: Iterable[tuple[int, int] | None]) -> tuple[int, int] | None:
    """Return the natural blocks of samples whose parts are in several places.

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
