"""Sources whose samples have row numbers: those of the library, and those that a user writes."""

from __future__ import annotations

from typing import Any

from .. import validation
from ..errors import ArgumentError
from ..graph.node import Node
from ..graph.rearranged import ConcatNode, SubsetNode, ZipNode
from ..graph.rows import NO_USER_METHODS, UserMethods, sampler_for
from ..graph.user import PACKAGE, UserRowsNode
from ..sampling.base import AbstractSampler
from ..sampling.standard import StandardSampler, SubsetSampler, check_row_numbers
from .planned import PlannedDataSource
from .reader_facts import class_names, report
from .source import AbstractDataSource, node_of, nodes_in


class RandomAccessDataSource(PlannedDataSource):
    """A source that makes a batch from row numbers: the base class for custom storage.

    A custom source defines ``samples_by_indices_nomapping(indices)``. It returns the batch, a tuple of arrays, of the
    row numbers `indices`: ``(n,) int``, read-only.

    Args:
        length: Number of rows.
        indices: The rows to hand out: ``(n,) int``. Default: all.
        repeats: How often an epoch hands out each row; -1 for no end.
        sampler: The order of the rows, instead of `indices` and `repeats`.
        include_indices: Whether each batch begins with the array of its row numbers.

    Raises:
        ArgumentError: `repeats` is neither -1 nor at least 1, or a sampler was given together with it or `indices`.
    """

    sampler: AbstractSampler
    include_indices = False
    _asks_fingerprint = True

    @validation.known_names({})
    def __init__(
        self,
        length: int,
        indices: Any = None,
        repeats: int = 1,
        sampler: AbstractSampler | None = None,
        include_indices: bool = False,
    ) -> None:
        self.sampler = checked_sampler(length, indices, repeats, sampler)
        self.include_indices = include_indices

    def _users_node(self) -> Node:
        return UserRowsNode(self, self.sampler, overridden(self))

    def _show(self, node: Any) -> None:
        super()._show(node)
        self.sampler = node.sampler

    def fingerprint(self) -> list[Any]:
        node: Any = self.node
        described: list[Any] = node.described()
        return described

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        """Return the batch of the row numbers `indices`."""
        node = vars(self).get("_node")
        if node is None:
            raise NotImplementedError(f"Abstract for type {type(self)}")
        return node.by_rows(indices)


def overridden(source: RandomAccessDataSource) -> UserMethods:
    """Return the methods that a user's class of `source` overrides."""
    if type(source).__module__.partition(".")[0] == PACKAGE:
        return NO_USER_METHODS

    def users(name: str) -> Any:
        module = str(getattr(getattr(type(source), name), "__module__", ""))
        return None if module.partition(".")[0] == PACKAGE else getattr(source, name)

    return UserMethods(*map(users, ("batch_indices_iterator", "samples_by_indices_nomapping", "fingerprint")))


def checked_sampler(length: int, indices: Any, repeats: int, sampler: Any) -> AbstractSampler:
    """Return the sampler of `length` rows for these arguments of a source."""
    if sampler is None:
        repeats = validation.repeats(repeats)
        if indices is None:
            return StandardSampler(length, repeats)
        subset = SubsetSampler(indices, repeats)
        check_row_numbers("indices", subset.indices, length)
        return subset
    if repeats != 1:
        raise ArgumentError(f"repeats should be 1 when sampler is provided, not {repeats}; give it to the sampler")
    if indices is not None:
        raise ArgumentError("indices should be None when sampler is provided; use a SubsetSampler")
    return sampler_for(length, sampler)


class SubsetDataSource(RandomAccessDataSource, node=SubsetNode):
    """Some samples of another source, or all if `rows` is None: see :func:`~batchup_ng.subset`."""

    _asks_fingerprint = False
    class_names = class_names
    report = report

    def __init__(self, source: AbstractDataSource, rows: Any = None, repeats: int = 1) -> None:
        self._show(SubsetNode(node_of("source", source), rows, repeats))


class ConcatDataSource(RandomAccessDataSource, node=ConcatNode):
    """The samples of several sources, one source after the other: see :func:`~batchup_ng.concat`."""

    _asks_fingerprint = False
    class_names = class_names
    report = report

    def __init__(self, sources: Any, sampler: AbstractSampler | None = None) -> None:
        self._show(ConcatNode(nodes_in("sources", sources), sampler))


class ZipDataSource(RandomAccessDataSource, node=ZipNode):
    """Sources of equal length, joined row by row: see :func:`~batchup_ng.zip`."""

    _asks_fingerprint = False
    class_names = class_names
    report = report

    def __init__(self, sources: Any, flatten: bool = True) -> None:
        self._show(ZipNode(nodes_in("sources", sources), flatten))
