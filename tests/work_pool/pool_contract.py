"""The contract of a pool, for the tests of each pool to inherit: of streams, sources and the end of the pool."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from batchup_ng.data_source import ArrayDataSource, CallableDataSource, IteratorDataSource
from batchup_ng.errors import ArgumentError, ArgumentTypeError, PoolClosed
from batchup_ng.work_pool.base import AbstractWorkerPool
from tests.messages import raises

from ..threads import in_threads
from .pool_faults import PoolFaultsContract
from .pool_tasks import WeaklyHeld, counting_batches, fails_at_three, fails_weakly, shifted, square


def weakly_caught(stream: Any, gone: threading.Event) -> Any:
    """Return a weak reference to what a stream raises, which sets an event when that is gone."""
    try:
        while True:
            next(stream)
    except WeaklyHeld as error:
        return weakref.ref(error, lambda _: gone.set())


class PoolContract(PoolFaultsContract):
    """What every pool must do; a subclass says how one is made.

    Tests share a pool, but those which end it or lose one of its workers: each of these makes its own.
    """

    shared: ClassVar[AbstractWorkerPool]

    @classmethod
    def setup_class(cls) -> None:
        cls.shared = cls().make()
        assert cls.shared.work_stream(iter([(square, (3,))])).retrieve() == 9  # its workers have started

    @classmethod
    def teardown_class(cls) -> None:
        cls.shared.close()

    @pytest.fixture
    def pool(self) -> AbstractWorkerPool:
        """The pool that the tests of the class share."""
        return self.shared

    # -- the work stream ---------------------------------------------------------------------------------------

    def test_results_come_in_the_order_of_the_tasks(self, pool: AbstractWorkerPool) -> None:
        stream = pool.work_stream(((square, (i,)) for i in range(100)), task_buffer_size=7)
        assert list(stream.retrieve_iter()) == [i * i for i in range(100)]

    def test_a_task_may_be_a_function_with_arguments_and_keywords(self, pool: AbstractWorkerPool) -> None:
        tasks = [(dict,), (square, (4,)), (shifted, (4,), {"by": 3}), (shifted, [5])]
        assert list(pool.work_stream(iter(tasks)).retrieve_iter()) == [{}, 16, 7, 5]

    def test_lambdas_and_closures_are_welcome(self, pool: AbstractWorkerPool) -> None:
        offset = 40
        stream = pool.work_stream(((lambda x: x + offset), (i,)) for i in range(3))
        assert list(stream.retrieve_iter()) == [40, 41, 42]

    def test_an_error_is_raised_in_its_turn_and_the_others_follow(self, pool: AbstractWorkerPool) -> None:
        stream = pool.work_stream((fails_at_three, (i,)) for i in range(6))
        assert [stream.retrieve() for _ in range(3)] == [0, 1, 2]
        with raises(ZeroDivisionError):
            stream.retrieve()
        assert [stream.retrieve() for _ in range(3)] == [4, 5, None]

    def test_an_error_of_the_generator_is_raised_in_its_turn(self, pool: AbstractWorkerPool) -> None:
        def tasks() -> Iterator[Any]:
            yield square, (2,)
            yield square, (3,)
            raise KeyError("no more")

        stream = pool.work_stream(tasks())
        assert [stream.retrieve(), stream.retrieve()] == [4, 9]
        with raises(KeyError):
            stream.retrieve()
        assert stream.retrieve() is None
        closed = pool.work_stream(tasks())
        closed.close()
        assert closed.retrieve() is None

    @pytest.mark.parametrize("whose", ["task", "generator"])
    def test_an_error_goes_with_its_last_reference(self, pool: AbstractWorkerPool, whose: str) -> None:
        def tasks() -> Iterator[Any]:
            yield fails_weakly, (whose == "task",)
            fails_weakly(whose == "generator")

        if self.own_thread and whose == "task":
            pytest.skip("what the task was called by holds the task, and is in its traceback: the collector sees to it")
        stream, gone = pool.work_stream(tasks()), threading.Event()
        gc.collect()
        gc.disable()
        try:
            raised = weakly_caught(stream, gone)
            assert gone.wait(240), gc.get_referrers(raised())  # the thread that raised it may be the last to hold it
        finally:
            gc.enable()

    def test_what_is_no_task_is_refused(self, pool: AbstractWorkerPool) -> None:
        bad: Any
        for bad in (3, (), (3,), (square, 3), (square, (3,), [1]), (square, (1,), {}, 4)):
            with raises((ArgumentTypeError, ArgumentError)):
                pool.work_stream(iter([bad]))

    def test_a_generator_function_that_was_not_called_is_refused(self, pool: AbstractWorkerPool) -> None:
        with raises(ArgumentTypeError):
            pool.work_stream(counting_batches)  # type: ignore[arg-type]

    @pytest.mark.parametrize("size", [1, 3, 20])
    def test_a_stream_is_never_further_ahead_than_its_buffer(self, pool: AbstractWorkerPool, size: int) -> None:
        taken = itertools.count()
        given = 0

        def tasks() -> Iterator[Any]:
            for i in range(50):
                assert next(taken) - given < size + 1
                yield square, (i,)

        stream = pool.work_stream(tasks(), task_buffer_size=size)
        for _ in stream.retrieve_iter():
            given += 1
        assert given == 50

    def test_several_streams_share_the_pool(self, pool: AbstractWorkerPool) -> None:
        streams = [pool.work_stream(iter([(square, (i + k,)) for i in range(30)]), 4) for k in (0, 100, 200)]
        got = [[stream.retrieve() for stream in streams] for _ in range(30)]
        assert got == [[i * i, (i + 100) ** 2, (i + 200) ** 2] for i in range(30)]

    def test_several_threads_may_use_the_pool(self, pool: AbstractWorkerPool) -> None:
        results: dict[int, list[int]] = {}

        def consume(k: int) -> None:
            stream = pool.work_stream(((square, (i + k,)) for i in range(40)), 5)
            results[k] = list(stream.retrieve_iter())

        in_threads([partial(consume, k) for k in range(4)])
        assert results == {k: [(i + k) ** 2 for i in range(40)] for k in range(4)}

    def test_a_closed_stream_has_nothing_more(self, pool: AbstractWorkerPool) -> None:
        stream = pool.work_stream((square, (i,)) for i in range(50))
        assert stream.retrieve() == 0
        stream.close()
        stream.close()
        assert stream.retrieve() is None

    def test_a_shared_constant_reaches_the_task(self, pool: AbstractWorkerPool) -> None:
        table = pool.shared_constant(np.arange(100))
        stream = pool.work_stream((np.take, (table, i)) for i in range(100))
        assert [int(value) for value in stream.retrieve_iter()] == list(range(100))

    # -- sources -----------------------------------------------------------------------------------------------

    def source(self) -> ArrayDataSource:
        """Return a source of 50 samples."""
        return ArrayDataSource([np.arange(50), np.arange(50.0).reshape(50, 1) * np.ones((1, 4000))])

    @pytest.mark.parametrize("shuffle", [None, 7])
    def test_batches_are_those_of_the_source(self, pool: AbstractWorkerPool, shuffle: Any) -> None:
        source = self.source()
        parallel = pool.parallel_data_source(source, batch_buffer_size=3)
        for epoch in range(2):
            expected = list(source.batch_iterator(8, shuffle=shuffle, epoch=epoch))
            got = list(parallel.batch_iterator(8, shuffle=shuffle, epoch=epoch))
            assert len(got) == len(expected) == 7
            for (i, x), (j, y) in zip(got, expected, strict=True):
                np.testing.assert_array_equal(i, j)
                np.testing.assert_array_equal(x, y, strict=True)

    def test_batches_may_be_kept_and_written(self, pool: AbstractWorkerPool) -> None:
        kept = list(pool.parallel_data_source(self.source(), 2).batch_iterator(8))
        for _, x in kept:
            x += 1
        np.testing.assert_array_equal(np.concatenate([x for _, x in kept])[:, 0], np.arange(50.0) + 1)

    def test_the_iterator_counts_down(self, pool: AbstractWorkerPool) -> None:
        with pool.parallel_data_source(self.source()).batch_iterator(20, drop_last=True) as iterator:
            assert len(iterator) == 2
            next(iterator)
            assert len(iterator) == 1
            assert iterator.stats()["samples"] == 20

    def test_what_is_no_source_is_refused(self, pool: AbstractWorkerPool) -> None:
        with raises(TypeError):
            pool.parallel_data_source([np.arange(4)])  # type: ignore[arg-type]
        with raises(TypeError):
            pool.parallel_data_source(CallableDataSource(counting_batches))
        with raises(ArgumentError):
            pool.parallel_data_source(self.source(), batch_buffer_size=0)

    def test_a_stream_of_a_function_is_prefetched(self, pool: AbstractWorkerPool) -> None:
        source = pool.prefetch(CallableDataSource(counting_batches, 20), buffer=2)
        for _ in range(2):
            with source.batch_iterator(6) as iterator:
                assert len(iterator) == 4
                assert [batch[0].tolist() for batch in iterator] == [batch[0].tolist() for batch in counting_batches(6)]

    def test_a_live_iterator_is_prefetched(self, pool: AbstractWorkerPool) -> None:
        source = pool.prefetch(IteratorDataSource(counting_batches(6)))
        assert sum(len(batch[0]) for batch in source.batch_iterator(6)) == 20

    # -- the end -----------------------------------------------------------------------------------------------

    def test_a_closed_pool_fails_what_is_waited_for_and_refuses_work(self) -> None:
        pool = self.make_to_end()
        stream = pool.work_stream((square, (i,)) for i in range(1000))
        assert stream.retrieve() == 0
        for _ in range(2):
            pool.close()
        with pytest.raises(PoolClosed):
            list(stream.retrieve_iter())
        for use in (
            lambda: pool.work_stream(iter([(square, (2,))])),
            lambda: pool.parallel_data_source(self.source()),
            lambda: pool.prefetch(self.source()),
            pool.__enter__,
        ):
            with raises(PoolClosed):
                use()

    def test_a_loop_that_is_broken_off_costs_nothing(self, pool: AbstractWorkerPool) -> None:
        parallel = pool.parallel_data_source(self.source(), 4)
        for _ in range(20):
            for i, _x in parallel.batch_iterator(5):
                assert i[0] == 0
                break
        assert len(list(parallel.batch_iterator(5))) == 10
