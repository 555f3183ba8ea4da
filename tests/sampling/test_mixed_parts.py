"""Mixtures of parts that draw by weight, or that make batches of rows of similar length or of full bins."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError, InOrderNotSupported
from batchup_ng.testing import assert_reproducible
from batchup_ng.testing.sources import SourceContract
from tests.messages import raises


def plain(n: int = 50) -> Any:
    return bu.ArrayDataSource([np.arange(n)])


def noisy(x: np.ndarray, rng: Any) -> Any:
    return (x + rng.random() / 2,)


def weighted(num_samples: int = 20) -> Any:
    drawn = bu.ArrayDataSource([np.arange(100, 110)]).sample(weights=np.arange(10), num_samples=num_samples)
    return drawn.map(lambda x: (x,))


def bucketed() -> Any:
    return bu.ArrayDataSource([np.arange(1000, 1040)]).sample(bu.BucketSampler(np.arange(40), num_buckets=4))


def packed() -> Any:
    return bu.ArrayDataSource([np.arange(2000, 2040)]).sample(bu.PackSampler(np.arange(40), 50, window=20))


def column(source: Any, size: int = 8, **options: Any) -> np.ndarray:
    return np.concatenate([x for (x,) in source.batch_iterator(size, shuffle=3, **options)])


def test_a_weighted_part_keeps_its_draws_and_its_share() -> None:
    source = bu.mix(plain(), weighted(), weights=bu.steps((0, [3, 1]), (40, [1, 1])), length=4000)
    drawn = column(source)
    own = drawn[drawn >= 100] - 100
    assert len(own) == 10 + 1980
    seen, due = np.bincount(own, minlength=10), len(own) * np.arange(10) / 45
    assert seen[0] == 0
    assert ((seen - due)[1:] ** 2 / due[1:]).sum() < 40
    others = np.bincount(drawn[drawn < 100])
    assert others.max() - others.min() <= 1
    assert column(source, epoch=1).tolist() != drawn.tolist()


def test_an_epoch_of_a_weighted_part_counts_as_one_pass() -> None:
    assert bu.mix(plain(), weighted(), weights=[1, 1]).num_samples() == 100
    assert bu.mix(plain(), weighted(), weights=[1, 1], until="first").num_samples() == 40
    assert bu.mix(plain(), weighted(), weights=[1, 1], max_repeats=1).num_samples() == 70


def test_a_state_of_weighted_parts_goes_on_and_the_weights_may_be_set() -> None:
    made = bu.mix(plain(), weighted(), weights=[3, 1], length=100).map(noisy, rng="sample")
    with bu.Loader(made, 8, shuffle=3, pool="serial") as loader:
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        loader.set_weights([0, 1], after=50)
        state = json.loads(json.dumps(loader.state_dict()))
        rest = np.concatenate([x for (x,) in iterator])
        assert (rest[50 - 24 :] >= 100).all()
    with bu.Loader(made, 5, shuffle=3, pool="serial") as loader:
        loader.load_state_dict(state)
        assert np.concatenate([x for (x,) in loader]).tolist() == rest.tolist()


def test_batches_of_a_mixture_with_buckets_come_whole_from_one_part() -> None:
    source = bu.mix(plain(), bucketed(), packed(), weights=[1, 2, 1], length=40)
    batches = [x for (x,) in source.batch_iterator(8, shuffle=3)]
    assert len(batches) == 40
    owners = [{int(x) // 1000 for x in batch} for batch in batches]
    assert all(len(owner) == 1 for owner in owners)
    for period in range(0, 40, 4):
        assert sorted(min(owner) for owner in owners[period : period + 4]) == [0, 1, 1, 2]
    own = np.concatenate([batch for batch in batches if 1000 <= batch[0] < 2000]) - 1000
    assert np.bincount(own, minlength=40).tolist() == [4] * 40  # 20 batches, of which an epoch has 5
    assert all((batch - 2000).sum() <= 50 for batch in batches if batch[0] >= 2000)


def test_all_batches_of_all_parts_come_until_all_were_handed_out() -> None:
    source = bu.mix(plain(), bucketed(), weights=[1, 1])
    batches = [x for (x,) in source.batch_iterator(8, shuffle=3)]
    assert {int(x) for batch in batches for x in batch} == {*range(50), *range(1000, 1040)}
    assert len(batches) == 14 == len(source.plan(8, 3))
    once = bu.mix(plain(), bucketed(), weights=[1, 1], max_repeats=1)
    assert sorted(np.concatenate([x for (x,) in once.batch_iterator(8, shuffle=3)])) == [*range(50), *range(1000, 1040)]


@pytest.mark.parametrize("other", [weighted, bucketed, packed])
def test_the_same_bytes_everywhere(other: Any) -> None:
    source = bu.mix(plain().map(noisy, rng="sample"), other().map(noisy, rng="sample"), weights=[2, 1])
    sizes = None if other is weighted else ()
    assert_reproducible(source, 6, pools=("serial", "threads"), batch_sizes=sizes, max_batches=12)


@pytest.mark.parametrize("at", [0, 1, 5, 13, 39, 40])
def test_a_state_of_batches_goes_on_in_other_worlds(at: int) -> None:
    source = bu.mix(plain(), bucketed(), packed(), weights=bu.steps((0, [1, 2, 1]), (10, [1, 1, 1])), length=40)
    whole = [x.tolist() for (x,) in source.batch_iterator(8, shuffle=3)]
    iterator = source.batch_iterator(8, shuffle=3)
    for _ in range(at):
        next(iterator)
    state = iterator.state_dict()
    ranks = [source.batch_iterator(8, shuffle=3, shard=(rank, 2), state=state, uneven="drop") for rank in range(2)]
    given = [x.tolist() for pair in zip(*ranks, strict=True) for (x,) in pair]
    assert given == whole[at : at + len(given)]
    assert len(given) >= 40 - at - 1


class TestWeightedParts(SourceContract):
    shuffles = (5, "RandomState", "Generator")

    def make(self) -> Any:
        return bu.mix(plain(23), weighted(), weights=[2, 1])


REFUSED: list[Any] = [
    (lambda: bu.mix(plain(), weighted(-1)), ArgumentError),
    (lambda: bu.mix(plain(), weighted(-1), length=50, max_repeats=2), ArgumentError),
    (lambda: bu.mix(plain(), bu.IteratorDataSource(iter([]))), ArgumentTypeError),
    (lambda: bu.mix(bucketed(), bu.IteratorDataSource(iter([]))), ArgumentTypeError),
    (lambda: bu.mix(plain(), bucketed(), weights=[1]), ArgumentError),
    (lambda: bu.mix(plain(), bucketed(), length=0), ArgumentError),
    (lambda: bu.mix(plain(), bu.ChoiceDataSource([plain(), plain()])), ArgumentTypeError),
    (lambda: list(bu.mix(plain(), bu.repeat(plain(), 2), bucketed().repeat(-1)).batch_iterator(3)), ArgumentTypeError),
    (lambda: list(bu.mix(plain(), packed(), max_repeats=2).batch_iterator(3, shuffle=1)), ArgumentError),
    (lambda: list(bu.mix(plain(), weighted()).batch_iterator(3)), InOrderNotSupported),
    (lambda: bu.Loader(bu.mix(plain(), bucketed(), length=9), 3).set_weights([1, 2]), ArgumentError),
]


@pytest.mark.parametrize(("make", "error"), REFUSED)
def test_what_cannot_be_mixed_says_why(make: Any, error: type) -> None:
    with raises(error):
        make()


def test_parts_without_end_need_a_length() -> None:
    source = bu.mix(plain(), weighted(-1), weights=[1, 1], length=-1)
    assert source.num_samples() == math.inf
    assert len(column(source.take(100))) == 100
