"""The measurements of a loader agree with what was done, in every pool."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.meters.batch_times import LATEST, BatchTimes, Meter, metrics
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises

N, SIZE = 60, 7


def doubled(x: np.ndarray) -> np.ndarray:
    return 2 * x


def slow(x: np.ndarray) -> np.ndarray:
    time.sleep(0.003)
    return x


def fails_at_nine(x: np.ndarray) -> np.ndarray:
    if (x == 9).any():
        raise ValueError("a bad sample")
    return x


def with_inner_loop(x: np.ndarray) -> np.ndarray:
    with bu.Loader([np.arange(3)], 1, pool="serial") as inner:
        assert len(list(inner)) == 3
        assert inner.metrics()["batches"] == 3
    return x


@pytest.fixture(scope="module", params=["serial", "threads", "processes"])
def pool(request: pytest.FixtureRequest, pools: list[AbstractWorkerPool]) -> AbstractWorkerPool:
    threads, processes = pools
    return {"serial": bu.SerialPool(), "threads": threads, "processes": processes}[request.param]


def data(as_dict: bool = False) -> bu.ArrayDataSource:
    return bu.ArrayDataSource({"x": np.arange(N)} if as_dict else [np.arange(N)])


@pytest.mark.parametrize("as_dict", [False, True])
def test_counts_and_times_add_up(pool: AbstractWorkerPool, as_dict: bool) -> None:
    source = data(as_dict).map(doubled, on="x" if as_dict else 0).map(slow, on="x" if as_dict else 0)
    with bu.Loader(source, SIZE, shuffle=1, pool=pool) as loader:
        assert loader.metrics() == {}
        for _ in range(2):
            for _ in loader:
                pass
        told = loader.metrics()
    per_epoch = -(-N // SIZE)
    assert (told["batches"], told["samples"], told["epoch"]) == (2 * per_epoch, 2 * N, 1)
    assert told["workers"] == pool.at_once
    assert told["map_ms_mean/slow"] >= 3
    assert told["map_ms_mean/doubled"] > 0
    parts = told["map_ms_mean/slow"] + told["map_ms_mean/doubled"] + told["read_ms_mean"] + told["packing_ms_mean"]
    assert parts == pytest.approx(told["make_ms_mean"])
    assert told["cpu_ms_mean"] < told["make_ms_mean"]  # it sleeps
    assert 0 < told["wait_share"] <= 1
    assert told["wait_seconds"] == pytest.approx(told["wait_ms_mean"] * told["batches"] / 1e3)
    assert 0 < told["busy_share"] <= 1 + 1e-9
    for name in ("wait", "step", "make", "queue", "transfer"):
        assert 0 <= told[f"{name}_ms_p50"] <= told[f"{name}_ms_p99"]
    assert (told["packing_ms_mean"] > 0) == isinstance(pool, bu.WorkerProcessPool)


def test_what_was_made_before_the_first_request_does_not_count(pools: list[AbstractWorkerPool]) -> None:
    """The share of a worker is at most 1, though it made batches before the loop asked and after."""
    with bu.Loader(data().map(slow, on=0), SIZE, pool=pools[0]) as loader:
        batches = iter(loader)
        time.sleep(0.05)
        for _ in range(3):
            next(batches)
        told = loader.metrics()
        batches.close()
    assert told["make_ms_mean"] >= 3
    assert 0 <= told["busy_share"] <= 1 + 1e-9


def test_a_slow_loop_waits_less_than_a_slow_map(pool: AbstractWorkerPool) -> None:
    def share(loop_sleeps: float, source: Any) -> tuple[float, float]:
        with bu.Loader(source, SIZE, pool=pool) as loader:
            for _ in loader:
                time.sleep(loop_sleeps)
            told = loader.metrics()
        return told["wait_share"], told["step_ms_mean"]

    busy_loop, step = share(0.004, data())
    assert step >= 4
    assert busy_loop < share(0.0, data().map(slow, on=0))[0]


@pytest.mark.filterwarnings("ignore::batchup_ng.errors.SampleWarning")
def test_samples_that_are_skipped_do_not_hide_the_batch(pool: AbstractWorkerPool) -> None:
    with bu.Loader(data().map(fails_at_nine, on=0), SIZE, pool=pool, on_error="skip") as loader:
        samples = sum(len(x) for (x,) in loader)
        assert samples == N - 1
        told = loader.metrics()
    assert (told["batches"], told["samples"]) == (-(-N // SIZE), N - 1)


def test_a_loader_inside_of_a_map_is_measured_apart(pool: AbstractWorkerPool) -> None:
    with bu.Loader(data().map(with_inner_loop, on=0), SIZE, pool=pool) as loader:
        for _ in loader:
            pass
        told = loader.metrics()
    assert [name for name in told if name.startswith("map")] == ["map_ms_mean/with_inner_loop"]
    assert told["samples"] == N


def test_a_name_may_be_of_any_length(pool: AbstractWorkerPool) -> None:
    def named(x: np.ndarray) -> np.ndarray:
        return x

    named.__qualname__ = "long" * 25_000  # more than 64 kB
    with bu.Loader(data().map(named, on=0), SIZE, pool=pool) as loader:
        assert sum(len(x) for (x,) in loader) == N
        assert f"map_ms_mean/{named.__qualname__}" in loader.metrics()


def test_nothing_is_measured_without_the_option(pool: AbstractWorkerPool) -> None:
    with bu.Loader(data().map(doubled, on=0), SIZE, pool=pool, measure=False) as loader:
        assert sum(len(x) for (x,) in loader) == N
        assert loader.metrics() == {}
    with raises(TypeError):
        bu.Loader(data(), SIZE, measure="no")


def test_a_stream_has_no_measurements() -> None:
    source = bu.CallableDataSource(lambda *_, **__: iter([(np.arange(3),)]))
    with bu.Loader(source, 3, pool="serial") as loader:
        assert len(list(loader)) == 1
        assert loader.metrics() == {}


def test_states_and_batches_are_those_without_measurements(pool: AbstractWorkerPool) -> None:
    def run(measure: bool) -> list[Any]:
        with bu.Loader(data().map(doubled, on=0), SIZE, shuffle=3, pool=pool, measure=measure) as loader:
            return [(x.tolist(), loader.state_dict()) for (x,) in loader]

    assert run(True) == run(False)


def test_the_latest_batches_are_kept_and_all_are_counted() -> None:
    meter = Meter()
    for number in range(LATEST + 10):
        times = BatchTimes(0, number, 2, number - 1.0, number - 0.5, float(number), number + 0.25, -1, None)
        meter.add(2, tuple(times))
    latest = meter.latest()
    assert [times.number for times in latest] == list(range(10, LATEST + 10))
    told = metrics(meter, 3)
    assert (told["batches"], told["samples"], told["workers"]) == (LATEST + 10, 2 * (LATEST + 10), 3)
    span = LATEST - 0.75
    assert told["wait_share"] == pytest.approx(0.25 * LATEST / span)
    assert told["samples_per_second"] == pytest.approx(2 * LATEST / span)
    assert told["step_ms_p50"] == pytest.approx(750)
    assert not [name for name in told if name.startswith(("make", "map", "queue", "ready"))]


def test_what_another_machines_clock_says_is_left_out() -> None:
    meter = Meter()
    for began in (5.0, 900.0):  # the second is of a node with another clock
        meter.add(1, (0, 0, 1, 4.0, 8.0, 4.0, 8.0, 3, (began, 2.0, 1.0, math.nan, 0, {"f": 0.5})))
    told = metrics(meter, 1)
    assert (told["queue_ms_mean"], told["transfer_ms_mean"]) == (1000.0, 1000.0)
    assert (told["make_ms_mean"], told["cpu_ms_mean"], told["map_ms_mean/f"]) == (2000.0, 1000.0, 500.0)
    assert told["ready_mean"] == 3
