"""A node of a graph: what a source has, and what is sent to workers.

A source is a face over a node. Its methods build nodes. A node knows its children, how many samples it has, in which
rows each batch consists, and how a worker reads them. It knows nothing of pools, epochs and their options.

A node with random access plans rows and reads them. Any other node streams: it yields batches from the front.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from .. import batch as nests
from ..batch import as_batch
from ..display import SHOWN_ROWS, Shown, arguments, rows_in_words
from ..errors import ArgumentError, ArgumentTypeError
from ..memory.leases import BufferPool, Buffers
from ..randomness import BatchKey, OrderKey
from ..sampling.plans.drawn import ANY_ORDER, DrawnKey, listed_epoch
from ..sampling.plans.epoch import BatchesPlan, BatchPlan, Reached, SamplesPlan, Shard
from ..sampling.plans.rows import RowPlan, one_row, take_rows, whole_samples

NEEDS_NUMBERS = (
    "cannot be indexed, nor have concat, filter, folds, mix, sample, split, subset, with_column of an array, "
    "with_index or zip"
)
"""What a source cannot do if its samples have no numbers, for errors."""


class Traits(NamedTuple):
    """Facts about a node that decide how the library runs an epoch. A graph has the traits of all its nodes."""

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
    filters: bool = False
    """Whether a lazy filter may leave samples out of batches."""
    of_pool: bool = False
    """Whether a pool makes the batches. They, and the results of maps on them, are then handed out unchanged."""


class Kind(NamedTuple):
    """What the batches of a column hold: arrays or lists, the dtype, the shape of a sample. None is not known."""

    listed: bool
    dtype: Any
    shape: tuple[Any, ...] | None


class Classes(NamedTuple):
    """The class names of labels."""

    names: tuple[str, ...]
    column: Any
    """The column that has the numbers of the classes: its name or place in a batch, or None if it is not known."""

    def moved(self, origin: Any) -> Classes | None:
        """Return the class names for batches with other columns. None if they lack the labels.

        `origin` is the form of these batches, with the keys of the columns as they were.
        """
        if self.column is None or origin is None:
            return Classes(self.names, None)
        pairs = origin.items() if isinstance(origin, Mapping) else enumerate(origin)
        keys = [key for key, column in pairs if column == self.column]
        return Classes(self.names, keys[0]) if keys else None


class Streaming(Protocol):
    """The part of the options of an epoch that a node reads."""

    @property
    def batch_size(self) -> int: ...
    @property
    def drop_last(self) -> bool: ...
    @property
    def seed(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def shard(self) -> Shard: ...
    @property
    def reached(self) -> Reached: ...
    @property
    def counted(self) -> dict[tuple[int, ...], int]:
        """The number of samples that each map has received, by its place in the graph. The maps count here."""
        ...

    @property
    def given(self) -> Mapping[str, Any]:
        """The options given by the user that are passed on to the user's functions and sources."""
        ...

    def child(self, number: int) -> Streaming:
        """Return the same for child `number`, which has its own order."""
        ...

    def opened(self) -> Streaming:
        """Return the same after its seed was drawn, if it draws one."""
        ...

    def order_key(self, blocks: Mapping[int, Any] | None = None) -> OrderKey | None:
        """Return the key of the order at this node, or None if it is in order."""
        ...

    def keywords_for(self, fn: Callable[..., Any]) -> dict[str, Any]:
        """Return the keywords for a user's function."""
        ...


class Notes:
    """What this process remembers of a node from epoch to epoch. A pickled copy has none of it.

    Attributes:
        latest: The options and the accounting of the latest epoch without a given number.
        warned: The kinds of warnings that were given.
    """

    def __init__(self) -> None:
        self.latest: Any = None
        self.warned: set[str] = set()

    @functools.cached_property
    def buffers(self) -> BufferPool:
        """Memory for batches made on the consumer's thread."""
        return BufferPool(max_free=4)

    def __reduce__(self) -> tuple[type[Notes], tuple[()]]:
        return Notes, ()


class Node(Shown):
    """A node of a graph of sources. The defaults are those of a node without children, with random access.

    Attributes:
        name: The name of the source's class, for errors and saved states.
        kinds: What the columns hold, as far as it is known, by name or place, if the node joins others. Else None.
    """

    name = ""
    kinds: Mapping[Any, Kind] | None = None

    def __init__(self) -> None:
        self._notes = Notes()

    @property
    def notes(self) -> Notes:
        """What this process remembers of the node."""
        return self._notes

    @property
    def epoch_notes(self) -> Notes:
        """The notes that hold the latest epoch."""
        return self.notes

    # -- the graph -----------------------------------------------------------------------------------------------

    def children(self) -> tuple[Node, ...]:
        """Return the nodes that this one reads from."""
        return ()

    def with_children(self, children: Sequence[Node]) -> Node:
        """Return this node over other nodes, one in place of each of its children and with the same samples.

        Raises:
            ArgumentTypeError: the node cannot be had over others.
        """
        raise ArgumentTypeError(
            f"what a {self.name} reads from cannot be replaced; make the change in the sources that it is made of, "
            f"then make it of them"
        )

    def own_traits(self) -> Traits:
        """Return the traits of this node alone."""
        return Traits()

    @property
    def traits(self) -> Traits:
        """The traits of this node and all nodes below it."""
        return combined(node.own_traits() for node in nodes_of(self))

    def fingerprint(self) -> list[Any]:
        """Return everything that the order of an epoch depends on, except the seed, in strings, numbers and lists."""
        return [self.name, *[child.fingerprint() for child in self.children()]]

    def described_as(self) -> Node:
        """Return the node whose fingerprint this node has: this one, or the node below a pool."""
        return self

    # -- which rows: index arithmetic, in the consumer's process ---------------------------------------------------

    @property
    def is_random_access(self) -> bool:
        """Whether batches can be made from row numbers, in any order."""
        return all(child.is_random_access for child in self.children())

    def num_samples(self, **options: Any) -> Any:
        """Return the number of samples in an epoch: an int, ``numpy.inf``, or None if it is not known."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        """Return the rows of each batch in the order of `key`. None is in order."""
        raise self.no_random_access("row_plan")

    def rows_at(self, positions: np.ndarray) -> Any:
        """Return the rows at `positions`, ``(n,) int``, of the unshuffled epoch.

        Raises:
            ArgumentTypeError: the node has no such order.
        """
        raise ArgumentTypeError(
            f"the samples of a {self.name} have no numbers of their own, so it {NEEDS_NUMBERS}; use those on the "
            f"sources that it is made of"
        )

    def origin(self) -> Any:
        """Return an object that stands for the data at the bottom: this node if its samples come from several."""
        return self

    def origin_rows(self, positions: np.ndarray) -> np.ndarray:
        """Return the positions in the unshuffled epoch of the origin, ``(n,) int``, for `positions` in that of this
        node.
        """
        return positions

    def natural_blocks(self) -> tuple[int, int] | None:
        """Return the length of a block, whose samples are as cheap to read together as one, and the number of blocks
        that a shuffle may mix while storage reads each once. None if samples are cheap one by one or come from other
        sources.
        """
        return None

    def rows_kept(self) -> float:
        """Return the number of rows that fit in the cache if rows are decoded in groups, else ``math.inf``."""
        return math.inf

    def order_blocks(self, found: tuple[int, int] | None = None) -> tuple[int, int] | None:
        """Return the block and window of this node's order by blocks, derived from `found` or :meth:`natural_blocks`.
        None if it has no such order of its own.
        """
        return None

    def permutes_rows(self) -> bool:
        """Return whether a shuffled epoch is a permutation of the unshuffled epoch."""
        return False

    @property
    def own_batch_size(self) -> int | None:
        """The batch size that the order of this node has, None for any. A loader takes it if the user gives none."""
        return None

    def check_batch_size(self, batch_size: int) -> None:
        """Raise :class:`~batchup_ng.errors.ArgumentError` if no batch has this size. A loader calls this first."""

    def check_world(self, world: int) -> None:
        """Raise :class:`~batchup_ng.errors.ArgumentError` if so many ranks cannot share an epoch."""

    def form(self) -> Any:
        """Return the form of the batches, see :mod:`batchup_ng.columns`, or None if only a batch shows it."""
        return None

    def only(self, names: Sequence[Any]) -> Node | None:
        """Return a node with the same samples that reads only some columns, or None if this node must read all.

        Args:
            names: The names of the columns, or their places, in the order of the result.

        Raises:
            ArgumentError: there is no such column.
        """
        return None

    def stacks_samples(self, key: Any) -> bool:
        """Return whether batches of a column are stacked from single samples: arrays, or lists if their shapes differ.

        `key` is the name or place of the column. None stands for any column.
        """
        return any(stacks(child, key) for child in self.children())

    def classes(self) -> Classes | None:
        """Return the class names of the labels. None if there are none, or the children have different ones.

        A map without ``on=`` is taken to leave the labels in their place.
        """
        found = [classes for child in self.children() if (classes := child.classes()) is not None]
        if len({classes.names for classes in found}) != 1:
            return None
        return found[0] if len(self.children()) == 1 else Classes(found[0].names, None)

    def reader_report(self) -> Any:
        """Return the report of the reader of files that all samples come from, or None."""
        found = [child.reader_report() for child in self.children()]
        return found[0] if found and all(report is found[0] for report in found) else None

    # -- reading: in a worker --------------------------------------------------------------------------------------

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        """Return the batch of `rows`.

        Args:
            rows: Rows from the plan: ``(n,) int``, or a nest. Read-only, because others use them too.
            key: Identifies the randomness of the batch at this node.
            buffers: Source of memory for the batch.
        """
        raise self.no_random_access("samples_by_indices_nomapping")

    def read_kept(self, rows: Any, key: BatchKey, buffers: Buffers) -> tuple[Any, np.ndarray | None]:
        """Return the batch of `rows`, and which of their samples it has.

        Returns:
            The batch, or :data:`~batchup_ng.batch.NOTHING_LEFT` if lazy filters keep no sample of it; the place in
            `rows` of each sample, ``(n,) int64``, or None if all are there or the places are unknown.
        """
        return self.read(rows, key, buffers), None

    def read_samples(self, rows: Any, key: BatchKey, buffers: Buffers) -> list[Any]:
        """Return the samples of `rows` one by one, in the form of the data set, for a ``collate`` function."""
        return nests.given_samples(as_batch(self.read(rows, key, buffers)))

    def samples_by_indices(self, indices: Any) -> Any:
        """Return the batch of `indices`, which number the rows that the samplers draw from."""
        raise self.no_random_access("samples_by_indices")

    def sample_name(self, rows: Any) -> str | None:
        """Return the path or key of the one sample of `rows` for an error, or None if it has none."""
        return None

    # -- streaming: on the thread that iterates ----------------------------------------------------------------------

    def stream(self, options: Streaming, path: tuple[int, ...]) -> Iterator[Any]:
        """Yield the batches of an epoch. `path` is the place of this node in the graph."""
        for planned in batch_plan(self, options.opened()):  # never a shard: a stream has none
            yield self.read(planned.rows, planned.key._replace(path=path), self.notes.buffers)

    def stream_count(self, options: Streaming) -> float | None:
        """Return the number of batches from ``stream``: an int, ``math.inf``, or None if it is not known."""
        if not self.is_random_access:
            return None
        return self.row_plan(options.batch_size, ANY_ORDER, options.drop_last).n_in_any_order

    def checkpointable(self) -> Any:
        """Return the object that saves and restores the user's own iterator of a stream, or None if none can."""
        return None

    # -- words -------------------------------------------------------------------------------------------------------

    def no_random_access(self, method: str) -> ArgumentTypeError:
        """Return the error of a method that needs random access."""
        return ArgumentTypeError(
            f"{method} method not supported as {self.name} does not support random access, or one or more of the "
            f"underlying data sources does not; iterate with batch_iterator, or in the background with "
            f"pool.prefetch(source)"
        )

    def _facts(self) -> list[str]:
        return [samples_in_words(self), *arguments(self)]


def batch_plan(
    node: Node, options: Streaming, blocks: Mapping[int, Any] | None = None
) -> BatchPlan:
    """Return the plan of the epoch that `options` describe, after they were opened, by the row plan of the node."""
    if not node.is_random_access:
        raise node.no_random_access("plan")
    size, drop_last, key = options.batch_size, options.drop_last, options.order_key(blocks)
    if isinstance(key, DrawnKey):
        rows: RowPlan = listed_epoch(node.row_plan, size, key, drop_last, node.num_samples())
    else:
        rows = node.row_plan(size, key, drop_last)
    kind = BatchesPlan if rows.n_samples is None else SamplesPlan
    in_turns = blocks is not None
    return kind(rows, size, options.seed, options.epoch, drop_last, options.shard, options.reached, in_turns)


def nodes_of(root: Node, below_orders: bool = True) -> list[Node]:
    """Return the nodes of a graph, each once, children before their parents.

    If `below_orders` is False, the nodes below a node that orders its rows are left out.
    """
    found: dict[int, Node] = {}
    _visit(root, below_orders, found)
    return list(found.values())


def _visit(node: Node, below_orders: bool, found: dict[int, Node]) -> None:
    """Add to `found` the nodes below `node`, and the node. (A function in a function would keep them until a garbage
    collection.)
    """
    if id(node) in found:
        return
    if below_orders or not node.own_traits().orders_rows:
        for child in node.children():
            _visit(child, below_orders, found)
    found[id(node)] = node


def combined(traits: Iterable[Traits]) -> Traits:
    """Return the traits that at least one of `traits` has."""
    return Traits(*map(any, zip(*traits, strict=True)))


def stacks(node: Node, key: Any) -> bool:
    """Return :meth:`Node.stacks_samples` for a column that the node may lack. None stands for any column."""
    form = node.form()
    if key is None or form is None:
        return node.stacks_samples(None)
    has = key in form if isinstance(form, Mapping) else isinstance(key, int) and key < len(form)
    return has and node.stacks_samples(key)


def numbered_length(name: str, node: Node) -> int:
    """Return the length of the unshuffled epoch of `node`. Refuse an endless epoch, or one without such an order."""
    node.rows_at(np.arange(0))
    n = node.num_samples()
    if n is None or n == math.inf:
        raise ArgumentError(f"{name} has an epoch that never ends, so its samples cannot be numbered; give it an end")
    return int(n)


def rows_named(node: Node, rows: Any) -> str:
    """Return the names of the samples of `rows`, or the rows, in words."""
    n, _ = whole_samples(rows)
    each = [take_rows(rows, np.array([place])) for place in range(min(n, SHOWN_ROWS))]
    listed = [*map(one_row, each), *[None] * (n - len(each))]
    return rows_in_words(listed, map(node.sample_name, each))


def samples_in_words(node: Node) -> str:
    """Return the number of samples in an epoch, in words."""
    n = node.num_samples() if node.is_random_access else None
    return "a stream" if n is None else "endless" if n == math.inf else f"{n} samples"


def joined_names(names: Iterable[str | None]) -> str | None:
    """Return the names of the parts of one sample, each once; None if there are none."""
    return ", ".join([name for name in dict.fromkeys(names) if name is not None]) or None
