"""A digest of all that the samples of a source depend on, for another program to recognise the source."""

from __future__ import annotations

from typing import Any

from .._version import __version__
from ..accessors.contents import column_facts, no_fingerprint, value_facts
from ..errors import ArgumentTypeError
from ..graph.arrays import ArraysNode
from ..graph.columns import ColumnsNode
from ..graph.filtered import FilterNode
from ..graph.map import MapNode
from ..graph.node import Node
from ..graph.rows import NO_USER_METHODS, RowsNode
from ..graph.streams import CallableNode, IteratorNode
from ..graph.user import PACKAGE, UserSourceNode
from .epoch.state import digest


def contents_digest(node: Node, *more: Any) -> str:
    """Return a digest of the graph, the columns and the functions of `node`, of functions and values in `more`, and of
    the version of this package.

    Raises:
        ArgumentTypeError: a column, or a source of the user, has no ``fingerprint()``; or the batches come from an
            iterator; or a function refers to an object that cannot be pickled.
    """
    nodes = _Nodes()
    nodes.add(node)
    columns = [column_facts(column) for each in nodes.found for column in _columns(each)]
    functions = value_facts([*[_functions(each) for each in nodes.found], *more])
    return digest([__version__, node.fingerprint(), nodes.places, columns, functions])


class _Nodes:
    """The nodes of a graph, each once, children before their parents.

    Attributes:
        found: The nodes.
        places: The places of the children of each node. One node that stands twice in a graph is not two nodes.
    """

    def __init__(self) -> None:
        self.found: list[Node] = []
        self.places: list[list[int]] = []
        self._known: dict[int, int] = {}

    def add(self, node: Node) -> int:
        """Add a node, after those below it. Return its place."""
        if id(node) not in self._known:
            below = [self.add(child) for child in node.children()]
            self._known[id(node)] = len(self.found)
            self.found.append(node)
            self.places.append(below)
        return self._known[id(node)]


def _columns(node: Node) -> list[Any]:
    """Return the columns of a node. Refuse a user's class that reads rows, unless it has a ``fingerprint()``."""
    if isinstance(node, UserSourceNode):
        if _is_ours(type(node.source).fingerprint):
            raise no_fingerprint(type(node.source).__name__)
        return []
    if not _is_ours(type(node)) and _is_ours(type(node).fingerprint) and _is_ours(getattr(node, "described", Node)):
        raise no_fingerprint(type(node).__name__)
    if isinstance(node, IteratorNode):
        raise ArgumentTypeError(
            "cache needs to know what the samples depend on, and an iterator of batches does not tell; give the "
            "function that makes it to CallableDataSource, or leave cache= out"
        )
    if isinstance(node, RowsNode) and node.own != NO_USER_METHODS and node.own.fingerprint is None:
        raise no_fingerprint(node.name)
    return node.data if isinstance(node, ArraysNode) else []


def _is_ours(value: Any) -> bool:
    return str(value.__module__).partition(".")[0] == PACKAGE


def _functions(node: Node) -> list[Any]:
    """Return what a node makes of samples, as far as its ``fingerprint()`` leaves it out."""
    facts: list[Any] = []
    if isinstance(node, RowsNode):  # the fingerprint of a user's sampler may be the default one
        facts = [node.sampler.fingerprint(), None if _is_ours(type(node.sampler)) else node.sampler]
    if isinstance(node, ArraysNode):
        return [*facts, node.names, node.include_indices, node.numbers, node.places]
    if isinstance(node, FilterNode):
        return [node.fn, node.on, node._names]
    if isinstance(node, MapNode):
        return [node.fn, node._columns, node.rng, node.resizes]
    if isinstance(node, ColumnsNode):
        return [node.columns]
    if isinstance(node, CallableNode):
        return [node.batch_iterator_fn, node.num_samples_fn]
    return [*facts, getattr(node, "flatten", None)]
