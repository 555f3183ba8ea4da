"""Two loaders that share workers: ``Loader(validation, pool=train)``."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from tests.messages import raises

X = np.arange(40)


def batches(loader: Any) -> list[list[int]]:
    return [x.tolist() for (x,) in loader]


@pytest.mark.parametrize("kind", ["auto", "serial", "threads"])
def test_it_takes_the_workers_of_the_other_in_any_order_of_calls(kind: str) -> None:
    with bu.Loader([X], 8, shuffle=7, pool=kind) as train, bu.Loader([X], 16, pool=train) as validation:
        assert "by the workers of another loader" in repr(validation)
        expected = [X[:16].tolist(), X[16:32].tolist(), X[32:].tolist()]
        assert batches(validation) == expected  # before the first epoch of the training
        assert batches(train) == batches(bu.Loader([X], 8, shuffle=7, pool="serial"))
        in_mid_epoch = iter(train)
        next(in_mid_epoch)
        assert batches(validation) == expected
        assert len(list(in_mid_epoch)) == 4
        assert train._shared.pool is validation._shared.pool
    with bu.Loader([X], 8, pool=validation.map(lambda x: x)) as third, pytest.raises(bu.PoolClosed):
        list(third)


def test_no_process_is_started_for_the_second() -> None:
    with bu.Loader([X], 8, pool="processes", workers=1) as train, bu.Loader([X], 16, pool=train) as validation:
        list(train)
        before = threading.active_count()
        assert len(list(validation)) == 3
        assert threading.active_count() == before
        validation.close()
        assert len(list(train)) == 5


def test_a_loader_whose_lender_is_closed_says_so() -> None:
    train = bu.Loader([X], 8, pool="threads", workers=1)
    validation = bu.Loader([X], 2, pool=train, buffer=2)
    batches(validation)
    train.close()
    with raises(bu.PoolClosed):
        list(validation)
    with raises(bu.PoolClosed):
        iter(bu.Loader([X], 16, pool=train))


def test_what_cannot_be_shared_is_refused() -> None:
    stream = bu.Loader(bu.IteratorDataSource(iter([(X,)])), 8)
    train = bu.Loader([X], 8)
    for pool, options in ((stream, {}), (train, {"workers": 2}), (3, {})):
        with raises((bu.ArgumentError, bu.ArgumentTypeError)):
            bu.Loader([X], 16, pool=pool, **options)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_map_that_waits_for_its_own_threads_is_refused(workers: int) -> None:
    def asks(x: np.ndarray) -> Any:
        return (x + sum(map(sum, batches(bu.Loader([X], 16, pool=asked)))),)  # each thread has a loader of its own

    source = bu.ArrayDataSource([X]).map(asks)
    options = {"pool": "threads", "workers": workers, "on_error": "skip"}
    with bu.Loader(source, 8, **options) as asked, raises(bu.ReentrantIteration):
        list(asked)
    with bu.Loader([X], 16, pool="threads", workers=1) as asked, bu.Loader(source, 40, pool="threads") as outer:
        assert batches(outer) == [(X + X.sum()).tolist()]
    with bu.Loader(source, 40, pool="serial") as asked:
        assert batches(asked) == [(X + X.sum()).tolist()]
