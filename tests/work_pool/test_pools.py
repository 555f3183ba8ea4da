"""The pools: the contract for each."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from batchup_ng import SerialPool, WorkerProcessPool, WorkerThreadPool
from batchup_ng.data_source import AbstractDataSource
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.work_pool import AbstractWorkerPool, rereading
from batchup_ng.work_pool.task import TaskFuture
from tests.messages import raises

from ..extent import methods
from .pool_contract import PoolContract


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a sample that hangs looked for faster; where others seem to hang as well they get all of their time."""
    monkeypatch.setattr(rereading, "SEARCH_SECONDS", 0.1)


def contract(make: Callable[[], AbstractWorkerPool], **attributes: bool) -> Any:
    """Return the tests of a pool that `make` makes."""
    return type("Contract", (PoolContract,), {"make": lambda self: make(), **attributes})


TestSerial = contract(SerialPool, limits_time=False, own_thread=True)
TestThreads = contract(lambda: WorkerThreadPool(2))
TestProcesses = contract(lambda: WorkerProcessPool(2))
TestOneSpawnedProcess = pytest.mark.thorough(contract(lambda: WorkerProcessPool(1, start_method="spawn")))
TestProcessesWithThreads = pytest.mark.thorough(contract(lambda: WorkerProcessPool(2, threads=2)))


@pytest.mark.parametrize("make", [WorkerThreadPool, WorkerProcessPool])
def test_the_number_of_workers_is_checked(make: type) -> None:
    for bad in (0, -1, 1.5, True, "2"):
        with raises((ArgumentError, ArgumentTypeError)):
            make(bad)


def test_options_of_the_process_pool_are_checked() -> None:
    with raises(ArgumentError):
        WorkerProcessPool(1, start_method="spwan")
    with raises(ArgumentError):
        WorkerProcessPool(1, threads=0)


def test_every_cpu_is_used_by_default() -> None:
    with WorkerThreadPool() as pool:
        assert pool.processes >= 1


def test_the_base_pool_says_what_is_missing() -> None:
    pool = AbstractWorkerPool()
    for call in (lambda: pool.submit((len, (), {})), lambda: pool.producer(AbstractDataSource())):
        with raises(NotImplementedError):
            call()


@pytest.mark.parametrize("method", methods("forkserver"))
def test_workers_do_not_share_the_state_of_numpy(method: str) -> None:
    def draw() -> tuple[int, float]:
        time.sleep(0.02)  # so that others have something to do as well
        return os.getpid(), float(np.random.rand())

    first: dict[int, float] = {}
    with WorkerProcessPool(3, start_method=method) as pool:
        while len(first) < 3:
            for pid, value in pool.work_stream((draw,) for _ in range(3)).retrieve_iter():
                first.setdefault(pid, value)
    assert len(set(first.values())) == 3


def test_more_threads_than_a_byte_counts() -> None:
    with WorkerProcessPool(1, threads=300) as pool:
        stream = pool.work_stream(((pow, (i, 2)) for i in range(400)), task_buffer_size=400)
        assert list(stream.retrieve_iter()) == [i * i for i in range(400)]


def test_a_serial_task_that_is_interrupted_as_it_begins_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    began = TaskFuture.begin

    def begin(future: TaskFuture) -> bool:
        began(future)
        raise KeyboardInterrupt  # as a handler does when the call returns

    with SerialPool() as pool:
        future = pool.submit((len, ([1],), {}))
        with monkeypatch.context() as interrupted:
            interrupted.setattr(TaskFuture, "begin", begin)
            future.wait(60.0)
        with pytest.raises(KeyboardInterrupt):
            future.result()
