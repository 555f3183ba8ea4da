"""Base classes of sources that take each batch from another source."""

from __future__ import annotations

from typing import Any

from ..memory.leases import Buffers
from ..randomness import BatchKey, OrderKey
from ..sampling.plans.rows import RowPlan
from .base import AbstractDataSource, PlannedDataSource
from .composite import checked_source
from .hooks import Traits, written_by_user


class Wrapped(PlannedDataSource):
    """A source that takes its batches from another source."""

    def __init__(self, source: AbstractDataSource) -> None:
        self.source = checked_source("source", source)

    def children(self) -> tuple[AbstractDataSource, ...]:
        return (self.source,)

    def own_traits(self) -> Traits:
        return Traits(runs_user_code=written_by_user(self))

    @property
    def is_random_access(self) -> bool:
        return self.source.is_random_access

    def samples_by_indices(self, indices: Any) -> Any:
        return self.source.samples_by_indices(indices)

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        return self.source.read(rows, key.child(0), buffers)

    def read_samples(self, rows: Any, key: BatchKey, buffers: Buffers) -> list[Any]:
        return self.source.read_samples(rows, key.child(0), buffers)

    def sample_name(self, rows: Any) -> str | None:
        return self.source.sample_name(rows)


class SameOrder(Wrapped):
    """A source that changes the form of each batch of another source, in the same order."""

    def read_samples(self, rows: Any, key: BatchKey, buffers: Buffers) -> list[Any]:
        return PlannedDataSource.read_samples(self, rows, key, buffers)  # from this source's own batch

    def fingerprint(self) -> list[Any]:
        return [type(self).__name__, self.source.fingerprint()]

    def num_samples(self, **kwargs: Any) -> Any:
        return self.source.num_samples(**kwargs)

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        return self.source.row_plan(batch_size, key, drop_last)

    def rows_at(self, positions: Any) -> Any:
        return self.source.rows_at(positions)

    def natural_blocks(self) -> tuple[int, int] | None:
        return self.source.natural_blocks()

    def permutes_rows(self) -> bool:
        return self.source.permutes_rows()
