"""The source that tells which rows it hands out."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentTypeError
from ..memory_pool import Buffers
from ..randomness import BatchKey
from .base import AbstractDataSource
from .index_column import row_arrays, with_rows
from .wrapped import SameOrder


class IndexedDataSource(SameOrder):
    """The batches of another source with their row numbers before them: see its method ``with_index``."""

    def __init__(self, source: AbstractDataSource) -> None:
        super().__init__(source)
        if not source.is_random_access:
            raise ArgumentTypeError(
                f"with_index needs rows that have numbers, and this {type(source).__name__} only streams; apply it to "
                f"what is handed to a pool before, or number the samples in the function that makes the batches"
            )

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        return with_rows(super().read(rows, key, buffers), *row_arrays(rows))

    def read_samples(self, rows: Any, key: BatchKey, buffers: Buffers) -> list[Any]:
        samples = self.source.read_samples(rows, key.child(0), buffers)
        return [with_rows(sample, *numbers) for sample, *numbers in zip(samples, *row_arrays(rows), strict=True)]

    def samples_by_indices(self, indices: Any) -> Any:
        return with_rows(super().samples_by_indices(indices), *row_arrays(indices))
