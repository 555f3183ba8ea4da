"""Time limits and stalls: what takes too long is named, what is stuck is left behind."""

from __future__ import annotations

import contextlib
import re
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import PoolClosed
from batchup_ng.work_pool import prefetch_buffer, rereading
from batchup_ng.work_pool import threads as thread_pools
from batchup_ng.work_pool.processes import dispatcher
from batchup_ng.work_pool.stream import CountBound
from batchup_ng.work_pool.task import Submission, Task, current
from tests.messages import raises, warns

from .time_limits import stop_the_clock_of_threads


class Gate:
    """Holds back samples until it is opened."""

    def __init__(self, *rows: int) -> None:
        self.rows = rows
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, x: np.ndarray) -> Any:
        if np.isin(x, self.rows).any():
            self.reached.set()
            if current.future.timeout is not None:
                current.future.due = 0.0  # its time is up
            assert self.opened.wait(600)
        return (x,)


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A gate at row 7 that is opened after the test, so that no thread is stuck for good."""
    gate = Gate(7)
    yield gate
    gate.opened.set()


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the sample that hangs looked for faster, and no other be late, however busy the machine is."""
    monkeypatch.setattr(rereading, "SEARCH_SECONDS", 0.05)
    monkeypatch.setattr(thread_pools, "LOOK_AGAIN", 0.02)
    stop_the_clock_of_threads(monkeypatch)


@pytest.fixture
def threads() -> Iterator[bu.WorkerThreadPool]:
    with bu.WorkerThreadPool(2) as pool:
        yield pool


def numbers(n: int = 40) -> bu.ArrayDataSource:
    return bu.ArrayDataSource([np.arange(n)])


def test_a_sample_that_hangs_is_named_and_close_does_not_wait_for_it(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_pools, "CLOSE_TIMEOUT", 3600.0)
    with bu.WorkerThreadPool(2) as pool:
        iterator = pool.parallel_data_source(numbers().map(gate), timeout=0.2).batch_iterator(5)
        assert next(iterator)[0].tolist() == [0, 1, 2, 3, 4]
        with raises(bu.SampleTimeout) as caught:
            next(iterator)
        assert isinstance(caught.value, TimeoutError)
        assert (caught.value.row, caught.value.batch) == (7, 1)
        assert pool.abandoned_threads == 2


class LoadsLate:
    """A map that takes some seconds to load in a worker, as its module may take to import; then there is a file."""

    def __init__(self, begun: Path, seconds: float) -> None:
        self.given = begun, seconds

    def __reduce__(self) -> Any:
        return _loaded_late, self.given

    def __call__(self, x: np.ndarray) -> Any:
        return (x,)


def _loaded_late(begun: Path, seconds: float) -> LoadsLate:
    begun.touch()
    time.sleep(seconds)
    return LoadsLate(begun, seconds)


@pytest.mark.in_turn
def test_the_time_to_load_the_source_in_a_worker_is_not_that_of_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads, now = tmp_path / "loads", time.monotonic()
    # The dispatcher sees ten seconds pass while the worker loads, and none while it makes a batch.
    clock = SimpleNamespace(monotonic=lambda: now + (10.0 if loads.exists() else 0.0))
    monkeypatch.setattr(dispatcher, "time", clock)
    with bu.WorkerProcessPool(1) as pool:
        parallel = pool.parallel_data_source(numbers(8).map(LoadsLate(loads, 1.0)), on_error="skip", timeout=0.7)
        with parallel.batch_iterator(2) as iterator:
            assert [x.tolist() for (x,) in iterator] == [[0, 1], [2, 3], [4, 5], [6, 7]]
            assert not iterator.errors


def test_a_source_that_no_worker_can_load_in_time_is_told_of(tmp_path: Path) -> None:
    with bu.WorkerProcessPool(1) as pool:
        pool.submit((len, ("abc",), {})).result()  # with time enough for the start
        pool._dispatcher._schedule.start_timeout = 0.1
        source = numbers(8).map(LoadsLate(tmp_path / "loads", 600.0))
        parallel = pool.parallel_data_source(source, on_error="skip", timeout=0.05)
        with raises(bu.PoolBroken):
            list(parallel.batch_iterator(2))


def test_the_rest_is_delivered_by_other_threads_and_what_comes_back_late_overwrites_nothing(
    threads: bu.WorkerThreadPool, gate: Gate
) -> None:
    big = bu.ArrayDataSource([np.arange(40), np.arange(40.0)[:, None] * np.ones((1, 10_000))])
    late = big.map(lambda x, y: (gate(x)[0], y))
    iterator = threads.parallel_data_source(late, timeout=0.2, on_error="skip").batch_iterator(5)
    with warns(bu.SampleWarning):
        kept = list(iterator)
    assert np.concatenate([x for x, _ in kept]).tolist() == [row for row in range(40) if row != 7]
    assert [error.row for error in iterator.errors] == [7]
    assert isinstance(iterator.errors[0].error, bu.SampleTimeout)
    assert threads.abandoned_threads == 2
    gate.opened.set()
    deadline = time.monotonic() + 240
    while threads.abandoned_threads:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    again = list(threads.parallel_data_source(late).batch_iterator(5, shuffle=3))
    assert sorted(np.concatenate([x for x, _ in again])) == list(range(40))
    for x, y in kept + again:
        np.testing.assert_array_equal(y, x[:, None] * np.ones((1, 10_000)))


@pytest.mark.parametrize("policy", [bu.ErrorPolicy(), bu.ErrorPolicy(retries=1), bu.ErrorPolicy("skip")])
def test_a_sample_that_hung_for_a_moment_is_made_again_and_reported(
    threads: bu.WorkerThreadPool, gate: Gate, policy: bu.ErrorPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rereading, "SEARCH_SECONDS", 0.5)
    moments = iter([True])

    def hangs_once(x: np.ndarray) -> Any:
        return gate(x) if 7 in x and next(moments, False) else (x,)

    iterator = threads.parallel_data_source(numbers(9).map(hangs_once), timeout=0.5).batch_iterator(1, on_error=policy)
    with warns(bu.SampleWarning):
        assert np.concatenate([x for (x,) in iterator]).tolist() == list(range(9))
    assert [(error.row, error.batch, type(error.error)) for error in iterator.errors] == [(None, 7, bu.SampleTimeout)]
    assert [iterator.stats()[name] for name in ("samples", "failed", "retried")] == [9, 0, 1]


def test_every_thread_may_hang_and_the_pool_goes_on(threads: bu.WorkerThreadPool) -> None:
    gate = Gate(0, 3)  # in two batches, at once
    try:
        iterator = threads.parallel_data_source(numbers().map(gate), timeout=0.2, on_error="skip").batch_iterator(3)
        with pytest.warns(bu.SampleWarning):
            rows = np.concatenate([x for (x,) in iterator])
        assert rows.tolist() == [row for row in range(40) if row not in (0, 3)]
        assert list(threads.work_stream((abs, (i,)) for i in range(5)).retrieve_iter()) == list(range(5))
    finally:
        gate.opened.set()


def test_close_fails_what_a_stuck_thread_was_to_give(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_pools, "CLOSE_TIMEOUT", 0.05)
    pool = bu.WorkerThreadPool(1)
    future = pool.submit((gate, (np.array([7]),), {}))
    assert gate.reached.wait(120)
    pool.close()
    with raises(PoolClosed):
        future.result()


def test_a_limit_is_measured_from_when_a_task_begins(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(thread_pools, "time", SimpleNamespace(monotonic=lambda: now))
    with bu.WorkerThreadPool(1) as pool:
        pool.submit((gate, (np.array([7]),), {}))
        assert gate.reached.wait(120)
        queued = pool.submit((len, ("abc",), {}), Submission(timeout=0.3))
        now = 0.35
        assert not queued.wait(0.0)
        assert queued.began is None
        opened = time.monotonic()
        gate.opened.set()
        assert queued.result() == 3
        assert pool.abandoned_threads == 0
        assert (queued.began or 0) >= opened


# -- stalls --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def told(gate: Gate) -> Iterator[list[tuple[str, str]]]:
    """Note each warning within, with the file that is named; the gate opens some time after the first."""
    found: list[tuple[str, str]] = []

    def show(message: Any, category: Any, filename: str, *_: Any) -> None:
        assert category is bu.StallWarning
        if not found:
            threading.Timer(0.15, gate.opened.set).start()  # three times that after which a stall is told of
        found.append((str(message), filename))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show  # type: ignore[assignment]
        yield found


def test_a_stall_is_warned_of_once(threads: bu.WorkerThreadPool, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    iterator = threads.parallel_data_source(numbers(15).map(gate)).batch_iterator(5, epoch=3)
    next(iterator)
    assert gate.reached.wait(120)  # a worker has begun the next batch
    with told(gate) as found, monkeypatch.context() as patch:
        patch.setattr(prefetch_buffer, "STALL_SECONDS", 0.05)
        assert next(iterator)[0].tolist() == [5, 6, 7, 8, 9]
    ((message, file),) = found
    assert message.startswith("batch 1 of epoch 3, rows [5, 6, 7, 8, 9], has been waited for 0 s: a worker has been at")
    assert "timeout=" in message
    assert file == __file__
    assert len(list(iterator)) == 1


def test_a_task_that_no_worker_has_begun_is_told_apart(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch_buffer, "STALL_SECONDS", 0.05)
    with bu.WorkerThreadPool(1) as pool:
        blocking = pool.submit((gate, (np.array([7]),), {}))
        assert gate.reached.wait(120)
        stream = pool.work_stream(iter([(len, ("abc",))]))
        with told(gate) as found:
            assert stream.retrieve() == 3
        assert re.search("the result of task len has been waited .*: no worker has begun it", found[0][0])
        blocking.result()


def test_a_time_limit_puts_the_warning_off(threads: bu.WorkerThreadPool) -> None:
    class Done:
        waited: tuple[float, ...] = ()

        def wait(self, seconds: float) -> bool:
            self.waited += (seconds,)
            return True

    done = Done()
    waiting = prefetch_buffer.PrefetchBuffer(threads, iter(()), CountBound(1), str)
    for timeout in (None, 7.0):
        task = Task((len, (), {}), Submission(timeout=timeout), None)
        waiting.wait(prefetch_buffer.Entry(task, done))  # type: ignore[arg-type]
    assert done.waited == (prefetch_buffer.STALL_SECONDS, prefetch_buffer.STALL_SECONDS + 7.0)


# -- pools that are forgotten --------------------------------------------------------------------------------------


def test_a_pool_of_threads_that_is_forgotten_is_not_waited_for(gate: Gate) -> None:
    pool = bu.WorkerThreadPool(1)
    workers = pool._workers
    busy, queued = (pool.submit((gate, (np.array([row]),), {})) for row in (7, 8))
    assert gate.reached.wait(120)
    with workers._lock:  # whoever drops the pool may be in the midst of anything, with any lock
        dropped = threading.Thread(target=lambda held: held.clear(), args=([pool],))
        del pool
        dropped.start()
        dropped.join(120)
        assert not dropped.is_alive()
    assert not busy.done()
    assert not queued.done()
    gate.opened.set()
    assert busy.result()[0] == 7
    with raises(PoolClosed):
        queued.result()
    for thread in workers._threads:
        thread.join(120)


def test_what_is_submitted_while_a_buffer_is_closed_is_cancelled(threads: bu.WorkerThreadPool) -> None:
    class Closes(bu.SerialPool):
        def submit(self, task: Any, how: Any = None) -> Any:
            future = threads.submit(task)
            if task[1] == (3,):
                buffer.close()  # as another thread may, behind whose back the future is kept
            return future

    tasks = (Task((abs, (k,), {}), Submission(), None) for k in range(9))
    buffer = prefetch_buffer.PrefetchBuffer(Closes(), tasks, CountBound(6), str)
    buffer.fill()
    assert (buffer.ahead(), buffer.closed) == (0, True)
    with pytest.raises(PoolClosed):
        buffer.take()
