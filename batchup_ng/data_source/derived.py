"""The sources that methods of a source return, which change the batches of one other source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import validation
from ..columns import ChosenColumns
from ..graph.columns import ColumnsNode
from ..graph.filtered import FilterNode
from ..graph.indexed import IndexedNode
from ..graph.map import CollateNode, MapNode, SampleMapNode
from ..graph.rounds import RoundsNode, TakeNode
from ..graph.views import ViewsNode
from .companions import companions_of
from .planned import PlannedDataSource
from .reader_facts import class_names, report
from .source import AbstractDataSource, node_of


class MapDataSource(PlannedDataSource, node=MapNode):
    """A source that applies a function to the batches of another source: see :meth:`AbstractDataSource.map`."""

    class_names = class_names
    report = report

    @validation.known_names({})
    def __init__(
        self, source: AbstractDataSource, fn: Callable[..., Any], *, on: Any = None, out: Any = None,
        rng: str | None = None, resizes: bool = False, companions: Any = None,
    ) -> None:  # fmt: skip
        node = node_of("source", source)
        drawn = companions_of(node, companions)
        self._show(MapNode(node, fn, rng=rng, resizes=resizes, on=on, out=out, companions=drawn))


class SampleMapDataSource(PlannedDataSource, node=SampleMapNode):
    """A source that applies a function to the samples of another source: see :meth:`AbstractDataSource.map_samples`."""

    class_names = class_names
    report = report

    def __init__(
        self, source: AbstractDataSource, fn: Callable[..., Any], *, on: Any = None, out: Any = None,
        rng: str | None = None, companions: Any = None,
    ) -> None:  # fmt: skip
        node = node_of("source", source)
        drawn = companions_of(node, companions)
        self._show(SampleMapNode(node, fn, rng=rng, on=on, out=out, companions=drawn))


class ColumnsDataSource(PlannedDataSource, node=ColumnsNode):
    """Some columns of another source, perhaps under other names: see the methods ``select``, ``drop``, ``rename``."""

    class_names = class_names
    report = report

    def __init__(self, source: AbstractDataSource, columns: ChosenColumns) -> None:
        self._show(ColumnsNode(node_of("source", source), columns))


class ViewsDataSource(PlannedDataSource, node=ViewsNode):
    """A source with several views of each sample of another source: see the method ``views``."""

    class_names = class_names
    report = report

    def __init__(
        self, source: AbstractDataSource, fns: Sequence[Callable[..., Any]], *, on: Any = None, out: Any = None
    ) -> None:
        self._show(ViewsNode(node_of("source", source), fns, on=on, out=out))


class CollateDataSource(PlannedDataSource, node=CollateNode):
    """A source whose batches are made from lists of samples: see :meth:`AbstractDataSource.collate`."""

    class_names = class_names
    report = report

    def __init__(self, source: AbstractDataSource, fn: Callable[..., Any]) -> None:
        self._show(CollateNode(node_of("source", source), fn))


class FilterDataSource(PlannedDataSource, node=FilterNode):
    """A source that leaves samples out of the batches of another source: see the method ``filter``, ``lazy=True``."""

    class_names = class_names
    report = report

    def __init__(self, source: AbstractDataSource, predicate: Callable[..., Any], columns: Any = None) -> None:
        self._show(FilterNode(node_of("source", source), predicate, columns))


class IndexedDataSource(PlannedDataSource, node=IndexedNode):
    """A source that puts row numbers before the batches of another source: see the method ``with_index``."""

    class_names = class_names
    report = report

    def __init__(self, source: AbstractDataSource) -> None:
        self._show(IndexedNode(node_of("source", source)))


class TakeDataSource(PlannedDataSource, node=TakeNode):
    """The first samples of each epoch: see :func:`~batchup_ng.take`."""

    class_names = class_names
    report = report

    def __init__(self, source: AbstractDataSource, n: int) -> None:
        self._show(TakeNode(node_of("source", source), n))


class RoundsDataSource(PlannedDataSource, node=RoundsNode):
    """Several epochs of a source, one after the other: see :func:`~batchup_ng.repeat`."""

    class_names = class_names
    report = report

    def __init__(self, source: AbstractDataSource, times: int) -> None:
        self._show(RoundsNode(node_of("source", source), times))
