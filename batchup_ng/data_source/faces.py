"""The class of sources that shows each kind of node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..graph.node import Node

if TYPE_CHECKING:
    from .planned import PlannedDataSource

FACES: dict[type[Node], type[PlannedDataSource]] = {}
"""The class of sources that shows each kind of node. Each class adds itself."""


def shown(node: Node) -> PlannedDataSource:
    """Return the source that shows `node`, a node of the library."""
    made = object.__new__(FACES[type(node)])
    made._show(node)
    return made
