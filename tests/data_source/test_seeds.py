"""Orders and random numbers: functions of the seed, the epoch, the place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.private_apis import GLOBAL_RNG
from batchup_ng.randomness.numpy_rng import seed_draw
from tests.data_source.source_helpers import A, draws, flat, ids, uniform
from tests.messages import raises


def test_true_draws_a_seed_from_the_global_state_of_numpy() -> None:
    np.random.seed(9)
    ours = [flat(ids(bu.ArrayDataSource([A]), shuffle=True)) for _ in range(2)]
    np.random.seed(9)
    assert ours == [flat(ids(bu.ArrayDataSource([A]), shuffle=seed_draw(GLOBAL_RNG))) for _ in range(2)]
    assert ours[0] != ours[1]
    assert ids(bu.ArrayDataSource([A]), 10, shuffle=False) == [A.tolist()]


def test_a_negative_seed_is_refused() -> None:
    with raises(ArgumentError):
        bu.ArrayDataSource([A]).batch_iterator(3, shuffle=-1)


def test_sources_side_by_side_have_orders_of_their_own() -> None:
    source = bu.CompositeDataSource([bu.ArrayDataSource([np.arange(50)]), bu.ArrayDataSource([np.arange(50)])])
    ((x, y),) = source.batch_iterator(50, shuffle=2)
    assert x.tolist() != y.tolist()


def test_no_two_maps_share_their_draws() -> None:
    for kind in ("sample", "batch"):
        base = bu.ArrayDataSource([np.arange(50)])
        pairs = [bu.zip(base.map(uniform, rng=kind), base.map(uniform, rng=kind)),
                 bu.CompositeDataSource([base.map(uniform, rng=kind), base.map(uniform, rng=kind)])]  # fmt: skip
        for pair in pairs:
            for _, u, _, v in pair.batch_iterator(50, shuffle=1):
                assert not np.intersect1d(u, v).size


def test_parts_of_a_concat_draw_by_their_place_in_the_stream() -> None:
    parts = [bu.ArrayDataSource([np.arange(20) + k]).map(uniform, rng="sample") for k in (0, 20)]
    whole = bu.concat(*parts)
    one, two = (draws(whole, size, shuffle=5) for size in (3, 40))
    np.testing.assert_array_equal(one, two)
    assert len(set(one)) == 40


def test_a_random_state_seeds_the_maps_without_being_drawn_from() -> None:
    source = bu.ArrayDataSource([np.arange(50)]).map(uniform, rng="sample")
    rng = np.random.RandomState(3)
    first, second = draws(source, 7, shuffle=rng), draws(source, 7, shuffle=rng)
    assert not np.intersect1d(first, second).size
    np.testing.assert_array_equal(first, draws(source, 7, shuffle=np.random.RandomState(3)))


@pytest.mark.parametrize("bad", ["samples", "Batch", True])
def test_an_unknown_kind_of_randomness_is_refused(bad: Any) -> None:
    with raises(ArgumentError):
        bu.ArrayDataSource([A]).map(len, rng=bad)
    with raises(ArgumentError):
        bu.ArrayDataSource([A]).map_samples(len, rng="batch")


def test_a_map_needs_a_function_and_a_source() -> None:
    with raises(ArgumentTypeError):
        bu.ArrayDataSource([A]).map(3)  # type: ignore[arg-type]
    with raises(ArgumentTypeError):
        bu.MapDataSource([A], len)  # type: ignore[arg-type]


def test_samples_of_different_shapes_stay_lists() -> None:
    source = bu.ArrayDataSource([np.arange(1, 6)]).map_samples(lambda i: (i, np.zeros(i), "text", {"i": i}))
    ((i, zeros, texts, dicts),) = source.batch_iterator(5)
    assert i.tolist() == [1, 2, 3, 4, 5]
    assert [z.shape for z in zeros] == [(1,), (2,), (3,), (4,), (5,)]
    assert texts == ["text"] * 5
    assert dicts[4] == {"i": 5}


def test_a_map_of_samples_may_return_one_array() -> None:
    ((x,),) = bu.ArrayDataSource([A]).map_samples(lambda i: i * 2.0).batch_iterator(10)
    assert x.tolist() == (A * 2.0).tolist()
