"""An explanation is told in words, as values and as a page, for every pool; it changes nothing of the loader."""

from __future__ import annotations

import json
import os
import threading
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import batchup_ng as bu
from batchup_ng.data_source.epoch_options import epoch_options
from batchup_ng.explanation import Advice
from batchup_ng.explanation.verdict import CAUSES
from batchup_ng.frameworks.ahead import AheadIterator
from batchup_ng.work_pool import AbstractWorkerPool, explaining
from tests.messages import raises

N, SIZE = 400, 4


def nap(x: np.ndarray) -> np.ndarray:
    time.sleep(0.0005)
    return x


def draws(x: np.ndarray) -> np.ndarray:
    np.random.random()
    return nap(x)


def source() -> bu.ArrayDataSource:
    return bu.ArrayDataSource([np.arange(N)])


@pytest.fixture(params=["serial", "threads", "processes"])
def pool(request: pytest.FixtureRequest, pools: list[AbstractWorkerPool]) -> AbstractWorkerPool:
    threads, processes = pools
    return {"serial": bu.SerialPool(), "threads": threads, "processes": processes}[request.param]


def test_it_is_told_in_words_and_as_values(pool: AbstractWorkerPool) -> None:
    with bu.Loader(source().map(nap, on=0), SIZE, shuffle=1, pool=pool) as loader:
        for _ in loader:
            pass
        told = loader.explain()
    values = json.loads(json.dumps(told.to_dict(), allow_nan=False))
    assert values["verdict"]["cause"] == told.verdict.cause
    assert told.verdict.cause in CAUSES
    assert values["batches"] == told.batches > 50
    assert 0 <= told.wait_share <= 1
    assert told.stages["worker: map nap"]["p50"] >= 0.5
    assert len(told.advice) <= 3
    assert all(0 < each.gain < 1 and each.seconds > 0 and each.code for each in told.advice)
    lines = str(told).splitlines()
    assert lines[0].startswith(f"The loop waited {told.wait_share:.1%} of the time")
    assert told.verdict.sentence in lines[1]
    assert sum(line.startswith("worker: map nap") for line in lines) == 1
    seconds = [each["seconds"] for each in told.slowest]
    assert seconds == sorted(seconds, reverse=True)


def test_it_changes_no_batch_and_no_state(pool: AbstractWorkerPool) -> None:
    with bu.Loader(source().map(nap, on=0), SIZE, shuffle=1, pool=pool) as loader:
        whole = [x.tolist() for (x,) in loader]
    with bu.Loader(source().map(nap, on=0), SIZE, shuffle=1, pool=pool) as loader:
        got = []
        for (x,) in loader:
            got.append(x.tolist())
            if len(got) in (30, 31, 60):
                state = loader.state_dict()
                np.random.seed(1)
                loader.explain(trial=len(got) == 30)
                assert np.random.randint(10**6) == np.random.RandomState(1).randint(10**6)
                assert loader.state_dict() == state
    assert got == whole


def test_too_little_to_go_by_is_an_error() -> None:
    with bu.Loader(source(), SIZE, pool="serial") as loader:
        with raises(bu.ArgumentError):
            loader.explain()
        for _ in zip(range(5), loader, strict=False):
            pass
        with raises(bu.ArgumentError):
            loader.explain(trial=False)
    with bu.Loader(source(), SIZE, pool="serial", measure=False) as loader:
        for _ in loader:
            pass
        with raises(bu.ArgumentError):
            loader.explain()
    with bu.Loader(bu.IteratorDataSource(iter([(np.arange(3),)] * 20)), 3, pool="serial") as loader:
        batches = iter(loader)
        next(batches)
        for each in (loader, batches):
            with raises(bu.ArgumentError):
                bu.explain(each)
    with raises(bu.ArgumentTypeError):
        bu.explain([1, 2])


@pytest.mark.in_turn
def test_another_thread_may_ask_at_any_time(pools: list[AbstractWorkerPool]) -> None:
    with bu.Loader(bu.ArrayDataSource([np.arange(40_000)]), SIZE, pool=pools[0]) as loader:
        batches = iter(loader)
        for _ in zip(range(50), batches, strict=False):
            pass
        done = threading.Event()
        thread = threading.Thread(target=lambda: ([None for _ in batches], done.set()))
        thread.start()
        asked = 0
        while not done.is_set() and asked < 20:
            loader.explain(trial=False)
            asked += 1
        thread.join()
    assert asked


def test_an_iterator_and_what_an_adapter_makes_of_it_are_explained(pools: list[AbstractWorkerPool]) -> None:
    iterator = pools[0].parallel_data_source(source().map(nap, on=0)).batch_iterator(SIZE)
    for _ in zip(range(50), iterator, strict=False):
        pass
    assert bu.explain(iterator, trial=False).stages["worker: map nap"]["mean"] >= 0.5
    iterator.close()
    with bu.Loader(source(), SIZE, pool=pools[0]) as loader:
        view = loader.map(lambda x: (nap(x),))
        for _ in view:
            pass
        assert bu.explain(view, trial=False).stages["loop: convert"]["mean"] >= 0.5
        assert loader.explain(trial=False).verdict.cause in ("conversion", "tiny")


@pytest.mark.in_turn
def test_the_waits_are_those_of_the_loop_if_a_thread_converts_ahead_of_it() -> None:
    with bu.Loader(source(), SIZE, pool="serial") as loader:
        view = loader.view(lambda iterator: AheadIterator(iterator, lambda batch: (nap(batch[0]),)))
        for _ in range(2):
            for _ in view:
                time.sleep(0.003)
            time.sleep(0.5)
        told = loader.explain(trial=False)
    assert told.stages["loop: step"]["p50"] >= 3
    assert told.stages["loop: step"]["mean"] < 100  # without the pause between the epochs


def test_a_source_that_cannot_be_copied_is_explained_all_the_same() -> None:
    lock = threading.Lock()

    def held(x: np.ndarray) -> np.ndarray:
        with lock:
            return nap(x)

    with bu.Loader(source().map(held, on=0), SIZE, pool="serial") as loader:
        for _ in loader:
            pass
        told = loader.explain(try_it=True)
    assert told.verdict.cause == "serial"
    assert not told.advice or "cannot be copied" in told.tried or "your code" in told.tried


def test_explanations_are_no_work_of_the_loop() -> None:
    with bu.Loader(source().map(nap, on=0), SIZE, pool="serial") as loader:
        shares = [loader.explain().wait_share for number, _ in enumerate(loader) if number in (40, 60, 80)]
    assert min(shares) > 0.5


def test_epochs_of_few_batches_are_named_as_such(pools: list[AbstractWorkerPool]) -> None:
    with bu.Loader(bu.ArrayDataSource([np.arange(8)]).map(nap, on=0), 4, pool=pools[0]) as loader:
        for _ in range(20):
            assert len(list(loader)) == 2
        told = loader.explain(trial=False)
    assert told.verdict.cause == "short_epochs"
    assert "2 batches" in told.verdict.sentence
    assert told.advice == []


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.found.append(tag)


def test_a_page_has_no_markup_of_others(tmp_path: Path) -> None:
    def named(x: np.ndarray) -> np.ndarray:
        return nap(x)

    named.__qualname__ = "<script>alert(1)</script>\x1b[31m"
    with bu.Loader(source().map(named, on=0), SIZE, pool="serial") as loader:
        for _ in loader:
            pass
        told = loader.explain(trial=False)
    told.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    own = "html head meta title style body h1 p table tr th td div pre"
    assert set(Tags(page).found) <= set(own.split())
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page + str(told)
    assert len(page) < 50_000


def test_the_first_advice_can_be_tried(pools: list[AbstractWorkerPool]) -> None:
    with bu.Loader(source().map(draws, on=0), SIZE, pool="serial") as loader:
        for _ in loader:
            pass
        np.random.seed(3)
        told = loader.explain(try_it=True)
        assert np.random.randint(10**6) == np.random.RandomState(3).randint(10**6)
    if told.advice:  # on a busy machine, none may be worth it
        assert told.tried.startswith(("Tried: the first change gave", "The first change"))
        assert told.tried in str(told)


def test_an_advice_is_tried_with_the_time_limit_of_the_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    class Prepared(Exception):
        pass

    def prepare(node: Any, options: Any) -> Any:
        raise Prepared(node.setup.timeout, node.setup.policy.action)

    class Told:
        advice = (Advice("more", "", 0.1, 0.5, "", {"workers": 1, "pool": "threads"}),)
        step_seconds = 0.0

    monkeypatch.setattr(explaining, "prepare", prepare)
    with bu.WorkerThreadPool(1) as pool:
        parallel = pool.parallel_data_source(source(), timeout=7.0, on_error="skip")
        with pytest.raises(Prepared) as found:
            explaining.tried(parallel.node, epoch_options(SIZE), "threads", Told)  # type: ignore[arg-type]
    assert found.value.args == (7.0, "skip")


@pytest.mark.parametrize("trial", [False, True])
def test_a_generator_draws_the_same_orders_with_and_without_an_explanation(trial: bool) -> None:
    def orders(explains: bool) -> list[list[int]]:
        generator, found = np.random.RandomState(1), []
        with bu.WorkerThreadPool(2) as pool:
            source = pool.parallel_data_source(bu.ArrayDataSource([np.arange(60)]))
            for _ in range(3):
                iterator = source.batch_iterator(5, shuffle=generator)
                found.append([int(row) for (x,) in iterator for row in x])
                if explains:
                    why = bu.explain(iterator, trial=trial)
                    assert why.slowest[0]["samples"] == ""  # nobody knows which they were
        return found

    assert orders(explains=True) == orders(explains=False)


@pytest.mark.filterwarnings("ignore::batchup_ng.errors.SampleWarning")
@pytest.mark.in_turn
def test_a_trial_makes_no_batch_that_workers_could_not_make() -> None:
    here = os.getpid()

    def dies(x: np.ndarray) -> Any:
        if 30 in x:
            assert os.getpid() != here, "made in the process of the loop"
            os._exit(9)
        return x

    with bu.Loader(bu.ArrayDataSource([np.arange(60)]).map(dies, on=0), 4, pool="processes", workers=1,
                   on_error="skip") as loader:  # fmt: skip
        assert sum(len(x) for (x,) in loader) == 59
        alone = loader.explain()._evidence.alone
        assert alone is not None
        assert alone.seconds > 0
    with bu.Loader(bu.ArrayDataSource([np.arange(60)]).map(dies, on=0), 4, pool="processes", workers=1,
                   on_error="skip", shuffle=np.random.RandomState(3)) as loader:  # fmt: skip
        assert sum(len(x) for (x,) in loader) == 59
        assert loader.explain()._evidence.alone is None  # it is not known which batches they were


def test_slow_batches_say_how_many_rows_more_they_have() -> None:
    def slow(x: np.ndarray) -> Any:
        time.sleep(0.02 if 7 in x else 0.0)
        return x

    for size, more in ((2, ""), (5, " and 2 more")):
        with bu.Loader(bu.ArrayDataSource([np.arange(50)]).map(slow, on=0), size, pool="serial") as loader:
            for _ in loader:
                pass
            first = 7 // size * size
            rows = ", ".join(map(str, range(first, first + min(size, 3))))
            assert loader.explain(trial=False).slowest[0]["samples"] == f"rows {rows}{more}"


SLOW_ROW, TRIES = 77, 20


class Naps(bu.ImageFiles):
    """Image files of which one takes long to read."""

    def _opened(self, encoded: str) -> Any:
        time.sleep(0.06 if encoded.endswith(f"{SLOW_ROW}.png") else 0.0)
        return super()._opened(encoded)


class Items:
    """A map-style data set of which one sample takes long."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, row: int) -> int:
        time.sleep(0.06 if row == SLOW_ROW else 0.0002)
        return row


def slow_sample(x: int) -> tuple[int]:
    time.sleep(0.06 if x == SLOW_ROW else 0.0002)
    return (x,)


def not_few(x: int) -> bool:
    return x >= 13


def seldom(x: int) -> bool:
    return bool(slow_sample(x)) and x % 3 < 2


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A hundred image files."""
    folder = tmp_path_factory.mktemp("pictures")
    paths = [folder / f"{number:03}.png" for number in range(100)]
    for path in paths:
        Image.new("L", (2, 2)).save(path)
    return [str(path) for path in paths]


@pytest.mark.in_turn
def test_the_slowest_sample_has_its_name(pool: AbstractWorkerPool, pictures: list[str]) -> None:
    numbers, others = (bu.ArrayDataSource({"x": np.arange(100) + first}) for first in (0, 1000))
    named = bu.ArrayDataSource([np.arange(100), bu.ImageFiles(pictures, 2)])
    items = bu.ArrayDataSource([bu.MapStyle(Items())])
    row, path = f"row {SLOW_ROW}", pictures[SLOW_ROW]
    for source, step, sample in (
        (bu.ArrayDataSource([Naps(pictures, size=2)]), "read", path),
        (bu.ArrayDataSource([Naps(pictures)]), "read", path),
        (items, "read", row),
        (numbers.map_samples(slow_sample, on="x"), "slow_sample", row),
        (named.map_samples(slow_sample, on=0), "slow_sample", path),
        (numbers.filter(not_few, lazy=True, on="x").map_samples(slow_sample, on="x"), "slow_sample", row),
        (numbers.filter(seldom, lazy=True, on="x"), "seldom", row),
        (bu.ArrayDataSource([np.arange(100)]).map_samples(slow_sample).collate(np.array), "slow_sample", row),
        (bu.concat(*[part.map_samples(slow_sample, on="x") for part in (others, numbers)]), "slow_sample",
         f"{row} of sources[1]"),
    ):
        for _ in range(TRIES):  # on a busy machine, others may take longer
            with bu.Loader(source, 9, shuffle=3, pool=pool) as loader:
                for _ in loader:
                    pass
                told = loader.explain(trial=False)
            found = [each for each in told.slowest_samples if each["sample"] == sample]
            lines = [line for line in str(told).splitlines() if line.startswith(f"  {sample}: ")]
            if found and lines:
                break
        assert [each["step"] for each in found] == [step]
        assert found[0]["seconds"] >= 0.06
        assert [f"batch {found[0]['number']})" in line for line in lines] == [True]
        values = json.loads(json.dumps(told.to_dict(), allow_nan=False))["slowest_samples"]
        assert [each["sample"] for each in values] == [each["sample"] for each in told.slowest_samples]


def test_samples_that_maps_below_multiply_have_no_name() -> None:
    source = bu.ArrayDataSource([np.arange(100)]).map(lambda x: (np.repeat(x, 2),), resizes=True)
    with bu.Loader(source.map_samples(slow_sample), 9, pool="serial") as loader:
        for _ in loader:
            pass
        assert loader.explain(trial=False).slowest_samples == []
