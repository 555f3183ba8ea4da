"""A trace has each batch once: in the lane of its worker, in that of the loop, and an arrow between them."""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.meters import batch_times
from batchup_ng.meters.stopwatch import PACKING
from batchup_ng.observe.trace import _events
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises, warns

N, SIZE, EPOCHS = 40, 6, 2
BATCHES = EPOCHS * -(-N // SIZE)
ROUNDING = 0.2
"""Microseconds by which sums of rounded times may differ."""


def doubled(x: np.ndarray) -> np.ndarray:
    return 2 * x


@pytest.fixture(scope="module", params=["serial", "threads", "processes"])
def pool(request: pytest.FixtureRequest, pools: list[AbstractWorkerPool]) -> AbstractWorkerPool:
    threads, processes = pools
    return {"serial": bu.SerialPool(), "threads": threads, "processes": processes}[request.param]


def source() -> bu.ArrayDataSource:
    return bu.ArrayDataSource({"x": np.arange(N)}).map(doubled, on="x")


def loop(pool: Any, epochs: int = EPOCHS) -> int:
    with bu.Loader(source(), SIZE, shuffle=1, pool=pool) as loader:
        return sum(len(batch["x"]) for _ in range(epochs) for batch in loader)


def events(path: Path) -> list[dict[str, Any]]:
    loaded = json.loads(path.read_text())
    assert loaded["displayTimeUnit"] == "ms"
    found: list[dict[str, Any]] = loaded["traceEvents"]
    return found


def test_each_batch_is_there_once_with_its_parts_and_an_arrow(pool: AbstractWorkerPool, tmp_path: Path) -> None:
    path = tmp_path / "epoch.json"
    with bu.trace(path):
        assert loop(pool) == EPOCHS * N
    found = events(path)
    slices = [event for event in found if event["ph"] == "X"]
    made = [event for event in slices if event["name"].startswith("batch ")]
    names = Counter((event["name"], event["args"]["epoch"]) for event in made)
    assert names == {(f"batch {k}", epoch): 1 for k in range(BATCHES // EPOCHS) for epoch in range(EPOCHS)}
    assert sum(event["args"]["samples"] for event in made) == EPOCHS * N
    waits = [event for event in slices if event["name"] == "wait"]
    assert [(event["args"]["epoch"], event["args"]["batch"]) for event in waits] == [
        (epoch, k) for epoch in range(EPOCHS) for k in range(BATCHES // EPOCHS)
    ]
    assert sum(event["name"] == "step" for event in slices) == BATCHES - 1
    begins, ends = ([event["id"] for event in found if event["ph"] == phase] for phase in "sf")
    assert sorted(begins) == sorted(ends) == list(range(BATCHES))
    parts = Counter(event["name"] for event in slices) - Counter([event["name"] for event in [*made, *waits]])
    packed = {"packing": BATCHES} if isinstance(pool, bu.WorkerProcessPool) else {}
    assert parts == {"step": BATCHES - 1, "read": BATCHES, "map doubled": BATCHES, **packed}
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in slices)


def test_the_batches_of_a_worker_do_not_overlap_and_hold_their_parts(pool: AbstractWorkerPool, tmp_path: Path) -> None:
    path = tmp_path / "epoch.json"
    with bu.trace(path):
        loop(pool)
    found = events(path)
    lanes = defaultdict(list)
    for event in found:
        if event["ph"] == "X" and event["name"].startswith("batch "):
            lanes[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    named = {event["tid"]: event["args"]["name"] for event in found if event["name"] == "thread_name"}
    assert named[0] == "training loop"
    assert set(lanes) <= set(named)
    assert len(lanes) <= pool.at_once
    for times in lanes.values():
        times.sort()
        assert all(end <= begin + ROUNDING for (_, end), (begin, _) in itertools.pairwise(times))
    inner = [event for event in found if event["name"] in ("read", "map doubled", "packing")]
    whole = sum(end - begin for times in lanes.values() for begin, end in times)
    assert sum(event["dur"] for event in inner) == pytest.approx(whole, abs=4 * BATCHES * ROUNDING)


def test_each_loader_has_lanes_of_its_own_and_each_trace_all_batches(tmp_path: Path) -> None:
    with bu.trace(tmp_path / "all.json"):
        loop("serial", 1)
        with bu.trace(tmp_path / "one.json"):
            threads = [threading.Thread(target=loop, args=("threads", 1)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert {event["pid"] for event in events(tmp_path / "one.json")} == {0, 1}
    found = events(tmp_path / "all.json")
    names = [event["args"]["name"].split(": ")[:2] for event in found if event["name"] == "process_name"]
    pools = ("SerialPool", "WorkerThreadPool", "WorkerThreadPool")
    assert names == [[f"loader {number}", f"<{pool}"] for number, pool in enumerate(pools)]
    waits = Counter(event["pid"] for event in found if event["name"] == "wait")
    assert waits == dict.fromkeys(range(3), BATCHES // EPOCHS)
    assert batch_times.listeners == ()


def broken_off(loader: bu.Loader, path: Path) -> None:
    with bu.trace(path):
        next(iter(loader))
        raise ZeroDivisionError


def test_an_error_in_the_loop_leaves_the_trace_of_what_came_before(tmp_path: Path) -> None:
    path = tmp_path / "epoch.json"
    with bu.Loader(source(), SIZE, pool="serial") as loader, pytest.raises(ZeroDivisionError):
        broken_off(loader, path)
    assert sum(event["name"] == "wait" for event in events(path)) == 1
    assert batch_times.listeners == ()


def test_a_trace_without_batches_is_a_file_too(tmp_path: Path) -> None:
    with warns(UserWarning), bu.trace(str(tmp_path / "none.json")):
        assert len(list(source().batch_iterator(SIZE))) == -(-N // SIZE)
    assert events(tmp_path / "none.json") == []
    with pytest.raises(ZeroDivisionError), bu.trace(tmp_path / "none.json"):
        print(1 / 0)  # the error says why


def test_more_batches_than_may_be_held_are_told_of(tmp_path: Path) -> None:
    path = tmp_path / "epoch.json"
    with warns(UserWarning), bu.trace(path, most=5):
        loop("serial", 1)
    assert sum(event["name"] == "wait" for event in events(path)) == 5


def test_a_file_that_cannot_be_written_keeps_what_it_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "epoch.json"
    path.write_text("of yesterday")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with raises(OSError), bu.trace(path):
        loop("serial", 1)
    assert path.read_text() == "of yesterday"
    assert [each.name for each in tmp_path.iterdir()] == ["epoch.json"]
    assert batch_times.listeners == ()


def test_wrong_arguments_are_refused_before_anything_runs(tmp_path: Path) -> None:
    with raises(bu.ArgumentError):
        bu.trace(tmp_path / "nowhere" / "epoch.json")
    with raises(bu.ArgumentError):
        bu.trace(tmp_path / "epoch.json", most=0)


def test_a_worker_with_another_clock_ends_when_its_result_arrives(tmp_path: Path) -> None:
    path = tmp_path / "epoch.json"
    with bu.trace(path) as traced:
        meter = batch_times.Meter("WorkerRayPool")
        meter.add(2, (0, 0, 2, 10.0, 14.0, 12.0, 15.0, -1, (1e6, 1.0, 0.5, 0.25, 7, {"f": 0.25})))
        assert traced is not None
    (batch,) = (event for event in events(path) if event["name"] == "batch 0")
    assert (batch["tid"], batch["ts"], batch["dur"]) == (8, 3e6, 1e6)
    assert batch["args"] == {"epoch": 0, "samples": 2, "queued ms": 3000.0, "CPU ms": 500.0}


NAMES = st.text(st.characters(), max_size=8) | st.sampled_from(["</script><img src=x>", "\udcff.png", '"', "\\", "\0"])
SECONDS = st.floats(0, 0.01, allow_nan=False)


@st.composite
def recorded(draw: Any) -> list[tuple[int, str, tuple[Any, ...]]]:
    """Return batches that one or two loaders got from some workers, as a trace records them."""
    serial, clock = draw(st.booleans()), draw(st.sampled_from([0.0, 1e6]))
    now: dict[int, float] = dict.fromkeys(range(2), 100.0)
    free: dict[tuple[int, int], float] = {}
    records = []
    for number in range(draw(st.integers(1, 12))):
        meter, worker = draw(st.integers(0, 1)), -1 if serial else draw(st.integers(0, 2))
        asked = now[meter] + draw(SECONDS)
        began = asked if serial else max(99.0, free.get((meter, worker), 0.0)) + draw(SECONDS)
        parts = draw(st.dictionaries(NAMES | st.just(PACKING), SECONDS, max_size=3))
        seconds = sum(parts.values()) + draw(SECONDS)
        free[meter, worker] = began + seconds
        settled = began + seconds + draw(SECONDS)
        now[meter] = taken = max(asked, settled) + draw(SECONDS)
        slowest = draw(st.none() | st.tuples(SECONDS, SECONDS, NAMES, NAMES))
        made = (began + clock, seconds, draw(st.sampled_from([0.001, math.nan])), math.nan, worker, parts, slowest)
        times = (0, number, 3, began - draw(SECONDS), settled, asked, taken, draw(st.integers(-1, 3)), made)
        records.append((meter, draw(NAMES), times))
    return records


def follows_the_format(text: str) -> None:
    """Check what a reader of the Trace Event Format needs."""

    def no_number(name: str) -> None:
        raise AssertionError(name)

    found = json.loads(text, parse_constant=no_number)["traceEvents"]
    text.encode("ascii")
    json.dumps(found, ensure_ascii=False).encode("utf-8")  # a lone surrogate would be refused
    assert {event["ph"] for event in found} <= set("MXCsf")
    metadata = [event for event in found if event["ph"] == "M"]
    assert found[: len(metadata)] == metadata, "lanes have their names before anything happens there"
    happened = found[len(metadata) :]
    assert [event["ts"] for event in happened] == sorted(event["ts"] for event in happened)
    lanes = {(event["pid"], event["tid"]) for event in happened if "tid" in event}
    for what in ("thread_name", "thread_sort_index"):
        named = [(event["pid"], event["tid"]) for event in metadata if event["name"] == what]
        assert sorted(named) == sorted({*named})
        assert set(named) >= lanes
    assert {event["pid"] for event in metadata if event["name"] == "process_name"} == {each[0] for each in lanes}
    slices = defaultdict(list)
    for event in happened:
        if event["ph"] == "X":
            assert event["name"]
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["name"]))
    for of_lane in slices.values():  # each lies in the one that is open, or begins after it
        open_ones: list[tuple[float, float, str]] = []
        for begin, end, name in of_lane:
            while open_ones and open_ones[-1][1] <= begin:
                open_ones.pop()
            assert not open_ones or end <= open_ones[-1][1], (name, open_ones)
            open_ones.append((begin, end, name))
    arrows = {phase: [event for event in happened if event["ph"] == phase] for phase in "sf"}
    begins = {event["id"]: event for event in arrows["s"]}
    assert len(begins) == len(arrows["s"]) == len(arrows["f"])
    for end in arrows["f"]:
        begin = begins.pop(end["id"])
        assert end["bp"] == "e"
        assert (begin["cat"], begin["name"], begin["pid"]) == (end["cat"], end["name"], end["pid"])
        assert begin["ts"] <= end["ts"]
        for event, name in ((begin, "batch "), (end, "wait")):
            of_lane = slices[event["pid"], event["tid"]]
            assert any(since <= event["ts"] <= to and each.startswith(name) for since, to, each in of_lane)


@given(recorded())
def test_any_trace_follows_the_format(records: list[Any]) -> None:
    follows_the_format(json.dumps({"traceEvents": _events(records)}, allow_nan=False))


def test_real_traces_follow_the_format(pool: AbstractWorkerPool, tmp_path: Path) -> None:
    def named(x: int) -> Any:
        time.sleep(0.003 if x % 6 == 1 else 0.0)
        return x

    named.__qualname__ = "<script>\udcff"
    path = tmp_path / "epoch.json"
    with bu.trace(path), bu.Loader(bu.ArrayDataSource([np.arange(N)]).map_samples(named), SIZE, pool=pool) as loader:
        for _ in range(EPOCHS):
            for _ in loader:
                pass
    follows_the_format(path.read_text())
    slowest = [event["args"].get("slowest sample") for event in events(path) if event["name"].startswith("batch ")]
    assert any(each is not None and " ms in <script>?" in each for each in slowest)
