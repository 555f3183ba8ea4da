"""A loop answers ``top`` if it is asked, at most once a second, and whatever goes wrong with that costs no batch."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import stat
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.live import answers
from batchup_ng.live.figures import RECENT, figures, recent
from batchup_ng.meters import batch_times
from batchup_ng.meters.batch_times import BatchTimes, Meter

N, SIZE = 20, 3
BATCHES = [list(range(k, min(k + SIZE, N))) for k in range(0, N, SIZE)]


def loader(**options: Any) -> bu.Loader:
    return bu.Loader([np.arange(N)], SIZE, **{"pool": "serial", **options})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the files. Each batch of this process looks into it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    monkeypatch.setattr(answers, "LOOKS_EVERY", 0.0)
    monkeypatch.setattr(batch_times, "look_due", 0.0)
    path = tmp_path / "batchup_ng"
    path.mkdir(0o700)
    return path


@pytest.fixture
def ask(folder: Path) -> Path:
    path = folder / f"{os.getpid()}.ask"
    path.touch()
    return path


def answer(folder: Path) -> Any:
    """Return the answer of this process; None if there is none. No other file is there but the request."""
    name = f"{os.getpid()}.json"
    assert {path.name for path in folder.iterdir()} <= {name, f"{os.getpid()}.ask"}
    return json.loads((folder / name).read_text()) if (folder / name).exists() else None


def whole_epoch() -> None:
    with loader() as batches:
        assert [x.tolist() for (x,) in batches] == BATCHES


def test_a_loop_that_is_asked_answers_with_its_figures(folder: Path, ask: Path) -> None:
    with loader(shuffle=1) as train, loader(start_epoch=4, buffer=2) as later, loader() as unused:
        assert answer(folder) is None
        first = iter(later)
        next(first)
        for number, _ in enumerate(train, 1):
            told = answer(folder)
            assert told["pid"] == os.getpid()
            other, one = [each for each in told["loaders"] if each["number"] in (_number(train), _number(later))]
            assert (one["epoch"], one["batch"], one["batches"]) == (0, number, len(BATCHES))
            assert one["metrics"]["batches"] == number
            assert (other["epoch"], other["batch"], other["workers"], other["buffer"]) == (4, 1, 1, 1)
            assert 0 <= told["now"] - one["last"] <= told["now"] - other["last"]
        assert unused.metrics() == {}
    assert stat.S_IMODE((folder / f"{os.getpid()}.json").stat().st_mode) == 0o600


def _number(of: bu.Loader) -> int:
    number: int = of._shared.pool_node.meter.number
    return number


def test_a_loop_that_nobody_asks_writes_nothing(folder: Path) -> None:
    whole_epoch()
    assert answer(folder) is None


@pytest.mark.parametrize("age", [answers.FRESH + 1, -answers.FRESH - 1])
def test_an_old_request_is_none_and_the_answer_to_it_goes(folder: Path, ask: Path, age: float) -> None:
    whole_epoch()
    assert answer(folder) is not None
    os.utime(ask, (time.time() - age,) * 2)
    whole_epoch()
    assert answer(folder) is None
    ask.touch()
    whole_epoch()
    assert answer(folder) is not None


def test_a_loop_on_a_thread_answers(folder: Path, ask: Path) -> None:
    thread = threading.Thread(target=whole_epoch)
    thread.start()
    thread.join()
    assert answer(folder) is not None


def test_a_fork_answers_for_itself(folder: Path, ask: Path) -> None:
    with loader() as batches:
        next(iter(batches))
        parent = answer(folder)
        child = os.fork()
        if not child:
            try:
                (folder / f"{os.getpid()}.ask").touch()
                whole_epoch()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    told = json.loads((folder / f"{child}.json").read_text())
    assert (parent["pid"], told["pid"]) == (os.getpid(), child)
    for name in (f"{child}.json", f"{child}.ask"):
        (folder / name).unlink()
    assert answer(folder) == parent


def test_a_folder_of_others_is_not_used(folder: Path, ask: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for mode in (0o755, 0o710, 0o701):
        folder.chmod(mode)
        whole_epoch()
        assert answer(folder) is None
    folder.chmod(0o700)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: 12345)
        whole_epoch()
    assert answer(folder) is None
    link = folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(link)
    whole_epoch()
    assert answer(folder) is None


def test_no_link_is_followed(folder: Path, ask: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    ask.unlink()
    ask.symlink_to(precious)
    whole_epoch()
    assert answer(folder) is None
    ask.unlink()
    ask.touch()
    beside = folder / f"{os.getpid()}.{threading.get_ident()}.part"
    beside.symlink_to(precious)
    whole_epoch()
    assert not (folder / f"{os.getpid()}.json").exists()
    beside.unlink(missing_ok=True)
    (folder / f"{os.getpid()}.json").symlink_to(precious)
    whole_epoch()
    assert answer(folder)["pid"] == os.getpid()
    assert precious.read_text() == "kept"


@pytest.mark.parametrize("failing", ["open", "fdopen", "replace", "fstat", "stat"])
def test_what_fails_costs_no_batch(
    folder: Path, ask: Path, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        if failing == "fdopen":
            os.close(args[0])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, fail)
        answers.look(0.0)
    assert answer(folder) is None
    whole_epoch()
    assert answer(folder) is not None


def test_a_limit_on_the_size_of_files_costs_no_batch(folder: Path, ask: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with loader() as batches:
        iterator = iter(batches)
        next(iterator)
        told = answer(folder)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
        try:
            (x,) = next(iterator)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert x.tolist() == BATCHES[1]
        assert answer(folder) == told


def test_figures_that_cannot_be_had_cost_no_batch(
    folder: Path, ask: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "figures", lambda: 1 / 0)
    whole_epoch()
    assert answer(folder) is None


def test_a_signal_in_an_answer_arrives_after_it_and_loses_no_batch(
    folder: Path, ask: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> Any:
        signal.raise_signal(signal.SIGINT)
        return figures()

    with loader() as batches:
        iterator = iter(batches)
        got = [next(iterator)[0].tolist()]
        with monkeypatch.context() as patch:
            patch.setattr(answers, "figures", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(iterator)
        assert answer(folder)["pid"] == os.getpid()
        state = batches.state_dict()
    with loader() as batches:
        batches.load_state_dict(state)
        assert got + [x.tolist() for (x,) in batches] == BATCHES


def test_batches_look_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def look(now: float) -> None:
        looks.append(now)
        batch_times.look_due = now + answers.LOOKS_EVERY

    monkeypatch.setattr(batch_times, "look", look)
    monkeypatch.setattr(batch_times, "look_due", 0.0)
    meter = Meter()
    for taken in (5.0, 5.5, 5.75, 6.0, 6.5, 9.0, 9.5, 10.0):
        meter.add(1, (0, 0, 1, taken, taken, taken - 0.25, taken, -1, b""))
    assert looks == [5.0, 6.0, 9.0, 10.0]
    assert meter.waited == 8 * 0.25


def times(asked: float, taken: float, samples: int = 2) -> BatchTimes:
    return BatchTimes(0, 0, samples, asked, taken, asked, taken, -1, b"")


def test_recent_figures_are_of_the_latest_whole_steps() -> None:
    assert recent([times(0.0, 1.0)]) == {}
    slow = [times(20.0 * k + 15, 20.0 * k + 20) for k in range(3)]  # one step is longer than what is recent
    assert recent(slow) == pytest.approx({"batches_per_second": 1 / 20, "samples_per_second": 0.1, "wait_share": 0.25})
    changed = [*slow, *[times(60 + 0.1 * k + 0.01, 60 + 0.1 * k + 0.1, 3) for k in range(100)]]
    told = recent(changed)
    assert told == pytest.approx({"batches_per_second": 10, "samples_per_second": 30, "wait_share": 0.9})
    assert RECENT < 10
    both = [each for k in range(10) for each in (times(k, k + 0.9), times(k, k + 0.9))]  # of two threads
    assert recent(both)["wait_share"] == 1.0


def test_sources_over_a_pool_have_figures_too_and_closed_loaders_none() -> None:
    endless_source = bu.ArrayDataSource([np.arange(N)]).repeat(-1)
    with loader() as closed:
        list(closed)
        number = _number(closed)
    with bu.SerialPool() as pool, loader(measure=False) as unmeasured, bu.Loader(endless_source, SIZE, pool=pool) as of:
        list(unmeasured)
        iterator = pool.parallel_data_source(endless_source).batch_iterator(SIZE)
        next(iterator)
        next(iter(of))
        told = [each for each in figures()["loaders"] if each["number"] > number]
    assert [each["name"] for each in told] == ["a source over a pool", told[1]["name"]]
    assert (told[0]["batch"], told[0]["metrics"], "ready" in told[0]) == (1, {}, False)
    assert (told[1]["batches"], told[1]["batch"]) == (None, 1)
    assert json.loads(json.dumps(told)) == told
