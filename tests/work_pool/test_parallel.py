"""Sources that a pool made, inside other sources."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import PoolClosed
from batchup_ng.testing.sources import assert_same_batches
from tests.messages import raises

from ..extent import quick


def source(n: int = 30) -> bu.data_source.PlannedDataSource:
    return bu.ArrayDataSource([np.arange(n)]).map(add_draws, rng="sample")


def add_draws(*batch: Any, rng: Any) -> Any:
    return (*batch, rng.uniform())


MAKERS = [bu.SerialPool, lambda: bu.WorkerThreadPool(2), lambda: bu.WorkerProcessPool(2)]


def same(made: Any, plain: Any, shuffle: Any) -> Any:
    """Assert that a source with parts made by a pool gives what it gives without; return its last epoch."""
    for epoch in range(2):
        got = list(made.batch_iterator(4, shuffle=shuffle, epoch=epoch))
        assert_same_batches(got, list(plain.batch_iterator(4, shuffle=shuffle, epoch=epoch)))
    return got


WAYS = [(how, shuffle) for how in ("parallel_data_source", "prefetch") for shuffle in (None, 3)]


@pytest.mark.parametrize(("how", "shuffle"), quick([("parallel_data_source", 3)], WAYS))
def test_parts_made_by_a_pool_keep_their_orders(pool: Any, how: str, shuffle: Any) -> None:
    made = [getattr(pool, how)(source(n)) for n in (30, 22)]
    plain = [source(n) for n in (30, 22)]
    same(bu.CompositeDataSource(made), bu.CompositeDataSource(plain), shuffle)
    same(bu.take(made[0], 10), bu.take(plain[0], 10), shuffle)
    rounds = [batch[0].tolist() for batch in bu.repeat(made[0], 2).batch_iterator(30, shuffle=3)]
    assert len(rounds) == 2
    assert rounds[0] != rounds[1]


@pytest.mark.parametrize("make", MAKERS[1:])
def test_closing_a_pool_ends_what_it_prefetched(make: Any) -> None:
    pool = make()
    endless = bu.ArrayDataSource([np.arange(10)], repeats=-1)
    iterator = pool.prefetch(endless, 3).batch_iterator(4)
    next(iterator)
    pool.close()
    with pytest.raises(PoolClosed):
        list(itertools.islice(iterator, 10))


def test_an_error_of_a_stream_is_raised_once_it_is_reached() -> None:
    calls = []

    def failing(batch_size: int) -> Iterator[Any]:
        calls.append(batch_size)
        raise ZeroDivisionError("no stream")

    with bu.WorkerThreadPool(1) as pool:
        iterator = pool.prefetch(bu.CallableDataSource(failing)).batch_iterator(4)
        with raises(ZeroDivisionError):
            next(iterator)
    assert calls == [4]


def test_a_source_of_the_users_that_only_streams_is_prefetched(pool: Any) -> None:
    class Counting(bu.AbstractDataSource):
        def num_samples(self, **options: Any) -> int:
            return 10

        def batch_iterator(self, batch_size: int, **options: Any) -> Iterator[Any]:
            return iter([(np.arange(k, k + batch_size),) for k in range(0, 10, batch_size)])

    mapped = pool.prefetch(Counting().map(lambda x: (x * 2,)))
    assert [batch[0].tolist() for batch in mapped.batch_iterator(5)] == [[0, 2, 4, 6, 8], [10, 12, 14, 16, 18]]
