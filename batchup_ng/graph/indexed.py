"""Row numbers as a column of a batch, and the node that adds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import batch as nests
from ..columns import Places, form_of, keys_in
from ..errors import ArgumentError, ArgumentTypeError, MapResultError
from ..memory.leases import Buffers
from ..randomness import BatchKey
from ..sampling.plans.rows import ChoiceBatch
from .node import Classes, Node
from .rows import RowsNode
from .wrapped import SameOrderNode, WrapperNode

INDEX_COLUMN = "index"
"""The name of the column of row numbers in a batch that is a dict."""


def row_arrays(rows: Any) -> list[np.ndarray]:
    """Return the row numbers of a batch as new arrays.

    A composite has one array for each part. A choice has the number of the source, then the rows in it.
    """
    if isinstance(rows, ChoiceBatch):
        return [np.full(nests.length(rows.sample_indices), rows.ds_index), *row_arrays(rows.sample_indices)]
    if isinstance(rows, tuple):
        return [array for part in rows for array in row_arrays(part)]
    return [np.array(rows)]


def with_rows(batch: Any, *rows: np.ndarray) -> Any:
    """Return a batch that begins with its row numbers. In a dict they are ``"index"``, which takes only one array."""
    if not isinstance(batch, Mapping):
        return (*rows, *batch) if isinstance(batch, tuple) else (*rows, batch)
    if len(rows) != 1 or INDEX_COLUMN in batch:
        check_no_index(batch, MapResultError)
        raise MapResultError(_no_index("they come from several sources", "use with_index on each of these"))
    return {INDEX_COLUMN: rows[0], **batch}


def check_no_index(form: Any, kind: type[ArgumentError] = ArgumentError) -> None:
    """Refuse batches that have a column ``"index"``, by their form, or one that is not known."""
    if isinstance(form, Mapping) and INDEX_COLUMN in form:
        raise kind(_no_index(f"they have a column {INDEX_COLUMN!r}", f"call rename({{{INDEX_COLUMN!r}: ...}}) before"))


def _no_index(why: str, remedy: str) -> str:
    return f"batches by name cannot get their row numbers as {INDEX_COLUMN!r}, for {why}; {remedy}"


class IndexedNode(SameOrderNode):
    """A node that puts row numbers before the batches of another node."""

    name = "IndexedDataSource"

    def __init__(self, source: Node) -> None:
        super().__init__(source)
        check_no_index(source.form())
        if source.traits.filters:
            raise ArgumentTypeError(
                "with_index gives a number to each planned sample, and a lazy filter has left some out; apply "
                "with_index before the filter, whose predicate gets the numbers too, unless on= leaves them out"
            )
        if not source.is_random_access:
            raise ArgumentTypeError(
                f"with_index needs rows that have numbers, and this {source.name} only streams; apply it to "
                f"what is handed to a pool before, or number the samples in the function that makes the batches"
            )

    def form(self) -> Any:
        form = self.source.form()
        if isinstance(form, Places):
            return self._places(form)
        return form_of([INDEX_COLUMN, *form]) if isinstance(form, Mapping) and INDEX_COLUMN not in form else None

    def _places(self, form: Places) -> Places | None:
        """Return the form of tuples whose columns have names. None if several row numbers may stand before them."""
        below = self.source
        while isinstance(below, WrapperNode):
            below = below.source
        if not isinstance(below, RowsNode):
            return None
        return Places.named(range(len(form) + 1), {name: place + 1 for name, place in form.names.items()})

    def classes(self) -> Classes | None:
        found, form = super().classes(), self.form()
        if found is not None and isinstance(form, Places) and isinstance(found.column, int):
            return Classes(found.names, found.column + 1)
        return found and (found if isinstance(found.column, str) else Classes(found.names, None))

    def only(self, names: Sequence[Any]) -> Node | None:
        form = self.form()
        if isinstance(form, Places):
            places = keys_in(form, names)
            return None if 0 in places else self.source.only([place - 1 for place in places])
        known = all(isinstance(name, str) and name != INDEX_COLUMN for name in names)
        return self.source.only(names) if known else None

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        return with_rows(super().read(rows, key, buffers), *row_arrays(rows))

    def read_samples(self, rows: Any, key: BatchKey, buffers: Buffers) -> list[Any]:
        samples = self.source.read_samples(rows, key.child(0), buffers)
        return [with_rows(sample, *numbers) for sample, *numbers in zip(samples, *row_arrays(rows), strict=True)]

    def samples_by_indices(self, indices: Any) -> Any:
        return with_rows(super().samples_by_indices(indices), *row_arrays(indices))
