"""A digest of all that the samples of a source depend on, for another program to recognise the source."""

from __future__ import annotations

from typing import Any

from .._version import __version__
from ..accessors.contents import column_facts, no_fingerprint, value_facts
from ..graph.arrays import ArraysNode
from ..graph.columns import ColumnsNode
from ..graph.map import MapNode
from ..graph.node import Node, nodes_of
from ..graph.user import PACKAGE, UserSourceNode
from .epoch.state import digest


def contents_digest(node: Node, *more: Any) -> str:
    """Return a digest of the graph, the columns and the functions of `node`, of functions and values in `more`, and of
    the version of this package.

    Raises:
        ArgumentTypeError: a column, or a source of the user, has no ``fingerprint()``; or a function refers to an
            object that cannot be pickled.
    """
    nodes = nodes_of(node)
    columns = [column_facts(column) for each in nodes for column in _columns(each)]
    functions = value_facts([*[_functions(each) for each in nodes], *more])
    return digest([__version__, node.fingerprint(), columns, functions])


def _columns(node: Node) -> list[Any]:
    """Return the columns of a node. Refuse a user's class that reads rows, unless it has a ``fingerprint()``."""
    if isinstance(node, UserSourceNode) and type(node.source).fingerprint.__module__.partition(".")[0] == PACKAGE:
        raise no_fingerprint(type(node.source).__name__)
    if not isinstance(node, ArraysNode):
        return []
    if node.own.reader is not None and node.own.fingerprint is None:
        raise no_fingerprint(node.name)
    return node.data


def _functions(node: Node) -> list[Any]:
    """Return what a node makes of samples, as far as its ``fingerprint()`` leaves it out."""
    if isinstance(node, MapNode):
        return [node.fn, node.on, node.out]
    if isinstance(node, ColumnsNode):
        return [node.columns]
    return [getattr(node, "names", None), getattr(node, "flatten", None)]
