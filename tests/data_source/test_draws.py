"""Generators of the user's that others draw from too: a state tells what was drawn for its own epoch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.testing.sources import assert_same_batches

SOURCE = bu.ArrayDataSource([np.arange(23)])


class Eager(bu.AbstractSampler):
    """A sampler of the user's that draws as soon as it is asked for an order."""

    def num_indices_generated(self) -> int:
        return 23

    def shuffled_indices_batch_iterator(self, batch_size: int, shuffle_rng: Any) -> Any:
        order = shuffle_rng.permutation(23)
        return iter([order[i : i + batch_size] for i in range(0, 23, batch_size)])


class Listed(bu.AbstractDataSource):
    """A source of the user's that knows BatchUp's methods alone."""

    is_random_access = True

    def num_samples(self, **kwargs: Any) -> int:
        return 23

    def batch_indices_iterator(self, batch_size: int, shuffle: Any = None, **kwargs: Any) -> Any:
        order = shuffle.permutation(23)
        yield from (order[i : i + batch_size] for i in range(0, 23, batch_size))

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        return (indices,)


SOURCES = [SOURCE, bu.ArrayDataSource([np.arange(23)], sampler=Eager()), Listed()]


@pytest.fixture(params=[None, lambda: bu.WorkerThreadPool(2)], ids=["serial", "threads"])
def pool(request: pytest.FixtureRequest) -> Iterator[Any]:
    """What makes batches ahead; None for a plain loop."""
    if request.param is None:
        yield None
        return
    with request.param() as pool:
        yield pool


def over(source: Any, pool: Any) -> Any:
    if pool is None:  # a plain loop of a source with BatchUp's methods alone has no states
        return SOURCE if isinstance(source, Listed) else source
    return pool.parallel_data_source(source, batch_buffer_size=1)


@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
@pytest.mark.parametrize("source", SOURCES)
def test_two_epochs_drawn_from_one_generator_go_on_as_they_were(source: Any, make: Any, pool: Any) -> None:
    source = over(source, pool)
    for stop in (0, 1, 3):
        rng = make(5)
        pair = [source.batch_iterator(4, shuffle=rng) for _ in range(2)]
        rng.uniform()
        for _ in range(stop):
            for iterator in pair:
                next(iterator)
        states = json.loads(json.dumps([iterator.state_dict() for iterator in pair]))
        rests = [list(iterator) for iterator in pair]
        rng = make(6)
        again = [source.batch_iterator(4, shuffle=rng, state=state) for state in states]
        for iterator, rest in zip(again, rests, strict=True):
            assert_same_batches(list(iterator), rest)


def test_a_resumed_epoch_has_drawn_what_it_needs_before_others_draw() -> None:
    rng = np.random.RandomState(5)
    first = SOURCE.batch_iterator(4, shuffle=rng)
    next(first)
    state, rest = first.state_dict(), list(first)
    rng = np.random.RandomState(6)
    again = SOURCE.batch_iterator(4, shuffle=rng, state=state)
    rng.uniform(size=100)
    assert_same_batches(list(again), rest)


def test_a_resumed_generator_is_where_it_would_be_without_the_break() -> None:
    rng = np.random.RandomState(5)
    first = SOURCE.batch_iterator(4, shuffle=rng)
    next(first)
    after = rng.uniform()
    rng = np.random.RandomState(6)
    SOURCE.batch_iterator(4, shuffle=rng, state=first.state_dict())
    assert rng.uniform() == after


def test_the_number_of_batches_is_that_of_the_order_as_it_is_drawn() -> None:
    """A choice that goes round sources of different lengths ends where its order says."""
    source = bu.ChoiceDataSource([bu.ArrayDataSource([np.arange(n)]) for n in (8, 12, 40)])
    for seed in range(8):
        rng = np.random.RandomState(seed)
        iterator = source.batch_iterator(4, shuffle=rng)
        rng.uniform(size=seed)
        next(iterator)
        assert len(iterator) == len(list(iterator))


def test_an_order_that_others_disturb_ends_where_it_ends() -> None:
    """Each round of a choice is drawn when it begins, and in between the training loop draws too."""
    source = bu.ChoiceDataSource([bu.ArrayDataSource([np.arange(n)]) for n in (8, 12, 40)])
    for seed in range(8):
        rng = np.random.RandomState(seed)
        iterator = source.batch_iterator(4, shuffle=rng)
        n = len(iterator)
        for _ in iterator:
            rng.uniform(size=seed)
        assert 6 <= n <= 8
