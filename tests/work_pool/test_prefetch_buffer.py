"""How far ahead a stream is, who may ask it for the next item."""

from __future__ import annotations

import copy
import math
import pickle
import re
import threading
from collections.abc import Iterator
from typing import Any

import cloudpickle
import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import SerializationError
from batchup_ng.memory.budget import BUDGET
from batchup_ng.work_pool.prefetch_buffer import ByteBound, PrefetchBuffer
from batchup_ng.work_pool.stream import CountBound
from batchup_ng.work_pool.task import ONCE, Submission, Task, TaskFuture
from tests.extent import quick
from tests.messages import raises
from tests.threads import in_threads
from tests.work_pool.processes.serialization_helpers import wait_until


def big(n: int = 60) -> bu.ArrayDataSource:
    """Return a source of samples of 10 kB."""
    return bu.ArrayDataSource([np.ones((n, 1250))])


# -- bytes ---------------------------------------------------------------------------------------------------------


def test_the_bound_leaves_room_for_two_batches_beside_the_buffer() -> None:
    bound = ByteBound(size=20, buffer_bytes=1000, first=3)
    assert bound.limit == 3
    bound.saw((np.zeros(10, np.uint8), (np.zeros(90, np.uint8),)))
    assert bound.limit == 8
    bound.saw(np.zeros(400, np.uint8))
    assert bound.limit == 1
    bound.saw(np.zeros(10, np.uint8))
    assert bound.limit == 1
    bound.saw(np.zeros(5000, np.uint8))
    assert bound.limit == 1


def test_the_size_counts_where_the_bytes_do_not() -> None:
    assert ByteBound(size=2, buffer_bytes=1 << 30, first=3).limit == 2


def test_the_bytes_are_a_quarter_of_what_is_free_and_1_gb_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    for free, nbytes in ((8000, 2000), (1e12, 10**9), (math.inf, 10**9)):
        monkeypatch.setattr(BUDGET, "free", lambda free=free: free)
        assert ByteBound(20, None, 3).buffer_bytes == nbytes
    assert ByteBound(20, 5, 3).buffer_bytes == 5


@pytest.mark.filterwarnings("ignore::batchup_ng.BufferWarning")
def test_two_batches_are_ahead_where_one_fits_and_larger_ones_come_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BUDGET, "free", lambda: 4000.0)
    for nbytes, most in ((10, 20), (100, 8), (400, 2), (1000, 2), (1001, 1)):
        bound = ByteBound(20, None, 3)
        bound.saw(np.zeros(nbytes, np.uint8))
        assert bound.limit == most


@pytest.mark.filterwarnings("ignore::batchup_ng.BufferWarning")
def test_batches_that_are_larger_than_the_bound_come_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BUDGET, "free", lambda: 400.0)
    with bu.WorkerThreadPool(2) as pool:
        source = pool.parallel_data_source(big(30))
        assert sum(len(x) for (x,) in source.batch_iterator(7)) == 30


@pytest.mark.parametrize(("buffer_bytes", "most"), [(400_000, 6), (150_000, 1), (1, 1), (1 << 40, 12)])
def test_batches_ahead_stay_within_their_bytes(buffer_bytes: int, most: int) -> None:
    ahead: list[int] = []
    made: list[int] = []

    def count(x: Any) -> Any:
        made.append(len(x))
        return (x,)

    with bu.WorkerThreadPool(2) as pool:
        source = pool.parallel_data_source(big(120).map(count), 12, buffer_bytes=buffer_bytes)
        for epoch in range(2):
            made.clear()
            delivered = 0
            for _ in source.batch_iterator(5, epoch=epoch):
                delivered += 1
                if delivered == 3:  # those that were begun before it was known how large they are are handed out
                    wait_until(lambda: len(made) >= 3 + most)
                ahead.append(len(made) - delivered)
            assert delivered == 24
    # Three (the threads and one more) may be begun before the first tells how large they are.
    assert most <= max(ahead) <= max(most, 3)


def test_batches_of_prefetch_stay_within_their_bytes() -> None:
    made = threading.Semaphore(0)

    def batches(batch_size: int) -> Iterator[Any]:
        for _ in range(30):
            made.release()
            yield (np.zeros(10_000, np.uint8),)

    with bu.WorkerThreadPool(1) as pool:
        source = pool.prefetch(bu.CallableDataSource(batches), buffer_bytes=100_000)
        for _epoch in range(2):
            iterator = source.batch_iterator(1)
            next(iterator)
            for _ in range(1 + 8):
                assert made.acquire(timeout=120)
            assert not made.acquire(timeout=0.02), "more than eight are ahead"
            iterator.close()
        with raises(ValueError):
            pool.prefetch(bu.CallableDataSource(batches), buffer_bytes=0)
        assert re.search(r"20 batches or \d+ MB ahead", repr(pool.prefetch(bu.CallableDataSource(batches))))


# -- who asks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [bu.SerialPool, lambda: bu.WorkerThreadPool(2)])
def test_a_map_that_asks_its_own_iterator_is_refused(make: Any) -> None:
    iterators: list[Any] = []
    submitted = threading.Event()  # a thread may begin a batch before the buffer knows that it was submitted

    def asks(x: Any) -> Any:
        if 12 not in x:
            return (x,)
        assert submitted.wait(120)
        return next(iterators[0])

    with make() as pool:
        source = pool.parallel_data_source(bu.ArrayDataSource([np.arange(30)]).map(asks), 2)
        iterators.append(source.batch_iterator(6))
        assert [next(iterators[0])[0][0] for _ in range(2)] == [0, 6]
        submitted.set()
        with raises(bu.ReentrantIteration):
            next(iterators[0])
        with raises(bu.PoolClosed):
            next(iterators[0])


def test_a_source_that_asks_its_own_iterator_is_refused() -> None:
    iterators: list[Any] = []

    def stream(batch_size: int) -> Iterator[Any]:
        yield (np.arange(batch_size),)
        yield next(iterators[0])

    iterators.append(bu.CallableDataSource(stream).batch_iterator(3))
    next(iterators[0])
    with pytest.raises(bu.ReentrantIteration):
        next(iterators[0])
    with raises(bu.PoolClosed):
        next(iterators[0])


def test_a_generator_of_tasks_that_asks_its_own_stream_is_refused(pool: Any) -> None:
    streams: list[Any] = []

    def tasks() -> Iterator[Any]:
        yield abs, (-1,)
        yield abs, (-2,)
        yield abs, (streams[0].retrieve(),)

    streams.append(pool.work_stream(tasks(), task_buffer_size=1))
    assert [streams[0].retrieve(), streams[0].retrieve()] == [1, 2]
    with pytest.raises(bu.ReentrantIteration):
        streams[0].retrieve()


@pytest.mark.filterwarnings("ignore::batchup_ng.SampleWarning")
def test_two_threads_may_share_an_iterator(pool: Any) -> None:
    def fails(x: Any) -> Any:
        if 33 in x:
            raise ValueError("no")
        return (x,)

    source = pool.parallel_data_source(bu.ArrayDataSource([np.arange(300)]).map(fails), 5, on_error="skip")
    iterator = source.batch_iterator(4, shuffle=1)
    got: list[Any] = []

    def take() -> None:
        got.extend(x for (x,) in iterator)

    in_threads([take] * 3)
    assert iterator.stats()["samples"] == 299
    assert [error.row for error in iterator.errors] == [33]
    assert sorted(np.concatenate(got).tolist()) == [row for row in range(300) if row != 33]


def test_an_iterator_that_is_closed_during_a_repair_ends_it() -> None:
    with bu.WorkerThreadPool(2) as pool:
        iterators: list[Any] = []
        made = threading.Event()  # the workers begin before there is an iterator

        def fails(x: Any) -> Any:
            assert made.wait(120)
            if len(x) == 1:
                iterators[0].close()
            raise ValueError("no")

        iterators.append(pool.parallel_data_source(bu.ArrayDataSource([np.arange(30)]).map(fails)).batch_iterator(10))
        made.set()
        with pytest.raises((bu.PoolClosed, ValueError)):
            next(iterators[0])
        assert next(iterators[0], "over") == "over"


# -- where pools can be --------------------------------------------------------------------------------------------


def test_a_pool_cannot_be_pickled_or_copied(pool: Any) -> None:
    for use in (pickle.dumps, cloudpickle.dumps, copy.copy, copy.deepcopy):
        with raises(TypeError):
            use(pool)


def test_a_pool_in_a_source_is_refused_by_name(pools: Any) -> None:
    pool = pools[1]
    with raises(SerializationError):
        pool.parallel_data_source(big().map(lambda x: (x, pool)))


INNER = ["WorkerProcessPool(1)", "WorkerProcessPool(1, start_method='spawn')", "SerialPool()", "WorkerThreadPool(2)"]


@pytest.mark.parametrize(
    ("outer", "kind"),
    quick([("processes", INNER[0])], [(outer, kind) for outer in ("threads", "processes") for kind in INNER]),
)
def test_a_pool_may_be_made_inside_a_worker(outer: str, kind: str) -> None:
    # A pool of its own, for a worker keeps the fork server of what it started until it ends itself.
    with {"threads": bu.WorkerThreadPool, "processes": bu.WorkerProcessPool}[outer](1) as pool:
        stream = pool.work_stream(iter([(sum_with_a_pool, (kind,))]))
        assert next(stream) == 45


def sum_with_a_pool(kind: str) -> int:
    """Add the numbers below ten with a pool that is made here."""
    import batchup_ng

    with eval(f"batchup_ng.{kind}") as pool:
        source = batchup_ng.ArrayDataSource([np.arange(10)])
        return int(sum(x.sum() for (x,) in pool.parallel_data_source(source).batch_iterator(3)))


def test_the_generator_of_a_broken_loop_is_closed() -> None:
    closed = []

    def tasks() -> Any:
        try:
            while True:
                yield (len, ("abc",))
        finally:
            closed.append(True)

    with bu.WorkerThreadPool(1) as pool:
        pool.work_stream(tasks()).close()
    assert closed == [True]


# -- how it is filled ----------------------------------------------------------------------------------------------


def buffer_of(numbers: Any, size: int = 2) -> PrefetchBuffer:
    """Return a buffer of tasks that give back these numbers, which an exception or a call may end."""

    def tasks() -> Iterator[Task]:
        for number in numbers:
            if isinstance(number, BaseException):
                raise number
            yield Task((abs, (number,), {}), Submission(), None)

    return PrefetchBuffer(bu.SerialPool(), tasks(), CountBound(size), str)


def results(buffer: PrefetchBuffer) -> Iterator[Any]:
    """Yield the results until the end of the tasks."""
    while True:
        try:
            entry = buffer.take()
        except StopIteration:
            return
        yield entry.future.result()
        buffer.fill()


def test_an_exception_instead_of_a_job_comes_in_its_turn() -> None:
    buffer = buffer_of([0, 1, 2, OSError("no more")], 9)
    buffer.begin()
    in_turn = results(buffer)
    assert [next(in_turn) for _ in range(3)] == [0, 1, 2]
    with raises(OSError):
        next(in_turn)
    with pytest.raises(bu.PoolClosed):  # for another thread that waited for its turn
        buffer.take()
    with raises(OSError):
        buffer_of([OSError("at once")]).begin()


def test_after_an_interrupt_among_the_jobs_nothing_is_passed_over() -> None:
    buffer = buffer_of([0, KeyboardInterrupt(), 2], 9)
    with pytest.raises(KeyboardInterrupt):
        buffer.begin()
    assert buffer.torn
    with raises(bu.PoolClosed):
        buffer.take()


def test_what_is_read_out_of_turn_leaves_the_order_as_it_is() -> None:
    buffer = buffer_of(range(3))
    buffer.begin()
    beside = [Task((abs, (-k,), {}), Submission(urgent=True), None) for k in (7, 8)]
    with buffer.out_of_turn(beside) as entries:
        assert [entry.future.result() for entry in entries] == [7, 8]
    assert list(results(buffer)) == [0, 1, 2]
    buffer.close()
    with pytest.raises(bu.PoolClosed), buffer.out_of_turn(beside):
        raise AssertionError("what is closed submits nothing")


# -- interrupts ----------------------------------------------------------------------------------------------------


def interrupted() -> None:
    raise KeyboardInterrupt


def test_an_interrupt_ends_a_stream_even_if_the_end_of_its_generator_fails() -> None:
    ran: list[int] = []

    def tasks() -> Iterator[Any]:
        try:
            yield (interrupted,)
            for k in range(3):
                yield ran.append, (k,)
        finally:
            raise OSError("of the generator's own")

    with bu.SerialPool() as pool:
        stream = pool.work_stream(tasks(), 3)
        with pytest.raises(KeyboardInterrupt):
            stream.retrieve()
        for _ in range(2):
            with raises(bu.PoolClosed):
                stream.retrieve()
        assert (ran, stream._buffer.ahead()) == ([], 0)


def test_a_result_is_there_though_an_interrupt_left_the_lock_of_its_future_held() -> None:
    future = TaskFuture()
    future.set_result("made")
    future._done.acquire()
    assert future.done()
    assert future.wait(0)
    assert future.result() == "made"


def test_a_buffer_that_is_filled_in_the_midst_of_its_filling_keeps_its_order() -> None:
    class Nests(bu.SerialPool):
        def submit(self, task: Any, how: Submission = ONCE) -> Any:
            buffer.fill()  # as a finalizer may, or a signal's handler
            return super().submit(task, how)

    tasks = (Task((abs, (k,), {}), Submission(), None) for k in range(3))
    buffer = PrefetchBuffer(Nests(), tasks, CountBound(3), str)
    buffer.fill()
    assert [buffer.take().future.result() for _ in range(3)] == [0, 1, 2]
