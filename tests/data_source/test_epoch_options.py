"""Options are seen: signatures are explicit, what is misspelt or of another library is refused by name."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.work_pool import ParallelDataSource, PrefetchDataSource
from tests.messages import raises, warns

BATCH_ITERATOR = (
    "(self, batch_size: 'int', shuffle: 'Any' = None, *, epoch: 'int' = 0, drop_last: 'bool' = False, "
    "shard: 'Any' = None, uneven: 'str' = 'pad', pad_mask: 'bool' = False, "
    "on_error: 'str | ErrorPolicy | None' = None, state: 'Any' = None) -> 'BatchIterator'"
)
EPOCHS = (
    "(self, n: 'int | None', batch_size: 'int', shuffle: 'Any' = None, *, start_epoch: 'int' = 0, "
    "drop_last: 'bool' = False, shard: 'Any' = None, uneven: 'str' = 'pad', pad_mask: 'bool' = False, "
    "on_error: 'str | ErrorPolicy | None' = None, state: 'Any' = None) -> 'Epochs'"
)


@pytest.mark.parametrize("cls", [bu.ArrayDataSource, bu.MapDataSource, ParallelDataSource, PrefetchDataSource])
def test_signatures_are_explicit_and_the_same(cls: Any) -> None:
    assert str(inspect.signature(cls.batch_iterator)) == BATCH_ITERATOR
    assert str(inspect.signature(cls.epochs)) == EPOCHS
    plan = "(self, batch_size: 'int', shuffle: 'Any' = None, *, epoch: 'int' = 0, drop_last: 'bool' = False)"
    assert str(inspect.signature(cls.plan)) == f"{plan} -> 'BatchPlan'"


@pytest.mark.parametrize("option", ["num_workers", "max_workers", "process", "prefetch_factor", "timeout"])
@pytest.mark.parametrize("kind", [bu.WorkerThreadPool, bu.WorkerProcessPool])
def test_pools_refuse_options_of_others(kind: Any, option: str) -> None:
    with raises(ArgumentTypeError):
        kind(**{option: 2})


def test_a_serial_pool_has_no_workers() -> None:
    with raises(ArgumentTypeError):
        bu.SerialPool(processes=2)  # type: ignore[call-arg]
    with raises(ArgumentTypeError):
        bu.SerialPool(foo=2)  # type: ignore[call-arg]


def test_arguments_by_position_are_counted_under_the_name_that_was_called() -> None:
    source: Any = bu.ArrayDataSource([np.arange(3)])
    with raises(TypeError):
        source.batch_iterator(5, 3, 1)
    with raises(TypeError):
        source.batch_iterator()
    with raises(TypeError):
        bu.SerialPool(3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "option", ["num_workers", "prefetch_factor", "pin_memory", "collate_fn", "shuffle", "bufer"]
)
def test_sources_of_pools_refuse_options_of_others(option: str) -> None:
    source = bu.ArrayDataSource([np.arange(3)])
    with bu.SerialPool() as pool:
        for make in (pool.parallel_data_source, pool.prefetch):
            with raises(ArgumentTypeError) as caught:
                make(source, **{option: 2})
            assert str(caught.value).startswith(f"{make.__name__} ")


def test_the_buffer_has_the_name_that_loaders_have() -> None:
    source = bu.ArrayDataSource([np.arange(9)])
    with bu.WorkerThreadPool(1) as pool:
        ways: list[Any] = [pool.parallel_data_source(source, 3), pool.parallel_data_source(source, batch_buffer_size=3)]
        ways += [pool.parallel_data_source(source, buffer=3), pool.prefetch(source, 3), pool.prefetch(source, buffer=3)]
        assert [way.node.bound.size for way in ways] == [3] * 5
        assert pool.parallel_data_source(source, buffer_bytes="2KB").buffer_bytes == 2000
        with raises(ArgumentError):
            pool.parallel_data_source(source, 3, buffer=4)
        for make in (pool.parallel_data_source, pool.prefetch):
            with raises(ArgumentError):
                make(source, buffer=0)
        with raises(ArgumentTypeError):
            pool.prefetch(source, batch_buffer_size=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"shufle": True}, ArgumentTypeError),
        ({"batch_size": 0}, ArgumentError),
        ({"shuffle": "yes"}, ArgumentTypeError),
        ({"epoch": -1}, ArgumentError),
        ({"drop_last": "no"}, ArgumentTypeError),
    ],
)
def test_wrong_options_of_an_epoch_are_refused_at_once(options: Any, error: type) -> None:
    source = bu.ArrayDataSource([np.arange(3)])
    for ds in (source, source.map(lambda x: x), bu.SerialPool().parallel_data_source(source)):
        with raises(error):
            ds.batch_iterator(**{"batch_size": 4, "shuffle": 5, **options})


def test_the_first_of_several_epochs_has_one_name() -> None:
    source: Any = bu.ArrayDataSource([np.arange(5)])
    with bu.SerialPool() as pool, bu.Loader(source, 3, shuffle=7, pool="serial", start_epoch=2) as loader:
        ways = [source, pool.parallel_data_source(source), pool.prefetch(source)]
        epochs = [list(way.epochs(1, 3, 7, start_epoch=2)) for way in ways]
        assert [one[0].epoch for one in epochs] == [2, 2, 2]
        assert loader.epoch == 2
        for other in ("start", "epoch", "initial_epoch"):
            for way in ways if other != "start" else []:
                with raises(ArgumentTypeError):
                    way.epochs(1, 3, 7, **{other: 2})
            with raises(ArgumentTypeError):
                bu.Loader(source, 3, **{other: 2})
        for call in (source.batch_iterator, source.plan):
            with raises(ArgumentTypeError):
                call(3, start_epoch=2)
        with raises(ArgumentError):
            source.epochs(1, 3, start_epoch=-1)


def test_the_name_of_earlier_versions_works_with_a_warning() -> None:
    source: Any = bu.ArrayDataSource([np.arange(5)])
    with bu.SerialPool() as pool:
        for way in (source, pool.parallel_data_source(source), pool.prefetch(source)):
            with warns(DeprecationWarning) as told:
                (only,) = way.epochs(1, 3, 7, start=2)
            assert told[0].filename == __file__
            assert only.epoch == 2
            with raises(ArgumentTypeError):
                way.epochs(1, 3, 7, start=2, start_epoch=2)


def test_a_plan_has_fewer_options() -> None:
    source = bu.ArrayDataSource([np.arange(3)])
    with bu.SerialPool() as pool:
        for ds in (source, pool.parallel_data_source(source)):
            with raises(ArgumentTypeError):
                ds.plan(3, epochs=2)  # type: ignore[call-arg]
            assert len(ds.plan(2, 7, epoch=2)) == 2
        with raises(ArgumentTypeError):
            pool.prefetch(source).plan(3)
