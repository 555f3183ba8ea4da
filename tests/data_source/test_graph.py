"""The graph of a source: the children of each node, and the traits of all nodes together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng import data_source, datasets, work_pool
from batchup_ng.data_source.hooks import SourceNode, Traits, nodes_of
from batchup_ng.errors import RepeatedEpochWarning
from batchup_ng.work_pool.prefetch import PrefetchDataSource

POOL = bu.SerialPool()
ARRAY, OTHER = bu.ArrayDataSource([np.arange(10)]), bu.ArrayDataSource([np.arange(10)])
REPORT = bu.FilesReport("here", 10, {})
ABSTRACT = {data_source.AbstractDataSource, data_source.PlannedDataSource, data_source.RandomAccessDataSource}


def unchanged(x: Any, **keywords: Any) -> Any:
    return (x,)


def stream(batch_size: int, **options: Any) -> Iterator[Any]:
    return iter([(np.arange(batch_size),)])


MADE: list[tuple[Callable[[], Any], list[SourceNode], str]] = [
    (lambda: ARRAY, [], "uses_shuffle orders_rows"),
    (lambda: bu.FilesDataSource([np.arange(10)], REPORT, False), [], "uses_shuffle orders_rows"),
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
    (lambda: ARRAY.collate(unchanged), [ARRAY], "runs_user_code uses_shuffle orders_rows"),
    (lambda: POOL.parallel_data_source(ARRAY), [ARRAY], "uses_shuffle orders_rows of_pool"),
    (lambda: POOL.prefetch(ARRAY), [ARRAY], "uses_shuffle orders_rows of_pool"),
]  # fmt: skip
"""Sources of each kind, with their children and the traits that are true."""


@pytest.mark.parametrize(("make", "children", "traits"), MADE)
def test_each_kind_of_source_names_its_children_and_traits(make: Any, children: list[Any], traits: str) -> None:
    source = make()
    assert list(source.children()) == children
    held = [
        part for value in vars(source).values() for part in (value if isinstance(value, (list, tuple)) else [value])
    ]
    assert {part for part in held if isinstance(part, SourceNode)} == set(children)
    assert type(source).children is not SourceNode.children  # which searches the attributes
    assert {name for name, true in source.traits._asdict().items() if true} == set(traits.split())


def test_each_kind_of_source_is_tested() -> None:
    exported = [getattr(module, name) for module in (data_source, datasets, work_pool) for name in module.__all__]
    kinds = {kind for kind in exported if isinstance(kind, type) and issubclass(kind, SourceNode)}
    assert {type(make()) for make, *_ in MADE} == kinds - ABSTRACT | {PrefetchDataSource}


def test_rows_are_read_by_several_threads_if_one_part_is_of_files() -> None:
    files = bu.ArrayDataSource([bu.ImageFiles(["a"] * 10, size=4)])
    assert bu.zip(ARRAY, files.take(10)).traits.spreads_reads


def test_maps_after_a_pool_are_part_of_its_node() -> None:
    source = POOL.parallel_data_source(ARRAY).map(unchanged).map_samples(unchanged, rng="sample")
    assert source.children() == (ARRAY,)
    assert {"of_pool", "draws", "resizes"} < {name for name, true in source.traits._asdict().items() if true}


def test_the_nodes_of_a_graph_come_once_and_children_first() -> None:
    left, right = ARRAY.take(3), ARRAY.take(4)
    root = bu.CompositeDataSource([left, bu.concat(right, ARRAY)])
    assert nodes_of(root) == [ARRAY, left, right, root.datasets[1], root]
    assert nodes_of(root, below_orders=False) == [ARRAY, left, root.datasets[1], root]


class Holding(bu.RandomAccessDataSource):
    """A user's source that reads from others and does not define ``children()``."""

    def __init__(self, **held: Any) -> None:
        super().__init__(10)
        vars(self).update(held)

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        return (indices,)


MAPPED = ARRAY.map(unchanged, rng="batch", resizes=True)


@pytest.mark.parametrize("held", [MAPPED, [ARRAY, MAPPED], (ARRAY, MAPPED, None), {"a": ARRAY, "b": MAPPED}])
def test_the_children_of_a_users_source_are_the_sources_among_its_attributes(held: Any) -> None:
    source = Holding(rng=np.random.RandomState(1), held=held, names=["a", "b"])
    assert MAPPED in source.children()
    assert {"runs_user_code", "uses_shuffle", "draws", "draws_by_batch", "resizes", "orders_rows"} == {
        name for name, true in source.traits._asdict().items() if true
    }
    assert "fn=unchanged" in repr(source)


def test_an_attribute_named_children_is_one_like_others() -> None:
    source = Holding(children=[MAPPED])
    assert nodes_of(source) == [ARRAY, MAPPED, source]
    assert source.traits.resizes
    assert "fn=unchanged" in repr(source)


def test_an_attribute_named_rng_is_no_map_that_draws() -> None:
    source = Holding(rng=np.random.RandomState(1))
    assert source.children() == ()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RepeatedEpochWarning)
        assert len(list(source.batch_iterator(5))) == len(list(source.batch_iterator(5))) == 2


def test_a_users_source_may_name_its_children_and_traits() -> None:
    class Plain(Holding):
        def children(self) -> tuple[SourceNode, ...]:
            return (OTHER,)

        def own_traits(self) -> Traits:
            return Traits(orders_rows=True)

    source = Plain(held=MAPPED)
    assert nodes_of(source) == [OTHER, source]
    assert not source.traits.runs_user_code


class Noisy(bu.CompositeDataSource):
    """A user's subclass of a kind of source that runs no code of the user."""

    def read(self, rows: Any, key: Any, buffers: Any) -> Any:
        return (*super().read(rows, key, buffers), np.random.random(len(rows[0])))


def test_a_users_subclass_draws_the_same_from_the_global_generator_in_each_epoch_of_a_seed() -> None:
    epochs = [[batch[-1].tolist() for batch in Noisy([ARRAY, OTHER]).batch_iterator(4, shuffle=3)] for _ in range(2)]
    assert epochs[0] == epochs[1]
