"""The methods of every node in a graph of sources, with defaults for sources that only have BatchUp's methods.

A source implements either BatchUp's four methods (``batch_iterator``; for random access ``batch_indices_iterator``,
``samples_by_indices``, ``samples_by_indices_nomapping``), or three protocols, which the library itself calls. The
protocols are base classes whose defaults call BatchUp's methods, so the library can use both kinds everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .. import batch as batches
from ..batch import as_batch
from ..batch_layout import of_its_own
from ..display import Shown, arguments
from ..errors import ArgumentTypeError
from ..memory.leases import Buffers
from ..randomness import BatchKey, OrderKey
from ..sampling.plans.listed import ListedPlan
from ..sampling.plans.rows import RowPlan, count_batches, read_only
from .epoch_options import EpochOptions, taken_by

PACKAGE = __name__.partition(".")[0]
"""Name of the library's package."""


class BatchupMethods(Shown):
    """The methods of a BatchUp source."""

    @property
    def is_random_access(self) -> bool:
        """Whether batches can be made from row indices, in any order."""
        return False

    def num_samples(self, **kwargs: Any) -> Any:
        """Return the number of samples in an epoch: an int, ``numpy.inf``, or None if it is not known."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def batch_iterator(self, batch_size: int, **kwargs: Any) -> Iterator[Any]:
        """Return an iterator of batches."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        """Return the batch of the rows `indices`."""
        raise self._no_random_access("samples_by_indices_nomapping")

    def samples_by_indices(self, indices: Any) -> Any:
        """Return the batch of `indices`, which number the rows that the sampler draws from."""
        raise self._no_random_access("samples_by_indices")

    def batch_indices_iterator(self, batch_size: int, shuffle: Any = None, **kwargs: Any) -> Iterator[Any]:
        """Return an iterator of the rows of each batch."""
        raise self._no_random_access("batch_indices_iterator")

    def _no_random_access(self, method: str) -> ArgumentTypeError:
        return ArgumentTypeError(
            f"{method} method not supported as {type(self).__name__} does not support random access, or one or more "
            f"of the underlying data sources does not; iterate with batch_iterator, or in the background with "
            f"pool.prefetch(source)"
        )


class ReadsRows(BatchupMethods):
    """The protocol that a worker calls."""

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        """Return the batch of `rows`.

        Args:
            rows: Rows from the plan: ``(n,) int``, or a nest. Read-only, because others use them too.
            key: Identifies the randomness of the batch at this node.
            buffers: Source of memory for the batch.
        """
        return of_its_own(self.samples_by_indices_nomapping(read_only(rows)))

    def read_samples(self, rows: Any, key: BatchKey, buffers: Buffers) -> list[Any]:
        """Return the samples of `rows` one by one, in the form of the data set, for a ``collate`` function."""
        return batches.given_samples(as_batch(self.read(rows, key, buffers)))

    def sample_name(self, rows: Any) -> str | None:
        """Return the path or key of the one sample of `rows` for an error, or None if it has none."""
        return None


class PlansRows(BatchupMethods):
    """The protocol that a plan calls, in the consumer's process. It is index arithmetic only."""

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        """Return the rows of each batch in the order of `key`. None is in order."""
        n = self.num_samples()
        said = None if n is None else count_batches(n, batch_size, drop_last)
        return listed_plan(self, batch_size, key and key.random_state("listed"), drop_last, said)

    def rows_at(self, positions: np.ndarray) -> Any:
        """Return the rows at `positions`, ``(n,) int``, of the unshuffled epoch.

        Raises:
            ArgumentTypeError: the source has no such order.
        """
        raise ArgumentTypeError(
            f"the samples of a {type(self).__name__} have no numbers of their own, so it cannot be indexed, nor be "
            f"part of concat, filter, mix, subset, split or zip; use those on the sources that it is made of"
        )

    def natural_blocks(self) -> tuple[int, int] | None:
        """Return the length of a block, whose samples are as cheap to read together as one, and the number of blocks
        that a shuffle may mix while storage reads each once. None if samples are cheap one by one or come from other
        sources.
        """
        return None

    def rows_kept(self) -> float:
        """Return the number of rows that fit in the cache if rows are decoded in groups, else ``math.inf``."""
        return math.inf

    def check_batch_size(self, batch_size: int) -> None:
        """Raise :class:`~batchup_ng.errors.ArgumentError` if no batch has this size. A loader calls this first."""

    def order_blocks(self, found: tuple[int, int] | None = None) -> tuple[int, int] | None:
        """Return the block and window of this node's order by blocks, derived from `found` or :meth:`natural_blocks`.
        None if it has no such order of its own.
        """
        return None

    def permutes_rows(self) -> bool:
        """Return whether a shuffled epoch is a permutation of the unshuffled epoch."""
        return False


def listed_plan(source: BatchupMethods, batch_size: int, rng: Any, drop_last: bool, said: float | None) -> ListedPlan:
    """Return the rows that ``batch_indices_iterator`` of a source lists, in order or drawn from `rng`.

    `said` is the number of batches, if the source says it.
    """

    def listed() -> Iterator[Any]:
        for rows in source.batch_indices_iterator(batch_size, shuffle=rng):
            if not drop_last or batches.length(rows) >= batch_size:
                yield rows

    return ListedPlan(listed(), said)


class Streams(BatchupMethods):
    """The protocol of a source without random access. The thread that iterates over the source calls it."""

    def stream(self, options: EpochOptions, path: tuple[int, ...]) -> Iterator[Any]:
        """Yield the batches of an epoch. `path` is the place of this node in the graph."""
        yield from self.batch_iterator(options.batch_size, **taken_by(self.batch_iterator, options.given))

    def stream_count(self, options: EpochOptions) -> float | None:
        """Return the number of batches from ``stream``: an int, ``math.inf``, or None if it is not known."""
        return None

    def checkpointable(self) -> Any:
        """Return the object that saves and restores the user's own iterator of a stream, or None if none can."""
        return None


class Traits(NamedTuple):
    """Facts about a source that decide how the library runs an epoch. A graph has the traits of all its nodes."""

    runs_user_code: bool = False
    """Whether the user's code makes batches. That code may draw from NumPy's or Python's global generator."""
    takes_options: bool = False
    """Whether a function of the user takes unknown options."""
    uses_shuffle: bool = False
    """Whether ``shuffle=`` can change the order of the batches, or the random numbers of a map."""
    orders_rows: bool = False
    """Whether a node shuffles its rows, and the nodes below it do not."""
    spreads_reads: bool = False
    """Whether several threads read the rows of one batch, if a pool has idle threads."""
    draws: bool = False
    """Whether a map has ``rng=``."""
    draws_by_batch: bool = False
    """Whether a map has ``rng="batch"``, so another batch size gives other random numbers."""
    resizes: bool = False
    """Whether a map may return more or fewer samples."""
    of_pool: bool = False
    """Whether a pool makes the batches. They, and the results of maps on them, are then handed out unchanged."""


class SourceNode(ReadsRows, PlansRows, Streams):
    """A node of a graph of sources."""

    def children(self) -> tuple[SourceNode, ...]:
        """Return the sources that this one reads from.

        This default is for a user's source. It finds the sources among the attributes, and in lists, tuples and dicts
        of sources.
        """
        found: list[SourceNode] = []
        for value in vars(self).values():
            parts = list(value.values()) if isinstance(value, dict) else value
            if not isinstance(parts, (list, tuple)):
                parts = [parts]
            if parts and isinstance(parts[0], SourceNode):  # check only the first: a list of other things may be long
                found += [part for part in parts if isinstance(part, SourceNode)]
        return tuple(found)

    def own_traits(self) -> Traits:
        """Return the traits of this node alone."""
        return Traits(runs_user_code=written_by_user(self), uses_shuffle=True)

    @property
    def traits(self) -> Traits:
        """The traits of this node and all nodes below it."""
        return combined(node.own_traits() for node in nodes_of(self))

    def fingerprint(self) -> list[Any]:
        """Return everything that the order of an epoch depends on, except the seed, in strings, numbers and lists.

        A saved state keeps a digest of it. Only a source with the same graph, lengths and samplers can resume from the
        state. The pool is not included. This default has the class and the number of samples, but not the options of a
        custom source. Override it if such options change the order.
        """
        return [type(self).__name__, str(self.num_samples())]

    def __dir__(self) -> list[str]:
        """Return the names for Tab completion: the user's methods, without the hooks."""
        return [name for name in super().__dir__() if name not in HOOKS]

    def _facts(self) -> list[str]:
        return [samples_in_words(self), *arguments(self)]


HOOKS = {"has_plan", "plan_of", "start"}.union(
    name for kind in (ReadsRows, PlansRows, Streams, SourceNode) for name in vars(kind) if not name.startswith("_")
)
"""Methods and attributes for the library, not for users."""


def nodes_of(root: SourceNode, below_orders: bool = True) -> list[SourceNode]:
    """Return the nodes of a graph of sources, each once, children before their parents.

    If `below_orders` is False, the nodes below a node that orders its rows are left out.
    """
    found: dict[int, SourceNode] = {}

    def visit(node: SourceNode) -> None:
        if id(node) in found:
            return
        if below_orders or not node.own_traits().orders_rows:
            for child in type(node).children(node):  # a user's object may have an attribute of this name
                visit(child)
        found[id(node)] = node

    visit(root)
    return list(found.values())


def combined(traits: Iterable[Traits]) -> Traits:
    """Return the traits that at least one of `traits` has."""
    return Traits(*map(any, zip(*traits, strict=True)))


def written_by_user(node: SourceNode) -> bool:
    """Return whether the class of a node is not the library's own."""
    return type(node).__module__.partition(".")[0] != PACKAGE


def samples_in_words(source: SourceNode) -> str:
    """Return the number of samples in an epoch, in words."""
    n = source.num_samples() if source.is_random_access else None
    return "a stream" if n is None else "endless" if n == math.inf else f"{n} samples"


def joined_names(names: Iterable[str | None]) -> str | None:
    """Return the names of the parts of one sample, each once; None if there are none."""
    return ", ".join([name for name in dict.fromkeys(names) if name is not None]) or None
