"""The facts about a source that a ledger keeps: enough to recognise the source, and to plan the usual orders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..data_source.epoch.checkpoint import identity
from ..error_context import function_name
from ..graph.arrays import ArraysNode
from ..graph.map import MapNode
from ..graph.node import Node, nodes_of, samples_in_words
from ..graph.rows import RowsNode
from ..graph.wrapped import SameOrderNode
from ..sampling.standard import StandardSampler


class OrderNode(RowsNode):
    """A node that stands for a source whose order depends on the number of its rows alone. It has no data."""

    name = "OrderOfLedger"

    def natural_blocks(self) -> tuple[int, int]:
        return 1, 1  # an order by blocks takes those of the ledger


def facts_of(node: Node) -> dict[str, Any]:
    """Return the facts about a source as JSON.

    ``digest`` is the one of a saved state, ``graph`` has words for each node, ``order`` the rows and the repeats of a
    standard order, ``draws`` the maps and columns that draw random numbers, each with its path from the root.
    """
    return {
        "digest": identity(node)[0],
        "graph": [_words(each) for each in nodes_of(node)],
        "order": _order(node),
        "draws": [[name, how, list(path)] for name, how, path in _drawing(node, ())],
    }


def difference(then: dict[str, Any], now: dict[str, Any]) -> str:
    """Return in words what differs between the facts in a ledger and those of another source."""
    for one, other in zip(then["graph"], now["graph"], strict=False):
        if one != other:
            return f"it has {other!r}, and the ledger {one!r}"
    if len(then["graph"]) != len(now["graph"]):
        return f"it has {len(now['graph'])} parts, {now['graph']}, and the ledger {then['graph']}"
    return "the rows of a part, or the options of a sampler, are others"


def node_of_order(order: list[int]) -> Node:
    """Return a node with this standard order."""
    n, repeats = order
    return OrderNode(StandardSampler(n, repeats))


def _words(node: Node) -> str:
    name = f"{node.name} of {samples_in_words(node)}"
    if isinstance(node, MapNode):
        return f"{name}, {function_name(node.fn)}" + (f" with rng={node.rng!r}" if node.rng else "")
    if isinstance(node, RowsNode) and type(node.sampler) is not StandardSampler:
        return f"{name}, {type(node.sampler).__name__}"
    return name


def _order(node: Node) -> list[int] | None:
    """Return the number of rows and of repeats, if the order of a node depends on these alone."""
    while isinstance(node, SameOrderNode) and type(node).row_plan is SameOrderNode.row_plan:
        node = node.source
    usual = isinstance(node, RowsNode) and type(node).row_plan is RowsNode.row_plan and node.own.lister is None
    if not usual or type(sampler := node.sampler) is not StandardSampler:  # type: ignore[attr-defined]
        return None
    return [int(sampler.length), int(sampler.repeats)]


def _drawing(node: Node, path: tuple[int, ...]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Yield what draws random numbers: its name, for what each generator is, its path."""
    if isinstance(node, MapNode) and node.rng is not None:
        yield function_name(node.fn), str(node.rng), path
    if isinstance(node, ArraysNode) and node._draws:
        yield node.name, "sample", path
    for number, child in enumerate(node.children()):
        yield from _drawing(child, (*path, number))
