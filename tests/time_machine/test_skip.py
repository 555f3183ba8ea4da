"""Batches that are left out by their steps: the others stay as they are, on all ranks, in every state and setting."""

from __future__ import annotations

import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from tests.messages import raises
from tests.time_machine.runs import SEED, any_run, loaders, noisy, print_of, rows_of

N = 50
SIZE = 4
EPOCHS = 3
LINE = bu.ArrayDataSource([np.arange(N)])


def gone_through(loader: Any) -> list[list[int]]:
    """Return the rows of the batches that are left of the epochs."""
    found = []
    while loader.upcoming_epoch < EPOCHS:
        expected = len(loader)
        batches = [rows_of(batch) for batch in loader]
        assert len(batches) == expected
        found += batches
    return found


def again(loader: Any) -> Any:
    """Return a state as it comes out of a file."""
    return json.loads(json.dumps(loader.state_dict()))


@given(st.data())
def test_the_others_come_as_they_would_and_any_state_goes_on(data: st.DataObject) -> None:
    world = data.draw(st.integers(1, 4))
    options = {"drop_last": data.draw(st.booleans()), "uneven": data.draw(st.sampled_from(["pad", "drop"]))}
    per_epoch = len(loaders(LINE, SIZE, world, None, **options)[0])
    calls = data.draw(st.lists(st.lists(st.integers(0, per_epoch * EPOCHS + 3), max_size=6), min_size=1, max_size=3))
    at = data.draw(st.integers(0, per_epoch))
    for rank, (plain, loader) in enumerate(
        zip(loaders(LINE, SIZE, world, None, **options), loaders(LINE, SIZE, world, None, **options), strict=True)
    ):
        expected = gone_through(plain)
        for steps in calls:
            loader.skip(steps)
            expected = [rows for step, rows in enumerate(expected) if step not in steps]
        assert len(loader.epochs(EPOCHS)) == len(expected)
        iterator, state = iter(loader), again(loader)
        before = [rows_of(batch) for batch in itertools.islice(iterator, at)]
        state = again(loader)
        assert state["steps"]["step"] == len(before)
        other = loaders(LINE, SIZE, world, None, **options)[rank]
        other.load_state_dict(state)
        assert before + gone_through(other) == expected
        assert again(other)["steps"]["step"] == len(expected)
        loader.load_state_dict(state)
        assert before + gone_through(loader) == expected


def test_a_whole_epoch_and_both_ends_may_be_left_out() -> None:
    per_epoch = -(-N // SIZE)
    (plain,) = loaders(LINE, SIZE, 1, None)
    expected = gone_through(plain)
    for steps in (range(per_epoch), range(per_epoch, 2 * per_epoch), [0, per_epoch - 1], [per_epoch - 1, per_epoch]):
        (loader,) = loaders(LINE, SIZE, 1, None)
        loader.skip(steps)
        assert gone_through(loader) == [rows for step, rows in enumerate(expected) if step not in steps]


def test_batches_keep_their_random_numbers() -> None:
    plain, loader = loaders(noisy(), 8, 2, None)[1], loaders(noisy(), 8, 2, None)[1]
    expected = [print_of(batch) for batch in plain]
    loader.skip([1, 2, 9])
    assert [print_of(batch) for batch in loader] == [each for i, each in enumerate(expected) if i not in (1, 2, 9)]


@pytest.mark.parametrize(("world", "size"), [(1, 4), (3, 4), (2, 5), (1, 64), (4, 1)])
def test_another_world_leaves_out_each_batch_with_a_sample_of_them(world: int, size: int) -> None:
    ranks = loaders(LINE, SIZE, 2, None)
    order = [rows_of(batch)[0] for batch in loaders(LINE, 1, 1, None)[0]]
    for rank in ranks:
        rank.skip([3, 4])
    bad = set(order[3 * 2 * SIZE : 5 * 2 * SIZE])
    begun_with = itertools.islice(zip(*ranks, strict=True), 2)
    got = [row for together in begun_with for batch in together for row in rows_of(batch)]
    others = loaders(LINE, size, world, None, ranks[0].state_dict())
    if others[0].upcoming_epoch == 1:
        assert size == 64, "nothing of the epoch is left"
        return
    rounds = [[row for batch in together for row in rows_of(batch)] for together in zip(*others, strict=True)]
    begun = 2 * 2 * SIZE
    assert got == order[:begun]
    cut = [order[at : at + size * world] for at in range(begun, N, size * world)]
    kept = [part for part in cut if not bad & set(part)]
    assert [each[: len(part)] for each, part in zip(rounds, kept, strict=True)] == kept


def test_an_order_of_batches_leaves_out_its_batches() -> None:
    source = bu.ChoiceDataSource([LINE, bu.ArrayDataSource([np.arange(30) + 100])])
    (plain,), (loader,) = loaders(source, SIZE, 1, None), loaders(source, SIZE, 1, None)
    expected = gone_through(plain)
    loader.skip([0, 5, len(expected) // 3])
    iterator = iter(loader)
    before = [rows_of(next(iterator)) for _ in range(4)]
    (other,) = loaders(source, SIZE, 1, None, loader.state_dict())
    left = [rows for step, rows in enumerate(expected) if step not in (0, 5, len(expected) // 3)]
    assert before + gone_through(other) == left


@pytest.mark.parametrize("buffer", [1, 20])
@pytest.mark.parametrize("pool", ["serial", "threads", "processes"])
@pytest.mark.parametrize("world", [1, 3])
def test_every_pool_leaves_out_the_same(pool: str, buffer: int, world: int, tmp_path: Path) -> None:
    plain = [[print_of(batch) for batch in loader] for loader in loaders(noisy(), 8, world, None)]
    workers = {} if pool == "serial" else {"workers": 2}
    options: dict[str, Any] = {"pool": pool, "buffer": buffer, **workers}
    for rank, loader in enumerate(loaders(noisy(), 8, world, tmp_path / "run.json", **options)):
        with loader:
            loader.skip([2, 5])
            got = [print_of(batch) for batch in loader]
            assert got == [each for step, each in enumerate(plain[rank]) if step not in (2, 5)]
            if rank == 0:
                assert [print_of(loader.replay(step, 0)) for step in range(len(got))] == got


def test_a_loop_under_way_ends_and_goes_on_at_its_place() -> None:
    (loader,) = loaders(LINE, SIZE, 1, None)
    expected = gone_through(loaders(LINE, SIZE, 1, None)[0])
    iterator = iter(loader)
    before = [rows_of(next(iterator)) for _ in range(3)]
    loader.skip(4)
    with raises(bu.PoolClosed):
        next(iterator)
    assert before + gone_through(loader) == [*expected[:4], *expected[5:]]


def test_steps_that_cannot_be_left_out_are_refused() -> None:
    (loader,) = loaders(LINE, SIZE, 1, None)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    with raises(bu.ArgumentError):
        loader.skip([2, 7])
    for wrong in ([-1], ["a"], None, "12", 1.5):
        with raises((bu.ArgumentError, bu.ArgumentTypeError)):
            loader.skip(wrong)
    with raises(bu.ArgumentError):
        loader.skip(range(2_000_000))
    assert len(list(iterator)) == 10, "nothing has changed"
    with raises(bu.ArgumentError):
        bu.Loader(bu.ArrayDataSource([np.arange(3)]), 4, drop_last=True, pool="serial").skip([5])
    with raises(bu.ArgumentError):
        bu.Loader(LINE, 4, shuffle=np.random.RandomState(1), pool="serial").skip([5])


def test_steps_far_ahead_are_refused_at_once() -> None:
    with bu.Loader(bu.ArrayDataSource([np.arange(3)]), 4, pool="serial") as loader:
        loader.skip(np.int64(9_999))
        for far in (10_001, 10**15):
            with raises(bu.ArgumentError):
                loader.skip(far)


def test_epochs_that_are_left_out_whole_are_passed_over() -> None:
    with bu.Loader(bu.ArrayDataSource([np.arange(3)]), 4, pool="serial") as loader:
        loader.skip(range(4))
        loader.skip([1])  # epoch 5
        found = []
        while loader.upcoming_epoch < 8:
            epoch = loader.upcoming_epoch
            found += [epoch for _ in loader]
    assert found == [4, 6, 7]


def test_adopt_refuses_rows_that_would_change_batches_to_come_that_are_left_out() -> None:
    more = bu.ArrayDataSource([np.arange(N + 9)])
    for steps, taken in (([5], 2), ([14], 2), ([14], 0)):
        (loader,), (other,) = loaders(LINE, SIZE, 1, None), loaders(more, SIZE, 1, None)
        loader.skip(steps)
        iterator = iter(loader)
        for _ in range(taken):
            next(iterator)
        before = again(other)
        with raises(bu.StateError):
            other.load_state_dict(again(loader), adopt=["rows"])
        assert again(other) == before
    (loader,), (other,) = loaders(LINE, SIZE, 1, None), loaders(more, SIZE, 1, None)
    order = gone_through(loaders(LINE, SIZE, 1, None)[0])
    loader.skip([1])
    iterator = iter(loader)
    got = [*next(iterator), *next(iterator)]
    other.load_state_dict(again(loader), adopt=["rows"])
    rows = sorted(row for batch in [*got, *(part for batch in other for part in batch)] for row in batch.tolist())
    assert rows == sorted({*range(N + 9)} - {*order[1]})


def test_states_without_steps_go_on_and_count_whole_epochs() -> None:
    (plain,) = loaders(LINE, SIZE, 1, None)
    assert set(plain.state_dict()) == {"epoch", "seed", "batches"}
    list(plain)
    iterator = iter(plain)
    next(iterator)
    state = again(plain)
    (loader,) = loaders(LINE, SIZE, 1, None, state)
    loader.skip([15])
    assert again(loader)["steps"]["step"] == 14
    loader.load_state_dict(state)
    assert len(gone_through(loader)) == 12 + 13, "that state leaves nothing out"


@pytest.mark.parametrize("wrong", [
    3, {}, {"step": 1}, {"step": -1, "run": "", "skipped": []}, {"step": 1, "run": 2, "skipped": []},
    {"step": 1, "run": "", "skipped": [[0, 1]]}, {"step": 1, "run": "", "skipped": [[0, 2, 2]]},
    {"step": 1, "run": "", "skipped": [["a", 1, 2]]}, {"step": 1.0, "run": "", "skipped": []},
    {"step": 1, "run": "", "skipped": 7},
])  # fmt: skip
def test_damaged_steps_in_a_state_are_refused_and_change_nothing(wrong: Any) -> None:
    (loader,) = loaders(LINE, SIZE, 1, None)
    loader.skip([1])
    state = again(loader)
    with raises(bu.StateError):
        loader.load_state_dict({**state, "steps": wrong})
    assert again(loader) == state


def test_a_pickled_loader_leaves_out_the_same(tmp_path: Path) -> None:
    loader = bu.Loader(LINE, SIZE, shuffle=SEED)
    loader.skip([1, 2])
    other = pickle.loads(pickle.dumps(loader))
    assert again(other) == again(loader)
    assert gone_through(other) == gone_through(loader)


def test_the_test_of_any_run_leaves_out_something(tmp_path: Path) -> None:
    any_run(tmp_path / "run.json", 3, noisy())
    text = (tmp_path / "run.json").read_text()
    assert any(each["skipped"] for each in json.loads(text)["segments"])


def test_trainers_that_ask_for_the_length_once_cut_no_epoch_short() -> None:
    pytest.importorskip("torch", reason="as_dataset is for torch, which is not installed")
    torch_of_ours = pytest.importorskip("batchup_ng.frameworks.torch")
    (loader,) = loaders(LINE, SIZE, 1, None)
    loader.skip([1])
    dataset = torch_of_ours.as_dataset(loader)
    assert [len(dataset), len(list(dataset)), len(dataset), len(list(dataset))] == [13, 12, 13, 13]
