"""The facts about a source that a ledger keeps: enough to recognise the source, and to plan the usual orders."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import sampling
from ..data_source.epoch.state import identity
from ..error_context import function_name
from ..errors import BatchupError, LedgerError
from ..graph.arrays import ArraysNode
from ..graph.map import MapNode
from ..graph.node import Node, nodes_of, samples_in_words
from ..graph.rows import RowsNode
from ..graph.wrapped import SameOrderNode
from ..sampling.base import AbstractSampler
from ..sampling.schedules import WeightSchedule, schedule_from
from ..sampling.standard import StandardSampler

MAX_OPTIONS = 20_000
"""Maximum number of characters of a sampler's options in a ledger. Weights of a million rows have more."""


class OrderNode(RowsNode):
    """A node that stands for a source whose order depends on a sampler alone. It has no data."""

    name = "OrderOfLedger"

    def natural_blocks(self) -> tuple[int, int]:
        return 1, 1  # an order by blocks takes its blocks from the ledger


def facts_of(node: Node) -> dict[str, Any]:
    """Return the facts about a source as JSON.

    ``digest`` is the one of a saved state, ``graph`` has words for each node, ``order`` the name and
    the options of its sampler or None, ``draws`` the maps and columns that draw random numbers, each with its path.
    """
    return {
        "digest": identity(node)[0],
        "graph": [_words(each) for each in nodes_of(node)],
        "order": _order(node),
        "draws": [[name, how, list(path)] for name, how, path in _drawing(node, ())],
    }


def difference(then: dict[str, Any], now: dict[str, Any]) -> str:
    """Return in words the first difference between `then`, the facts in a ledger, and `now`, of another source."""
    for one, other in zip(then["graph"], now["graph"], strict=False):
        if one != other:
            return f"it has {other!r}, and the ledger {one!r}"
    if len(then["graph"]) != len(now["graph"]):
        return f"it has {len(now['graph'])} parts, {now['graph']}, and the ledger {then['graph']}"
    return "the rows of a part, or the options of a sampler, are others"


def node_of_order(order: list[Any]) -> Node:
    """Return a node with the order of a sampler of the library.

    Raises:
        LedgerError: this version has no such sampler.
    """
    with contextlib.suppress(BatchupError, TypeError, AttributeError):
        return OrderNode(_made(*order))
    raise LedgerError(f"this version of batchup_ng has no sampler {order!r:.200}; pass --source MODULE:FUNCTION")


def _made(name: str, options: dict[str, Any]) -> AbstractSampler:
    kind = getattr(sampling, name)
    if name not in sampling.__all__ or not issubclass(kind, AbstractSampler):
        raise TypeError(name)
    weights = options.get("weights")
    if isinstance(weights, dict):
        options = {**options, "weights": schedule_from(weights["schedule"], len(options["lengths"]))}
    made: AbstractSampler = kind(**options)
    return made


def _words(node: Node) -> str:
    name = f"{node.name} of {samples_in_words(node)}"
    if isinstance(node, MapNode):
        return f"{name}, {function_name(node.fn)}" + (f" with rng={node.rng!r}" if node.rng else "")
    if isinstance(node, RowsNode) and type(node.sampler) is not StandardSampler:
        return f"{name}, {type(node.sampler).__name__}"
    return name


def _order(node: Node) -> list[Any] | None:
    """Return the name and the options of the sampler, if the order of a node depends on these alone."""
    while isinstance(node, SameOrderNode) and type(node).row_plan is SameOrderNode.row_plan:
        node = node.source
    usual = isinstance(node, RowsNode) and type(node).row_plan is RowsNode.row_plan and node.own.lister is None
    return _options_of_sampler(node.sampler) if usual else None  # type: ignore[attr-defined]


def _options_of_sampler(sampler: AbstractSampler) -> list[Any] | None:
    """Return the name and the options of a sampler, if they make an equal one and are few."""
    kind = type(sampler)
    if getattr(sampling, kind.__name__, None) is not kind:
        return None
    options = {name: _plain(getattr(sampler, name, None)) for name in inspect.signature(kind).parameters}
    with contextlib.suppress(BatchupError, TypeError, ValueError):
        order = [kind.__name__, {name: value for name, value in options.items() if value is not None}]
        if len(json.dumps(order)) <= MAX_OPTIONS and _made(*order).fingerprint() == sampler.fingerprint():
            return order
    return None


def _plain(value: Any) -> Any:
    """Return an option as JSON has it; an array of many numbers as it is."""
    if isinstance(value, WeightSchedule):
        return {"schedule": value.plain()}
    return value.tolist() if isinstance(value, np.ndarray) and value.size < MAX_OPTIONS else value


def _drawing(node: Node, path: tuple[int, ...]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Yield each map or column that draws random numbers: its name, ``"sample"`` or ``"batch"``, its path."""
    if isinstance(node, MapNode) and node.rng is not None:
        yield function_name(node.fn), str(node.rng), path
    if isinstance(node, ArraysNode) and node._draws:
        yield node.name, "sample", path
    for number, child in enumerate(node.children()):
        yield from _drawing(child, (*path, number))
