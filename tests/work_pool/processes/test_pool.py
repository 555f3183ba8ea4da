"""What is special to processes: what travels, what happens to it when something ends."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import PoolBroken, RemoteTraceback, SerializationError, WorkerDied
from batchup_ng.work_pool.processes import process as begin
from tests.extent import methods
from tests.messages import raises
from tests.work_pool.processes.serialization_helpers import one, wait_until


@pytest.fixture(params=methods("forkserver"))
def pool(request: pytest.FixtureRequest, pools: Any) -> Any:
    """A pool for tests that end no worker; that of the default start method is shared with others."""
    if request.param == "forkserver":
        yield pools[1]
        return
    with bu.WorkerProcessPool(2, start_method=request.param) as pool:
        yield pool


@pytest.fixture(scope="module")
def lone() -> Any:
    """A pool of one worker, for tests that do not end it."""
    with bu.WorkerProcessPool(1) as pool:
        assert one(pool, len, "abc") == 3
        yield pool


@pytest.fixture(params=methods("forkserver"))
def fresh(request: pytest.FixtureRequest) -> Any:
    """A pool whose workers a test may end."""
    with bu.WorkerProcessPool(2, start_method=request.param) as pool:
        yield pool


def test_what_the_worker_raised_arrives_with_its_traceback(pool: Any) -> None:
    def deep() -> None:
        raise LookupError("in the deep")

    with raises(LookupError) as caught:
        one(pool, deep)
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "in deep" in str(caught.value.__cause__)


class Liar(Exception):
    """An exception that becomes something else on its way."""

    def __reduce__(self) -> Any:
        return str, ("not an exception",)


class Unprintable(Exception):
    """An exception with neither a text nor a pickle."""

    def __init__(self) -> None:
        super().__init__(threading.Lock())

    def __str__(self) -> str:
        raise ValueError("no text")


def holding_a_lock() -> Exception:
    error = ValueError("with a lock")
    error.lock = threading.Lock()  # type: ignore[attr-defined]
    return error


def test_an_exception_that_cannot_travel_is_told_of(pool: Any) -> None:
    def fail(make: Any) -> None:
        raise make()

    for make in (Liar, holding_a_lock, Unprintable):
        with raises(SerializationError):
            one(pool, fail, make)
        assert one(pool, len, "abc") == 3


def test_a_result_that_cannot_travel_is_told_of(pool: Any) -> None:
    with raises(SerializationError):
        one(pool, threading.Lock)
    assert one(pool, len, "abc") == 3


def test_arguments_that_cannot_travel_are_told_of(pool: Any) -> None:
    with raises(SerializationError):
        one(pool, len, threading.Lock())
    with raises(SerializationError):
        one(pool, len, pool.shared_constant(3), threading.Lock())
    lock = threading.Lock()
    source = bu.ArrayDataSource([np.arange(3)]).map(lambda x: (x, lock))
    with raises(SerializationError):
        pool.parallel_data_source(source)
    with raises(SerializationError):
        one(pool, len, [pool.shared_constant(3)])


def test_what_multiprocessing_shares_by_inheritance_is_refused_with_the_remedy(pool: Any) -> None:
    guard = multiprocessing.Lock()
    source = bu.ArrayDataSource([np.arange(3)]).map(lambda x: (x, guard.acquire()))
    with raises(SerializationError):
        pool.parallel_data_source(source)
    with raises(SerializationError):
        one(pool, id, guard)


def test_what_a_manager_shares_reaches_workers(lone: Any) -> None:
    with multiprocessing.Manager() as manager:
        seen, event = manager.list(), manager.Event()

        def note(x: np.ndarray) -> Any:
            seen.append(x.tolist())
            event.set()
            return (x,)

        source = bu.ArrayDataSource([np.arange(4)]).map(note)
        list(lone.parallel_data_source(source).batch_iterator(2))
        assert list(seen) == [[0, 1], [2, 3]]
        assert event.is_set()
        one(lone, seen.append, 5)
        assert seen[2] == 5


def pids_of(pool: Any) -> set[int]:
    """Return the process numbers of both workers, once both are ready."""
    assert one(pool, len, "abc") == 3
    wait_until(lambda: sum(worker.ready for worker in list(pool._dispatcher._schedule.workers)) == 2)
    return set(pool._dispatcher.pids())


def test_a_worker_that_is_killed_fails_its_tasks_and_is_replaced(fresh: Any) -> None:
    before = pids_of(fresh)
    stream = fresh.work_stream(iter([(time.sleep, (600,)), (time.sleep, (600,))]))
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    for _ in before:
        with raises(WorkerDied):
            stream.retrieve()
    assert not before & pids_of(fresh)


def test_a_task_goes_to_another_worker_if_its_own_never_was_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    boot, starts = begin._BOOT, []
    real = begin.run

    def first_one_fails(module: str, *arguments: Any) -> Any:
        starts.append(module)
        monkeypatch.setattr(begin, "_BOOT", "import sys; sys.exit(3)  # {module}" if len(starts) == 1 else boot)
        return real(module, *arguments)

    monkeypatch.setattr(begin, "run", first_one_fails)
    with bu.WorkerProcessPool(1, start_method="spawn") as pool:
        assert one(pool, len, "abc") == 3
    assert len(starts) == 2


def number_of_worker() -> tuple[int, int]:
    from batchup_ng.work_pool.processes.shared_constants import WORKER_CONSTANTS

    return os.getpid(), WORKER_CONSTANTS.worker


def test_a_new_worker_has_the_number_of_the_one_that_died(fresh: Any) -> None:
    for place in (0, 1):
        killed = sorted(pids_of(fresh))[place]
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: killed not in fresh._dispatcher.pids())  # noqa: B023
        pids_of(fresh)
        numbers = {worker.process.pid: worker.number for worker in fresh._dispatcher._schedule.workers}
        assert sorted(numbers.values()) == [0, 1]
        pid, number = one(fresh, number_of_worker)
        assert number == numbers[pid]


def test_workers_that_cannot_start_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    with bu.WorkerProcessPool(1) as other:
        one(other, len, "abc")  # so that the spare server is in use, and is there for later tests
        monkeypatch.setattr(begin, "_BOOT", "import sys; sys.exit(3)  # {module}")
        with bu.WorkerProcessPool(1, start_method="spawn") as pool, pytest.raises(PoolBroken):
            one(pool, len, "abc")
        with bu.WorkerProcessPool(1) as pool, raises(PoolBroken):
            one(pool, len, "abc")


def test_a_constant_is_sent_once_and_forgotten_with_its_last_reference(lone: Any) -> None:
    def held() -> int:
        from batchup_ng.work_pool.processes.shared_constants import WORKER_CONSTANTS

        return len(WORKER_CONSTANTS._values)

    gc.collect()  # sources of earlier tests
    one(lone, len, "abc")
    before = one(lone, held)
    constant = lone.shared_constant(np.arange(10))
    assert lone.shared_constant(constant) is constant
    assert one(lone, np.sum, constant) == 45
    assert len({one(lone, id, constant) for _ in range(5)}) == 1
    assert one(lone, held) == before + 1
    del constant
    one(lone, len, "abc")
    assert one(lone, held) == before


def test_threads_of_one_process_run_at_once() -> None:
    with bu.WorkerProcessPool(1, threads=4) as pool:
        stream = pool.work_stream((meet,) for _ in range(4))
        assert sorted(stream.retrieve_iter()) == [0, 1, 2, 3]


_barrier = threading.Barrier(4)


def meet() -> int:
    """Wait until four tasks are here at once, and return which of them this is; an error if they never are."""
    return _barrier.wait(240)


def test_a_worker_that_dies_is_missed_though_its_own_child_lives(fresh: Any, tmp_path: Path) -> None:
    with raises(WorkerDied):
        one(fresh, fork_and_die, tmp_path / "child")
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)  # it still was there
    assert one(fresh, len, "abc") == 3


def fork_and_die(path: Path) -> None:
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    path.write_text(str(child))
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_pool_closes_at_once_though_a_fork_of_the_users_lives() -> None:
    with bu.WorkerProcessPool(2) as pool:
        assert one(pool, len, "abc") == 3
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        pool.close()
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "the fork should have outlived the pool"
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_pool_that_is_forgotten_in_a_cycle_ends_wherever_the_collector_runs(pools: Any) -> None:
    class Collects:
        def __reduce__(self) -> Any:
            gc.collect()
            return int, ()

    for _ in range(2):
        pool = bu.WorkerProcessPool(1)
        cycle: list[Any] = [pool, pool.work_stream((len, ("abc",)) for _ in range(30))]
        cycle.append(cycle)
        del pool, cycle
        assert one(pools[1], abs, Collects()) == 0


def test_a_new_pool_ends_one_that_a_failed_cell_of_a_notebook_left_in_a_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "last_traceback", None, raising=False)  # as is set where a traceback was shown at a prompt

    def cell() -> Any:
        pool = bu.WorkerProcessPool(1)
        cycle: list[Any] = [pool]
        cycle.append(cycle)
        return pool._dispatcher

    gc.disable()
    try:
        left = cell()
        assert not left._closed
        with bu.WorkerProcessPool(1):
            assert left._closed
    finally:
        gc.enable()


class ExitsWhenLoaded:
    """A result that ends the program that loads it."""

    def __reduce__(self) -> Any:
        return sys.exit, (5,)


def test_nothing_that_a_task_gives_harms_the_worker_or_the_consumer(lone: Any) -> None:
    pid = one(lone, os.getpid)
    with raises(SerializationError):
        one(lone, ExitsWhenLoaded)
    with raises(RuntimeError):
        one(lone, next, iter([]))
    assert one(lone, os.getpid) == pid


def test_a_pool_that_is_made_and_forgotten_leaves_nothing() -> None:
    bu.WorkerProcessPool(2)
    gc.collect()  # the check after every test finds the descriptor of the shared memory


def maps_of_pools() -> int:
    return sum("memfd:batchup_ng" in line for line in Path("/proc/self/maps").read_text(encoding="ascii").splitlines())


def drained(which: str) -> None:
    """Close a pool under a stream and an iterator, and read one of them to its error."""
    pool = bu.WorkerProcessPool(2)
    stream = pool.work_stream(iter([(abs, (number,)) for number in range(1000)]))
    batches = pool.parallel_data_source(bu.ArrayDataSource([np.zeros((200_000, 1))]), 2).batch_iterator(5)
    stream.retrieve()
    next(batches)
    pool.close()
    with contextlib.suppress(bu.PoolClosed):
        for _ in batches if which == "batches" else stream.retrieve_iter():
            pass


@pytest.mark.parametrize("which", ["stream", "batches"])
def test_what_is_read_to_the_error_of_a_closed_pool_keeps_none_of_its_memory(which: str) -> None:
    before = maps_of_pools()
    for _ in range(10):  # the close comes at another moment each time
        drained(which)
    wait_until(lambda: gc.collect() >= 0 and maps_of_pools() <= before)  # a collection ends what the next one finds
