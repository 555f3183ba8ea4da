"""The source over arrays and other objects that can be indexed like arrays."""

from __future__ import annotations

import copy
import math
import os
from typing import Any

import numpy as np

from ..accessors.base import gather, sample_name
from ..accessors.cached import Cached, cached_columns
from ..accessors.column import as_column
from ..accessors.image_bytes import ImageBytes
from ..accessors.map_style import MapStyle
from ..accessors.packed_texts import PackedTexts
from ..accessors.pictures import Pictures
from ..accessors.ragged import Ragged
from ..accessors.storage import FileBytes
from ..accessors.storage.base import StoredRows
from ..accessors.uint8_to_float32 import ImageArrayUInt8ToFloat32
from ..batch_layout import of_its_own
from ..display import array_words, listed, printable
from ..errors import ArgumentError, ArgumentTypeError
from ..memory.leases import FRESH, Buffers
from ..memory.paging import file_name
from ..randomness import BatchKey
from ..sampling.base import AbstractSampler
from ..sampling.plans.rows import read_only
from ..validation import positive_int
from .hooks import SourceNode, Traits, joined_names, written_by_user
from .indexed import INDEX_COLUMN, with_rows
from .random_access import RandomAccessDataSource, joint_blocks

DEFAULT_WINDOW_BLOCKS = 16
"""Number of blocks to mix if an accessor has no ``natural_window``."""

DESCRIBED_ACCESSORS = (MapStyle, PackedTexts, Pictures, Cached, Ragged, StoredRows)
"""Accessors whose ``repr`` describes them."""


class ArrayDataSource(RandomAccessDataSource):
    """A source over rows of arrays: batch ``(a[rows], b[rows], ...)`` for ``data=[a, b, ...]``.

    A dict of arrays gives batches that are dicts with the same names. Maps are then called by name.

    Args:
        data: A list or dict of arrays, tensors, or accessors: anything with ``len`` that can be indexed by an array of
            row numbers, in any order. All have the same length. The columns of a :class:`~batchup_ng.MapStyle` stand
            side by side. If it is the only element and its samples are mappings, batches are dicts.
        indices: The rows to hand out: ``(n,) int``. Default: all.
        repeats: How often an epoch hands out each row; -1 for no end.
        sampler: The order of the rows, instead of `indices` and `repeats`.
        include_indices: Whether each batch begins with the array of its row numbers, ``(n,) int``. In a dict it is
            ``"index"``.

    Raises:
        ArgumentTypeError: `data` is neither a list nor a dict with string keys, or an element has no length or cannot
            be indexed.
        ArgumentError: `data` is empty, or its arrays differ in length.

    >>> source = ArrayDataSource([np.arange(5), np.arange(5) * 10])
    >>> [x.tolist() for x, y in source.batch_iterator(2)]
    [[0, 1], [2, 3], [4]]
    >>> next(ArrayDataSource({"x": np.arange(5)}).map(lambda x: {"double": 2 * x}).batch_iterator(3))
    {'double': array([0, 2, 4])}
    """

    def __init__(
        self,
        data: list[Any] | dict[str, Any],
        indices: Any = None,
        repeats: int = 1,
        sampler: AbstractSampler | None = None,
        include_indices: bool = False,
    ) -> None:
        if not isinstance(data, (list, dict)):
            taken = "; the second argument is `indices`, the rows to hand out" if indices is not None else ""
            raise ArgumentTypeError(
                f"data must be a list or dict of array-like objects, not a {type(data).__name__}; pass [x, y], a list "
                f"of the arrays whose rows belong together, or [x] for one{taken}"
            )
        if not data:
            raise ArgumentError("data must hold at least one array, and is empty")
        self._names = _checked_names(data, include_indices) if isinstance(data, dict) else None
        given = data if isinstance(data, dict) else dict(enumerate(data))
        for name, array in given.items():
            if isinstance(array, SourceNode):
                raise ArgumentTypeError(
                    f"data[{name!r}] is a data source, not an array; put sources side by side with zip"
                )
        columns = {name: as_column(f"data[{name!r}]", array) for name, array in given.items()}
        super().__init__(_common_length(columns), indices, repeats, sampler, include_indices)
        self.data = list(columns.values())
        self._own_way = type(self).samples_by_indices_nomapping is not ArrayDataSource.samples_by_indices_nomapping
        self._has_samples = any(isinstance(array, MapStyle) for array in self.data)
        self._runs_user_code = written_by_user(self) or not all(map(_is_plain, self.data))
        self._spreads_reads = any(isinstance(_unscaled(array), Pictures) for array in self.data)
        self._draws = any(getattr(array, "draws", False) for array in self.data)
        self._has_accessors = not all(isinstance(array, np.ndarray) for array in self.data)  # they may write to rows

    @property
    def columns(self) -> Any:
        """The arrays in the structure of a batch: a tuple, or a dict by name."""
        return tuple(self.data) if self._names is None else dict(zip(self._names, self.data, strict=True))

    def cache(self, where: str | os.PathLike[str] | None = None, limit: int | str = "8GB") -> ArrayDataSource:
        """Return this source with a :class:`~batchup_ng.Cached` around each accessor, which reads each row once.

        Columns that are arrays, tensors or texts in memory stay as they are. The order of samples does not change, so
        saved states remain valid.

        Args:
            where: None for memory, or a folder with one file for each accessor.
            limit: Bytes for the rows of all accessors together, divided in proportion to their bytes per row.

        Raises:
            ArgumentTypeError: as ``Cached``.
            ArgumentError: as ``Cached``, for example if rows differ in shape, as in a ``MapStyle``.
        """
        made = copy.copy(self)
        made.data = cached_columns(self.data, where, limit)
        return made

    def natural_blocks(self) -> tuple[int, int] | None:
        found = [_stored(array) for array in self.data]
        told = [
            (a.natural_block, getattr(a, "natural_window", DEFAULT_WINDOW_BLOCKS))
            for a in found
            if hasattr(a, "natural_block")
        ]
        blocks = [(positive_int("natural_block", block), positive_int("natural_window", n)) for block, n in told]
        n = len(self.data[0])
        # Blocks of one row do not restrict the order, nor does an array that fits into one window.
        blocks = [(block, window) for block, window in blocks if block > 1] or blocks
        return joint_blocks([(block, window) for block, window in blocks if block * window < n] or blocks[:1])

    def rows_kept(self) -> float:
        found = [_stored(array) for array in self.data]
        kept = [array.rows_kept for array in found if hasattr(array, "rows_kept")]
        return min([n for n in kept if n < len(self.data[0])], default=math.inf)

    def _facts(self) -> list[str]:
        words = [repr(a) if isinstance(a, DESCRIBED_ACCESSORS) else array_words(a) for a in self.data]
        named = words if self._names is None else map("{}: {}".format, map(printable, self._names), words)
        return [*super()._facts(), listed(list(named))]

    def children(self) -> tuple[()]:
        return ()

    def own_traits(self) -> Traits:
        return Traits(
            runs_user_code=self._runs_user_code,
            uses_shuffle=True,
            orders_rows=True,
            spreads_reads=self._spreads_reads,
        )

    def fingerprint(self) -> list[Any]:
        return [*super().fingerprint(), len(self.data)]

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        return self._gather(indices, FRESH, BatchKey())

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        if self._own_way:
            return of_its_own(self.samples_by_indices_nomapping(read_only(rows)))
        return self._gather(rows, buffers, key)

    def read_samples(self, rows: Any, key: BatchKey, buffers: Buffers) -> list[Any]:
        if self._own_way or not self._has_samples:
            return super().read_samples(rows, key, buffers)
        columns = [
            array.samples(rows) if isinstance(array, MapStyle) else gather(array, rows, FRESH, key.child(place))
            for place, array in enumerate(self.data)
        ]
        if len(columns) == 1 and self._names is None:
            taken = list(columns[0])
        else:
            taken = [self._batch(list(parts)) for parts in zip(*columns, strict=True)]
        return [with_rows(one, row) for row, one in zip(rows, taken, strict=True)] if self.include_indices else taken

    def sample_name(self, rows: Any) -> str | None:
        """Return the accessors' names for the row, or else the files that the arrays are mapped from."""
        own = joined_names(sample_name(array, int(rows[0])) for array in self.data)
        return joined_names(map(file_name, self.data)) if own is None else own

    def _gather(self, rows: Any, buffers: Buffers, key: BatchKey) -> Any:
        if self._has_accessors:
            rows = read_only(rows)
        if self._draws:
            parts = [gather(array, rows, buffers, key.child(place)) for place, array in enumerate(self.data)]
        else:
            parts = [gather(array, rows, buffers) for array in self.data]
        batch = tuple(parts) if self._names is None and not self._has_samples else self._batch(parts)
        if not self.include_indices:
            return batch
        # A copy, because the rows belong to the plan and the batch to the consumer.
        return with_rows(batch, np.arange(len(self.data[0]))[rows] if isinstance(rows, slice) else np.array(rows))

    def _batch(self, parts: list[Any]) -> Any:
        """Join the parts of a batch. The arrays of a map-style data set stand side by side with the others."""
        if self._names is not None:
            return dict(zip(self._names, parts, strict=True))
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


def _stored(array: Any) -> Any:
    """Return the accessor that reads from storage, inside wrappers that scale, cache or decode its rows."""
    array = _unscaled(array)
    return _stored(array.encoded) if type(array) is ImageBytes else array


def _is_plain(array: Any) -> bool:
    """Return whether only the library's own code reads the rows."""
    array = _unscaled(array)
    if type(array) is ImageBytes:
        return isinstance(array.encoded, (list, tuple)) or _is_plain(array.encoded)
    if type(array) is Ragged:
        return _is_plain(array.values)
    plain = isinstance(array, (np.ndarray, PackedTexts, Pictures, FileBytes))
    return plain or (isinstance(array, StoredRows) and not array.runs_user_code)


def _checked_names(data: dict[Any, Any], include_indices: bool) -> tuple[str, ...]:
    for name in data:
        if not isinstance(name, str):
            raise ArgumentTypeError(f"the names of data must be strings, not {name!r}; maps are called with them")
    if include_indices and INDEX_COLUMN in data:
        raise ArgumentError(f"include_indices adds a column {INDEX_COLUMN!r}, and data has one of that name; rename it")
    return tuple(data)


def _common_length(data: dict[Any, Any]) -> int:
    """Return the common length of the arrays `data`, given by name or number."""
    (first, n), *others = [(name, len(array)) for name, array in data.items()]
    for name, length in others:
        if length != n:
            raise ArgumentError(
                f"Arrays have inconsistent length; array {first!r} has length {n}, while array {name!r} has length "
                f"{length}; each row of one belongs to the row of that number of the others"
            )
    return n
