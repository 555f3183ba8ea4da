"""A loader that chooses its number of workers: on simulated machines, and on this one."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.work_pool import loader_pool, tuning
from batchup_ng.work_pool.choice import Move
from tests.explanation.tuned import Tuned, run
from tests.explanation.world import World
from tests.extent import THOROUGH, quick
from tests.messages import raises

from .resize_maps import bad_at, shifted, sleeping

PROCESSES = World(kind="processes", take=0.0004, pack=0.0002, transfer=0.0002, workers=3, batches=80)
THREADS = World(kind="threads", workers=3, batches=80)

WORLDS = {
    "a Python map in processes": dataclasses.replace(PROCESSES, map_cpu=0.06, locks=True, step_wait=0.018),
    "a NumPy map in threads": dataclasses.replace(THREADS, map_cpu=0.04, step_wait=0.02),
    "storage that waits": dataclasses.replace(THREADS, read_wait=0.2, step_wait=0.02),
    "the loop": dataclasses.replace(PROCESSES, read_wait=0.01, map_cpu=0.01, step_wait=0.04),
    "a loop that computes on all CPUs": dataclasses.replace(
        PROCESSES, map_cpu=0.015, cpus=2, workers=1, step_wait=0.0, step_cpu=0.02, loop_locks=False, loop_threads=2
    ),
    "storage, a map and a loop that computes": dataclasses.replace(
        PROCESSES, read_wait=0.05, map_cpu=0.03, step_cpu=0.01, step_wait=0.015
    ),
}
SWEEP = (1, 2, 3, 4, 6, 8, 12, 16, 20) if THOROUGH else (2, 4, 12)
BATCHES = 50
"""After so many batches the number of workers is to be right."""

_fixed: dict[str, list[Tuned]] = {}


def fixed(name: str) -> list[Tuned]:
    """Return what becomes of a world with each number of workers."""
    if name not in _fixed:
        _fixed[name] = [run(dataclasses.replace(WORLDS[name], workers=n), auto=False) for n in SWEEP]
    return _fixed[name]


@pytest.mark.parametrize(("name", "first"), quick(
    [(name, 0) for name in WORLDS] + [("storage that waits", 1), ("a Python map in processes", 8)],
    [(name, first) for name in WORLDS for first in (1, 2, 5, 8, 16)],
))  # fmt: skip
def test_it_is_as_fast_as_the_best_number(name: str, first: int) -> None:
    best = min(fixed(name), key=lambda each: each.interval(BATCHES))
    world = WORLDS[name]
    tuned = run(dataclasses.replace(world, workers=first or world.workers))
    assert tuned.interval(BATCHES) <= 1.05 * best.interval(BATCHES), tuned.reasons
    assert tuned.steps[BATCHES:].mean() <= 1.03 * best.steps[BATCHES:].mean(), tuned.reasons


def test_it_follows_a_neighbour_that_comes_and_goes() -> None:
    world = dataclasses.replace(
        PROCESSES, map_cpu=0.03, step_wait=0.02, neighbours=6, neighbours_at=(5.0, 12.0), batches=400
    )
    few, many = (run(dataclasses.replace(world, workers=n), auto=False) for n in (2, 4))
    tuned = run(world)
    assert few.between(8, 12)[0] > 1.3 * many.between(8, 12)[0], "it matters"
    assert tuned.between(8, 12)[0] < 1.05 * many.between(8, 12)[0], tuned.reasons
    assert tuned.between(2, 5)[1] == tuned.between(14.9, 17)[1] == 2, tuned.reasons


def test_it_follows_a_neighbour_on_all_cpus() -> None:
    world = dataclasses.replace(
        PROCESSES, cpus=2, map_cpu=0.03, step_wait=0.022, neighbours=2, neighbours_at=(5.0, 12.0), batches=450
    )
    few, many = (run(dataclasses.replace(world, workers=n), auto=False) for n in (2, 4))
    tuned = run(world)
    assert few.between(8, 12)[0] > 1.15 * many.between(8, 12)[0], "it matters"
    assert tuned.between(8, 12)[0] < 1.05 * many.between(8, 12)[0], tuned.reasons
    assert tuned.between(2, 5)[1] == 2 <= tuned.between(14.9, 17)[1] <= 3, tuned.reasons
    assert tuned.between(14.9, 17)[0] < 1.02 * few.between(14.9, 17)[0], tuned.reasons


LOCKED = dataclasses.replace(THREADS, map_cpu=0.03, locks=True, step_wait=0.01, workers=1)


def test_threads_that_wait_for_the_lock_have_processes_tried() -> None:
    move = run(LOCKED, may_move=True).move
    assert move is not None
    assert move.kind == "processes"
    assert "CPUs are idle, and more threads are not faster" in move.why
    assert run(LOCKED).move is None, "the user chose threads"
    moved = dataclasses.replace(PROCESSES, map_cpu=0.03, locks=True, step_wait=0.01, workers=3)
    assert run(moved, came=move).move is None, "they are faster"


@pytest.mark.parametrize("name", WORLDS)
def test_workers_that_are_right_are_not_left(name: str) -> None:
    assert run(WORLDS[name], may_move=True).move is None


def test_a_kind_that_is_not_faster_is_left_again() -> None:
    storage = dataclasses.replace(PROCESSES, read_wait=0.05, step_wait=0.001, buffer=2, asked=2, workers=2)
    back = run(storage, came=Move("processes", "", run(storage).interval(20))).move
    assert back is not None
    assert (back.kind, back.why) == ("threads", "processes were not faster")


def test_a_loop_that_spends_its_time_on_receiving_has_threads_tried() -> None:
    large = dataclasses.replace(PROCESSES, map_cpu=0.002, take=0.02, step_wait=0.01)
    move = run(large, may_move=True).move
    assert move is not None
    assert move.kind == "threads"
    assert "% of its time on receiving batches" in move.why
    assert run(large).move is None


seconds = st.sampled_from([0.0, 0.002, 0.01, 0.05, 0.2])


@given(st.sampled_from(["threads", "processes"]), seconds, seconds, st.booleans(), seconds, seconds,
       st.integers(1, 8), st.integers(0, 3), st.integers(1, 24), st.sampled_from([1, 3, 20]))  # fmt: skip
def test_the_number_is_within_bounds_and_does_not_swing(
    kind: str, read_wait: float, map_cpu: float, locks: bool, step_wait: float, step_cpu: float, cpus: int,
    neighbours: int, workers: int, buffer: int,
) -> None:  # fmt: skip
    tuned = run(World(
        kind=kind, read_wait=read_wait, map_cpu=map_cpu, locks=locks, step_wait=step_wait + 0.001, step_cpu=step_cpu,
        cpus=cpus, neighbours=neighbours, workers=workers, buffer=buffer, batches=80,
    ))  # fmt: skip
    changed = np.array([number for number, _, _ in tuned.reasons], int)
    assert all(1 <= n <= max(buffer, workers) for n in tuned.workers)
    assert (np.diff(changed) >= tuning.BATCHES - 2).all()
    assert (np.diff(tuned.asked[np.minimum(changed, 159)]) > 0.9 * tuning.SECONDS).all()
    assert len(changed) <= 8, tuned.reasons


# -- on this machine -------------------------------------------------------------------------------------------------

SOURCE = bu.ArrayDataSource([np.arange(480)]).map(shifted, rng="sample").map(sleeping)


@pytest.fixture(autouse=True)
def two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaders begin with one worker, however many CPUs the machine has."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "2")


def contents(batches: Any) -> list[list[bytes]]:
    return [[part.tobytes() for part in batch] for batch in batches]


@pytest.mark.in_turn
@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_workers_that_wait_become_more_and_batches_stay(pool: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "batchup_ng")
    with bu.Loader(SOURCE, 5, shuffle=7, pool="serial") as serial:
        expected = contents(serial)
    with bu.Loader(SOURCE, 5, shuffle=7, pool=pool, workers="auto", buffer=4) as loader:
        assert loader.settings() == {"pool": pool, "workers": "auto", "buffer": 4, "buffer_bytes": None}
        first = contents(batch for _, batch in zip(range(50), loader, strict=False))
        state = loader.state_dict()
        told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("workers: ")]
        assert "in place of 1, because the loop waited for" in told[0]
        workers = loader.metrics()["workers"]
        assert f"workers: {workers} (auto: " in repr(loader)
        assert loader.settings()["workers"] == workers
        assert len(loader.explain(trial=False).to_dict()) > 3
    with bu.Loader(SOURCE, 5, shuffle=7, pool=pool, workers="auto") as loader:
        loader.load_state_dict(state)
        assert first + contents(loader) == expected


@pytest.mark.in_turn
def test_another_kind_of_pool_makes_the_next_epoch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And the one after that, if it is not faster. Batches, states and errors stay as they were."""
    caplog.set_level(logging.INFO, "batchup_ng")
    monkeypatch.setattr(loader_pool, "choose", lambda *_: (("threads", "the test says so"), []))
    source = SOURCE.map(lambda x, noise: bad_at({3, 77, 400}, x, noise))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with bu.Loader(source, 5, shuffle=7, pool="serial", on_error="skip") as serial:
            expected = [contents(serial) for _ in range(4)]
        with bu.Loader(source, 5, shuffle=7, workers="auto", on_error="skip") as loader:
            got, kinds = [], []
            moves = Move("processes", "they may be faster", 1.0), Move("threads", "they were not", 1.0)
            for move in (*moves, None, None):
                got.append(contents(loader))
                kinds.append(loader.settings()["pool"])
                assert len(loader.errors) == 3
                loader._shared.tuner.move = move
                assert loader.state_dict()["epoch"] == len(got)
    assert got == expected
    assert kinds == ["threads", "processes", "threads", "threads"]
    told = [record.getMessage() for record in caplog.records if "goes on with" in record.getMessage()]
    assert told == [
        "pool='auto' goes on with processes in place of threads: they may be faster",
        "pool='auto' goes on with threads in place of processes: they were not",
    ]
    assert not loader._shared.moves[2:]


def test_a_source_that_cannot_be_pickled_stays_with_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_pool, "choose", lambda *_: (("threads", "the test says so"), []))
    lock = threading.Lock()
    source = bu.ArrayDataSource([np.arange(40)]).map(lambda x: (x + lock.locked(),))
    with bu.Loader(source, 5, workers="auto") as loader:
        for _ in range(2):
            assert len(list(loader)) == 8
            loader._shared.tuner.move = Move("processes", "", 1.0)
        assert loader.settings()["pool"] == "threads"


def test_a_pool_whose_batches_others_take_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_pool, "choose", lambda *_: (("threads", "the test says so"), []))
    small = bu.ArrayDataSource([np.arange(40)])
    with bu.Loader(small, 5, shuffle=7, workers="auto") as train, bu.Loader(small, 5, pool=train) as val:
        for _ in range(3):
            assert [len(list(train)), len(list(val))] == [8, 8]
            train._shared.tuner.move = Move("processes", "", 1.0)
        assert len(val.batch(3)[0]) == 5
        assert train.settings()["pool"] == "threads"
    with bu.Loader(small, 5, shuffle=7, workers="auto") as loader:
        list(loader)
        some = loader.batches(range(8))
        next(some)
        loader._shared.tuner.move = Move("processes", "", 1.0)
        assert [len(list(loader)), len(list(some)), len(list(loader))] == [8, 7, 8]
        assert loader.settings()["pool"] == "processes", "now no other takes them"
        assert loader.metrics()["batches"] == 32, "since the first epoch, also those by their numbers"
        assert loader.metrics()["samples"] == 160


@pytest.mark.in_turn
def test_a_fork_that_was_to_move_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_pool, "choose", lambda *_: (("threads", "the test says so"), []))
    with bu.Loader([np.arange(40)], 5, shuffle=7, workers="auto") as loader:
        list(loader)
        loader._shared.tuner.move = Move("processes", "", 1.0)
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            status = 1
            try:
                os.write(write, str([len(list(loader)), loader.settings()["pool"]]).encode())
                loader.close()
                status = 0
            finally:
                os._exit(status)
        os.close(write)
        with open(read, "rb") as told:
            assert told.read() == b"[8, 'threads']"
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_an_epoch_that_was_begun_ahead_is_made_again_by_the_other_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_pool, "choose", lambda *_: (("processes", "the test says so"), []))
    with bu.Loader(SOURCE, 96, shuffle=7, pool="serial") as serial:
        expected = [contents(serial) for _ in range(3)]
    with bu.Loader(SOURCE, 96, shuffle=7, workers="auto", buffer=30) as loader:
        first = contents(loader)
        loader._shared.tuner.move = Move("threads", "", 1.0)
        batches = iter(loader)
        second = contents(next(batches) for _ in range(2))
        state = loader.state_dict()
        loader.load_state_dict(state)
        second += contents(loader)
        assert [first, second, contents(loader)] == expected


def test_bad_samples_are_left_out_as_before() -> None:
    source = SOURCE.map(lambda x, noise: bad_at({3, 77, 400}, x, noise))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with bu.Loader(source, 5, shuffle=7, pool="serial", on_error="skip") as serial:
            expected = contents(serial)
        with bu.Loader(source, 5, shuffle=7, pool="threads", workers="auto", on_error="skip") as loader:
            assert contents(loader) == expected
            assert len(loader.errors) == 3


def test_two_loops_at_once_may_look() -> None:
    with bu.Loader(SOURCE, 5, shuffle=7, pool="threads", workers="auto") as loader:
        beside: list[Any] = []
        thread = threading.Thread(target=lambda: beside.extend(contents(loader.batches(range(96)))))
        iterator = iter(loader)
        thread.start()
        assert contents(iterator) == contents(loader.batches(range(96), 0))
        thread.join()
        assert len(beside) == 96


# -- what is used, and what is refused -------------------------------------------------------------------------------


def test_settings_are_those_in_use_and_make_such_a_loader() -> None:
    with bu.Loader([np.arange(40)], 5, pool="threads", workers=2, buffer=7) as loader:
        assert loader.settings() == {"pool": "threads", "workers": 2, "buffer": 7, "buffer_bytes": None}
        next(iter(loader))
        used = loader.settings()
        assert used.pop("buffer_bytes") > 0
        assert used == {"pool": "threads", "workers": 2, "buffer": 7}
    used = loader.settings()
    for again in (bu.Loader([np.arange(40)], 5, **used), bu.Loader([np.arange(40)], 5, settings=used)):
        with again:
            next(iter(again))
            assert again.settings() == used


def test_settings_of_other_pools() -> None:
    with bu.Loader([np.arange(40)], 5, pool="serial") as loader:
        next(iter(loader))
        assert loader.settings() == {"pool": "serial", "workers": None, "buffer": 20, "buffer_bytes": None}
    with bu.Loader([np.arange(40)], 5, pool="threads") as shared, bu.Loader([np.arange(9)], 5, pool=shared) as lent:
        next(iter(shared))
        assert shared.settings()["workers"] is None
        assert lent.settings()["pool"] is shared
    with bu.WorkerThreadPool(1) as pool, bu.Loader([np.arange(40)], 5, pool=pool) as loader:
        next(iter(loader))
        assert loader.settings() == {"pool": pool, "workers": None, "buffer": 20, "buffer_bytes": None}


def test_the_number_means_nothing_for_the_thread_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_pool, "choose", lambda *_: (("serial", "the test says so"), []))
    with bu.Loader([np.arange(400)], 2, workers="auto") as loader:
        assert len(list(loader)) == 200
        assert loader.settings()["pool"] == "serial"
        assert "workers:" not in repr(loader)


def test_what_cannot_be_followed_is_refused(pools: list[Any]) -> None:
    data = [np.arange(10)]
    with bu.Loader(data, 5, pool="threads", workers=1) as other:
        for options in ({"pool": pools[0]}, {"pool": other}, {"pool": "serial"}, {"measure": False}):
            with raises(ArgumentError):
                bu.Loader(data, 5, workers="auto", **options)
    with raises((ArgumentError, ArgumentTypeError)):
        bu.Loader(data, 5, workers="many")
    with raises(ArgumentError):
        bu.Loader(bu.IteratorDataSource(iter([])), 5, workers="auto")


def test_settings_are_checked() -> None:
    for settings, options in ((3, {}), ({"worker": 3}, {}), ({"pool": "threads"}, {"pool": "processes"})):
        with raises((ArgumentError, ArgumentTypeError)):
            bu.Loader([np.arange(10)], 5, settings=settings, **options)


def test_a_limit_of_memory_bounds_the_number_of_processes() -> None:
    bu.memory_limit(1 << 30)
    try:
        with bu.WorkerProcessPool(1) as pool:
            room = pool.room_for_more()
            assert 0 < room < 16
            pool.resize(1 + room)
            assert pool.room_for_more() == 0
        with bu.WorkerThreadPool(1) as threads:
            assert threads.room_for_more() > 100
    finally:
        bu.memory_limit(None)
