"""Epochs in a row, numbered; the warning of epochs that repeat each other."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError, RepeatedEpochWarning, StateError
from tests.messages import raises, warns

A = np.arange(10)


def listed(batches: Any) -> list[list[int]]:
    return [x.tolist() for (x,) in batches]


def source() -> bu.ArrayDataSource:
    return bu.ArrayDataSource([A])


def test_epochs_are_those_of_batch_iterator_one_after_the_other() -> None:
    series = source().epochs(3, 4, shuffle=7, start_epoch=2, drop_last=True)
    got = {batches.epoch: listed(batches) for batches in series}
    assert got == {e: listed(source().batch_iterator(4, 7, epoch=e, drop_last=True)) for e in (2, 3, 4)}
    assert len({str(each) for each in got.values()}) == 3


def test_epochs_without_a_number_have_no_end() -> None:
    epochs = source().epochs(None, 4, shuffle=7)
    assert [next(epochs).epoch for _ in range(5)] == [0, 1, 2, 3, 4]


def test_an_iterator_that_was_left_is_closed_when_the_next_is_asked_for() -> None:
    epochs = source().epochs(2, 4)
    first = next(epochs)
    next(first)
    second = next(epochs)
    with raises(bu.PoolClosed):
        list(first)
    assert len(list(second)) == 3
    assert list(epochs) == list(second) == []


def test_closed_epochs_end_and_no_epochs_are_no_error() -> None:
    with source().epochs(None, 4) as epochs:
        first = next(epochs)
    assert list(first) == list(epochs) == list(source().epochs(0, 4)) == []
    epochs.close()


@pytest.mark.parametrize("shuffle", [None, 7])
def test_a_state_goes_on_in_its_epoch(shuffle: Any) -> None:
    whole = [row for batches in source().epochs(3, 4, shuffle) for row in listed(batches)]
    seen: list[Any] = []
    for batches in source().epochs(3, 4, shuffle):
        for (x,) in batches:
            seen.append(x.tolist())
            if len(seen) == 5:
                break
        if len(seen) == 5:
            break
    state = batches.state_dict()
    rest = [(batches.epoch, listed(batches)) for batches in source().epochs(3, 4, shuffle, state=state)]
    assert [number for number, _ in rest] == [1, 2]
    assert seen + [row for _, rows in rest for row in rows] == whole


def test_a_state_of_another_epoch_is_refused() -> None:
    state = source().batch_iterator(4, epoch=3).state_dict()
    for n, start in ((3, 0), (None, 4)):
        with raises(StateError):
            source().epochs(n, 4, start_epoch=start, state=state)


def test_a_generator_is_drawn_from_as_in_a_plain_loop() -> None:
    rng, again = np.random.RandomState(3), np.random.RandomState(3)
    got = [listed(batches) for batches in source().epochs(3, 4, shuffle=rng)]
    assert got == [listed(source().batch_iterator(4, shuffle=again)) for _ in range(3)]


def test_epochs_of_a_function_of_the_users_are_given_their_number() -> None:
    seen: list[Any] = []

    def batches(batch_size: int, **options: Any) -> Any:
        seen.append(options)
        return iter([(A,)])

    for iterator in bu.CallableDataSource(batches).epochs(2, 4, colour="red"):
        list(iterator)
    assert seen == [{"epoch": 0, "colour": "red"}, {"epoch": 1, "colour": "red"}]


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        ((-1, 4), {}, ArgumentError),
        ((1.5, 4), {}, ArgumentTypeError),
        ((3, 0), {}, ArgumentError),
        ((3, 4), {"start_epoch": -1}, ArgumentError),
        ((3, 4), {"shufle": 7}, ArgumentTypeError),
        ((3, 4), {"num_workers": 7}, ArgumentTypeError),
    ],
)
def test_what_epochs_are_asked_for_is_checked_at_once(arguments: Any, options: Any, error: Any) -> None:
    with raises(error):
        source().epochs(*arguments, **options)


# -- epochs that repeat each other ---------------------------------------------------------------------------------


def drawn(x: np.ndarray, rng: Any) -> Any:
    return (rng.permutation(x),)


def twice(ds: Any, **options: Any) -> None:
    for _ in range(3):
        list(ds.batch_iterator(4, **options))


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (source, {"shuffle": 7}),
        (lambda: source().map(drawn, rng="batch"), {}),
        (lambda: bu.concat(source(), source().map(drawn, rng="batch")), {}),
        (lambda: bu.take(source().map(drawn, rng="batch"), 5), {}),
        (lambda: bu.CompositeDataSource([source(), source().map(drawn, rng="batch")]), {}),
        (lambda: bu.ChoiceDataSource([source(), source().map(drawn, rng="batch")]), {}),
        (lambda: bu.subset(source().map(drawn, rng="batch"), [1, 2]), {}),
    ],
)
def test_epochs_that_repeat_each_other_are_warned_of_once(make: Any, options: Any) -> None:
    with warns(RepeatedEpochWarning) as told:
        twice(make(), **options)
    assert [each.filename for each in told] == [__file__]


@pytest.mark.parametrize("method", ["parallel_data_source", "prefetch"])
def test_a_source_of_a_pool_that_is_made_anew_each_time_is_warned_of(method: str) -> None:
    ds = source()

    def epoch() -> Any:
        return list(getattr(pool, method)(ds).batch_iterator(4, shuffle=7))

    with bu.SerialPool() as pool:
        epoch()
        with pytest.warns(RepeatedEpochWarning):
            epoch()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            epoch()


@pytest.mark.parametrize("method", ["batch_map_concat", "batch_map_mean"])
def test_the_warning_points_to_the_line_that_maps_over_an_epoch(method: str) -> None:
    ds = source()
    getattr(ds, method)(lambda x: x.sum(keepdims=True), 4, shuffle=7)
    with pytest.warns(RepeatedEpochWarning) as told:
        getattr(ds, method)(lambda x: x.sum(keepdims=True), 4, shuffle=7)
    assert [each.filename for each in told] == [__file__]


def test_views_of_one_source_have_epochs_of_their_own() -> None:
    with bu.SerialPool() as pool, warnings.catch_warnings():
        warnings.simplefilter("error")
        ds = source()
        parallel = pool.parallel_data_source(source())
        for each in (ds, ds.map(lambda x: (x,)), ds.take(5), parallel, parallel.map(lambda x: (x,))):
            list(each.batch_iterator(4, shuffle=7))


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (source, {}),
        (source, {"shuffle": 7, "epoch": 0}),
        (source, {"shuffle": np.random.RandomState(3)}),
        (lambda: source().map(lambda x: (x,)), {}),
    ],
)
def test_what_is_meant_is_not_warned_of(make: Any, options: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twice(make(), **options)


def test_only_what_was_handed_out_can_be_repeated() -> None:
    ds = source()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        len(ds.batch_iterator(4, shuffle=7))
        state = ds.batch_iterator(4, shuffle=7).state_dict()
        list(ds.batch_iterator(4, shuffle=7, state=state))
        list(ds.batch_iterator(4, shuffle=7))
        list(ds.batch_iterator(4, shuffle=8))


def test_a_source_that_is_sent_remembers_no_epochs() -> None:
    ds = source()
    list(ds.batch_iterator(4, shuffle=7))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(pickle.loads(pickle.dumps(ds)).batch_iterator(4, shuffle=7))


def test_a_warning_that_is_an_error_leaves_the_source_as_it_was() -> None:
    with bu.WorkerThreadPool(1) as pool, warnings.catch_warnings():
        warnings.simplefilter("error")
        ds = pool.parallel_data_source(source())
        list(ds.batch_iterator(4, shuffle=7))
        with pytest.raises(RepeatedEpochWarning):
            ds.batch_iterator(4, shuffle=7)
        assert len(list(ds.batch_iterator(4, shuffle=7))) == 3
