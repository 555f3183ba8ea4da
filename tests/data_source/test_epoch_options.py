"""Options are seen: signatures are explicit, what is misspelt or of another library is refused by name."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.work_pool import ParallelDataSource, PrefetchDataSource

BATCH_ITERATOR = (
    "(self, batch_size: 'int', shuffle: 'Any' = None, *, epoch: 'int' = 0, drop_last: 'bool' = False, "
    "shard: 'Any' = None, uneven: 'str' = 'pad', pad_mask: 'bool' = False, "
    "on_error: 'str | ErrorPolicy | None' = None, state: 'Any' = None) -> 'BatchIterator'"
)
EPOCHS = (
    "(self, n: 'int | None', batch_size: 'int', shuffle: 'Any' = None, *, start: 'int' = 0, drop_last: 'bool' = False, "
    "shard: 'Any' = None, uneven: 'str' = 'pad', pad_mask: 'bool' = False, "
    "on_error: 'str | ErrorPolicy | None' = None, state: 'Any' = None) -> 'Epochs'"
)


@pytest.mark.parametrize("cls", [bu.ArrayDataSource, bu.MapDataSource, ParallelDataSource, PrefetchDataSource])
def test_signatures_are_explicit_and_the_same(cls: Any) -> None:
    assert str(inspect.signature(cls.batch_iterator)) == BATCH_ITERATOR
    assert str(inspect.signature(cls.epochs)) == EPOCHS
    plan = "(self, batch_size: 'int', shuffle: 'Any' = None, *, epoch: 'int' = 0, drop_last: 'bool' = False)"
    assert str(inspect.signature(cls.plan)) == f"{plan} -> 'BatchPlan'"


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("num_workers", "no option 'num_workers'; pass their number as processes="),
        ("max_workers", "no option 'max_workers'; pass their number as processes="),
        ("process", "unexpected option 'process'; did you mean 'processes'"),
        ("prefetch_factor", r"parallel_data_source\(source, batch_buffer_size="),
        ("timeout", r"parallel_data_source\(source, timeout="),
    ],
)
@pytest.mark.parametrize("kind", [bu.WorkerThreadPool, bu.WorkerProcessPool])
def test_pools_refuse_options_of_others(kind: Any, option: str, says: str) -> None:
    with pytest.raises(ArgumentTypeError, match=says):
        kind(**{option: 2})


def test_a_serial_pool_has_no_workers() -> None:
    with pytest.raises(ArgumentTypeError, match="SerialPool has no option 'processes'; a SerialPool has no workers"):
        bu.SerialPool(processes=2)  # type: ignore[call-arg]
    with pytest.raises(ArgumentTypeError, match=r"SerialPool got an unexpected option 'foo'; it takes no options$"):
        bu.SerialPool(foo=2)  # type: ignore[call-arg]


def test_arguments_by_position_are_counted_under_the_name_that_was_called() -> None:
    source: Any = bu.ArrayDataSource([np.arange(3)])
    with pytest.raises(TypeError, match=r"^batch_iterator\(\) takes from 2 to 3 positional arguments but 4 were given"):
        source.batch_iterator(5, 3, 1)
    with pytest.raises(TypeError, match=r"^batch_iterator\(\) missing 1 required positional argument"):
        source.batch_iterator()
    with pytest.raises(TypeError, match=r"^SerialPool\(\) takes 1 positional argument but 2 were given"):
        bu.SerialPool(3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("num_workers", r"the pool has the workers: WorkerProcessPool\(n\)"),
        ("prefetch_factor", "batch_buffer_size="),
        ("pin_memory", r"in a map behind the pool: pool.parallel_data_source\(source\).map\(fn\)"),
        ("collate_fn", r"source.collate\(fn\)"),
        ("shuffle", "pass it to batch_iterator or epochs of the source that this returns"),
        ("batch_buffer_sise", "did you mean 'batch_buffer_size'"),
    ],
)
def test_sources_of_pools_refuse_options_of_others(option: str, says: str) -> None:
    source = bu.ArrayDataSource([np.arange(3)])
    with bu.SerialPool() as pool:
        for make in (pool.parallel_data_source, pool.prefetch):
            with pytest.raises(ArgumentTypeError, match=says) as caught:
                make(source, **{option: 2})
            assert str(caught.value).startswith(f"{make.__name__} ")


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"shufle": True}, ArgumentTypeError, "'shufle'.*did you mean 'shuffle'"),
        ({"batch_size": 0}, ArgumentError, "batch_size must be at least 1, not 0"),
        ({"shuffle": "yes"}, ArgumentTypeError, "shuffle must be"),
        ({"epoch": -1}, ArgumentError, "epoch must not be negative"),
        ({"drop_last": "no"}, ArgumentTypeError, "drop_last must be True or False"),
    ],
)
def test_wrong_options_of_an_epoch_are_refused_at_once(options: Any, error: type, says: str) -> None:
    source = bu.ArrayDataSource([np.arange(3)])
    for ds in (source, source.map(lambda x: x), bu.SerialPool().parallel_data_source(source)):
        with pytest.raises(error, match=says):
            ds.batch_iterator(**{"batch_size": 4, "shuffle": 5, **options})


def test_a_plan_has_fewer_options() -> None:
    source = bu.ArrayDataSource([np.arange(3)])
    with bu.SerialPool() as pool:
        for ds in (source, pool.parallel_data_source(source)):
            with pytest.raises(ArgumentTypeError, match="plan got an unexpected option 'epochs'; did you mean 'epoch'"):
                ds.plan(3, epochs=2)  # type: ignore[call-arg]
            assert len(ds.plan(2, 7, epoch=2)) == 2
        with pytest.raises(ArgumentTypeError, match=r"plan method not supported"):
            pool.prefetch(source).plan(3)
