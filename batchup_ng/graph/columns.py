"""The node that leaves out or renames columns of the batches of another node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..batch import NOTHING_LEFT, as_batch
from ..columns import AddedColumn, ChosenColumns, form_like, keys_in
from ..memory.leases import Buffers
from ..randomness import BatchKey
from .node import Classes, Node, Streaming, samples_in_words, stacks
from .wrapped import SameOrderNode


class ColumnsNode(SameOrderNode):
    """A node with some columns of another node, perhaps under other names."""

    name = "ColumnsDataSource"

    def __init__(self, source: Node, columns: ChosenColumns | AddedColumn) -> None:
        super().__init__(source)
        self.columns = columns = columns.in_places(source.form())
        self.fn = columns.chosen  # named in errors
        self.form()  # raises for columns that do not exist, if they are known

    def form(self) -> Any:
        return form_like(self._origin())

    def only(self, names: Sequence[Any]) -> Node | None:
        origin = self._origin()
        if origin is None:
            return None
        keys = keys_in(origin, names)
        part = self.source.only([origin[key] for key in keys])
        if part is None or not isinstance(origin, Mapping):
            return part
        places: Any = [origin[key] for key in keys] if isinstance(self.source.form(), Mapping) else range(len(keys))
        return ColumnsNode(part, ChosenColumns(names=dict(zip(places, keys, strict=True))))

    def stacks_samples(self, key: Any) -> bool:
        origin = self._origin()
        return stacks(self.source, None if origin is None or key is None else origin[key])

    def classes(self) -> Classes | None:
        found = super().classes()
        return found and found.moved(self._origin())

    def _origin(self) -> Any:
        """Return the form of this node's batches, with the keys of the columns in the source's batches as values."""
        form = self.source.form()
        return None if form is None else self.columns.chosen(form)

    def unchecked(self, batch: Any, key: BatchKey, planned: int) -> Any:
        """Return the batch of the columns that stay, for a place behind a pool."""
        return self.columns.chosen(batch)

    def _chosen(self, batch: Any) -> Any:
        return batch if batch is NOTHING_LEFT else self.columns.chosen(as_batch(batch))

    def samples_by_indices(self, indices: Any) -> Any:
        return self.columns.chosen(as_batch(self.source.samples_by_indices(indices)))

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        return self._chosen(self.source.read(rows, key.child(0), buffers))

    def read_kept(self, rows: Any, key: BatchKey, buffers: Buffers) -> tuple[Any, np.ndarray | None]:
        batch, kept = self.source.read_kept(rows, key.child(0), buffers)
        return self._chosen(batch), kept

    def stream(self, options: Streaming, path: tuple[int, ...]) -> Iterator[Any]:
        return map(self._chosen, self.source.stream(options, (*path, 0)))

    def stream_count(self, options: Streaming) -> float | None:
        return self.source.stream_count(options)

    def checkpointable(self) -> Any:
        return self.source.checkpointable()

    def _facts(self) -> list[str]:
        return [samples_in_words(self), repr(self.columns)]
