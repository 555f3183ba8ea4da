"""The source that tells which rows it hands out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import ArgumentTypeError
from ..memory_pool import Buffers
from ..randomness import BatchKey, OrderKey
from ..sampling.plans.rows import RowPlan
from .base import AbstractDataSource
from .index_column import row_arrays, with_rows
from .take_repeat import Wrapped


class IndexedDataSource(Wrapped):
    """The batches of another source with their row numbers before them: see its method ``with_index``."""

    def __init__(self, source: AbstractDataSource) -> None:
        super().__init__(source)
        if not self.source.is_random_access:
            raise ArgumentTypeError(
                f"with_index needs rows that have numbers, and this {type(source).__name__} only streams; number the "
                f"samples in the function that makes its batches"
            )

    def fingerprint(self) -> list[Any]:
        return [type(self).__name__, self.source.fingerprint()]

    def num_samples(self, **kwargs: Any) -> Any:
        return self.source.num_samples(**kwargs)

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        return with_rows(self.source.read(rows, key.child(0), buffers), *row_arrays(rows))

    def read_samples(self, rows: Any, key: BatchKey, buffers: Buffers) -> list[Any]:
        samples = self.source.read_samples(rows, key.child(0), buffers)
        return [with_rows(sample, *numbers) for sample, *numbers in zip(samples, *row_arrays(rows), strict=True)]

    def samples_by_indices(self, indices: Any) -> Any:
        return with_rows(self.source.samples_by_indices(indices), *row_arrays(indices))

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        return self.source.row_plan(batch_size, key, drop_last)

    def drawn_rows(self, batch_size: int, rng: Any, drop_last: bool) -> Iterator[Any]:
        return self.source.drawn_rows(batch_size, rng, drop_last)

    def count(self, batch_size: int, drop_last: bool) -> float | None:
        return self.source.count(batch_size, drop_last)

    def rows_at(self, positions: Any) -> Any:
        return self.source.rows_at(positions)

    def permutes_rows(self) -> bool:
        return self.source.permutes_rows()
