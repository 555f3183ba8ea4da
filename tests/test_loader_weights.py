"""Weights of a loader's mixture that are set in the course of an epoch: from which sample on, in states, on ranks."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError, StateError
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises

SEED = 5
AHEAD = 16
"""Samples of the batches that are planned ahead in a loop of one thread: at most two."""


def noisy(x: np.ndarray, rng: Any) -> Any:
    return x, rng.random()


def mixed(weights: Any = (3, 1), length: int = 120) -> Any:
    parts = [bu.ArrayDataSource([i * 1000 + np.arange(n)]) for i, n in enumerate([50, 20])]
    return bu.mix(*parts, weights=list(weights), length=length).map(noisy, rng="sample")


def samples(batches: Any) -> list[Any]:
    return [sample for x, noise in batches for sample in zip(x.tolist(), noise.tolist(), strict=True)]


def share(given: list[Any]) -> float:
    """The share of the second part."""
    return float(np.mean([x >= 1000 for x, _ in given]))


def opened(source: Any, size: int = 8, **options: Any) -> bu.Loader:
    return bu.Loader(source, size, **{"shuffle": SEED, "pool": "serial", **options})


@given(
    calls=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 60), st.integers(0, 4), st.integers(0, 4)), max_size=4),
    stop=st.integers(0, 30), size=st.integers(1, 9), ranks=st.integers(1, 3),
)  # fmt: skip
def test_all_ranks_and_every_resume_have_one_order(calls: Any, stop: int, size: int, ranks: int) -> None:
    """Random calls between batches, then a stop after any batch, in any world; another world goes on."""
    calls = [(when, more, [a, b + (a == 0)]) for when, more, a, b in sorted(calls)]
    with opened(mixed()) as alone:
        whole, iterator, at = [], iter(alone), {}
        for done in range(15):
            for when, more, weights in calls:
                after = 8 * done + AHEAD + more
                if when == done and after <= 120:
                    alone.set_weights(weights, after=after)
            at[done] = json.loads(json.dumps(alone.state_dict()))
            whole += samples([next(iterator)])
        assert next(iterator, None) is None
        later = samples(alone)
    begun = min(stop, 14)
    ranked = [opened(mixed(), size, shard=(rank, ranks)) for rank in range(ranks)]
    for loader in ranked:
        loader.load_state_dict(at[begun])
    missing = [call for call in calls if call[0] > begun and 8 * call[0] + AHEAD + call[1] <= 120]
    for loader in ranked:  # the same calls, made before the samples are in the making
        for when, more, weights in missing:
            loader.set_weights(weights, after=8 * when + AHEAD + more)
    given = samples(batch for batches in zip(*ranked, strict=True) for batch in batches)
    assert given[: 120 - 8 * begun] == whole[8 * begun :]
    assert samples(batch for batches in zip(*ranked, strict=True) for batch in batches)[:120] == later
    for loader in ranked:
        loader.close()


def test_the_order_before_does_not_change_and_the_share_after_is_new(pools: list[AbstractWorkerPool]) -> None:
    with opened(mixed()) as plain:
        before, later = samples(plain), samples(plain)
    for pool in pools:
        with opened(mixed(), pool=pool, buffer=3) as loader:
            iterator = iter(loader)
            given = samples([next(iterator) for _ in range(2)])
            loader.set_weights([1, 1], after=83)
            state = loader.state_dict()
            given += samples(iterator)
            assert given[:83] == before[:83]
            assert share(given[84:]) == 0.5
            second = samples(loader)
            assert share(second) == 0.5
            assert second != later
        with opened(mixed(), 5) as resumed:
            resumed.load_state_dict(json.loads(json.dumps(state)))
            assert samples(resumed) == given[16:]
            assert samples(resumed) == second


def test_by_default_it_is_the_first_sample_that_is_not_in_the_making(pools: list[AbstractWorkerPool]) -> None:
    for pool in pools:
        with opened(mixed(length=600), pool=pool, buffer=3) as loader, opened(mixed(length=600)) as other:
            iterator = iter(loader)
            given = samples([next(iterator) for _ in range(2)])
            loader.set_weights([0, 1])
            (_, (after, *_)) = loader.state_dict()["batches"]["parts"]["eras"]
            assert 16 <= after <= 16 + 8 * 5
            given += samples(iterator)
            other.set_weights([0, 1], after=after)
            assert samples(other) == given
            assert share(given[after:]) == 1


def test_between_epochs_they_apply_from_the_next_first_sample_on() -> None:
    with opened(mixed()) as loader:
        loader.set_weights([1, 1])
        first = samples(loader)
        assert share(first) == 0.5
        loader.set_weights([0, 1])
        state = loader.state_dict()
        assert share(samples(loader)) == 1
        loader.set_epoch(0)
        assert samples(loader) == samples(opened(mixed()))  # an earlier epoch has the weights of the source
    with opened(mixed()) as resumed:
        resumed.load_state_dict(state)
        assert resumed.epoch == 1
        assert share(samples(resumed)) == 1
        assert share(samples(resumed)) == 1


def test_a_resumed_loader_may_set_them_before_it_begins() -> None:
    with opened(mixed()) as loader:
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        state = loader.state_dict()
        loader.set_weights([0, 1], after=60)
        rest = samples(iterator)
    with opened(mixed(), 7) as resumed:
        resumed.load_state_dict(state)
        with raises(ArgumentError):
            resumed.set_weights([0, 1], after=23)
        resumed.set_weights([0, 1], after=60)
        assert samples(resumed) == rest


def test_steps_may_be_set_and_take_the_place_of_those_to_come() -> None:
    weights = bu.steps((0, [1, 0]), (100, [0, 1]))
    with opened(mixed(weights=(1, 1))) as loader:
        loader.set_weights(weights, after=50)
        given = samples(loader)
        assert share(given[50:100]) == 0
        assert share(given[100:]) == 1


def test_an_epoch_begun_ahead_is_begun_again_with_the_new_weights() -> None:
    with opened(mixed(length=40), pool="threads", workers=1, buffer=10) as loader:
        iterator = iter(loader)
        next(iterator)
        next(iterator)
        loader.set_weights([0, 1])  # all batches of the epoch are in the making, and those of the next may be
        state = loader.state_dict()
        rest, second = samples(iterator), samples(loader)
        assert share(rest) == pytest.approx(0.25, abs=0.05)
        assert share(second) == 1
    with opened(mixed(length=40), 3) as resumed:
        resumed.load_state_dict(state)
        assert samples(resumed) == rest
        assert samples(resumed) == second


def test_many_calls_leave_a_small_state() -> None:
    with opened(mixed(length=-1)) as loader:
        iterator = iter(loader)
        for n in range(40):
            next(iterator)
            loader.set_weights([1 + n % 3, 1], after=8 * n + 8 + AHEAD)
        state = json.dumps(loader.state_dict())
        assert len(state) < 4096
        rest = samples([next(iterator) for _ in range(5)])
    with opened(mixed(length=-1)) as resumed:
        resumed.load_state_dict(json.loads(state))
        again = iter(resumed)
        assert samples([next(again) for _ in range(5)]) == rest


def test_what_cannot_be_set_says_why() -> None:
    parts = [bu.ArrayDataSource([np.arange(9)]), bu.ArrayDataSource([np.arange(9)])]
    refused: list[Any] = [
        (opened(parts[0]), [1, 1], None, ArgumentError),
        (opened(bu.mix(*parts)), [1, 1], None, ArgumentError),
        (opened(bu.CompositeDataSource([bu.mix(*parts, length=9)])), [1, 1], None, ArgumentError),
        (opened(mixed(), shard=(0, 2)), [1, 1], None, ArgumentError),
        (opened(mixed()), [1], None, ArgumentError),
        (opened(mixed()), [0, 0], None, ArgumentError),
        (opened(mixed()), [1, 1], 121, ArgumentError),
        (opened(mixed()), [1, 1], -1, ArgumentError),
        (opened(mixed()), [1, 1], 1.5, ArgumentTypeError),
        (opened(mixed(), shuffle=np.random.RandomState(3)), [1, 1], None, ArgumentError),
        (opened(bu.mix(*parts, length=15, max_repeats=1)), [0, 1], None, ArgumentError),
    ]
    for loader, weights, after, error in refused:
        state = loader.state_dict()
        with raises(error):
            loader.set_weights(weights, after=after)
        assert loader.state_dict() == state
        loader.close()
    with opened(mixed()) as loader:
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        with raises(ArgumentError):
            loader.set_weights([1, 1], after=7)
        assert loader.state_dict() == state
        assert len(list(iterator)) == 14


def test_a_loader_adopts_as_an_iterator_does() -> None:
    with opened(mixed()) as loader:
        iterator = iter(loader)
        for _ in range(4):
            next(iterator)
        state = json.loads(json.dumps(loader.state_dict()))
    source = mixed(weights=(1, 1))
    direct = source.batch_iterator(6, SEED)
    direct.load_state_dict(state["batches"], adopt=["weights"])
    with opened(source, 6, pool="threads", workers=2) as loader:
        before = loader.state_dict()
        with raises(StateError):
            loader.load_state_dict(state)
        assert loader.state_dict() == before
        loader.load_state_dict(state, adopt=["weights"])
        middle = loader.state_dict()
        assert samples(loader) == samples(direct)
        second = samples(loader)
        assert share(second) == 0.5
    with opened(source) as loader:
        loader.load_state_dict(middle)
        samples(loader)
        assert samples(loader) == second


def test_a_ledger_refuses_weights_that_are_set_and_a_state_that_has_some(tmp_path: Any) -> None:
    with opened(mixed()) as loader:
        loader.set_weights([1, 1])
        state = loader.state_dict()
    with bu.ledger(opened(mixed()), tmp_path / "run.json") as loader:
        with raises(ArgumentError):
            loader.set_weights([1, 1])
        loader.load_state_dict(state)
        with raises(bu.LedgerError):
            next(iter(loader))


def test_a_ledger_begins_with_the_epoch_after_one_that_was_adopted(tmp_path: Any) -> None:
    path = tmp_path / "run.json"
    with bu.ledger(opened(mixed()), path) as loader:
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
    with opened(mixed(weights=(1, 1))) as loader:
        loader.load_state_dict(state, adopt=["weights"])
        with raises(bu.LedgerError):
            next(iter(bu.ledger(opened_from(loader), path)))
        list(loader)
        bu.ledger(loader, path)
        second = samples(loader)
        assert samples([loader.replay(step) for step in range(15, 30)]) == second


def opened_from(loader: bu.Loader) -> bu.Loader:
    """Another loader of the same source, at the same place."""
    other = opened(mixed(weights=(1, 1)))
    other.load_state_dict(loader.state_dict())
    return other


def test_an_epoch_of_which_batches_are_left_out_keeps_its_weights() -> None:
    with opened(mixed()) as loader:
        loader.skip([1])
        iterator = iter(loader)
        next(iterator)
        with raises(ArgumentError):
            loader.set_weights([1, 1], after=60)
        assert share(samples(iterator)) < 0.3
        loader.set_weights([1, 1])
        assert share(samples(loader)) == 0.5


def test_the_latest_call_holds_from_its_sample_on() -> None:
    """A change that was set for a later sample goes, so the epochs after have the weights of the latest call."""
    with opened(mixed()) as loader:
        iterator = iter(loader)
        loader.set_weights([0, 1], after=80)
        given = samples([next(iterator)])
        loader.set_weights([1, 0], after=40)
        state = loader.state_dict()
        given += samples(iterator)
        assert share(given[40:]) == 0
        second = samples(loader)
        assert share(second) == 0
    with opened(mixed(), 7) as resumed:
        resumed.load_state_dict(state)
        assert samples(resumed) == given[8:]
        assert samples(resumed) == second


@pytest.mark.parametrize("adopt", [["rows"], ["weights"], ["weights", "rows"]])
@pytest.mark.parametrize("taken", [0, 1, 5, 6, 10])
def test_a_state_with_weights_set_for_a_later_sample_is_adopted(taken: int, adopt: list[str]) -> None:
    """Added rows leave the weights as they were set, from their sample on; the weights of the source replace them."""
    with opened(mixed()) as loader:
        iterator = iter(loader)
        loader.set_weights([0, 1], after=48)
        given = samples([next(iterator) for _ in range(taken)])
        state = json.loads(json.dumps(loader.state_dict()))
    weights = (1, 1) if "weights" in adopt else (3, 1)
    parts = [bu.ArrayDataSource([i * 1000 + np.arange(n)]) for i, n in enumerate([50, 24 if "rows" in adopt else 20])]
    source = bu.mix(*parts, weights=list(weights), length=120).map(noisy, rng="sample")
    with opened(source) as loader:
        loader.load_state_dict(state, adopt=adopt)
        middle = loader.state_dict()
        given += samples(loader)
        second = samples(loader)
    before, after = given[8 * taken : 48], given[max(48, 8 * taken) :]
    if "weights" in adopt:
        assert share(given[8 * taken :]) == pytest.approx(0.5, abs=0.02)
        assert share(second) == 0.5
    else:
        assert not before or share(before) == pytest.approx(0.25, abs=0.1)
        assert share(after) == share(second) == 1
    assert len(given) == 120
    with opened(source, 5) as resumed:
        resumed.load_state_dict(middle)
        assert samples(resumed) == given[8 * taken :]
        assert samples(resumed) == second


def test_batches_to_come_that_are_left_out_keep_their_weights() -> None:
    for steps, after in (([3, 20], 60), ([6], 50), ([16], 120)):  # later epochs change, too
        with opened(mixed()) as loader:
            loader.skip(steps)
            state = loader.state_dict()
            with raises(ArgumentError):
                loader.set_weights([1, 1], after=after)
            assert loader.state_dict() == state
    with opened(mixed()) as loader:
        plain = samples(opened(mixed()))
        loader.skip([2])
        loader.set_weights([0, 1], after=24)
        given = samples(loader)
        assert given[:16] == plain[:16]
        assert share(given[16:]) == 1
        assert len(given) == 112
