"""Nodes over a source that the user wrote, the only place that calls BatchUp's methods.

A node refers to the user's source, never the other way round: a source makes a new node each time it is asked for one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from ..batch_layout import of_its_own
from ..display import arguments
from ..errors import ArgumentTypeError
from ..memory.leases import Buffers
from ..randomness import BatchKey, OrderKey
from ..sampling.base import AbstractSampler
from ..sampling.plans.rows import RowPlan, count_batches, read_only
from .node import Node, Notes, Streaming, Traits, samples_in_words
from .rows import RowsNode, UserMethods, listed_plan
from .whole_batches import whole_batches

NEWER_OPTIONS = ("epoch", "drop_last")
"""Options that BatchUp did not have. The user's functions and sources receive them only if they accept them."""


PACKAGE = __name__.partition(".")[0]
"""Name of the library's package."""

METHODS_OF_NODES = ("own_traits", "natural_blocks", "plan_of", "read_samples", "row_plan", "rows_at", "sample_name")
"""Methods that the library asks of a node, or did once. On a source it would never call them. So is
``read(rows, key, buffers)``."""


class BatchupSource(Protocol):
    """A source with BatchUp's methods."""

    @property
    def is_random_access(self) -> bool: ...
    def num_samples(self, **options: Any) -> Any: ...
    def batch_iterator(self, batch_size: int, **options: Any) -> Iterator[Any]: ...
    def batch_indices_iterator(self, batch_size: int, shuffle: Any = None, **options: Any) -> Iterator[Any]: ...
    def samples_by_indices(self, indices: Any) -> Any: ...
    def samples_by_indices_nomapping(self, indices: Any) -> Any: ...
    def children(self) -> tuple[Any, ...]: ...
    def fingerprint(self) -> list[Any]: ...


class UserSourceNode(Node):
    """The base of the two nodes over a `source` that the user wrote."""

    def __init__(self, source: BatchupSource) -> None:
        self.source = source
        self.name = type(source).__name__

    @property
    def notes(self) -> Notes:
        return notes_of(self.source)

    def children(self) -> tuple[Node, ...]:
        return nodes_in(self.source)

    def origin(self) -> Any:
        return self.source  # a node is made anew for each request

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        return of_its_own(self.source.samples_by_indices_nomapping(read_only(rows)))


class UserNode(UserSourceNode):
    """A node over a source that the user wrote with BatchUp's methods."""

    def own_traits(self) -> Traits:
        return Traits(runs_user_code=True, uses_shuffle=True)

    def fingerprint(self) -> list[Any]:
        return self.source.fingerprint()

    @property
    def is_random_access(self) -> bool:
        return self.source.is_random_access

    def num_samples(self, **options: Any) -> Any:
        return self.source.num_samples(**options)

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        n = self.num_samples()
        said = None if n is None else count_batches(n, batch_size, drop_last)
        rng = key and key.random_state("listed")
        return listed_plan(self.source.batch_indices_iterator, batch_size, rng, drop_last, said)

    def samples_by_indices(self, indices: Any) -> Any:
        return self.source.samples_by_indices(indices)

    def stream(self, options: Streaming, path: tuple[int, ...]) -> Iterator[Any]:
        batches = self.source.batch_iterator(options.batch_size, **taken_by(self.source.batch_iterator, options.given))
        yield from whole_batches(iter(batches), options)

    def _facts(self) -> list[str]:
        return [samples_in_words(self), *arguments(self.source)]


class UserRowsNode(UserSourceNode, RowsNode):
    """A node over a source that the user wrote with numbered rows and a sampler.

    Args:
        source: The user's source.
        sampler: The order of its rows.
        own: The methods of the source.
    """

    def __init__(self, source: BatchupSource, sampler: AbstractSampler, own: UserMethods) -> None:
        super().__init__(source)
        self.sampler = sampler
        self.own = own

    def own_traits(self) -> Traits:
        return Traits(runs_user_code=True, uses_shuffle=True, orders_rows=True)

    def by_rows(self, rows: Any) -> Any:
        return self.source.samples_by_indices_nomapping(rows)

    def _facts(self) -> list[str]:
        own = super()._facts()
        return [*own, *[fact for fact in arguments(self.source) if fact not in own and not fact.startswith("length=")]]


def refuse_methods_of_nodes(kind: type) -> None:
    """Refuse a user's class of sources with a method that would never be called."""
    own: Any = kind
    if own.__module__.partition(".")[0] == PACKAGE:
        return
    reads = "buffers" in getattr(getattr(vars(own).get("read"), "__code__", None), "co_varnames", ())
    for name in (*METHODS_OF_NODES, *["read"] * reads, *["fingerprint"] * (not own._asks_fingerprint)):
        if name in vars(own):
            raise ArgumentTypeError(
                f"{own.__name__} defines {name}(), which is a method of nodes, not of such sources; define it in a "
                f"subclass of the node, such as batchup_ng.graph.arrays.ArraysNode, and name that: "
                f"class {own.__name__}(..., node=...)"
            )


def nodes_in(source: BatchupSource) -> tuple[Node, ...]:
    """Return the nodes of the sources that a user's source reads from."""
    return tuple([child.node for child in type(source).children(source)])  # the user may have an attribute `children`


def notes_of(source: BatchupSource) -> Notes:
    """Return what this process remembers of a user's source."""
    notes: Notes = vars(source).setdefault("_notes", Notes())
    return notes


def taken_by(fn: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for a user's function: all that BatchUp had, newer ones only if it accepts them."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        parameters = {}.values()
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    known = {each.name for each in parameters}
    return {name: value for name, value in given.items() if name not in NEWER_OPTIONS or takes_any or name in known}
