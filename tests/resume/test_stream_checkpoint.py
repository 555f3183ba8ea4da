"""Epochs of the user's own iterators, saved and resumed by the iterator's own state."""

from __future__ import annotations

import dataclasses
import json
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source.epoch import state_file
from batchup_ng.data_source.epoch.state import as_state, from_state
from batchup_ng.errors import StateError
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises


class Counting:
    """An iterator of the user's of `n` batches of growing length, which can be saved."""

    def __init__(self, n: int = 20) -> None:
        self.n = n
        self.given = 0

    def __iter__(self) -> Counting:
        return self

    def __next__(self) -> Any:
        if self.given == self.n:
            raise StopIteration
        self.given += 1
        return (np.arange(1 + self.given % 5) + 10 * self.given,)

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.given = state["given"]


def noisy(*batch: Any, rng: Any) -> Any:
    return (*batch, rng.normal(size=len(batch[0])) if isinstance(rng, np.random.Generator) else rng.normal())


def even(*batch: Any) -> Any:
    """A map that leaves samples out, so that what is handed out is no measure of what was read."""
    return tuple(column[batch[0] % 2 == 0] for column in batch)


def stream() -> Any:
    one = bu.IteratorDataSource(Counting()).map(noisy, rng="sample").map(even, resizes=True)
    return one.map(noisy, rng="sample").map(noisy, rng="batch")


@pytest.fixture(params=["serial", "threads", "processes"])
def pool(request: pytest.FixtureRequest, pools: list[AbstractWorkerPool]) -> Any:
    """What makes batches ahead; None for a plain loop."""
    return dict(zip(["serial", "threads", "processes"], [None, *pools], strict=True))[request.param]


def over(source: Any, pool: Any) -> Any:
    return source if pool is None else pool.prefetch(source, 4)


def test_maps_that_leave_samples_out_draw_as_without_a_break(pool: Any) -> None:
    whole = list(stream().batch_iterator(4, shuffle=3))
    for stop in (7,) if isinstance(pool, bu.WorkerProcessPool) else (0, 1, 7, 19, 20):
        iterator = over(stream(), pool).batch_iterator(4, shuffle=3)
        done = [next(iterator) for _ in range(stop)]
        state = json.loads(json.dumps(iterator.state_dict()))
        iterator.close()
        rest = list(over(stream(), pool).batch_iterator(4, shuffle=3, state=state))
        assert_same_batches(done + rest, whole)


def test_a_running_stream_goes_back(pool: Any) -> None:
    whole = list(stream().batch_iterator(4, shuffle=3))
    with over(stream(), pool).batch_iterator(4, shuffle=3) as iterator:
        states = []
        for _ in whole:
            states.append(iterator.state_dict())
            next(iterator)
        for at in () if isinstance(pool, bu.WorkerProcessPool) else (11, 3, 0, 20 - 1):
            iterator.load_state_dict(states[at])
            assert iterator.state_dict() == states[at]
            assert_same_batches([next(iterator)], [whole[at]])
        list(iterator)
        iterator.load_state_dict(states[2])  # though the iterator was used up
        assert_same_batches(list(iterator), whole[2:])


def test_what_is_refused_changes_nothing() -> None:
    iterator = stream().batch_iterator(4, shuffle=3)
    other = stream().batch_iterator(4, shuffle=4)
    whole = list(stream().batch_iterator(4, shuffle=3))
    done = [next(iterator) for _ in range(3)]
    for bad in [other.state_dict(), {}, 3]:
        with raises(StateError):
            iterator.load_state_dict(bad)
    assert_same_batches(done + list(iterator), whole)


def test_the_producer_is_at_rest_when_the_iterator_is_put_back() -> None:
    """Else the thread that reads ahead would go on with what was put back."""

    class Watched(Counting):
        inside = False

        def __next__(self) -> Any:
            self.inside = True
            try:
                return super().__next__()
            finally:
                self.inside = False

        def load_state_dict(self, state: dict[str, int]) -> None:
            assert threading.active_count() == before
            assert not self.inside
            super().load_state_dict(state)

    with bu.WorkerThreadPool(1) as pool:
        before = threading.active_count()
        iterator = pool.prefetch(bu.IteratorDataSource(Watched()), 2).batch_iterator(4)
        next(iterator)
        state = iterator.state_dict()
        for _ in range(5):
            next(iterator)
        iterator.load_state_dict(state)
        assert len(list(iterator)) == 19


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_batch_that_failed_was_not_handed_out(error: type[BaseException], pool: Any) -> None:
    """A loop that saves after an error, or after Ctrl-C, and goes on gets the batch that failed."""

    def failing(*batch: Any) -> Any:
        if batch[0].min() >= 80:
            raise error("here")
        return batch

    if pool is not None and error is KeyboardInterrupt:
        pytest.skip("an interrupt that a map raises in a worker is not the user's")
    whole = list(stream().batch_iterator(4, shuffle=3))
    iterator = over(bu.IteratorDataSource(Counting()).map(failing), pool).batch_iterator(4)
    done = [next(iterator) for _ in range(7)]
    with raises(error):
        next(iterator)
    state = json.loads(json.dumps(iterator.state_dict()))
    rest = list(bu.IteratorDataSource(Counting()).map(lambda *batch: batch).batch_iterator(4, state=state))
    assert_same_batches(done + rest, list(bu.IteratorDataSource(Counting()).batch_iterator(4)))
    assert len(done + rest) == len(whole)


def test_an_iterator_may_hand_out_the_state_that_it_goes_on_to_change(pool: Any) -> None:
    class Changing(Counting):
        def __init__(self) -> None:
            super().__init__()
            self.own = {"given": 0}

        def state_dict(self) -> dict[str, int]:
            self.own["given"] = self.given
            return self.own

    whole = list(bu.IteratorDataSource(Counting()).batch_iterator(4))
    iterator = over(bu.IteratorDataSource(Changing()), pool).batch_iterator(4)
    done = [next(iterator) for _ in range(3)]
    state = iterator.state_dict()
    iterator.close()
    rest = list(bu.IteratorDataSource(Changing()).batch_iterator(4, state=state))
    assert_same_batches(done + rest, whole)


def test_a_state_that_json_cannot_hold_is_refused_when_it_is_asked_for() -> None:
    class Odd(Counting):
        held: Any = None

        def state_dict(self) -> Any:
            return {"given": self.given, "held": self.held}

    for held in (np.arange(3), threading.Lock(), float("nan"), {1, 2}):
        source = Odd(3)
        source.held = held
        iterator = bu.IteratorDataSource(source).batch_iterator(4)
        next(iterator)
        with raises(StateError):
            iterator.state_dict()
        assert len(list(iterator)) == 2
    source = Odd(3)
    source.held = [np.int64(3), np.float32(0.5), (True, None)]
    state = bu.IteratorDataSource(source).batch_iterator(4).state_dict()
    assert json.loads(json.dumps(state))["inner"]["iterator"]["held"] == [3, 0.5, [True, None]]


def test_a_large_state_comes_back_from_its_file_or_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Large(Counting):
        size = 0

        def state_dict(self) -> Any:
            return {"given": self.given, "held": "x" * self.size}

    source, path = Large(), tmp_path / "state.json"
    iterator = bu.IteratorDataSource(source).batch_iterator(4)
    source.size = 3 << 20
    next(iterator)
    iterator.save_state(path)
    next(iterator)
    iterator.load_state(path)
    assert source.given == 1
    written = path.read_bytes()
    monkeypatch.setattr(state_file, "MAX_BYTES", 2 << 20)
    with raises(StateError):
        iterator.save_state(path)
    assert path.read_bytes() == written


def test_an_iterator_that_has_no_state_just_now_has_its_epoch_all_the_same(pool: Any) -> None:
    """The states of our own iterators are such: an order drawn from a RandomState has none."""
    source = bu.ArrayDataSource([np.arange(40)])
    whole = list(source.batch_iterator(15, shuffle=np.random.RandomState(1)))
    inner = source.batch_iterator(15, shuffle=np.random.RandomState(1))
    with over(bu.IteratorDataSource(inner), pool).batch_iterator(5) as iterator:
        done = [next(iterator)]
        for _ in range(2):
            with raises(StateError):
                iterator.state_dict()
        assert_same_batches(done + list(iterator), whole)


def test_what_the_users_state_dict_raises_comes_when_a_state_is_asked_for(pool: Any) -> None:
    class Late(Counting):
        def state_dict(self) -> dict[str, int]:
            if self.given == 1:
                raise OSError("not just now")
            return super().state_dict()

    whole = list(bu.IteratorDataSource(Counting()).batch_iterator(4))
    with over(bu.IteratorDataSource(Late()), pool).batch_iterator(4) as iterator:
        done = [next(iterator)]
        with raises(StateError):
            iterator.state_dict()
        done.append(next(iterator))
        state = iterator.state_dict()
    assert_same_batches(done + list(bu.IteratorDataSource(Counting()).batch_iterator(4, state=state)), whole)


def test_a_state_that_the_users_iterator_refuses_ends_no_epoch_in_silence() -> None:
    iterator = bu.IteratorDataSource(Counting()).batch_iterator(4)
    saved = from_state(iterator.state_dict())
    bad = as_state(dataclasses.replace(saved, inner={**saved.inner, "iterator": {"taken": 3}}))
    next(iterator)
    with raises(StateError):
        iterator.load_state_dict(bad)
    with raises(bu.PoolClosed):
        next(iterator)


@pytest.mark.parametrize("where", ["state_dict", "deepcopy", "load_state_dict"])
def test_a_signal_in_the_users_iterator_is_no_error_of_its_state(where: str) -> None:
    class Handled(Exception):
        pass

    def handler(number: int, frame: Any) -> None:
        raise Handled

    def strike(place: str) -> None:
        if place == where and armed:
            armed.clear()
            signal.raise_signal(signal.SIGUSR1)

    class Given(int):
        def __deepcopy__(self, memo: Any) -> int:
            strike("deepcopy")
            return int(self)

    class Struck(Counting):
        def state_dict(self) -> dict[str, int]:
            strike("state_dict")
            return {"given": Given(self.given)}

        def load_state_dict(self, state: Any) -> None:
            strike("load_state_dict")
            super().load_state_dict(state)

    armed: list[bool] = []
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        whole = list(bu.IteratorDataSource(Counting()).batch_iterator(4))
        iterator = bu.IteratorDataSource(Struck()).batch_iterator(4)
        done = [next(iterator), next(iterator)]
        state = iterator.state_dict()
        armed.append(True)
        with pytest.raises(Handled):
            iterator.load_state_dict(state) if where == "load_state_dict" else next(iterator)
        with pytest.raises(bu.PoolClosed):
            next(iterator)
        assert_same_batches(done + list(bu.IteratorDataSource(Counting()).batch_iterator(4, state=state)), whole)
    finally:
        signal.signal(signal.SIGUSR1, before)
