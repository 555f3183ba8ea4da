"""The loader: what it takes, how far it is, its views, its pool. ``frameworks/test_handover.py`` has its contract."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import math
import os
import pickle
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError, PoolClosed, StateError
from batchup_ng.work_pool import AbstractWorkerPool, choice
from tests.messages import raises, warns

X = np.arange(50)


def numbers(batches: Any) -> list[int]:
    return [int(n) for x, *_ in batches for n in x]


@pytest.fixture
def loader() -> Iterator[bu.Loader]:
    with bu.Loader([X], 8, shuffle=7, pool="threads", workers=2, buffer=3) as loader:
        yield loader


class Pairs:
    """A map-style data set."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        if index >= 10:
            raise IndexError(index)
        return np.full(3, index), index * index


@pytest.mark.parametrize(
    ("data", "first"),
    [
        (np.arange(6), (np.array([0, 1]),)),
        ([np.arange(6), np.arange(6) * 2.0], (np.array([0, 1]), np.array([0.0, 2.0]))),
        ((np.arange(6), np.arange(6) * 2.0), (np.array([0, 1]), np.array([0.0, 2.0]))),
        ({"x": np.arange(6)}, {"x": np.array([0, 1])}),
        (bu.ArrayDataSource([np.arange(6)]).map(lambda x: (x + 1,)), (np.array([1, 2]),)),
        (Pairs(), (np.array([[0] * 3, [1] * 3]), np.array([0, 1]))),
        ([(0.5, "a"), (1.5, "b")], (np.array([0.5, 1.5]), ["a", "b"])),
        ([{"x": 0.5}, {"x": 1.5}], {"x": np.array([0.5, 1.5])}),
    ],
)
def test_what_data_may_be(data: Any, first: Any) -> None:
    with bu.Loader(data, 2, pool="serial") as loader:
        np.testing.assert_equal(next(iter(loader)), first)


def test_collate_makes_batches_of_samples() -> None:
    def total(samples: list[Any]) -> tuple[np.ndarray, int]:
        return sum(x for x, _ in samples), sum(y for _, y in samples)

    with bu.Loader(Pairs(), 5, collate=total, pool="serial") as loader:
        assert [(int(x[0]), y) for x, y in loader] == [(10, 30), (35, 255)]


def test_an_accessor_alone_is_read_as_in_a_source(tmp_path: Path) -> None:
    for number in range(6):
        noise = np.random.RandomState(number).randint(0, 256, (20, 20, 3), np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{number}.png")
    pictures = bu.ImageFiles(sorted(tmp_path.iterdir()), size=8, crop="random")
    in_source = bu.ArrayDataSource([pictures])
    with bu.Loader(pictures, 4, shuffle=3, pool="serial") as alone, bu.Loader(in_source, 4, shuffle=3) as within:
        epochs = [[[x for (x,) in loader] for _ in range(2)] for loader in (alone, within)]
    for batch, expected in zip(itertools.chain(*epochs[0]), itertools.chain(*epochs[1]), strict=True):
        assert np.array_equal(batch, expected)
    first, second = ({picture.tobytes() for picture in np.concatenate(epoch)} for epoch in epochs[0])
    assert not first & second, "an epoch repeats the random crops of the one before"


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 0},
        {"pool": "process"},
        {"pool": "serial", "workers": 2},
        {"workers": 0},
        {"buffer": 0},
        {"timeout": 0},
        {"timeout": "1"},
        {"num_workers": 2},
        {"collate_fn": list},
        {"shufle": 1},
        {"start_epoch": -1},
        {"pool": None},
        {"data": bu.IteratorDataSource(iter([])), "timeout": 1.0},
        {"shuffle": True, "shard": (0, 2)},
        {"on_error": "ignore"},
        {"data": 5},
        {"buffer_bytes": 0},
        {"buffer_bytes": "many"},
        {"epochs": 3},
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(options: dict[str, Any]) -> None:
    before = set(threading.enumerate())
    with raises((ArgumentError, ArgumentTypeError)):
        bu.Loader(**{"data": [X], "batch_size": 4, **options})
    assert set(threading.enumerate()) <= before  # one of another library may have ended


def test_a_source_that_has_a_pool_is_refused(pools: list[AbstractWorkerPool]) -> None:
    with raises(ArgumentTypeError):
        bu.Loader(pools[0].parallel_data_source(bu.ArrayDataSource([X])), 4)


# -- epochs ----------------------------------------------------------------------------------------------------


def test_the_buffer_is_full_across_the_seam() -> None:
    made = threading.Semaphore(0)

    def note(x: np.ndarray) -> tuple[np.ndarray]:
        made.release()
        return (x,)

    with bu.Loader(bu.ArrayDataSource([X]).map(note), 8, pool="threads", workers=2) as loader:
        iterator = iter(loader)
        for _ in range(7):
            next(iterator)
        for _ in range(9):  # two more than this epoch has, which is not at its end
            assert made.acquire(timeout=600)


@pytest.mark.parametrize("shuffle", [None, 7, np.random.RandomState])
def test_a_loop_over_epochs_is_the_loops_over_each(shuffle: Any, pools: list[AbstractWorkerPool]) -> None:
    def shuffled() -> Any:
        return shuffle(3) if isinstance(shuffle, type) else shuffle

    for pool in pools:
        with bu.Loader([X], 8, shuffle=shuffled(), pool=pool, start_epoch=2) as each:
            expected = [(each.epoch, numbers([batch])) for _ in range(3) for batch in each]
        with bu.Loader([X], 8, shuffle=shuffled(), pool=pool, start_epoch=2) as loader:
            epochs = loader.epochs(3)
            assert [(loader.epoch, numbers([batch])) for batch in epochs] == expected
            assert list(epochs) == list(loader.epochs(0)) == []
            with warns(bu.NoEpochLeftWarning) as told:
                assert list(loader.epochs(3)) == []
            assert [warning.filename for warning in told] == [__file__]
            assert len(list(itertools.islice(loader.epochs(None), 20))) == 20


@given(taken=st.integers(0, 21), stopped=st.booleans())
def test_epochs_go_on_from_a_state_and_count_what_is_left(taken: int, stopped: bool) -> None:
    with bu.Loader([X], 8, shuffle=7, pool="serial") as loader:
        epochs = loader.epochs(3)
        assert len(epochs) == 21
        got = [numbers([batch]) for batch in itertools.islice(epochs, taken)]
        assert len(epochs) == 21 - taken
        if stopped and taken == 21:
            assert list(epochs) == []
        state = loader.state_dict()
    with bu.Loader([X], 8, shuffle=7, pool="serial") as other:
        other.load_state_dict(state)
        over = stopped and taken == 21  # the state is that of the fourth epoch
        with warns(bu.NoEpochLeftWarning) if over else contextlib.nullcontext():
            rest = other.epochs(3)
        assert len(rest) == 21 - taken
        got += [numbers([batch]) for batch in rest]
    with bu.Loader([X], 8, shuffle=7, pool="serial") as whole:
        assert got == [numbers([batch]) for _ in range(3) for batch in whole]


@pytest.mark.parametrize("pool", ["serial", "threads"])
def test_an_epoch_that_is_broken_off_before_its_first_batch_comes_again(pool: str) -> None:
    broken = [True]

    def breaks(x: np.ndarray) -> Any:
        if broken[0]:
            raise KeyError("not yet")
        return (x,)

    with bu.Loader(bu.ArrayDataSource([X]).map(breaks), 8, shuffle=7, pool=pool) as loader:
        for _ in range(2):
            with pytest.raises(KeyError):
                next(loader.epochs(2))
            assert (loader.epoch, loader.upcoming_epoch) == (0, 0)
        broken[0] = False
        got = [(loader.epoch, numbers([batch])) for batch in loader.epochs(2)]
    with bu.Loader([X], 8, shuffle=7, pool="serial") as plain:
        assert got == [(plain.epoch, numbers([batch])) for batch in plain.epochs(2)]


def test_an_iterator_whose_epoch_another_has_taken_over_does_not_end_it() -> None:
    for view in (lambda loader: loader, lambda loader: loader.map(lambda x: (x,))):
        for begin in (iter, lambda loader: loader.epochs(2)):
            with bu.Loader([X], 8, shuffle=7, pool="serial") as loader:
                assert not loader.in_mid_epoch
                stale, live = begin(view(loader)), begin(view(loader))
                assert not loader.in_mid_epoch
                with raises(PoolClosed):
                    next(stale)
                assert len(list(live)) == len(loader) * (1 if begin is iter else 2)


def test_epochs_without_end_and_without_a_batch_are_refused() -> None:
    with bu.Loader([X], 1000, shuffle=7, drop_last=True, pool="serial") as loader:
        with warns(UserWarning):
            assert list(loader.epochs(3)) == []
        with raises(ArgumentError), warns(UserWarning):
            next(loader.epochs(None))


@pytest.mark.parametrize(("n", "shard", "batches"), [
    (20, None, 1), (19, None, 0), (40, (1, 2), 1), (39, (1, 2), 0), (0, None, 0),
])  # fmt: skip
def test_an_epoch_without_a_batch_is_warned_of(n: int, shard: Any, batches: int) -> None:
    with bu.Loader([np.arange(n)], 20, drop_last=True, shard=shard, pool="serial") as loader:
        with warns(UserWarning) if n and not batches else contextlib.nullcontext():
            assert len(list(loader)) == batches
        with warns(UserWarning) if n and not batches else contextlib.nullcontext():
            loader.load_state_dict(loader.state_dict())
            assert len(list(loader)) == batches
    with bu.Loader([np.arange(n)], 20, shard=shard, pool="serial") as whole:
        assert len(list(whole)) == math.ceil(n / 40 if shard else n / 20)


def test_epochs_of_a_view_and_their_end(loader: bu.Loader) -> None:
    doubled = [2 * n for _ in range(2) for n in numbers(loader)]
    loader.set_epoch(0)
    assert numbers(loader.map(lambda x: (2 * x,)).epochs(2)) == doubled
    with loader.epochs(9) as epochs:
        next(epochs)
        assert loader.epoch == epochs.epoch == 2
    assert list(epochs) == []
    with raises(ArgumentTypeError):
        len(loader.epochs(None))
    with raises(ArgumentError):
        loader.epochs(-1)
    broken = loader.epochs(9)
    next(broken)
    next(iter(loader))
    with raises(PoolClosed):
        next(broken)
    with bu.Loader([np.arange(0)], 4, pool="serial") as empty:
        assert list(empty.epochs(3)) == []


def test_bytes_ahead_are_bounded_and_a_default_that_leaves_less_is_told_of_once(monkeypatch: Any) -> None:
    data = [np.zeros((40, 1000))]
    with bu.Loader(data, 1, pool="threads", workers=1, buffer=10, buffer_bytes="50kB") as loader:
        iterator = iter(loader)
        next(iterator)
        assert iterator.ahead() <= 5
    monkeypatch.setattr("batchup_ng.work_pool.prefetch_buffer.MAX_BYTES_AHEAD", 50_000)
    with bu.WorkerThreadPool(1) as pool:
        source = pool.parallel_data_source(bu.ArrayDataSource(data), 10)
        with warns(bu.BufferWarning):
            assert len(list(source.batch_iterator(1))) == 40
        assert len(list(source.batch_iterator(1, epoch=1))) == 40  # once is enough
        few = pool.parallel_data_source(bu.ArrayDataSource(data), 2)
        assert len(list(few.batch_iterator(1))) == 40  # as many as were asked for


def test_len_and_epoch(loader: bu.Loader) -> None:
    assert (len(loader), loader.epoch) == (7, 0)
    iterator = iter(loader)
    next(iterator)
    assert (len(loader), len(iterator), loader.epoch) == (7, 6, 0)
    numbers(iterator)
    assert loader.epoch == 1
    with bu.Loader(bu.ArrayDataSource([X], repeats=-1), 8, pool="serial") as endless, pytest.raises(TypeError):
        len(endless)


@pytest.mark.parametrize("options", [{"shuffle": np.random.RandomState(3)}, {"drop_last": True}, {"shard": (1, 2)}])
def test_len_is_the_number_of_batches(options: dict[str, Any]) -> None:
    with bu.Loader([X], 8, pool="serial", **options) as loader:
        assert len(loader) == len(list(loader))


def test_len_draws_nothing() -> None:
    orders = []
    for ask in (False, True):
        with bu.Loader([X], 8, shuffle=np.random.RandomState(3), pool="serial") as loader:
            if ask:
                len(loader)
            orders.append(numbers(loader))
    assert orders[0] == orders[1]


def test_set_epoch_goes_to_that_epoch(loader: bu.Loader) -> None:
    orders = [numbers(loader) for _ in range(3)]
    loader.set_epoch(1)
    assert [numbers(loader) for _ in range(2)] == orders[1:]
    loader.set_epoch(3)  # which is next in any case
    loader.set_epoch(0)
    assert numbers(loader) == orders[0]


@pytest.mark.parametrize("taken", [0, 2])
def test_another_iteration_breaks_off_the_one_before(loader: bu.Loader, taken: int) -> None:
    first = iter(loader)
    for _ in range(taken):
        next(first)
    second = iter(loader)
    with raises(PoolClosed):
        next(first)
    first.close()
    assert sorted(numbers(second)) == X.tolist()


def test_an_iteration_that_takes_no_batch_begins_no_epoch(loader: bu.Loader) -> None:
    orders = [numbers(loader) for _ in range(2)]
    loader.set_epoch(0)
    for order in orders:
        for _ in range(3):
            iter(loader.map(lambda x: x))
        loader.set_epoch(loader.epoch)
        assert numbers(loader) == order
    loader.set_epoch(0)
    next(iter(loader))
    loader.load_state_dict(loader.state_dict())
    iter(loader)
    assert numbers(loader) == orders[0][8:]


def test_shuffle_true_draws_a_seed_once() -> None:
    np.random.seed(5)
    with bu.Loader([X], 8, shuffle=True, pool="serial") as loader:
        state = loader.state_dict()
        np.random.seed(6)
        orders = [numbers(loader) for _ in range(2)]
    assert orders[0] != orders[1]
    with bu.Loader([X], 8, shuffle=True, pool="serial") as other:
        other.load_state_dict(state)
        assert [numbers(other) for _ in range(2)] == orders


def test_a_generator_gives_one_seed_and_the_function_of_a_stream_gets_the_generator() -> None:
    with bu.Loader([X], 8, shuffle=np.random.default_rng(5), pool="serial") as loader:
        orders = [numbers(loader) for _ in range(2)]
        state = loader.state_dict()
        third = numbers(loader)
    assert orders[0] != orders[1]
    with bu.Loader([X], 8, shuffle=np.random.default_rng(7), pool="serial") as other:
        other.load_state_dict(state)
        assert numbers(other) == third
    generator, given = np.random.default_rng(5), []

    def batches(batch_size: int, shuffle: Any = None, **_: Any) -> Any:
        given.append(shuffle)
        return iter([(np.arange(3),)])

    with bu.Loader(bu.CallableDataSource(batches), 3, shuffle=generator) as stream:
        list(stream)
    assert given == [generator]


def test_a_stream_is_made_by_one_worker() -> None:
    def batches(batch_size: int, **_: Any) -> Any:
        return iter([(np.arange(3),), (np.arange(2),)])

    with bu.Loader(bu.CallableDataSource(batches), 3) as loader:
        assert [numbers(loader) for _ in range(2)] == [[0, 1, 2, 0, 1]] * 2
        assert "it only streams" in repr(loader)
        with raises(TypeError):
            len(loader)
        with raises(ArgumentTypeError):
            loader.batch(0)


# -- batches by their number -----------------------------------------------------------------------------------


@given(numbers=st.lists(st.integers(-13, 12), min_size=1, max_size=6), epoch=st.integers(0, 3))
def test_any_batch_of_any_epoch(pools: list[AbstractWorkerPool], numbers: list[int], epoch: int) -> None:
    source = bu.ArrayDataSource([X]).map(lambda x, rng: (x, rng.random(len(x))), rng="batch")
    batches = list(source.batch_iterator(4, shuffle=2, epoch=epoch))
    for pool in pools:
        loader = bu.Loader(source, 4, shuffle=2, pool=pool)
        np.testing.assert_equal([loader.batch(number, epoch) for number in numbers], [batches[n] for n in numbers])
        some = loader.batches(numbers, epoch)
        assert len(some) == len(numbers)
        np.testing.assert_equal(list(some), [batches[n] for n in numbers])


def test_batches_by_their_numbers_are_seen_through_a_view_and_have_no_state(loader: bu.Loader) -> None:
    whole = numbers(loader)[:8]
    doubled = loader.map(lambda x: 2 * x).batches([0, 2], 0)
    assert next(doubled).tolist() == [2 * x for x in whole]
    with raises(StateError):
        doubled.state_dict()


def test_batches_by_their_numbers_end_with_the_loader(loader: bu.Loader) -> None:
    iterator = loader.batches([0, 1, 2, 3])
    next(iterator)
    loader.close()
    with raises(PoolClosed):
        next(iterator)


def test_a_batch_that_was_asked_for_by_its_number_cannot_be_left_out(pools: list[AbstractWorkerPool]) -> None:
    source = bu.ArrayDataSource([X]).map_samples(lambda x: (1 // int(x // 4 != 1),))
    for pool in pools:
        some = bu.Loader(source, 4, pool=pool, on_error="skip").batches([0, 1, 2])
        next(some)
        with pytest.warns(bu.SampleWarning), raises(bu.TooManyErrors):
            next(some)


def test_several_threads_ask_for_batches() -> None:
    source = bu.ArrayDataSource([np.arange(4000)])
    batches = [x.tolist() for (x,) in source.batch_iterator(4, shuffle=2)]
    with bu.Loader(source, 4, shuffle=2, pool="threads", workers=2) as loader, ThreadPoolExecutor(8) as threads:
        assert [x.tolist() for (x,) in threads.map(loader.batch, range(1000))] == batches


def test_a_batch_that_is_not_there_and_one_that_fails(pools: list[AbstractWorkerPool]) -> None:
    source = bu.ArrayDataSource([X]).map_samples(lambda x: (1 // int(x - 9),))
    for pool in pools:
        loader = bu.Loader(source, 4, pool=pool, on_error="skip")
        with raises(IndexError):
            loader.batch(13)
        with warns(bu.SampleWarning):
            assert len(loader.batch(2)[0]) == 3
        with pytest.raises(ZeroDivisionError):
            bu.Loader(source, 4, pool=pool).batch(2)


# -- states ----------------------------------------------------------------------------------------------------


def test_states_at_every_moment(loader: bu.Loader, tmp_path: Path) -> None:
    orders = [numbers(loader) for _ in range(3)]
    loader.set_epoch(0)
    states = [(0, 0, loader.state_dict())]
    for epoch in range(2):
        for number, _ in enumerate(loader):
            states.append((epoch, number + 1, loader.state_dict()))
    for epoch, done, state in [states[i] for i in (14, 0, 1, 4, 7, 8)]:
        loader.load_state_dict(json.loads(json.dumps(state)))
        assert done == 7 or loader.state_dict() == state  # nothing was read yet
        if done == 7:
            epoch, done = epoch + 1, 0  # its last batch was handed out: the next epoch
        assert numbers(loader) == orders[epoch][8 * done :]
        assert loader.epoch == epoch + 1
    loader.set_epoch(2)
    loader.save_state(tmp_path / "state.json")
    loader.set_epoch(0)
    loader.load_state(tmp_path / "state.json")
    assert numbers(loader) == orders[2]


def test_the_state_outlives_the_loader() -> None:
    with bu.Loader([X], 8, shuffle=7, pool="threads", workers=2) as loader:
        order = numbers(loader)
        loader.set_epoch(0)
        for number, _ in enumerate(loader):
            if number == 2:
                break
    state = loader.state_dict()
    assert (state["epoch"], loader.epoch, loader.stats()["batches"]) == (0, 0, 3)
    with bu.Loader([X], 8, shuffle=7, pool="serial") as other:
        other.load_state_dict(state)
        assert numbers(other) == order[24:]


def test_a_state_between_epochs_belongs_to_its_source_and_order(loader: bu.Loader) -> None:
    numbers(loader)
    for data, seed in [([X], 8), ([X[1:]], 7)]:
        with bu.Loader(data, 8, shuffle=seed, pool="serial") as other, pytest.raises(StateError):
            other.load_state_dict(loader.state_dict())
    with bu.Loader([X], 8, shuffle=np.random.RandomState(1), pool="serial") as drawn:
        numbers(drawn)
        assert drawn.state_dict() == {"epoch": 1, "seed": None, "batches": None}
        next(iter(drawn))
        with pytest.raises(StateError):
            drawn.state_dict()


def test_a_stream_has_a_state_between_epochs() -> None:
    def batches(size: int, shuffle: int | None = None, epoch: int = 0) -> Iterator[Any]:
        order = np.random.default_rng([shuffle or 0, epoch]).permutation(8)
        return ((order[i : i + size],) for i in range(0, 8, size))

    def made() -> bu.Loader:
        return bu.Loader(bu.CallableDataSource(batches, 8), 4, shuffle=7, pool="serial")

    whole, other = made(), made()
    orders = [numbers(whole) for _ in range(2)]
    other.load_state_dict(made().state_dict())
    assert numbers(other) == orders[0]
    third = made()
    third.load_state_dict(json.loads(json.dumps(other.state_dict())))
    assert numbers(third) == orders[1]
    next(iter(third))
    with raises(StateError):
        third.state_dict()


def test_a_stream_with_a_state_of_its_own_has_none_between_epochs() -> None:
    inner = bu.ArrayDataSource([X]).batch_iterator(8)  # has a state, for it counts its batches
    loader = bu.Loader(bu.IteratorDataSource(inner), 8, pool="serial")
    numbers(loader)
    with raises(StateError):
        loader.state_dict()


class Counting(bu.StandardSampler):
    """A sampler that counts the plans that it made."""

    plans = 0

    def row_plan(self, *arguments: Any) -> Any:
        self.plans += 1
        return super().row_plan(*arguments)


def test_a_resume_plans_its_epoch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    source = bu.ArrayDataSource([X], sampler=Counting(len(X)))
    with bu.Loader(source, 4, shuffle=7, pool="serial", shard="auto") as loader:
        order = numbers(loader)
        loader.set_epoch(0)
        next(iter(loader))
        state = loader.state_dict()
    with bu.Loader(source, 4, shuffle=7, pool="serial", shard="auto") as other:
        source.node.sampler.plans = 0
        other.load_state_dict(state)
        with pickle.loads(pickle.dumps(other)) as copied:
            batches = iter(other)
            assert source.node.sampler.plans == 1
            assert numbers(batches) == order[4:] == numbers(copied)
        other.load_state_dict(state)
        monkeypatch.setenv("WORLD_SIZE", "2")
        monkeypatch.setenv("RANK", "1")  # the plan from before is of another world
        assert numbers(other) == numbers(source.batch_iterator(4, 7, shard=(1, 2), state=state["batches"]))


@pytest.mark.parametrize("shard", [None, (0, 3), (2, 3)])
@pytest.mark.parametrize("size", [1, 3, 4, 5, 20, 100])
def test_a_state_from_before_the_first_batch_of_another_size_or_world_goes_on(size: int, shard: Any) -> None:
    with bu.Loader([X], 4, shuffle=7, pool="serial") as loader:
        order = numbers(loader)
        loader.set_epoch(0)
        next(iter(loader))
    with bu.Loader([X], size, shuffle=7, pool="serial", shard=shard) as other:
        other.load_state_dict(loader.state_dict())
        assert other.in_mid_epoch
        rest = bu.ArrayDataSource([X]).batch_iterator(size, 7, shard=shard, state=loader.state_dict()["batches"])
        assert len(other) == len(rest)
        found = numbers(other)
    assert found == numbers(rest)
    assert shard is not None or found == order[4:]


@pytest.mark.parametrize("call", ["set_epoch", "load_state_dict"])
def test_a_loop_whose_loader_goes_elsewhere_does_not_end_in_silence(loader: bu.Loader, call: str) -> None:
    argument = 5 if call == "set_epoch" else loader.state_dict()
    iterator = iter(loader)
    next(iterator)
    getattr(loader, call)(argument)
    with raises(PoolClosed):
        next(iterator)


def test_set_epoch_of_the_resumed_epoch_keeps_its_place(loader: bu.Loader) -> None:
    order = numbers(loader)
    loader.set_epoch(0)
    iterator = iter(loader)
    next(iterator)
    loader.load_state_dict(loader.state_dict())
    loader.set_epoch(0)  # as trainers do at the beginning of each epoch
    assert numbers(loader) == order[8:]
    loader.load_state_dict(loader.state_dict())


@pytest.mark.parametrize("state", [None, 5, {}, {"epoch": 0}, {"epoch": -1, "seed": None, "batches": None}, [1, 2, 3]])
def test_what_is_no_state_changes_nothing(loader: bu.Loader, state: Any) -> None:
    iterator = iter(loader)
    seen = [int(n) for n in next(iterator)[0]]
    with pytest.raises(StateError):
        loader.load_state_dict(state)
    assert sorted(seen + numbers(iterator)) == X.tolist()


def test_the_state_of_another_order_is_refused(loader: bu.Loader) -> None:
    with bu.Loader([X], 8, shuffle=8, pool="serial") as other:
        next(iter(other))
        with raises(StateError):
            loader.load_state_dict(other.state_dict())
    assert len(numbers(loader)) == 50


def test_what_pads_the_last_batch_of_a_rank_is_marked() -> None:
    counts = np.zeros(50, int)
    for rank in range(4):
        with bu.Loader([X], 8, shuffle=1, shard=(rank, 4), pad_mask=True, pool="serial") as loader:
            for x, real in loader:
                counts[x[real]] += 1
    assert counts.tolist() == [1] * 50


# -- views, its pool, its end ----------------------------------------------------------------------------------


def test_views_share_the_epoch(loader: bu.Loader) -> None:
    orders = [numbers(loader) for _ in range(2)]
    loader.set_epoch(0)
    doubled = loader.map(lambda x: (2 * x,)).map(lambda x: (x + 1,))
    iterator = iter(doubled)
    assert [int(n) for n in next(iterator)[0]] == [2 * n + 1 for n in orders[0][:8]]
    assert doubled.state_dict() == loader.state_dict()
    loader.load_state_dict(loader.state_dict())
    assert numbers(doubled) == [2 * n + 1 for n in orders[0][8:]]
    assert numbers(loader) == orders[1]
    doubled.close()
    with raises(PoolClosed):
        iter(loader)
    assert repr(loader).endswith("epoch 2, closed>")


def test_a_loop_over_a_loader_that_is_closed_does_not_end_in_silence(loader: bu.Loader) -> None:
    for taken in range(2):
        with bu.Loader([X], 8, pool="threads", workers=2) as closed:
            iterator, beside = iter(closed), closed.batches(range(5))
            for _ in range(taken):
                next(iterator)
        for each in (iterator, beside):
            with raises(PoolClosed):
                next(each)


def test_a_map_that_fails_leaves_out_no_batch_in_silence(loader: bu.Loader) -> None:
    iterator = iter(loader.map(lambda x: 1 // 0))
    with pytest.raises(ZeroDivisionError):
        next(iterator)
    with raises(PoolClosed):
        next(iterator)


def test_a_map_of_named_columns() -> None:
    with bu.Loader({"x": X, "y": X}, 50, pool="serial") as loader:
        (total,) = loader.map(lambda y, x: int((x + y).sum()))
        assert total == 2 * X.sum()


def test_the_users_pool_stays_open(pools: list[AbstractWorkerPool]) -> None:
    for pool in pools:
        with bu.Loader([X], 8, pool=pool) as loader:
            assert numbers(loader) == X.tolist()
        pool.check_open()


def test_errors_and_stats_of_the_epoch() -> None:
    source = bu.ArrayDataSource([X]).map_samples(lambda x: (1 // int(x - 9),))
    with bu.Loader(source, 8, pool="serial", on_error="skip") as loader:
        assert (loader.stats(), loader.errors) == ({}, [])
        with warns(bu.SampleWarning):
            list(loader)
        assert loader.stats()["failed"] == 1
        assert [error.row for error in loader.errors] == [9]


def test_the_rank_is_asked_for_when_an_epoch_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    # As under Lightning's launcher, which begins the group of processes after the loader was made.
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with bu.Loader([X], 5, shard="auto", pool="serial") as loader:
        with raises(ArgumentError):
            iter(loader)
        monkeypatch.setenv("RANK", "1")
        assert numbers(loader) == [n for k in range(1, 10, 2) for n in X[5 * k :][:5].tolist()]


def test_repr_tells_what_was_chosen_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "TINY_BATCH_SECONDS", math.inf)  # however busy the machine is
    with bu.Loader([X], 8, shuffle=3) as loader:
        assert "pool='auto', to be chosen in the first epoch" in repr(loader)
        next(iter(loader))
        assert "50 samples, batches of 8, shuffle=3, epoch 0, by <SerialPool: open>, chosen because" in repr(loader)


def test_a_loader_goes_to_another_process_before_its_first_epoch() -> None:
    loader = bu.Loader([X], 8, shuffle=3, pool="serial")
    with pickle.loads(pickle.dumps(loader)) as other, loader:
        assert numbers(other) == numbers(loader)


def test_an_iterator_cannot_be_copied_and_says_so(loader: bu.Loader) -> None:
    with raises(ArgumentTypeError):
        copy.copy(iter(loader))


def test_tables_of_pandas_are_refused_with_the_remedy() -> None:
    pandas = pytest.importorskip("pandas")
    for data in (pandas.DataFrame({"x": X}), pandas.Series(X)):
        with raises(ArgumentTypeError):
            bu.Loader(data, 8)


def test_maps_may_use_loaders_of_their_own() -> None:
    def inner(x: np.ndarray) -> tuple[np.ndarray]:
        with bu.Loader([x], 4) as others:
            return (np.concatenate([y for (y,) in others]),)

    with bu.Loader(bu.ArrayDataSource([X]).map(inner), 8) as loader:
        assert numbers(loader) == X.tolist()


def test_a_loader_is_true_however_long_it_is() -> None:
    assert bu.Loader(bu.ArrayDataSource([X], repeats=-1), 8)
    assert bu.Loader([X[:0]], 8)


VIEWS = (lambda loader: loader, lambda loader: loader.map(lambda x: x), lambda loader: bu.watch(loader, id))


@pytest.mark.parametrize("shuffle", [None, 7])
def test_a_bar_of_what_is_left_ends_at_its_end(shuffle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tqdm = pytest.importorskip("tqdm", reason="tqdm is not installed").tqdm
    monkeypatch.setattr(tqdm, "monitor_interval", 0)  # it would start a thread

    def bar_of(batches: Any) -> tuple[int, int]:
        with open(os.devnull, "w") as nowhere:
            bar = tqdm(batches, file=nowhere)
            return sum(1 for _ in bar), bar.total

    source = bu.ArrayDataSource([np.arange(95)])
    options: dict[str, Any] = {"shuffle": shuffle, "pool": "serial"}
    with bu.Loader(source, 10, shard=(0, 2), **options) as first:
        iterator = iter(first)
        next(iterator), next(iterator)
        state = first.state_dict()
        assert (len(first), len(iterator), first.batches_per_epoch) == (5, 3, 5), "an epoch of its own is under way"
    for begun in (False, True):
        for view in VIEWS:
            with bu.Loader(source, 10, **options) as loader:
                loader.load_state_dict(state)
                assert (len(loader), loader.batches_per_epoch) == (6, 10)
                if begun:
                    iter(loader)  # of which nothing is asked for; the next iteration is the same epoch
                assert bar_of(view(loader)) == (6, 6)
                assert bar_of(view(loader)) == (10, 10)
                loader.load_state_dict(state)
                assert bar_of(iter(view(loader))) == (6, 6)
                assert len(loader) == 10
    with bu.Loader(bu.repeat(source, -1), 10, **options) as endless, raises(TypeError):
        len(endless)


def test_a_batch_size_that_the_sampler_does_not_make_is_refused_when_the_loader_is_made() -> None:
    classes = np.arange(90) % 3
    balanced = bu.ArrayDataSource([classes], sampler=bu.BalancedBatchSampler(classes, 10))
    plain = bu.ArrayDataSource([np.arange(90)])
    for source in (balanced, balanced.map(lambda x: (x,)), bu.ChoiceDataSource([plain, balanced.take(60)])):
        with raises(ArgumentError):
            bu.Loader(source, 32, pool="serial")
        with bu.Loader(source, 30, pool="serial", shuffle=1) as loader:
            assert {len(x) for (x,) in loader} == {30}


@pytest.mark.parametrize("pool", ["auto", "threads"])
def test_a_loader_of_a_stream_says_who_makes_what_batches(pool: str) -> None:
    def batches(batch_size: int = 3, **_: Any) -> Any:
        return ((np.arange(batch_size),) for _ in range(5))

    with raises(ArgumentError):
        bu.Loader(bu.IteratorDataSource(batches()), 32, workers=4, pool=pool)
    with bu.Loader(bu.IteratorDataSource(batches()), 32, pool=pool) as loader:
        assert [len(x) for (x,) in loader] == [3] * 5
        assert "a stream, batches as its iterator gives them, epoch 1, by <WorkerThreadPool: 1 worker" in repr(loader)
    with bu.Loader(bu.CallableDataSource(batches), 32, pool=pool, workers=1) as loader:
        assert [len(x) for (x,) in loader] == [32] * 5
        assert "a stream, batches of 32, epoch 1, by <WorkerThreadPool: 1 worker" in repr(loader)


# -- several threads -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 3000], ids=["small", "leased"])
@pytest.mark.parametrize("kind", ["serial", "threads", "processes"])
def test_threads_that_iterate_one_loader_get_a_whole_epoch_or_an_error(
    kind: str, width: int, pools: list[AbstractWorkerPool], in_full: bool
) -> None:
    x = np.repeat(X, width).reshape(len(X), width)
    pool = bu.SerialPool() if kind == "serial" else pools[kind == "processes"]
    ends: list[str] = []

    def iterate(loader: bu.Loader, barrier: threading.Barrier) -> None:
        barrier.wait()
        got: list[int] = []
        try:
            for (batch,) in loader:
                got += batch[:, 0].tolist()
        except PoolClosed as error:
            ends.append(str(error))
        else:
            assert sorted(got) == X.tolist()
            ends.append("whole")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(200 if in_full else 5):
            barrier = threading.Barrier(3)
            with bu.Loader([x], 4, shuffle=7, pool=pool) as loader, ThreadPoolExecutor(3) as threads:
                for done in [threads.submit(iterate, loader, barrier) for _ in range(3)]:
                    done.result()
    finally:
        sys.setswitchinterval(interval)
    assert ends.count("whole") >= len(ends) // 3
    assert all("another iteration over its loader" in end for end in ends if end != "whole")


@pytest.mark.parametrize("kind", ["serial", "threads", "processes"])
def test_threads_that_share_an_iterator_get_each_batch_once(kind: str, pools: list[AbstractWorkerPool]) -> None:
    pool = bu.SerialPool() if kind == "serial" else pools[kind == "processes"]
    with bu.Loader([X], 4, shuffle=7, pool=pool) as loader, ThreadPoolExecutor(3) as threads:
        iterator = iter(loader)
        parts = list(threads.map(lambda _: numbers(iterator), range(3)))
        assert sorted(n for part in parts for n in part) == X.tolist()
        assert numbers(loader) == numbers(bu.ArrayDataSource([X]).batch_iterator(4, shuffle=7, epoch=1))
