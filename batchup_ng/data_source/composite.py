"""The source that draws from several sources at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from .. import batch as batches
from .. import checks
from ..buffers import Buffers
from ..errors import ArgumentError, ArgumentTypeError
from ..randomness import BatchKey, OrderKey
from ..sampling.row_plan import RowPlan, TogetherPlan, read_only, trim_rows
from .base import AbstractDataSource, PlannedDataSource
from .node import joined_names
from .options import EpochOptions


class CompositeDataSource(PlannedDataSource):
    """Draws a batch from each of several sources side by side, each in an order of its own.

    An epoch ends with the shortest source; make the others longer with ``repeats``. To keep rows together that belong
    together, use :func:`~batchup_ng.zip`.

    Args:
        datasets: The sources.
        flatten: Whether the arrays of all stand in one tuple, ``(a0, a1, b0)``; else ``((a0, a1), (b0,))``.
        trim: Whether the last batches are cut to the shortest of them. Without, the arrays of one batch may differ in
            length.

    Raises:
        ArgumentError: there are no sources.
        ArgumentTypeError: one of them is no data source, or an option is not True or False.
    """

    def __init__(self, datasets: Sequence[AbstractDataSource], flatten: bool = True, trim: bool = True) -> None:
        self.datasets = checked_sources("datasets", datasets)
        self.flatten = checks.true_or_false("flatten", flatten)
        self.trim = checks.true_or_false("trim", trim)

    @property
    def is_random_access(self) -> bool:
        return all(source.is_random_access for source in self.datasets)

    def outline(self) -> list[Any]:
        return [type(self).__name__, self.trim, *[source.outline() for source in self.datasets]]

    def num_samples(self, **kwargs: Any) -> Any:
        counts = [source.num_samples(**kwargs) for source in self.datasets]
        return None if any(n is None for n in counts) else min(counts)

    def samples_by_indices(self, indices: Any) -> Any:
        if not self.is_random_access:
            raise self._no_random_access("samples_by_indices")
        self._check_rows(indices)
        pairs = zip(self.datasets, read_only(indices), strict=True)
        return self._joined([source.samples_by_indices(rows) for source, rows in pairs])

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        self._check_rows(rows)
        pairs = enumerate(zip(self.datasets, rows, strict=True))
        return self._joined([source.read(part, key.child(i), buffers) for i, (source, part) in pairs])

    def sample_name(self, rows: Any) -> str | None:
        pairs = zip(self.datasets, rows, strict=True)
        return joined_names(source.sample_name(part) for source, part in pairs)

    def _check_rows(self, rows: Any) -> None:
        if len(rows) != len(self.datasets):
            raise ArgumentError(
                f"length mis-match: indices has {len(rows)} items, self has {len(self.datasets)} data sources, "
                f"should be equal"
            )

    def _joined(self, parts: Sequence[Any]) -> Any:
        """Return one batch of the batches of all sources."""
        return join(batches.trim_to_shortest(parts) if self.trim else parts, self.flatten)

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        parts = [
            source.row_plan(batch_size, None if key is None else key.child(i), drop_last)
            for i, source in enumerate(self.datasets)
        ]
        return TogetherPlan(tuple(parts), self.trim)

    def drawn_rows(self, batch_size: int, rng: Any, drop_last: bool) -> Iterator[Any]:
        parts = [source.drawn_rows(batch_size, rng, drop_last) for source in self.datasets]
        for rows in zip(*parts, strict=False):
            yield trim_rows(rows) if self.trim else rows

    def count(self, batch_size: int, drop_last: bool) -> float | None:
        counts = [source.count(batch_size, drop_last) for source in self.datasets]
        known = [n for n in counts if n is not None]
        return min(known) if len(known) == len(counts) else None

    def rows_at(self, positions: np.ndarray) -> Any:
        if any(source.num_samples() == math.inf for source in self.datasets) or not self.trim:
            return super().rows_at(positions)
        return tuple([source.rows_at(positions) for source in self.datasets])

    def stream(self, options: EpochOptions, path: tuple[int, ...]) -> Iterator[Any]:
        parts = [source.stream(options.child(i), (*path, i)) for i, source in enumerate(self.datasets)]
        for batch in zip(*parts, strict=False):
            yield self._joined(batch)

    def stream_count(self, options: EpochOptions) -> float | None:
        counts = [source.stream_count(options.child(i)) for i, source in enumerate(self.datasets)]
        known = [n for n in counts if n is not None]
        return min(known) if len(known) == len(counts) else None

    def draws_globally(self) -> bool:
        return any(source.draws_globally() for source in self.datasets)

    def has_random_maps(self) -> bool:
        return any(source.has_random_maps() for source in self.datasets)

    def heeds_shuffle(self) -> bool:
        return any(source.heeds_shuffle() for source in self.datasets)

    def calls_user_functions(self) -> bool:
        return any(source.calls_user_functions() for source in self.datasets)


def join(parts: Sequence[Any], flatten: bool) -> tuple[Any, ...]:
    """Return the batches `parts` in one tuple, the arrays of all side by side if `flatten`."""
    if not flatten:
        return tuple(parts)
    return tuple([leaf for part in parts for leaf in (part if isinstance(part, (tuple, list)) else (part,))])


def checked_sources(name: str, sources: Any) -> list[AbstractDataSource]:
    """Return `sources` as a list.

    Raises:
        ArgumentError: it is empty.
        ArgumentTypeError: one of them is no data source.
    """
    if not isinstance(sources, Iterable):
        raise ArgumentTypeError(f"{name} must be a list of data sources, not a {type(sources).__name__}; pass [a, b]")
    listed: list[AbstractDataSource] = list(sources)
    if not listed:
        raise ArgumentError(f"{name} must hold at least one data source, and is empty")
    for i, source in enumerate(listed):
        if not isinstance(source, AbstractDataSource):
            raise ArgumentTypeError(
                f"{name}[{i}] must be a data source, not a {type(source).__name__}; wrap arrays in ArrayDataSource"
            )
    return listed
