"""The iterator of batches."""

from __future__ import annotations

import copy
import gc
import operator
import pickle
import weakref
from typing import Any

import cloudpickle
import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source.epoch import opening
from batchup_ng.errors import AccountingError, ArgumentTypeError
from batchup_ng.testing.sources import assert_same_batches
from tests.data_source.source_helpers import A, uniform
from tests.messages import raises
from tests.threads import in_threads


def test_the_iterator_tells_its_statistics() -> None:
    iterator = bu.ArrayDataSource([A]).batch_iterator(4)
    next(iterator)
    stats = iterator.stats()
    assert (stats["batches"], stats["samples"], stats["buffered"]) == (1, 4, 0)
    assert stats["wait_seconds"] > 0
    assert len(iterator) == 2
    assert len(list(iterator)) == 2
    assert len(iterator) == 0


@pytest.mark.parametrize("send", [pickle.dumps, cloudpickle.dumps, copy.copy, copy.deepcopy])
def test_an_iterator_cannot_be_sent(send: Any) -> None:
    iterator = bu.ArrayDataSource([A]).batch_iterator(3)
    with raises(ArgumentTypeError):
        send(iterator)
    assert len(list(iterator)) == 4


@pytest.mark.parametrize("option", ["seed", "num_workers", "collate_fn", "world_size", "sampler", "quux", "stat"])
def test_an_option_of_another_library_is_told_where_to_go(option: str) -> None:
    source = bu.ArrayDataSource([A])
    with raises(ArgumentTypeError):
        source.batch_iterator(3, **{option: 2})
    with bu.SerialPool() as pool, raises(ArgumentTypeError):
        pool.parallel_data_source(source).batch_iterator(3, **{option: 2})


def test_an_option_that_a_function_of_the_users_takes_reaches_it() -> None:
    source = bu.CallableDataSource(lambda batch_size, seed: iter([(np.full(batch_size, seed),)]))
    assert [x.tolist() for (x,) in source.batch_iterator(3, seed=7)] == [[7, 7, 7]]


def test_a_closed_iterator_ends() -> None:
    with bu.ArrayDataSource([A]).batch_iterator(4) as iterator:
        next(iterator)
    assert list(iterator) == []
    iterator.close()


def test_a_stream_of_unknown_length_has_none() -> None:
    iterator = bu.IteratorDataSource(iter([(A,)])).batch_iterator(4)
    with raises(ArgumentTypeError):
        len(iterator)
    assert operator.length_hint(iterator) == 0
    assert len(list(iterator)) == 1


def test_lost_batches_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = opening.epoch_plan

    def forgetful(node: Any, options: Any, blocks: Any) -> Any:
        plan: Any = right(node, options, blocks)
        plan.n_batches += 1
        plan.__class__ = type("Short", (type(plan),), {"__iter__": lambda self: (self[k] for k in range(2))})
        return plan

    monkeypatch.setattr(opening, "epoch_plan", forgetful)
    with raises(AccountingError):
        list(bu.ArrayDataSource([A]).batch_iterator(4))


def test_an_iterator_that_is_dropped_lets_go_of_its_source() -> None:
    source = bu.ArrayDataSource([A])
    iterator = source.batch_iterator(4)
    next(iterator)
    gone = weakref.ref(source)
    del source, iterator
    gc.collect()
    assert gone() is None


def test_two_threads_may_read_one_source() -> None:
    source = bu.ArrayDataSource([np.arange(1000)]).map(uniform, rng="sample")
    expected = list(source.batch_iterator(10, shuffle=1))
    results: list[Any] = []
    in_threads([lambda: results.append(list(source.batch_iterator(10, shuffle=1)))] * 4)
    for result in results:
        assert_same_batches(result, expected)
    assert len(results) == 4


def test_a_loop_that_went_on_after_an_interrupt_is_told_that_the_epoch_is_not_over() -> None:
    def interrupted(x: np.ndarray) -> Any:
        if 7 in x:
            raise KeyboardInterrupt
        return (x,)

    iterator = bu.ArrayDataSource([np.arange(20)]).map(interrupted).batch_iterator(5)
    next(iterator)
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    for _ in range(2):
        with raises(bu.PoolClosed):
            next(iterator)
    assert len(iterator) == 0


def test_a_state_tells_nothing_of_who_made_the_batches_whatever_maps_make_of_them() -> None:
    sources = [
        bu.ArrayDataSource([A]).map(lambda x: (x[::2],), resizes=True),
        bu.ArrayDataSource([A]).map(lambda x: (np.repeat(x, 3),), resizes=True),
        bu.ArrayDataSource([A]).collate(lambda samples: {"n": len(samples)}),
        bu.CompositeDataSource([bu.ArrayDataSource([A]), bu.ArrayDataSource([A[:6]])], trim=False),
    ]
    with bu.WorkerThreadPool(2) as pool:
        for source in sources:
            pair = [one.batch_iterator(4, shuffle=3) for one in (source, pool.parallel_data_source(source))]
            for _ in range(2):
                assert pair[0].state_dict() == pair[1].state_dict()
                for iterator in pair:
                    next(iterator)
            assert pair[0].state_dict()["counts"][:4] == [8, 8, 0, 0]
            for iterator in pair:
                iterator.close()


@pytest.mark.parametrize("repeats", [-1, 10**18])
def test_an_epoch_that_is_as_good_as_endless_has_no_length(repeats: int) -> None:
    source = bu.ArrayDataSource([np.arange(1000)], repeats=repeats)
    for long in (source.batch_iterator(1, shuffle=1), source.plan(1, shuffle=1)):
        with raises(TypeError):
            len(long)
    iterator = source.batch_iterator(1, shuffle=1)
    assert operator.length_hint(iterator) == 0
    assert len(next(iterator)[0]) == 1
