"""The node over arrays and other objects that can be indexed like arrays."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..accessors.base import gather, sample_name
from ..accessors.cached import Cached
from ..accessors.map_style import MapStyle
from ..accessors.own_rows import OwnRows, PictureRows
from ..accessors.packed_texts import PackedTexts
from ..accessors.ragged import Ragged
from ..accessors.storage.base import StoredRows
from ..accessors.uint8_to_float32 import ImageArrayUInt8ToFloat32
from ..accessors.windows import Windows
from ..batch_layout import of_its_own
from ..columns import Places, form_of, picked, place_in
from ..display import array_words, listed, printable
from ..memory.leases import FRESH, Buffers
from ..memory.paging import file_name
from ..randomness import BatchKey
from ..sampling.base import AbstractSampler
from ..sampling.plans.rows import read_only
from ..validation import positive_int
from .indexed import with_rows
from .node import Classes, Notes, Traits, joined_names
from .rows import NO_USER_METHODS, RowsNode, UserMethods, joint_blocks

DEFAULT_WINDOW_BLOCKS = 16
"""Number of blocks to mix if an accessor has no ``natural_window``."""

DESCRIBED_ACCESSORS = (MapStyle, PackedTexts, Cached, Ragged, StoredRows, OwnRows, Windows)
"""Accessors whose ``repr`` describes them."""


class ArraysNode(RowsNode):
    """A node over columns, which are arrays and accessors of one length.

    Args:
        data: The columns.
        names: Their names, if batches are dicts.
        sampler: The order of the rows.
        include_indices: Whether each batch begins with its row numbers.
        own: Methods of a user's class that go before those of the node.
        numbers: The number of each column, which determines its random crops. Default: its place.
        places: If batches are tuples: the places of columns by names that a batch does not show.
    """

    name = "ArrayDataSource"
    report: Any = None  # of the reader of files that found the columns
    labelled: Classes | None = None  # the class names that a reader knows; a column may know its own

    def __init__(
        self,
        data: Sequence[Any],
        names: tuple[str, ...] | None,
        sampler: AbstractSampler,
        include_indices: bool = False,
        own: UserMethods = NO_USER_METHODS,
        numbers: Sequence[int] | None = None,
        places: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(sampler, own)
        self.names = names
        self.include_indices = include_indices
        self.numbers = tuple(range(len(data)) if numbers is None else numbers)
        self.places = places
        self._hold(data)

    def _hold(self, data: Sequence[Any]) -> None:
        """Take the columns `data`, and note how they are read."""
        self.data = list(data)
        self._origins: list[int | None] | None = None  # see `of_known_form`
        self._has_samples = any(isinstance(array, MapStyle) for array in self.data)
        self._runs_user_code = self.own != NO_USER_METHODS or not all(map(_is_plain, self.data))
        self._spreads_reads = any(_spreads_reads(_unscaled(array)) for array in self.data)
        self._draws = any(getattr(array, "draws", False) for array in self.data)
        self._has_accessors = not all(isinstance(array, np.ndarray) for array in self.data)  # they may write to rows

    def with_data(self, data: Sequence[Any]) -> ArraysNode:
        """Return this node over other columns of the same rows."""
        made = copy.copy(self)
        made._hold(data)
        made._notes = Notes()
        return made

    def form(self) -> Any:
        if self.include_indices or self.own != NO_USER_METHODS:
            return None
        if self._has_samples and self.names is None:  # one may have several columns
            return None if self._origins is None else form_of(len(self._origins))
        if self.places and self.names is None:
            return Places.named(range(len(self.data)), self.places)
        return form_of(len(self.data) if self.names is None else self.names)

    def only(self, names: Sequence[Any]) -> ArraysNode | None:
        form = self.form()
        if form is None:
            return None
        chosen: list[Any] = [place_in(form, name) for name in names]
        if self._origins is not None:
            chosen = [self._origins[place] for place in chosen]
            if None in chosen:
                return None
        made = self.with_data([self.data[place] for place in chosen])
        made.names = None if self.names is None else tuple([self.names[place] for place in chosen])
        made.numbers = tuple([self.numbers[place] for place in chosen])
        made.places = {name: chosen.index(place) for name, place in (self.places or {}).items() if place in chosen}
        made.labelled = self.labelled and self.labelled.moved(picked(form, names))
        return made

    def of_known_form(self) -> ArraysNode:
        """Return this node with the form of its tuples, for which it reads one sample of each map-style data set.

        Columns of a data set whose samples are tuples cannot be read alone.
        """
        if not self._has_samples or self.names is not None or len(self.data[0]) == 0:
            return self
        origins: list[int | None] = []
        for place, array in enumerate(self.data):
            sample = array[np.arange(1)] if isinstance(array, MapStyle) else None
            if isinstance(sample, dict) and len(self.data) == 1:  # the batch is a dict
                return self
            origins += [None] * len(sample) if isinstance(sample, tuple) else [place]
        made = copy.copy(self)
        made._origins, made._notes = origins, Notes()
        return made

    def stacks_samples(self, key: Any) -> bool:
        if self.names is None or key not in self.names:
            return self._has_samples
        return isinstance(self.data[self.names.index(key)], MapStyle)

    def classes(self) -> Classes | None:
        if self.labelled is not None:
            return self.labelled
        columns = enumerate(self.data)
        found = [(place, named) for place, array in columns if (named := _class_names(array))]
        if len({named for _, named in found}) != 1:
            return None
        (place, named), *others = found
        known = not others and self.form() is not None
        return Classes(named, (place if self.names is None else self.names[place]) if known else None)

    def reader_report(self) -> Any:
        return self.report

    def origin(self) -> Any:
        return self.sampler  # nodes that are made of this one, with other columns, have it too

    def owned(self, own: UserMethods) -> ArraysNode:
        """Return this node with the methods of a user's class. What is remembered of it stays shared."""
        made = copy.copy(self)
        made.own = own
        made._hold(self.data)
        return made

    def natural_blocks(self) -> tuple[int, int] | None:
        blocks = []
        for array in map(_stored, self.data):
            block = getattr(array, "natural_block", None)
            if block is not None:
                window = getattr(array, "natural_window", DEFAULT_WINDOW_BLOCKS)
                blocks.append((positive_int("natural_block", block), positive_int("natural_window", window)))
        n = len(self.data[0])
        # Blocks of one row do not restrict the order, nor does an array that fits into one window.
        blocks = [(block, window) for block, window in blocks if block > 1] or blocks
        return joint_blocks([(block, window) for block, window in blocks if block * window < n] or blocks[:1])

    def rows_kept(self) -> float:
        kept: float = min([getattr(_stored(array), "rows_kept", math.inf) for array in self.data])
        return kept if kept < len(self.data[0]) else math.inf

    def _facts(self) -> list[str]:
        words = [repr(a) if isinstance(a, DESCRIBED_ACCESSORS) else array_words(a) for a in self.data]
        names = {place: name for name, place in (self.places or {}).items()}
        if self.names is not None:
            names = dict(enumerate(self.names))
        named = [f"{printable(names[i])}: {text}" if i in names else text for i, text in enumerate(words)]
        return [*super()._facts(), listed(named)]

    def own_traits(self) -> Traits:
        return Traits(
            runs_user_code=self._runs_user_code,
            uses_shuffle=True,
            orders_rows=True,
            spreads_reads=self._spreads_reads,
        )

    def described(self) -> list[Any]:
        return [*super().described(), len(self.data)]

    def by_rows(self, rows: Any) -> Any:
        return self.gathered(rows, FRESH, BatchKey()) if self.own.reader is None else self.own.reader(rows)

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        if self.own.reader is not None:
            return of_its_own(self.own.reader(read_only(rows)))
        return self.gathered(rows, buffers, key)

    def read_samples(self, rows: Any, key: BatchKey, buffers: Buffers) -> list[Any]:
        if self.own.reader is not None or not self._has_samples:
            return super().read_samples(rows, key, buffers)
        columns = [
            array.samples(rows) if isinstance(array, MapStyle) else gather(array, rows, FRESH, key.child(number))
            for number, array in zip(self.numbers, self.data, strict=True)
        ]
        if len(columns) == 1 and self.names is None:
            taken = list(columns[0])
        else:
            taken = [self.joined(list(parts)) for parts in zip(*columns, strict=True)]
        return [with_rows(one, row) for row, one in zip(rows, taken, strict=True)] if self.include_indices else taken

    def sample_name(self, rows: Any) -> str | None:
        """Return the accessors' names for the row, or else the files that the arrays are mapped from."""
        own = joined_names(sample_name(array, int(rows[0])) for array in self.data)
        return joined_names(map(file_name, self.data)) if own is None else own

    def gathered(self, rows: Any, buffers: Buffers, key: BatchKey) -> Any:
        """Return the batch of `rows` of the columns."""
        if self._has_accessors:
            rows = read_only(rows)
        if self._draws:
            numbered = zip(self.numbers, self.data, strict=True)
            parts = [gather(array, rows, buffers, key.child(number)) for number, array in numbered]
        else:
            parts = [gather(array, rows, buffers) for array in self.data]
        batch = tuple(parts) if self.names is None and not self._has_samples else self.joined(parts)
        if not self.include_indices:
            return batch
        # A copy, because the rows belong to the plan and the batch to the consumer.
        return with_rows(batch, np.arange(len(self.data[0]))[rows] if isinstance(rows, slice) else np.array(rows))

    def joined(self, parts: list[Any]) -> Any:
        """Return the batch of one part for each column. Arrays of a map-style data set stand beside the others."""
        if self.names is not None:
            return dict(zip(self.names, parts, strict=True))
        if len(parts) == 1 and self._has_samples and isinstance(parts[0], dict):
            return parts[0]  # a map-style data set whose samples are dicts
        columns: list[Any] = []
        for array, part in zip(self.data, parts, strict=True):
            columns.extend(part if isinstance(array, MapStyle) and isinstance(part, tuple) else [part])
        return tuple(columns)


def _unscaled(array: Any) -> Any:
    """Return the accessor inside wrappers that scale or cache its values."""
    if type(array) is Cached:
        return _unscaled(array.accessor)
    return _unscaled(array.arr_u8) if type(array) is ImageArrayUInt8ToFloat32 else array


def _spreads_reads(array: Any) -> bool:
    return isinstance(array, OwnRows) and array.spreads_reads


def _is_encoded_elsewhere(array: Any) -> bool:
    """Return whether an accessor decodes images of a list or of another accessor."""
    return isinstance(array, PictureRows) and array.encoded is not None


def _stored(array: Any) -> Any:
    """Return the accessor that reads from storage, inside wrappers that scale, cache or decode its rows."""
    array = _unscaled(array)
    return _stored(array.encoded) if _is_encoded_elsewhere(array) else array


def _class_names(array: Any) -> tuple[str, ...]:
    """Return the class names that a file has for the numbers in a column."""
    array = _unscaled(array)
    return tuple(getattr(array, "class_names", ())) if isinstance(array, StoredRows) else ()


def _is_plain(array: Any) -> bool:
    """Return whether only the library's own code reads the rows."""
    array = _unscaled(array)
    if _is_encoded_elsewhere(array):
        return isinstance(array.encoded, (list, tuple)) or _is_plain(array.encoded)
    if type(array) in (Ragged, Windows):
        return _is_plain(array.values)
    plain = isinstance(array, (np.ndarray, PackedTexts, OwnRows))
    return plain or (isinstance(array, StoredRows) and not array.runs_user_code)
