"""A pool gets more or fewer workers while it works: no batch is lost, repeated or changed."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError, PoolBroken, PoolClosed, WorkerDied
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises, warns

from .resize_maps import bad_at, ends_once, shifted, tuple_of, waits_for

N_BATCHES = 40


SOURCE = bu.ArrayDataSource([np.arange(5 * N_BATCHES)]).map(shifted, rng="sample")
BAD = SOURCE.map(functools.partial(bad_at, {3, 77, 140}))

moments = st.lists(st.tuples(st.integers(0, N_BATCHES), st.sampled_from([1, 2, 3, 8])), max_size=8)
"""After which batch a pool is resized, and to how many workers."""


@pytest.fixture(params=[bu.WorkerThreadPool, bu.WorkerProcessPool])
def pool(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.param(1) as pool:
        yield pool


@pytest.fixture
def processes() -> Iterator[bu.WorkerProcessPool]:
    with bu.WorkerProcessPool(1) as pool:
        yield pool


def contents(batches: Any) -> list[list[bytes]]:
    return [[part.tobytes() for part in batch] for batch in batches]


def resized(pool: Any, batches: Any, when: list[tuple[int, int]]) -> Iterator[Any]:
    """Yield the batches, and resize the pool between them."""
    for number, batch in enumerate(batches):
        for at, processes in when:
            if at == number:
                pool.resize(processes)
                assert pool.at_once == processes
        yield batch


def opened(pool: AbstractWorkerPool | None, source: Any = SOURCE, **options: Any) -> Any:
    over = source if pool is None else pool.parallel_data_source(source, buffer=10, on_error="skip")
    return over.batch_iterator(5, shuffle=7, epoch=0, **options)


EXPECTED = contents(opened(None))


@given(when=moments)
def test_batches_are_those_of_the_plain_loop(pool: Any, when: list[tuple[int, int]]) -> None:
    with opened(pool) as batches:
        assert contents(resized(pool, batches, when)) == EXPECTED
        assert batches.stats()["samples"] == 5 * N_BATCHES


def test_bad_samples_are_left_out_as_before(pool: Any) -> None:
    with bu.SerialPool() as serial, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = contents(opened(serial, BAD))
    with opened(pool, BAD) as batches, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert contents(resized(pool, batches, [(0, 8), (6, 1), (9, 3), (20, 1), (21, 8)])) == expected
        assert len(batches.errors) == 3


@given(when=moments, cut=st.integers(1, N_BATCHES - 1))
def test_a_state_from_mid_epoch_goes_on(pool: Any, when: list[tuple[int, int]], cut: int) -> None:
    with opened(pool) as batches:
        first = contents(batch for _, batch in zip(range(cut), resized(pool, batches, when), strict=False))
        state = batches.state_dict()
    with opened(pool, state=state) as batches:
        assert first + contents(resized(pool, batches, when)) == EXPECTED


def test_two_iterators_and_a_stream_on_other_threads(pool: Any) -> None:
    found: dict[int, Any] = {}

    def loop(number: int) -> None:
        with opened(pool) as batches:
            found[number] = contents(batches)

    loops = [threading.Thread(target=loop, args=(number,)) for number in range(2)]
    for thread in loops:
        thread.start()
    results = pool.work_stream((divmod, (number, 7)) for number in range(300)).retrieve_iter()
    when = [(at, 1 + at // 10 % 4) for at in range(0, 300, 10)]
    assert list(resized(pool, results, when)) == [divmod(number, 7) for number in range(300)]
    for thread in loops:
        thread.join()
    assert found == {0: EXPECTED, 1: EXPECTED}


@given(when=moments, rows=st.sets(st.integers(0, 5 * N_BATCHES - 1), max_size=3))
def test_workers_that_die_cost_nothing(
    processes: Any, tmp_path_factory: pytest.TempPathFactory, when: list[tuple[int, int]], rows: set[int]
) -> None:
    source = SOURCE.map(functools.partial(ends_once, tmp_path_factory.mktemp("died"), rows))
    with opened(processes, source) as batches:
        assert contents(resized(processes, batches, when)) == contents(opened(None, SOURCE.map(tuple_of)))


def test_processes_of_several_threads() -> None:
    with bu.WorkerProcessPool(1, threads=2) as pool, opened(pool) as batches:
        found = []
        for number, batch in enumerate(batches):
            pool.resize(1 + number // 7 % 3)
            assert pool.at_once == 2 * pool.processes
            found += contents([batch])
        assert found == EXPECTED


@pytest.mark.parametrize("make", [bu.WorkerThreadPool, bu.WorkerProcessPool])
def test_a_pool_may_be_closed_right_after(make: Any) -> None:
    for processes in (8, 1):  # what is left behind would fail each test
        with make(3) as pool, opened(pool) as batches:
            next(batches)
            pool.resize(processes)
        with raises(PoolClosed):
            pool.resize(2)
    with make(3) as pool:
        pool.resize(1)  # before the first use
        with opened(pool) as batches:
            assert contents(batches) == EXPECTED


def test_a_thread_ends_after_its_task() -> None:
    begun, may_end = threading.Semaphore(0), threading.Event()

    def work(number: int) -> tuple[int, str]:
        begun.release()
        assert may_end.wait(60)
        return number, threading.current_thread().name

    with bu.WorkerThreadPool(4) as pool:
        threads = list(pool._workers._threads)
        futures = [pool.submit((work, (number,), {})) for number in range(12)]
        for _ in range(4):
            assert begun.acquire(timeout=60)
        pool.resize(1)
        assert pool.at_once == 1
        may_end.set()
        names = [future.result() for future in futures]
        assert [number for number, _ in names] == list(range(12))
        for thread in set(threads) - set(pool._workers._threads):
            thread.join(60)
        assert sum(thread.is_alive() for thread in threads) == 1
        assert len({name for _, name in names[4:]}) <= 4


def test_a_process_ends_after_its_task_and_others_are_started() -> None:
    with bu.WorkerProcessPool(4) as pool:
        pool.shared_constant("starts the workers")
        before = pool._dispatcher.pids()
        pool.resize(1)
        while len(pids := pool._dispatcher.pids()) > 1:
            pool.submit((os.getpid, (), {})).result()
        assert set(pids) < set(before)
        pool.resize(3)
        seen: set[int] = set()
        while len(seen) < 3:
            seen |= {pool.submit((os.getpid, (), {})).result(), *pool._dispatcher.pids()}
        assert pids[0] in seen


def test_without_a_descriptor_for_its_end_a_process_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    with bu.WorkerProcessPool(3) as pool, opened(pool) as batches:
        assert contents(resized(pool, batches, [(2, 1), (9, 4), (20, 1)])) == EXPECTED


def test_a_worker_that_cannot_be_started_costs_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise PoolBroken("no more")

    with bu.WorkerProcessPool(1) as pool, opened(pool) as batches:
        with monkeypatch.context() as patched:
            patched.setattr(type(pool._dispatcher.workers.launcher), "start", refuse)
            pool.resize(2)
            while not pool._dispatcher.workers.degraded_reason:
                pool._dispatcher._wire.wake()
        with warns(bu.errors.WorkerWarning):
            assert contents(batches) == EXPECTED


def test_a_thread_that_cannot_be_started_costs_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with bu.WorkerThreadPool(2) as pool, opened(pool) as batches:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            pool.resize(5)
        assert pool.at_once == 2
        assert contents(batches) == EXPECTED


def test_the_number_is_checked(pool: Any) -> None:
    for bad in (0, -1, 1.5, True, "2"):
        with raises((ArgumentError, ArgumentTypeError)):
            pool.resize(bad)


def test_a_fork_cannot_resize_the_pool_of_its_parent(pools: list[AbstractWorkerPool]) -> None:
    for pool in pools:
        child = os.fork()
        if not child:
            try:
                pool.resize(1)
            except bu.PoolClosed:
                os._exit(3)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        assert len(list(pool.parallel_data_source(bu.ArrayDataSource([np.arange(20)])).batch_iterator(2))) == 10


def test_a_limit_of_memory_is_kept() -> None:
    bu.memory_limit("400MB")
    try:
        with bu.WorkerProcessPool(2) as pool:
            with raises(ArgumentError):
                pool.resize(50)
            assert pool.processes == 2
            pool.resize(4)
            pool.resize(1)
    finally:
        bu.memory_limit(None)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_process_that_dies_at_its_last_task_is_named(threads: int, tmp_path: Path) -> None:
    with bu.WorkerProcessPool(2, threads=threads) as pool:
        futures = [pool.submit((waits_for, (tmp_path / "go", tmp_path / str(n)), {})) for n in range(2 * threads)]
        while len(list(tmp_path.iterdir())) < 2 * threads:
            pool._dispatcher._wire.wake()
            time.sleep(0.001)
        pool.resize(1)
        (leaving,) = [worker for worker in pool._dispatcher._schedule.workers if worker.leaving]
        os.kill(leaving.process.pid, signal.SIGKILL)
        (tmp_path / "go").touch()
        done = 0
        for future in futures:
            with contextlib.suppress(WorkerDied):
                done += future.result()
                continue
            with raises(WorkerDied):
                future.result()
        assert done == threads


def test_a_pool_without_workers_has_none_to_change() -> None:
    with bu.SerialPool() as pool, raises(ArgumentTypeError):
        pool.resize(2)


def test_threads_that_cannot_all_be_started_leave_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system has no more, or an exception of a signal handler comes."""
    start, started = threading.Thread.start, []

    def third_fails(thread: threading.Thread) -> None:
        started.append(thread)
        if len(started) == 3:
            raise KeyboardInterrupt
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", third_fails)
    with pytest.raises(KeyboardInterrupt):
        bu.WorkerThreadPool(4)
    for thread in started[:2]:
        thread.join(60.0)
    assert not any(thread.is_alive() for thread in started[:2])
