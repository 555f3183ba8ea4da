"""Nodes that hand out the samples of other nodes in another arrangement of rows."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from .. import batch as nests
from .. import validation
from ..batch import as_batch
from ..columns import common_form, joined_form, keys_in, picked, place_in
from ..errors import ArgumentError, MapResultError
from ..memory.leases import FRESH, Buffers
from ..meters.stopwatch import name_part, slowest_so_far
from ..randomness import BatchKey
from ..sampling.base import AbstractSampler, array_fingerprint
from ..sampling.standard import StandardSampler, check_row_numbers, row_numbers
from .alike import classes_of, fits_of, stacked_columns
from .composite import check_names, join, join_samples
from .node import Classes, Node, Notes, joined_names, numbered_length
from .rows import RowsNode, blocks_of_part, joint_blocks, sampler_for


class _RearrangedNode(RowsNode):
    """A node that takes its rows from other nodes."""

    def by_rows(self, rows: Any) -> Any:
        return self.read(rows, BatchKey(), FRESH)


class _JoinedNode(_RearrangedNode):
    """A node that takes its rows from several nodes, `sources`."""

    sources: list[Node]

    def children(self) -> tuple[Node, ...]:
        return tuple(self.sources)

    def with_children(self, children: Sequence[Node]) -> _JoinedNode:
        made = copy.copy(self)  # with its sampler and the lengths of its sources
        made.sources, made._notes = list(children), Notes()
        return made

    def described(self) -> list[Any]:
        return [*super().described(), *[source.fingerprint() for source in self.sources]]

    def natural_blocks(self) -> tuple[int, int] | None:
        return joint_blocks(source.natural_blocks() for source in self.sources)


class SubsetNode(_RearrangedNode):
    """Some samples of another source, or all if `rows` is None."""

    name = "SubsetDataSource"

    def __init__(self, source: Node, rows: Any = None, repeats: int = 1) -> None:
        self.source = source
        n = numbered_length("source", source)
        self.rows = rows if rows is None else row_numbers("rows", rows)
        if self.rows is not None:
            check_row_numbers("rows", self.rows, n)
            self.rows = np.where(self.rows < 0, self.rows + n, self.rows)
        self.repeats = repeats
        super().__init__(StandardSampler(n if self.rows is None else len(self.rows), validation.repeats(repeats)))

    def children(self) -> tuple[Node, ...]:
        return (self.source,)

    def described(self) -> list[Any]:
        rows = [] if self.rows is None else array_fingerprint(self.rows)
        return [*super().described(), rows, self.source.fingerprint()]

    def form(self) -> Any:
        return self.source.form()

    def only(self, names: Sequence[Any]) -> SubsetNode | None:
        part = self.source.only(names)
        return None if part is None else self.with_children([part])

    def with_children(self, children: Sequence[Node]) -> SubsetNode:
        made = copy.copy(self)  # with its rows and repeats
        (made.source,) = children
        made._notes = Notes()
        return made

    def origin(self) -> Any:
        return self.source.origin()

    def origin_rows(self, positions: np.ndarray) -> np.ndarray:
        own = self.rows_at(positions)
        return self.source.origin_rows(own if self.rows is None else self.rows[own])

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        return self.source.read(self.rows_of_source(rows), key.child(0), buffers)

    def read_samples(self, rows: Any, key: BatchKey, buffers: Buffers) -> list[Any]:
        return self.source.read_samples(self.rows_of_source(rows), key.child(0), buffers)

    def sample_name(self, rows: Any) -> str | None:
        return self.source.sample_name(self.rows_of_source(rows))

    def natural_blocks(self) -> tuple[int, int] | None:
        found = self.source.natural_blocks()
        return None if found is None else blocks_of_part(found, self.rows)

    def rows_of_source(self, rows: Any) -> Any:
        """Return the rows of the source for these rows of the subset."""
        return self.source.rows_at(rows if self.rows is None else self.rows[rows])


class ConcatNode(_JoinedNode):
    """The samples of several sources, one source after the other."""

    name = "ConcatDataSource"

    def __init__(self, sources: Sequence[Node], sampler: AbstractSampler | None = None) -> None:
        self.sources = list(sources)
        lengths = [numbered_length(f"sources[{i}]", source) for i, source in enumerate(self.sources)]
        self._bounds = np.cumsum([0, *lengths])
        n = int(self._bounds[-1])
        self._compare()
        super().__init__(StandardSampler(n) if sampler is None else sampler_for(n, sampler))

    def _compare(self) -> None:
        """Note what makes the batches of the sources alike. Raise if they cannot be."""
        self._fits, self.kinds = fits_of(self.sources)
        self._classes = classes_of(self.sources)
        self._stacked = stacked_columns(self.sources, self.form())

    def with_children(self, children: Sequence[Node]) -> ConcatNode:
        made: Any = super().with_children(children)
        made._compare()
        return cast(ConcatNode, made)

    def form(self) -> Any:
        return common_form([source.form() for source in self.sources])

    def stacks_samples(self, key: Any) -> bool:
        if isinstance(self._stacked, bool):
            return self._stacked
        return bool(self._stacked) if key is None else key in self._stacked

    def classes(self) -> Classes | None:
        return self._classes

    def only(self, names: Sequence[Any]) -> Node | None:
        parts = [source.only(names) for source in self.sources]
        found = [part for part in parts if part is not None]
        if len(found) < len(parts):
            return None
        form = self.form()
        made: Any = super().with_children(found)  # they are as alike as the sources, and need no comparison
        keys = keys_in(form, names)
        made._fits = [fit and fit.only(keys) for fit in self._fits]
        made.kinds = None
        made._classes = self._classes and self._classes.moved(picked(form, names))
        made._stacked = stacked_columns(found, made.form())
        return cast(ConcatNode, made)

    def origin(self) -> Any:
        first, *others = [source.origin() for source in self.sources]
        return first if all(other is first for other in others) else self

    def origin_rows(self, positions: np.ndarray) -> np.ndarray:
        rows = self.rows_at(positions)
        if self.origin() is self:
            return np.asarray(rows)
        found = np.empty(len(rows), np.int64)
        for i, where in zip(*self._parts(rows), strict=True):
            found[where] = self.sources[i].origin_rows(rows[where] - self._bounds[i])
        return found

    def origins_of(self, rows: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
        """Yield the origin of each source that has some of `rows`, and their positions in it."""
        for i, where in zip(*self._parts(rows), strict=True):
            yield self.sources[i].origin(), self.sources[i].origin_rows(rows[where] - self._bounds[i])

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        present, places = self._parts(rows)
        memory = buffers if len(present) == 1 else buffers.scratch
        parts = []
        for i, where in zip(present, places, strict=True):
            own_rows = self.own_rows(i, rows[where])
            slowest = slowest_so_far()
            part = as_batch(self.sources[i].read(own_rows, key.child(int(i), where), memory))
            name_part(slowest, i)
            fit = self._fits[i]
            parts.append(part if fit is None else fit.fitted(part))
        if len(parts) == 1:
            return parts[0]
        _check_alike([f"sources[{i}]" for i in present], parts, [len(where) for where in places])
        return nests.scatter(parts, places, buffers, self._stacked)

    def read_samples(self, rows: Any, key: BatchKey, buffers: Buffers) -> list[Any]:
        samples: list[Any] = [None] * len(rows)
        for i, where in zip(*self._parts(rows), strict=True):
            own_rows = self.own_rows(i, rows[where])
            of_part = self.sources[i].read_samples(own_rows, key.child(int(i), where), buffers)
            for place, sample in zip(where, of_part, strict=True):
                samples[place] = sample
        return samples

    def _parts(self, rows: Any) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the numbers of the sources of `rows`, and for each source the places of its rows."""
        owners = np.searchsorted(self._bounds, rows, side="right") - 1
        present = np.unique(owners) if len(owners) else np.arange(1)  # no rows: structure of the first source
        return present, [np.flatnonzero(owners == i) for i in present]

    def sample_name(self, rows: Any) -> str | None:
        owner = int(np.searchsorted(self._bounds, rows[0], side="right")) - 1
        return self.sources[owner].sample_name(self.own_rows(owner, rows))

    def own_rows(self, part: int, rows: np.ndarray) -> np.ndarray:
        """Return the rows of a source for rows of this node that are of that source."""
        found: np.ndarray = self.sources[part].rows_at(rows - self._bounds[part])
        return found


class ZipNode(_JoinedNode):
    """Sources of equal length, joined row by row."""

    name = "ZipDataSource"

    def __init__(self, sources: Sequence[Node], flatten: bool = True) -> None:
        self.sources = list(sources)
        self.flatten = validation.true_or_false("flatten", flatten)
        if self.flatten:
            check_names([source.form() for source in self.sources])
        lengths = [numbered_length(f"sources[{i}]", source) for i, source in enumerate(self.sources)]
        if len(set(lengths)) > 1:
            raise ArgumentError(
                f"sources must have the same length to be zipped, not {lengths}; use subset to cut them"
            )
        super().__init__(StandardSampler(lengths[0]))

    def form(self) -> Any:
        return joined_form([source.form() for source in self.sources]) if self.flatten else None

    def stacks_samples(self, key: Any) -> bool:
        return super().stacks_samples(key if isinstance(key, str) else None)  # places begin anew in each source

    def classes(self) -> Classes | None:
        found = super().classes()
        if found is None or not self.flatten:
            return found
        each = enumerate(source.classes() for source in self.sources)
        first, column = next((i, classes.column) for i, classes in each if classes is not None)
        if isinstance(column, int):  # it stands behind the columns of the sources before
            before = [source.form() for source in self.sources[:first]]
            column = column + sum(map(len, before)) if all(isinstance(form, tuple) for form in before) else None
        return Classes(found.names, column)

    def reader_report(self) -> Any:
        found = [report for source in self.sources if (report := source.reader_report()) is not None]
        return found[0] if found and all(report is found[0] for report in found) else None

    def only(self, names: Sequence[Any]) -> Node | None:
        form = self.form()
        if form is None:
            return None
        of_sources = [source.form() for source in self.sources]
        keys = [list(own) if isinstance(own, Mapping) else list(range(len(own))) for own in of_sources]
        every = [(i, key) for i, own in enumerate(keys) for key in own]
        chosen = [every[place_in(form, name)] for name in names]
        if chosen != sorted(chosen, key=lambda pair: pair[0]):  # the sources stand in another order
            return None
        parts = [self.sources[i].only([key for owner, key in chosen if owner == i]) for i in dict(chosen)]
        found = [part for part in parts if part is not None]
        if len(found) < len(parts):
            return None
        return found[0] if len(found) == 1 else ZipNode(found)

    def origin(self) -> Any:
        return self.sources[0].origin()

    def origin_rows(self, positions: np.ndarray) -> np.ndarray:
        return self.sources[0].origin_rows(self.rows_at(positions))

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        parts = [source.read(source.rows_at(rows), key.child(i), buffers) for i, source in enumerate(self.sources)]
        return join(parts, self.flatten)

    def read_samples(self, rows: Any, key: BatchKey, buffers: Buffers) -> list[Any]:
        each = enumerate(self.sources)
        parts = [one.read_samples(one.rows_at(rows), key.child(i), buffers) for i, one in each]
        return join_samples(parts, self.flatten)

    def sample_name(self, rows: Any) -> str | None:
        return joined_names(source.sample_name(source.rows_at(rows)) for source in self.sources)


def _check_alike(names: Sequence[str], parts: Sequence[Any], planned: Sequence[int]) -> None:
    """Refuse parts of a batch that do not have one sample for each row, or that differ in structure."""
    first = nests.map_leaves(lambda leaf: "array", parts[0])
    for name, part, n in zip(names, parts, planned, strict=True):
        for leaf in nests.leaves(part):
            single = not hasattr(leaf, "__len__") or getattr(leaf, "ndim", None) == 0 or isinstance(leaf, (str, bytes))
            if single or len(leaf) != n:
                made = "a single value" if single else f"{len(leaf)} rows"
                remedy = "let its map return a list or an array with a value for each sample"
                raise MapResultError(
                    f"{name} made {made} of {n} samples, which cannot stand among those of the other sources of concat "
                    f"or mix; {remedy if single else 'apply the map that changes their number to the whole'}"
                )
        form = nests.map_leaves(lambda leaf: "array", part)
        if form != first:
            raise MapResultError(
                f"the sources of concat and mix must give batches of one structure, and {names[0]} gives {first}, "
                f"{name} {form}; map them to one"
            )
