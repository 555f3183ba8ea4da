"""Each sampler in a source, through pools: the same batches, from wherever the epoch is entered."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, StateError
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.extent import quick
from tests.messages import raises

N = 200
Y = np.arange(N) ** 2 % 11

MADE = {
    "stratified": lambda: bu.StratifiedSampler(Y),
    "stratified part": lambda: bu.StratifiedSampler(Y, np.arange(0, N, 2), repeats=2),
    "balanced": lambda: bu.BalancedBatchSampler(Y, 2),
    "balanced by few": lambda: bu.BalancedBatchSampler(Y, 3, classes_per_batch=4),
    "blocks": lambda: bu.BlockShuffleSampler(N, 16, 3),
    "blocks of ranks": lambda: bu.BlockShuffleSampler(N, 16, 3, groups=3, run=9),
    "interleaved": lambda: bu.MixtureSampler([150, 50], [2, 1]),
    "interleaved for ever": lambda: bu.MixtureSampler([150, 50], length=-1),
    "every third": lambda: bu.StridedSampler(N, stride=3),
    "buckets": lambda: bu.BucketSampler(Y, max_tokens=60),
    "packed": lambda: bu.PackSampler(Y, 40, window=50),
    "weighted": lambda: bu.WeightedSampler(Y + 1.0, num_samples=150),
    "weighted without replacement": lambda: bu.WeightedSampler(Y, replacement=False),
    "some": lambda: bu.WeightedSampler(Y, replacement=False, num_samples=163),
    "weighted subset": lambda: bu.WeightedSubsetSampler(Y[1::2] + 1, np.arange(1, N, 2), replacement=False),
}
SIZES = {"balanced": 12, "balanced by few": 12, "buckets": 12, "packed": 12}


def noisy(x: np.ndarray, rng: Any) -> Any:
    return x, rng.normal(size=2)


def source_of(name: str) -> Any:
    return bu.ArrayDataSource([np.arange(N)], sampler=MADE[name]()).map(noisy, rng="sample")


KINDS = {"seed": 7, "in order": None}
DRAWN = [name for name in MADE if isinstance(MADE[name](), bu.WeightedSampler)]
WAYS = [(name, kind) for name, kind in itertools.product(MADE, KINDS) if kind == "seed" or name not in DRAWN]
QUICK = [(n, "seed" if i % 2 or (n, "in order") not in WAYS else "in order") for i, n in enumerate(MADE)]


@pytest.mark.parametrize(("name", "kind"), quick(QUICK, WAYS))
def test_an_epoch_goes_on_in_any_pool(pools: list[AbstractWorkerPool], name: str, kind: str) -> None:
    size = SIZES.get(name, 9)
    whole = list(islice(source_of(name).batch_iterator(size, KINDS[kind], epoch=1), 16))
    stop = min(5, len(whole) - 1)
    for first, second in ((0, 1), (1, 0)):
        with pools[first].parallel_data_source(source_of(name)).batch_iterator(size, KINDS[kind], epoch=1) as it:
            assert_same_batches(list(islice(it, stop)), whole[:stop])
            state = json.loads(json.dumps(it.state_dict()))
        assert len(json.dumps(state)) <= 4096
        parallel = pools[second].parallel_data_source(source_of(name))
        with parallel.batch_iterator(size, KINDS[kind], state=state) as it:
            assert_same_batches(list(islice(it, len(whole) - stop)), whole[stop:])


@pytest.mark.parametrize("name", [name for name in MADE if name not in SIZES])
def test_a_seeded_epoch_goes_on_with_another_batch_size_and_world(name: str) -> None:
    iterator = source_of(name).batch_iterator(9, shuffle=7)
    list(islice(iterator, 3))
    expected = np.concatenate(
        [x for x, _ in islice(source_of(name).batch_iterator(9, shuffle=7, state=iterator.state_dict()), 4)]
    )
    ranks = [
        source_of(name).batch_iterator(4, shuffle=7, state=iterator.state_dict(), shard=(rank, 3)) for rank in range(3)
    ]
    together = [next(ranks[k % 3])[0] for k in range(9)]
    np.testing.assert_array_equal(np.concatenate(together)[:30], expected[:30])


@pytest.mark.parametrize("name", SIZES)
def test_whole_batches_are_shared_out_after_a_resume_too(name: str) -> None:
    alone = list(source_of(name).batch_iterator(12, shuffle=7))
    ranks = [source_of(name).batch_iterator(12, shuffle=7, shard=(rank, 2)) for rank in range(2)]
    assert_same_batches([next(ranks[k % 2]) for k in range(4)], alone[:4])
    states = [rank.state_dict() for rank in ranks]
    ranks = [source_of(name).batch_iterator(12, shuffle=7, shard=(rank, 3), state=states[0]) for rank in range(3)]
    assert_same_batches([next(ranks[k % 3]) for k in range(6)], alone[4:10])


def test_the_state_of_another_sampler_is_refused() -> None:
    for name in MADE:
        iterator = source_of(name).batch_iterator(SIZES.get(name, 9), shuffle=7)
        for other in MADE:
            if other != name:
                with raises((StateError, ArgumentError)):
                    source_of(other).batch_iterator(SIZES.get(other, 9), shuffle=7, state=iterator.state_dict())


def test_samplers_for_other_data_are_refused() -> None:
    for name, make in MADE.items():
        for n in (N - 1, N + 1):
            if (name, n) != ("weighted subset", N + 1):  # its rows are there
                with raises(ArgumentError) as caught:
                    bu.ArrayDataSource([np.arange(n)], sampler=make())
                assert re.search(rf"{n}; make|below {n}\b", str(caught.value))
        assert bu.ArrayDataSource([np.arange(N)], sampler=make()).num_samples() > 0, name


def test_a_sampler_of_ones_own_is_not_asked_what_it_does_not_know() -> None:
    class Odd(bu.AbstractSampler):
        def num_indices_generated(self) -> Any:
            return 2

        def in_order_indices_batch_iterator(self, batch_size: int) -> Iterator[np.ndarray]:
            return iter([np.array([1, 3])])

    source = bu.ArrayDataSource([np.arange(5)], sampler=Odd())
    assert [x.tolist() for (x,) in source.batch_iterator(2)] == [[1, 3]]


class Backwards(bu.sampling.RandomAccessSampler):
    """A sampler of a user's own: what `give` makes of the rows from the last to the first."""

    def __init__(self, give: Any) -> None:
        self.give = give

    def num_indices_generated(self) -> int:
        return N

    def rows_at(self, positions: np.ndarray, key: Any) -> Any:
        return self.give(N - 1 - positions)


@pytest.mark.parametrize("shuffle", [None, 3, np.random.RandomState(3)])
def test_rows_of_ones_own_sampler_may_be_a_list(shuffle: Any) -> None:
    source = bu.ArrayDataSource([np.arange(N)], sampler=Backwards(lambda rows: rows.tolist()))
    assert np.concatenate([x for (x,) in source.batch_iterator(9, shuffle)]).tolist() == list(range(N))[::-1]


def test_the_array_that_ones_own_sampler_returns_may_still_be_written_to() -> None:
    given = np.arange(N)
    source = bu.ArrayDataSource([np.arange(N)], sampler=Backwards(lambda rows: given[: len(rows)]))
    assert len(list(source.batch_iterator(N, 3))) == 1
    given[0] = 1


@pytest.mark.parametrize("shuffle", [None, 3, np.random.RandomState(3)])
@pytest.mark.parametrize(
    "give",
    [
        lambda rows: rows[:-1],
        lambda rows: rows[:, None],
        lambda rows: None,
        lambda rows: rows * 1.0,
        lambda rows: rows > 3,
    ],
)
def test_no_sample_is_lost_to_rows_that_are_none(give: Any, shuffle: Any) -> None:
    source = bu.ArrayDataSource([np.arange(N)], sampler=Backwards(give))
    with raises((ArgumentError, bu.ArgumentTypeError)):
        list(source.batch_iterator(9, shuffle))
