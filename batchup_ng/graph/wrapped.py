"""Base classes of nodes that take each batch from another node."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..memory.leases import Buffers
from ..randomness import BatchKey, OrderKey
from ..sampling.plans.rows import RowPlan
from .node import Node, Notes


class WrapperNode(Node):
    """A node that takes its batches from another node."""

    def __init__(self, source: Node) -> None:
        super().__init__()
        self.source = source

    def children(self) -> tuple[Node, ...]:
        return (self.source,)

    def with_children(self, children: Sequence[Node]) -> WrapperNode:
        made = copy.copy(self)
        (made.source,) = children
        made._notes = Notes()
        return made

    def origin(self) -> Any:
        return self.source.origin()

    def origin_rows(self, positions: np.ndarray) -> np.ndarray:
        return self.source.origin_rows(positions)

    def samples_by_indices(self, indices: Any) -> Any:
        return self.source.samples_by_indices(indices)

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        return self.source.read(rows, key.child(0), buffers)

    def read_kept(self, rows: Any, key: BatchKey, buffers: Buffers) -> tuple[Any, np.ndarray | None]:
        return self.source.read_kept(rows, key.child(0), buffers)

    def read_samples(self, rows: Any, key: BatchKey, buffers: Buffers) -> list[Any]:
        return self.source.read_samples(rows, key.child(0), buffers)

    def sample_name(self, rows: Any) -> str | None:
        return self.source.sample_name(rows)


class SameOrderNode(WrapperNode):
    """A node that changes the form of each batch of another node, in the same order."""

    def read_kept(self, rows: Any, key: BatchKey, buffers: Buffers) -> tuple[Any, np.ndarray | None]:
        return Node.read_kept(self, rows, key, buffers)  # from this node's own batch

    def read_samples(self, rows: Any, key: BatchKey, buffers: Buffers) -> list[Any]:
        return Node.read_samples(self, rows, key, buffers)  # from this node's own batch

    def num_samples(self, **options: Any) -> Any:
        return self.source.num_samples(**options)

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        return self.source.row_plan(batch_size, key, drop_last)

    def rows_at(self, positions: Any) -> Any:
        return self.source.rows_at(positions)

    def natural_blocks(self) -> tuple[int, int] | None:
        return self.source.natural_blocks()

    def permutes_rows(self) -> bool:
        return self.source.permutes_rows()
