"""The pool of a loader that gives neither a pool nor a number of workers: all such loaders share it."""

from __future__ import annotations

import concurrent.futures
import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import batchup_ng as bu
from batchup_ng.work_pool import loader_pool
from batchup_ng.work_pool import threads as of_threads
from batchup_ng.work_pool.processes import pool as of_processes
from tests.messages import raises
from tests.work_pool.processes.serialization_helpers import wait_until

X = np.arange(40)
CPUS = 2
ORDERED = [X[:16].tolist(), X[16:32].tolist(), X[32:].tolist()]


before: set[threading.Thread] = set()
"""The threads at the begin of a test: those of pools that other tests share."""


@pytest.fixture(autouse=True)
def two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools of all CPUs have two workers, however many CPUs the machine has."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", str(CPUS))
    before.clear()
    before.update(threading.enumerate())


def batches(loader: Any) -> list[list[int]]:
    return [x.tolist() for (x,) in loader]


def own() -> list[threading.Thread]:
    """Return the threads of pools that this test has started."""
    return [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("batchup_ng-")]


def own_threads() -> int:
    return len(own())


def children() -> int:
    return len(psutil.Process().children(recursive=True))


def serial(**options: Any) -> list[list[int]]:
    with bu.Loader([X], 8, shuffle=7, pool="serial", **options) as loader:
        return batches(loader)


@pytest.mark.parametrize("kind", ["auto", "threads"])
def test_many_loaders_have_as_many_threads_as_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # What "auto" finds depends on how busy the machine is.
    monkeypatch.setattr(loader_pool, "choose", lambda *_: (("threads", "the test says so"), []))
    loaders = [bu.Loader([X], 16, pool=kind) for _ in range(50)]
    assert all(batches(loader) == ORDERED for loader in loaders)
    assert own_threads() == CPUS
    for loader in loaders[:-1]:
        loader.close()
    assert batches(loaders[-1]) == ORDERED
    assert own_threads() == CPUS
    loaders[-1].close()
    assert own_threads() == 0


def test_training_and_validation_have_one_set_of_processes() -> None:
    with bu.Loader([X], 8, shuffle=7, pool="processes") as train:
        in_mid_epoch = iter(train)
        expected = serial()
        first = next(in_mid_epoch)[0].tolist()
        before = children()
        with bu.Loader([X], 16, pool="processes") as validation:
            assert batches(validation) == ORDERED
            assert children() == before
            kept = iter(validation)
            next(kept)
        with raises(bu.PoolClosed):
            list(kept)
        with raises(bu.PoolClosed):
            iter(validation)
        assert [first, *batches(in_mid_epoch)] == expected  # the close of the other changes nothing here
        assert children() == before


def test_memory_of_a_closed_loader_is_free_though_the_pool_goes_on() -> None:
    large = np.zeros((64, 20_000))
    with bu.Loader([X], 8, pool="processes") as other:
        batches(other)
        before = bu.memory()
        with bu.Loader([large], 8, pool="processes", buffer=4) as loader:
            kept = iter(loader)
            next(kept)
            used = bu.memory()
            assert used["slots"] > before["slots"]
            assert used["copies"] >= before["copies"] + large.nbytes
        # Both wait until the workers have done what they had begun. A worker's first batch has no slot, only the copy.
        wait_until(lambda: len(batches(other)) == 5 and bu.memory()["slots"] <= before["slots"])
        del kept
        wait_until(lambda: len(batches(other)) == 5 and bu.memory()["copies"] == before["copies"])


def test_what_gives_a_number_or_a_pool_has_it_for_itself() -> None:
    with bu.Loader([X], 8, pool="threads") as default, bu.Loader([X], 8, pool="threads", workers=3) as own:
        batches(default), batches(own)
        assert own_threads() == CPUS + 3
        own.close()
        assert own_threads() == CPUS
        with bu.WorkerThreadPool(1) as mine, bu.Loader([X], 8, pool=mine) as third:
            default.close()
            assert own_threads() == 1
            assert len(batches(third)) == 5


def test_the_pool_ends_with_the_last_loader_that_is_collected() -> None:
    kept = iter(bu.Loader([X], 16, pool="threads"))
    closed = bu.Loader([X], 8, pool="threads")
    batches(closed)
    closed.close()
    gc.collect()
    assert batches(kept) == ORDERED  # the iterator of a loader that nobody has uses the pool, too
    del kept
    gc.collect()
    for thread in own():
        thread.join(60)
    assert own_threads() == 0


def test_a_loader_that_starts_in_a_worker_has_a_pool_of_its_own() -> None:
    def asks(x: np.ndarray) -> Any:
        with bu.Loader([X], 16, pool="threads") as inner:
            return (x + sum(map(sum, batches(inner))),)

    def asks_twice(x: np.ndarray) -> Any:
        with bu.Loader(bu.ArrayDataSource([X]).map(asks), 40, pool="threads") as inner:
            return (x + sum(map(sum, batches(inner))),)

    with bu.Loader(bu.ArrayDataSource([X]).map(asks_twice), 8, pool="threads") as outer:
        assert batches(outer) == [(X[i : i + 8] + X.sum() + 40 * X.sum()).tolist() for i in range(0, 40, 8)]


def test_a_map_that_waits_for_a_loader_of_its_own_workers_says_so() -> None:
    with bu.Loader([X], 16, pool="threads") as inner:
        batches(inner)
        source = bu.ArrayDataSource([X]).map(lambda x: (x + sum(map(sum, batches(inner))),))
        with bu.Loader(source, 40, pool="threads") as outer, raises(bu.ReentrantIteration):
            batches(outer)


@pytest.mark.in_turn
def test_a_change_of_folder_or_environment_gives_other_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def where(x: np.ndarray) -> Any:
        return x, np.full(len(x), os.getcwd()), np.full(len(x), os.environ.get("BATCHUP_NG_TEST", ""))

    source = bu.ArrayDataSource([X]).map(where)
    before = os.getcwd()
    with bu.Loader(source, 40, pool="processes") as here, bu.Loader(source, 40, pool="processes") as there:
        list(here)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("BATCHUP_NG_TEST", "set")
        ((_, folders, values),) = there
        assert (folders[0], values[0]) == (str(tmp_path), "set")
        ((_, folders, values),) = here
        assert (folders[0], values[0]) == (before, "")
    monkeypatch.undo()


def test_a_closed_pool_and_a_stuck_one_are_not_shared_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_threads, "STUCK_SECONDS", 0.05)
    released, begun = threading.Event(), threading.Semaphore(0)

    def waits(x: np.ndarray) -> Any:
        begun.release()
        released.wait(60)
        return (x,)

    with bu.Loader(bu.ArrayDataSource([X]).map(waits), 8, pool="threads") as stuck:
        iterator = iter(stuck)
        for _ in range(CPUS):
            assert begun.acquire(timeout=60)
        pool = stuck._shared.pool
        while pool._pool.takes_loaders():
            threading.Event().wait(0.01)
        with bu.Loader([X], 16, pool="threads") as other:
            assert batches(other) == ORDERED
        released.set()
        assert len(list(iterator)) == 5
        pool._pool.close()  # as if it were broken
        with bu.Loader([X], 16, pool="threads") as other:
            assert batches(other) == ORDERED


@pytest.mark.in_turn
def test_processes_that_are_stuck_take_no_loaders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_processes, "STUCK_SECONDS", 0.05)
    with bu.WorkerProcessPool(1) as pool:
        assert pool.takes_loaders()
        stream = pool.work_stream(iter([(time.sleep, (0.4,))]))
        wait_until(lambda: not pool.takes_loaders())
        stream.retrieve()
        assert pool.takes_loaders()


def test_a_fork_makes_a_pool_of_its_own() -> None:
    with bu.Loader([X], 16, pool="threads") as parents:
        batches(parents)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with bu.Loader([X], 16, pool="threads") as childs:
                    right = batches(childs) == ORDERED
                right = right and batches(parents) == ORDERED
                parents.close()
                code = 0 if right else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert batches(parents) == ORDERED


@pytest.mark.parametrize("kind", ["serial", "threads", "processes"])
def test_a_loader_goes_on_in_a_fork(kind: str) -> None:
    with bu.Loader([X], 16, shuffle=1, pool="serial") as alone:
        expected = [batches(alone) for _ in range(4)]
    with (
        bu.Loader([X], 16, shuffle=1, pool=kind, workers=None if kind == "serial" else 1) as loader,
        bu.Loader([X], 16, shuffle=1, pool=loader) as borrower,
    ):
        assert batches(loader) == batches(borrower) == expected[0]
        iterator = iter(loader)
        first, state = next(iterator)[0].tolist(), loader.state_dict()
        asked_later = iter(borrower)
        if (pid := os.fork()) == 0:
            code = 1
            try:
                with raises(bu.PoolClosed):
                    next(iterator)
                with raises(bu.PoolClosed):
                    next(asked_later)
                assert (loader.epoch, loader.state_dict()) == (1, state)
                assert batches(loader) == expected[2]
                assert batches(borrower) == expected[1]
                assert loader.batch(0, 3)[0].tolist() == expected[3][0]
                loader.load_state_dict(state)
                assert [first, *batches(loader)] == expected[1]
                loader.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert [first, *[x.tolist() for (x,) in iterator]] == expected[1]
        assert [x.tolist() for (x,) in asked_later] == expected[1]


def test_a_fork_cannot_use_a_pool_of_the_program() -> None:
    with bu.WorkerThreadPool(1) as pool, bu.Loader([X], 16, pool=pool) as loader:
        batches(loader)
        if (pid := os.fork()) == 0:
            code = 1
            try:
                with raises(bu.PoolClosed):
                    batches(loader)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_threads_that_make_and_close_loaders_at_once_get_whole_epochs() -> None:
    def one(number: int) -> list[list[int]]:
        with bu.Loader([X], 16, pool="threads") as loader:
            return batches(loader)

    with concurrent.futures.ThreadPoolExecutor(8) as executor:
        assert all(found == ORDERED for found in executor.map(one, range(80)))
    assert own_threads() == 0


@pytest.mark.in_turn
def test_a_program_that_closes_nothing_ends(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np, batchup_ng as bu\n"
        "kinds = ['threads', 'threads', 'processes', 'processes']\n"
        "loaders = [bu.Loader([np.arange(9)], 2, pool=kind) for kind in kinds]\n"
        "iterators = [iter(each) for each in loaders]\n"
        "print([next(each)[0].tolist() for each in iterators])\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[[0, 1], [0, 1], [0, 1], [0, 1]]\n", "")


def test_validation_data_as_an_option_says_what_to_write() -> None:
    for name in ("val", "validation", "validation_data"):
        options: Any = {name: [X]}
        with raises(bu.ArgumentTypeError):
            bu.Loader([X], 8, **options)


@pytest.mark.parametrize(("cpus", "workers"), [(1, 1), (2, 2), (3, 2), (4, 3), (64, 63)])
def test_from_three_cpus_on_the_loop_has_one(cpus: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joblib.cpu_count", lambda: cpus)
    with bu.Loader([X], 16, pool="threads") as loader:
        assert batches(loader) == ORDERED
        assert loader._pool_node().pool.processes == workers
    with bu.WorkerThreadPool() as pool:
        assert pool.processes == cpus
    if cpus == 3:
        with bu.Loader([X], 16, pool="processes") as loader:
            assert batches(loader) == ORDERED
            assert loader._pool_node().pool.processes == workers
