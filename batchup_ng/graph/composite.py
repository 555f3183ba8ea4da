"""The node whose batches join one batch of each of several nodes."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import batch as nests
from .. import validation
from ..errors import ArgumentError, MapResultError
from ..memory.leases import Buffers
from ..randomness import BatchKey, OrderKey
from ..sampling.groups import group_positions, grouped, groups_plan, ungrouped
from ..sampling.plans.combined import side_by_side
from ..sampling.plans.drawn import DrawnKey
from ..sampling.plans.rows import RowPlan, count_batches, read_only, take_rows, whole_samples
from .node import Node, Notes, Streaming, joined_names
from .rows import samplers_by_length


class CompositeNode(Node):
    """A node that draws a batch from each of several nodes side by side, each in its own order.

    With `batch_size`, a group of so many samples of each part counts as one sample.

    Args:
        datasets: The parts.
        flatten: Whether the arrays of all parts stand in one tuple.
        trim: Whether the last batches are cut to the shortest of them.
        batch_size: For each part, its number of samples per unit of the batch size.
    """

    name = "CompositeDataSource"

    def __init__(
        self, datasets: Sequence[Node], flatten: bool = True, trim: bool = True, *, batch_size: Any = None
    ) -> None:
        super().__init__()
        self.datasets = list(datasets)
        self.flatten = validation.true_or_false("flatten", flatten)
        self.trim = validation.true_or_false("trim", trim)
        self.batch_size = None if batch_size is None else _checked_sizes(batch_size, len(self.datasets))
        self._sizes = self.batch_size or [1] * len(self.datasets)
        self._resized = any(part.traits.resizes for part in self.datasets)
        if self.flatten:
            check_names([part.form() for part in self.datasets])
        if any(part.traits.filters for part in self.datasets):
            raise ArgumentError(
                "the parts of a composite must not be filtered with lazy=True, because each batch of the other parts "
                "would be cut to what the filter leaves; filter the part without lazy=True, or filter the composite"
            )
        by_length = [sampler for part in self.datasets for sampler in samplers_by_length(part)]
        if self.trim and len(self.datasets) > 1 and any(sampler.max_tokens is not None for sampler in by_length):
            raise ArgumentError(
                "trim must be False if a part has batches of many sizes (max_tokens=, PackSampler): each "
                "batch would be cut to the shortest part, and the samples cut off would be lost; pass trim=False, "
                "without batch_size"
            )
        if not self.trim and max(self._sizes) > 1:
            raise ArgumentError("trim must be True with batch_size, which keeps the parts in proportion to the end")
        if max(self._sizes) > 1 and not self.is_random_access:
            raise ArgumentError(
                "batch_size is for sources with random access, and one of these only streams: batches of a stream are "
                "as large as what makes them says; a pool takes the composite as a whole, not its parts"
            )

    def children(self) -> tuple[Node, ...]:
        return tuple(self.datasets)

    def with_children(self, children: Sequence[Node]) -> CompositeNode:
        made = copy.copy(self)
        made.datasets, made._notes = list(children), Notes()
        return made

    def stacks_samples(self, key: Any) -> bool:
        return super().stacks_samples(key if isinstance(key, str) else None)  # places begin anew in each part

    def fingerprint(self) -> list[Any]:
        sizes = [] if self.batch_size is None else [self.batch_size]
        return [self.name, self.trim, *sizes, *[source.fingerprint() for source in self.datasets]]

    def num_samples(self, **options: Any) -> Any:
        counts = [source.num_samples(**options) for source in self.datasets]
        pairs = zip(counts, self._sizes, strict=True)
        return None if None in counts else min(count_batches(n, size, drop_last=True) for n, size in pairs)

    def samples_by_indices(self, indices: Any) -> Any:
        if not self.is_random_access:
            raise self.no_random_access("samples_by_indices")
        self._check_rows(indices)
        pairs = zip(self.datasets, read_only(self._ungrouped(indices)), strict=True)
        return self._joined([source.samples_by_indices(rows) for source, rows in pairs], indices)

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        self._check_rows(rows)
        parts = enumerate(zip(self.datasets, self._ungrouped(rows), self._sizes, strict=True))
        read = [source.read(part, key.child(i).of_groups(n), buffers) for i, (source, part, n) in parts]
        return self._joined(read, rows)

    def read_samples(self, rows: Any, key: BatchKey, buffers: Buffers) -> list[Any]:
        if self.batch_size is not None or not _even(rows):
            return super().read_samples(rows, key, buffers)
        pairs = enumerate(zip(self.datasets, rows, strict=True))
        parts = [source.read_samples(part, key.child(i), buffers) for i, (source, part) in pairs]
        return join_samples(parts, self.flatten)

    def sample_name(self, rows: Any) -> str | None:
        parts = zip(self.datasets, self._ungrouped(rows), self._sizes, strict=True)
        return joined_names(
            source.sample_name(take_rows(part, np.array([i]))) for source, part, n in parts for i in range(n)
        )

    def _ungrouped(self, rows: Any) -> Any:
        if self.batch_size is None:
            return rows
        return tuple([ungrouped(part, n) for part, n in zip(rows, self._sizes, strict=True)])

    def _check_rows(self, rows: Any) -> None:
        if len(rows) != len(self.datasets):
            raise ArgumentError(
                f"length mis-match: indices has {len(rows)} items, self has {len(self.datasets)} data sources, "
                f"should be equal"
            )

    def _joined(self, parts: Sequence[Any], rows: Any = None) -> Any:
        """Join the batches of all sources. A plan has already cut the rows, but maps may shorten batches."""
        uneven = self.trim and (self._resized or rows is None or not _even(rows))
        return join(nests.trim_to_shortest(parts, self._sizes) if uneven else parts, self.flatten)

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        if isinstance(key, DrawnKey) and max(self._sizes) > 1:
            key = key.seeded()  # groups are cut from one sequence of samples
        parts = []
        for i, (source, size) in enumerate(zip(self.datasets, self._sizes, strict=True)):
            own = source.row_plan(batch_size * size, key and key.child(i), drop_last and size == 1)
            parts.append(groups_plan(own, size, batch_size, drop_last))
        return side_by_side(parts, self.trim, batch_size, drop_last)

    def rows_at(self, positions: np.ndarray) -> Any:
        if any(source.num_samples() == math.inf for source in self.datasets) or not self.trim:
            return super().rows_at(positions)
        pairs = zip(self.datasets, self._sizes, strict=True)
        return tuple([grouped(source.rows_at(group_positions(positions, n)), n) for source, n in pairs])

    def stream(self, options: Streaming, path: tuple[int, ...]) -> Iterator[Any]:
        parts = [source.stream(options.child(i), (*path, i)) for i, source in enumerate(self.datasets)]
        return map(self._joined, zip(*parts, strict=False))

    def stream_count(self, options: Streaming) -> float | None:
        return _least(source.stream_count(options.child(i)) for i, source in enumerate(self.datasets))


def _even(rows: Any) -> bool:
    """Return whether the rows of all parts are known to stand for equally many samples."""
    try:
        return len(set(whole_samples(tuple(rows)))) == 1
    except TypeError:  # the user's own rows may have no length, such as slices
        return False


def join(parts: Sequence[Any], flatten: bool) -> Any:
    """Return the batches `parts` as a tuple. If `flatten`, join their arrays to one tuple, or dicts to one dict."""
    if not flatten:
        return tuple(parts)
    if all(isinstance(part, Mapping) for part in parts):
        joined = {name: column for part in parts for name, column in part.items()}
        if len(joined) < sum(map(len, parts)):
            check_names(parts, MapResultError)
        return joined
    return tuple([leaf for part in parts for leaf in (part if isinstance(part, (tuple, list)) else (part,))])


def check_names(forms: Sequence[Any], kind: type[ArgumentError] = ArgumentError) -> None:
    """Refuse dicts side by side that have a name twice, by their forms. A form that is not known is None.

    `kind` is the error. No policy takes a :class:`~batchup_ng.errors.MapResultError` for the fault of a sample.
    """
    if not all(isinstance(form, Mapping) for form in forms):
        return
    names = [name for form in forms for name in form]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise kind(
            f"two of the sources have a column {twice!r}; call rename({{{twice!r}: ...}}) or drop({twice!r}) of one, "
            f"or pass flatten=False for a tuple of their dicts"
        )


def join_samples(parts: Sequence[list[Any]], flatten: bool) -> list[Any]:
    """Join the samples of all `parts` one by one. A sample that is a list stays a list."""
    counts = [len(part) for part in parts]
    if len(set(counts)) > 1:
        raise ArgumentError(
            f"the sources side by side made {counts} samples of the same number of rows; collate each of them before"
        )
    if flatten:
        parts = [[(sample,) if isinstance(sample, list) else sample for sample in part] for part in parts]
    return [join(sample, flatten) for sample in zip(*parts, strict=True)]


def _least(counts: Iterable[float | None]) -> float | None:
    """Return the least of the counts, or None if a count is not known."""
    known: list[Any] = list(counts)
    return None if None in known else min(known)


def _checked_sizes(sizes: Any, n: int) -> list[int]:
    if not isinstance(sizes, (list, tuple, np.ndarray)) or len(sizes) != n:
        raise ArgumentError(
            f"batch_size must have one number for each of the {n} sources, not be {sizes!r}; [1, 7] is 7 samples of "
            f"the second source for each of the first"
        )
    return [validation.positive_int(f"batch_size[{i}]", size) for i, size in enumerate(sizes)]
