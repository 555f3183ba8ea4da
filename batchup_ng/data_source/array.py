"""The source over arrays and other objects that can be indexed like arrays."""

from __future__ import annotations

import copy
import os
from typing import Any

from .. import validation
from ..accessors.cached import cached_columns
from ..accessors.column import as_column
from ..accessors.listed_rows import of_list
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.arrays import ArraysNode
from ..graph.indexed import INDEX_COLUMN
from ..graph.node import Node
from ..graph.rows import NO_USER_METHODS
from ..memory.leases import FRESH
from ..randomness import BatchKey
from ..sampling.base import AbstractSampler
from .column_facts import columns_of_arrays
from .own_attributes import replaceable
from .random_access import RandomAccessDataSource, overridden
from .source import AbstractDataSource


class ArrayDataSource(RandomAccessDataSource, node=ArraysNode):
    """A source over rows of arrays: batch ``(a[rows], b[rows], ...)`` for ``data=[a, b, ...]``.

    A dict of arrays gives batches that are dicts with the same names. Maps are then called by name.

    Args:
        data: A list or dict of arrays, tensors, or accessors: anything with ``len`` that can be indexed by an array of
            row numbers, in any order. All have the same length. A list of texts becomes a column of texts, a list of
            arrays one of arrays of different lengths, as :class:`~batchup_ng.Ragged` or, if they are of one shape, an
            array. The columns of a :class:`~batchup_ng.MapStyle` stand
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

    >>> import numpy as np
    >>> source = ArrayDataSource([np.arange(5), np.arange(5) * 10])
    >>> [x.tolist() for x, y in source.batch_iterator(2)]
    [[0, 1], [2, 3], [4]]
    >>> next(ArrayDataSource({"x": np.arange(5)}).map(lambda x: {"double": 2 * x}).batch_iterator(3))
    {'double': array([0, 2, 4])}
    """

    _arrays: ArraysNode

    @validation.known_names({})
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
        names = _checked_names(data, include_indices) if isinstance(data, dict) else None
        given = data if isinstance(data, dict) else dict(enumerate(data))
        for name, array in given.items():
            if isinstance(array, AbstractDataSource):
                raise ArgumentTypeError(
                    f"data[{name!r}] is a data source, not an array; put sources side by side with zip"
                )
        columns = {}
        for name, array in given.items():
            columns[name] = as_column(f"data[{name!r}]", of_list(f"data[{name!r}]", array))
        super().__init__(_common_length(columns), indices, repeats, sampler, include_indices)
        self._show(ArraysNode(list(columns.values()), names, self.sampler, include_indices))

    def _users_node(self) -> Node:
        return self._arrays.owned(overridden(self))

    def _show(self, node: Any) -> None:
        super()._show(node)
        self.include_indices = node.include_indices
        self._arrays = node
        if overridden(self) != NO_USER_METHODS:  # its node is made anew each time
            del self._node

    @property
    def data(self) -> list[Any]:
        """The columns."""
        return self._arrays.data

    @replaceable
    def columns(self) -> Any:
        """The columns in the structure of a batch, each with `dtype` and `shape` ``(n, ...)``, of all n rows.

        Arrays, and accessors with rows of one shape, stand for themselves. Other columns, such as texts, sequences of
        different lengths, or images without a size, are told by their first row, as for any source. ``source.data`` has
        the accessors of all columns.

        Raises:
            ArgumentError: a row would have to be read, and there is none.
            SampleReadError: the first row cannot be read.
        """
        return columns_of_arrays(self._arrays) if overridden(self) == NO_USER_METHODS else super().columns

    @validation.known_names({})
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
        made._show(self._arrays.with_data(cached_columns(self.data, where, limit)))
        return made

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        """Return the batch of the row numbers `indices`."""
        return self._arrays.gathered(indices, FRESH, BatchKey())


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
