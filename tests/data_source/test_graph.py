"""The graph of a source: the children of each node, and the traits of all nodes together."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng import data_source, datasets, work_pool
from batchup_ng.data_source import AbstractDataSource
from batchup_ng.errors import RepeatedEpochWarning
from batchup_ng.graph.node import Node, nodes_of
from batchup_ng.work_pool.prefetch import PrefetchDataSource
from tests.messages import raises

POOL = bu.SerialPool()
ARRAY, OTHER = bu.ArrayDataSource([np.arange(10)]), bu.ArrayDataSource([np.arange(10)])
REPORT = bu.FilesReport("here", 10, {})
ABSTRACT = {data_source.AbstractDataSource, data_source.PlannedDataSource, data_source.RandomAccessDataSource}


def unchanged(x: Any, **keywords: Any) -> Any:
    return (x,)


def stream(batch_size: int, **options: Any) -> Iterator[Any]:
    return iter([(np.arange(batch_size),)])


MADE: list[tuple[Callable[[], Any], list[AbstractDataSource], str]] = [
    (lambda: ARRAY, [], "uses_shuffle orders_rows"),
    (lambda: bu.FilesDataSource([np.arange(10)], REPORT, {"image": 0}), [], "uses_shuffle orders_rows"),
    (lambda: bu.CallableDataSource(stream), [], "runs_user_code takes_options uses_shuffle"),
    (lambda: bu.IteratorDataSource(stream(4)), [], "runs_user_code"),
    (lambda: bu.CompositeDataSource([ARRAY, OTHER]), [ARRAY, OTHER], "uses_shuffle orders_rows"),
    (lambda: bu.ChoiceDataSource([ARRAY, OTHER]), [ARRAY, OTHER], "uses_shuffle orders_rows"),
    (lambda: bu.concat(ARRAY, OTHER), [ARRAY, OTHER], "uses_shuffle orders_rows"),
    (lambda: bu.zip(ARRAY, OTHER), [ARRAY, OTHER], "uses_shuffle orders_rows"),
    (lambda: bu.subset(ARRAY, [1, 3]), [ARRAY], "uses_shuffle orders_rows"),
    (lambda: ARRAY.take(3), [ARRAY], "uses_shuffle orders_rows"),
    (lambda: data_source.RoundsDataSource(ARRAY, 2), [ARRAY], "uses_shuffle orders_rows"),
    (lambda: ARRAY.with_index(), [ARRAY], "uses_shuffle orders_rows"),
    (lambda: ARRAY.map(unchanged, resizes=True), [ARRAY], "runs_user_code uses_shuffle orders_rows resizes"),
    (lambda: ARRAY.map(unchanged, rng="batch"), [ARRAY],
     "runs_user_code uses_shuffle orders_rows draws draws_by_batch"),
    (lambda: ARRAY.map_samples(unchanged, rng="sample"), [ARRAY], "runs_user_code uses_shuffle orders_rows draws"),
    (lambda: ARRAY.views(2, lambda x, rng: x), [ARRAY], "runs_user_code uses_shuffle orders_rows draws"),
    (lambda: ARRAY.filter(bool, lazy=True), [ARRAY], "runs_user_code uses_shuffle orders_rows resizes filters"),
    (lambda: ARRAY.rename({0: "x"}), [ARRAY], "uses_shuffle orders_rows"),
    (lambda: ARRAY.collate(unchanged), [ARRAY], "runs_user_code uses_shuffle orders_rows"),
    (lambda: POOL.parallel_data_source(ARRAY), [ARRAY], "uses_shuffle orders_rows of_pool"),
    (lambda: POOL.prefetch(ARRAY), [ARRAY], "uses_shuffle orders_rows of_pool"),
]  # fmt: skip
"""Sources of each kind, with their children and the traits that are true."""


@pytest.mark.parametrize(("make", "children", "traits"), MADE)
def test_each_kind_of_source_names_its_children_and_traits(make: Any, children: list[Any], traits: str) -> None:
    node = make().node
    assert list(node.children()) == [child.node for child in children]
    held = [part for value in vars(node).values() for part in (value if isinstance(value, (list, tuple)) else [value])]
    assert {part for part in held if isinstance(part, Node)} == {child.node for child in children}
    assert {name for name, true in node.traits._asdict().items() if true} == set(traits.split())


def test_each_kind_of_source_is_tested() -> None:
    exported = [getattr(module, name) for module in (data_source, datasets, work_pool) for name in module.__all__]
    kinds = {kind for kind in exported if isinstance(kind, type) and issubclass(kind, AbstractDataSource)}
    assert {type(make()) for make, *_ in MADE} == kinds - ABSTRACT | {PrefetchDataSource}


def test_a_source_has_a_node_and_few_base_classes() -> None:
    kinds = [type(make()) for make, *_ in MADE]
    assert max(len(kind.__mro__) - 1 for kind in kinds if kind is not bu.FilesDataSource) <= 4
    assert not [kind for kind in kinds if issubclass(kind, Node)]
    names = [name for name in object.__dir__(ARRAY) if not name.startswith("_")]
    assert sorted(names) == [name for name in dir(ARRAY) if not name.startswith("_")], "nothing is hidden"
    assert len(names) <= 41


def test_rows_are_read_by_several_threads_if_one_part_is_of_files() -> None:
    files = bu.ArrayDataSource([bu.ImageFiles(["a"] * 10, size=4)])
    assert bu.zip(ARRAY, files.take(10)).node.traits.spreads_reads


def test_maps_after_a_pool_are_part_of_its_node() -> None:
    source = POOL.parallel_data_source(ARRAY).map(unchanged).map_samples(unchanged, rng="sample")
    assert source.node.children() == (ARRAY.node,)
    assert {"of_pool", "draws", "resizes"} < {name for name, true in source.node.traits._asdict().items() if true}


def test_the_nodes_of_a_graph_come_once_and_children_first() -> None:
    left, right = ARRAY.take(3), ARRAY.take(4)
    root = bu.CompositeDataSource([left, bu.concat(right, ARRAY)]).node
    _, joined = root.children()
    assert nodes_of(root) == [ARRAY.node, left.node, right.node, joined, root]
    assert nodes_of(root, below_orders=False) == [ARRAY.node, left.node, joined, root]


class Holding(bu.RandomAccessDataSource):
    """A user's source that reads from another one."""

    def __init__(self, held: Any, **more: Any) -> None:
        super().__init__(10)
        self.held = held
        vars(self).update(more)

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        return (indices,)


class Naming(Holding):
    """One that names it."""

    def children(self) -> Any:
        return (self.held,)


MAPPED = ARRAY.map(unchanged, rng="batch", resizes=True)


def test_the_children_of_a_users_source_are_those_that_it_names() -> None:
    source = Naming(MAPPED, rng=np.random.RandomState(1))
    assert source.node.children() == (MAPPED.node,)
    assert {"runs_user_code", "uses_shuffle", "draws", "draws_by_batch", "resizes", "orders_rows"} == {
        name for name, true in source.node.traits._asdict().items() if true
    }
    assert "fn=unchanged" in repr(source)


def test_nothing_is_found_by_a_search_of_attributes() -> None:
    for source in (Holding(MAPPED), Holding([MAPPED], children=[MAPPED])):
        assert len(nodes_of(source.node)) == 1
        assert not source.node.traits.resizes
        assert len(list(source.batch_iterator(5))) == 2


def test_an_attribute_named_rng_is_no_map_that_draws() -> None:
    source = Holding(None, rng=np.random.RandomState(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RepeatedEpochWarning)
        assert len(list(source.batch_iterator(5))) == len(list(source.batch_iterator(5))) == 2


@pytest.mark.parametrize("kind", [bu.AbstractDataSource, bu.ArrayDataSource, bu.CompositeDataSource])
def test_a_method_that_would_never_be_called_is_refused(kind: type) -> None:
    with raises(bu.ArgumentTypeError):
        type("Own", (kind,), {"row_plan": unchanged})


def test_a_fingerprint_that_no_state_would_ask_for_is_refused() -> None:
    with raises(bu.ArgumentTypeError):
        type("Own", (bu.CompositeDataSource,), {"fingerprint": unchanged})
    with raises(bu.ArgumentTypeError):
        type("Own", (bu.CompositeDataSource,), {"read": lambda self, rows, key, buffers: None})


def test_a_copy_of_a_users_source_reads_by_its_own_attributes() -> None:
    class Scaled(bu.ArrayDataSource):
        scale = 1

        def samples_by_indices_nomapping(self, indices: Any) -> Any:
            return (self.scale * self.data[0][indices],)

    source = Scaled([np.arange(6)])
    other = copy.copy(source)
    other.scale = 10
    for made, scale in ((source, 1), (other, 10)):
        assert [x.tolist() for (x,) in made.batch_iterator(6)] == [(scale * np.arange(6)).tolist()]
        assert [x.tolist() for (x,) in made.map(unchanged).batch_iterator(6)] == [(scale * np.arange(6)).tolist()]


def test_a_users_subclass_has_the_node_of_the_librarys() -> None:
    class Own(bu.CompositeDataSource):
        more = 3

    source = Own([ARRAY, OTHER])
    assert type(source.node) is type(bu.CompositeDataSource([ARRAY, OTHER]).node)
    assert source.fingerprint()[0] == "Own"
    assert repr(source).startswith("<Own: 10 samples")
