"""What every node of a graph of sources can be asked, with an answer for sources that only know BatchUp's methods.

A source is written against BatchUp's four methods (``batch_iterator``; for random access ``batch_indices_iterator``,
``samples_by_indices``, ``samples_by_indices_nomapping``), or against three protocols, which are what the library itself
calls. They are base classes that answer by BatchUp's methods, so that either kind of source goes anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from .. import batch as batches
from ..batch import as_batch
from ..batch_layout import of_its_own
from ..display import Shown, arguments
from ..errors import ArgumentTypeError
from ..memory_pool import Buffers
from ..randomness import BatchKey, OrderKey
from ..sampling.plans.rows import ListedPlan, RowPlan, count_batches, read_only
from .epoch_options import EpochOptions, taken_by


class BatchupMethods(Shown):
    """The methods that a source of BatchUp's has."""

    @property
    def is_random_access(self) -> bool:
        """Whether batches can be made from row indices, in any order."""
        return False

    def num_samples(self, **kwargs: Any) -> Any:
        """Return the samples of an epoch: an int, ``numpy.inf``, or None where that is not known."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def batch_iterator(self, batch_size: int, **kwargs: Any) -> Iterator[Any]:
        """Return an iterator of batches."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        """Return the batch of the rows `indices`."""
        raise self._no_random_access("samples_by_indices_nomapping")

    def samples_by_indices(self, indices: Any) -> Any:
        """Return the batch of `indices`, which count within what the sampler draws from."""
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
    """What a worker calls."""

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        """Return the batch of `rows`.

        Args:
            rows: Rows as the plan gives them: ``(n,) int``, or a nest; read-only, for others use them too.
            key: Names the randomness of the batch at this node.
            buffers: Where to take memory from.
        """
        return of_its_own(self.samples_by_indices_nomapping(read_only(rows)))

    def read_samples(self, rows: Any, key: BatchKey, buffers: Buffers) -> list[Any]:
        """Return the samples of `rows` one by one, as the data set has them: what ``collate`` is called with."""
        return batches.given_samples(as_batch(self.read(rows, key, buffers)))

    def sample_name(self, rows: Any) -> str | None:
        """Return the path or key of the one sample of `rows`, to be named in an error; None where it has none."""
        return None


class PlansRows(BatchupMethods):
    """What a plan asks for, in the consumer's process: index arithmetic only."""

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        """Return the rows of each batch of the epoch that `key` names; None is in order."""
        rng = None if key is None else key.random_state("listed")
        n_batches = math.inf if self.num_samples() == math.inf else None
        return ListedPlan(self.drawn_rows(batch_size, rng, drop_last), n_batches)

    def drawn_rows(self, batch_size: int, rng: Any, drop_last: bool) -> Iterator[Any]:
        """Yield the rows of batch after batch, drawn from `rng` as it goes; None is in order."""
        for rows in self.batch_indices_iterator(batch_size, shuffle=rng):
            if not drop_last or batches.length(rows) >= batch_size:
                yield rows

    def count(self, batch_size: int, drop_last: bool) -> float | None:
        """Return the number of batches of an epoch, in whatever order; None where it depends on the order."""
        n = self.num_samples()
        return None if n is None else count_batches(n, batch_size, drop_last)

    def rows_at(self, positions: np.ndarray) -> Any:
        """Return the rows at `positions`, ``(n,) int``, of the epoch in order.

        Raises:
            ArgumentTypeError: the source has no such order.
        """
        raise ArgumentTypeError(
            f"the samples of a {type(self).__name__} have no numbers of their own, so it cannot be indexed, nor be "
            f"part of concat, filter, mix, subset, split or zip; use those on the sources that it is made of"
        )

    def natural_blocks(self) -> tuple[int, int] | None:
        """Return how many neighbouring samples are as cheap to read together as one, and how many such blocks a shuffle
        may mix so that storage reads each once; None where samples are cheap one by one, or are those of other sources.
        """
        return None

    def rows_kept(self) -> float:
        """Return how many of its rows there is room for where rows are decoded with others; ``math.inf`` elsewhere."""
        return math.inf

    def check_batch_size(self, batch_size: int) -> None:
        """Raise :class:`~batchup_ng.errors.ArgumentError` if there are no batches of that size; a loader asks first."""

    def order_blocks(self, found: tuple[int, int] | None = None) -> tuple[int, int] | None:
        """Return the block and window of this node's order by blocks, made of `found` or of :meth:`natural_blocks`;
        None if it has none of its own.
        """
        return None

    def permutes_rows(self) -> bool:
        """Return whether a shuffled epoch has the samples of the epoch in order, each once, in another order."""
        return False


class Streams(BatchupMethods):
    """What is asked of a source without random access, on the thread that iterates over it."""

    def stream(self, options: EpochOptions, path: tuple[int, ...]) -> Iterator[Any]:
        """Yield the batches of an epoch; `path` is the place of this node in the graph."""
        yield from self.batch_iterator(options.batch_size, **taken_by(self.batch_iterator, options.given))

    def stream_count(self, options: EpochOptions) -> float | None:
        """Return the number of batches that ``stream`` gives: an int, ``math.inf``, or None where it is not known."""
        return None

    def checkpointable(self) -> Any:
        """Return what saves and puts back the user's own iterator that a stream comes from; None if that cannot be."""
        return None


class SourceNode(ReadsRows, PlansRows, Streams):
    """A node of a graph of sources."""

    of_pool = False
    """Whether a pool makes its batches, which are handed out as they are, and so is what maps make of them."""
    runs_user_code = True
    """Whether code of the user's makes its batches, which may draw from NumPy's or Python's global generator."""
    spreads_reads = False
    """Whether it reads the rows of a batch by several threads, where a pool has any that are idle."""
    heeds_shuffle = True
    """Whether ``shuffle=`` can change the order of its batches, or what it draws."""
    has_order = False
    """Whether its rows are shuffled here, and those of the nodes below it are not."""
    takes_options = False
    """Whether it passes options that the library does not know to a function of the user's."""
    rng: str | None = None
    """How it draws random numbers, where it is a map that does."""
    resizes = False
    """Whether it is a map that may return another number of samples."""

    def fingerprint(self) -> list[Any]:
        """Return what the order of an epoch depends on beside the seed, in strings, numbers and lists.

        A saved state keeps a digest of it, so that it is only resumed from with a source of the same graph, lengths and
        samplers. Who makes the batches does not belong to it. This one tells the class and the number of samples, and
        nothing of the options of a source of one's own: if those change the order, define it.
        """
        return [type(self).__name__, str(self.num_samples())]

    def __dir__(self) -> list[str]:
        """Return the names that complete with Tab: the user's methods, without the hooks."""
        return [name for name in super().__dir__() if name not in HOOKS]

    def _facts(self) -> list[str]:
        return [samples_in_words(self), *arguments(self)]


HOOKS = {"has_plan", "plan_of", "start"}.union(
    name for kind in (ReadsRows, PlansRows, Streams, SourceNode) for name in vars(kind) if not name.startswith("_")
)
"""What the library calls, and users do not."""


def nodes_of(root: SourceNode, stops: str = "") -> list[SourceNode]:
    """Return the nodes of a graph of sources, each once, children before their parents.

    Those below a node whose attribute `stops` is true are left out.
    """
    found: dict[int, SourceNode] = {}

    def visit(node: SourceNode) -> None:
        if id(node) in found:
            return
        for value in [] if stops and getattr(node, stops) else list(getattr(node, "__dict__", {}).values()):
            parts = list(value.values()) if isinstance(value, dict) else value
            if not isinstance(parts, (list, tuple)):
                parts = [parts]
            if parts and isinstance(parts[0], SourceNode):  # or it may be a long list of something else
                for part in parts:
                    visit(part)
        found[id(node)] = node

    visit(root)
    return list(found.values())


def any_node(root: SourceNode, attribute: str) -> bool:
    """Return whether an attribute of a node of the graph is true: ``"rng"``, say, where a map draws random numbers."""
    return any(getattr(node, attribute) for node in nodes_of(root))


def samples_in_words(source: SourceNode) -> str:
    """Return how many samples an epoch has, in words."""
    n = source.num_samples() if source.is_random_access else None
    return "a stream" if n is None else "endless" if n == math.inf else f"{n} samples"


def joined_names(names: Iterable[str | None]) -> str | None:
    """Return the names of the parts of one sample, each once; None if there are none."""
    return ", ".join([name for name in dict.fromkeys(names) if name is not None]) or None
