"""A state is small, and is refused if it was changed in any way."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source.epoch.state import from_state
from batchup_ng.errors import StateError
from batchup_ng.testing.sources import assert_same_batches
from tests.messages import raises

SOURCE = bu.ArrayDataSource([np.arange(1000)])


def state_after(batches: int, shuffle: Any = 7) -> dict[str, Any]:
    iterator = SOURCE.batch_iterator(10, shuffle=shuffle, epoch=1)
    for _ in range(batches):
        next(iterator)
    return iterator.state_dict()


def test_a_state_is_small_and_plain() -> None:
    for shuffle in (None, 7, 1 << 200):
        text = json.dumps(state_after(3, shuffle))
        assert len(text.encode()) <= 4096
        assert from_state(json.loads(text)).samples == 30


def test_what_is_no_state_is_refused_with_the_reason() -> None:
    state = state_after(3)
    with raises(StateError):
        from_state([1, 2])
    with raises(StateError):
        from_state({"epoch": 3})
    with raises(StateError):
        from_state({**state, "version": 5})
    with raises(StateError):
        from_state({**state, "samples": 31})


def test_numbers_of_numpy_are_as_good() -> None:
    state = state_after(3)
    assert from_state({**state, "samples": np.int64(state["samples"])}) == from_state(state)


@pytest.mark.parametrize("name", ["epoch", "batch_size", "shuffle"])
def test_large_numbers_can_be_resumed_from(name: str) -> None:
    options: dict[str, Any] = {"batch_size": 10, "shuffle": 7, name: (1 << 70) - 1}
    iterator = SOURCE.batch_iterator(**options)
    next(iterator)
    state = json.loads(json.dumps(iterator.state_dict()))
    assert len(SOURCE.batch_iterator(**options, state=state)) == len(iterator)


def test_batches_of_a_choice_are_counted_whatever_their_size() -> None:
    source = bu.ChoiceDataSource([bu.ArrayDataSource([np.arange(10)])] * 3)
    iterator = source.batch_iterator((1 << 63) - 1, shuffle=7)
    rest = list(iterator)[1:]
    iterator = source.batch_iterator((1 << 63) - 1, shuffle=7)
    next(iterator)
    state = iterator.state_dict()
    assert len(list(source.batch_iterator((1 << 63) - 1, shuffle=7, state=state))) == len(rest) == 2
    list(iterator)
    assert not list(source.batch_iterator((1 << 63) - 1, shuffle=7, state=iterator.state_dict()))


def global_state() -> list[Any]:
    return [np.asarray(part).tolist() for part in np.random.get_state()]


@pytest.mark.parametrize("shuffle", [True, np.True_, np.random.default_rng(3)], ids=["True", "np.True_", "Generator"])
@pytest.mark.parametrize("kind", ["serial", "threads"])
def test_an_order_whose_seed_was_drawn_goes_on_from_its_state_and_draws_nothing(shuffle: Any, kind: str) -> None:
    orders = []
    with bu.WorkerThreadPool(1) as pool:
        source = SOURCE if kind == "serial" else pool.parallel_data_source(SOURCE)
        for _ in range(2):
            epoch = source.batch_iterator(10, shuffle=shuffle)
            next(epoch)
            state = json.loads(json.dumps(epoch.state_dict()))
            rest = list(epoch)
            before = global_state(), pickle.dumps(shuffle)
            assert_same_batches(list(source.batch_iterator(10, shuffle=shuffle, state=state)), rest)
            for resumed in source.epochs(1, 10, shuffle=shuffle, state=state):
                assert_same_batches(list(resumed), rest)
            assert (global_state(), pickle.dumps(shuffle)) == before
            another = source.batch_iterator(10, shuffle=shuffle)
            another.load_state_dict(state)
            assert_same_batches(list(another), rest)
            assert_same_batches(list(source.batch_iterator(10, shuffle=state["seed"], state=state)), rest)
            orders.append([batch[0].tolist() for batch in rest])
    assert orders[0] != orders[1]


def test_the_epochs_of_a_drawn_seed_have_orders_of_their_own_and_are_made_ahead() -> None:
    np.random.seed(4)
    orders = [[batch[0].tolist() for batch in epoch] for epoch in SOURCE.epochs(3, 10, shuffle=True)]
    after = np.random.random_sample()
    assert len({str(order) for order in orders}) == 3
    np.random.seed(4)
    np.random.random_sample()
    assert after == np.random.random_sample()  # one seed for all of them
    np.random.seed(4)
    assert [[batch[0].tolist() for batch in epoch] for epoch in SOURCE.epochs(3, 10, shuffle=True)] == orders


def test_an_order_that_is_drawn_from_a_random_state_has_no_state() -> None:
    shuffle = np.random.RandomState(3)
    state = state_after(1)
    with bu.WorkerThreadPool(1) as pool:
        for source in (SOURCE, pool.parallel_data_source(SOURCE)):
            with source.batch_iterator(10, shuffle=shuffle) as iterator:
                next(iterator)
                with raises(StateError):
                    iterator.state_dict()
                with raises(StateError):
                    iterator.load_state_dict(state)
                assert len(iterator) == 99
            with raises(StateError):
                source.batch_iterator(10, shuffle=shuffle, state=state)
