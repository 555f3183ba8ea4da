"""Rows are read-only for all code that reads by them: who sorted them would give other columns other samples."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.sampling import WeightedSampler
from tests.messages import raises

N = 12


class Noting:
    """An accessor that gives, for each row asked for, whether the rows were read-only."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        return np.full(len(rows), not rows.flags.writeable)


class OfOnesOwn(bu.data_source.RandomAccessDataSource):
    """The same, written against BatchUp's method."""

    def __init__(self, **options: Any) -> None:
        super().__init__(N, **options)

    def samples_by_indices_nomapping(self, indices: np.ndarray) -> Any:
        return (Noting()[indices],)


class Listing(OfOnesOwn):
    """A source that lists rows itself, in arrays that it goes on using."""

    def batch_indices_iterator(self, batch_size: int, shuffle: Any = None, **options: Any) -> Any:
        rows = np.arange(N)
        for start in range(0, N, batch_size):
            yield rows[start : start + batch_size]
            rows[0] = 0


class Sorts(Noting):
    """An accessor that sorts the rows in place, as those of h5py do at times."""

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        rows.sort()
        return rows * 10


def data(**options: Any) -> bu.ArrayDataSource:
    return bu.ArrayDataSource([Noting()], **options)


GRAPHS = {
    "array": data(),
    "subset of rows": data(indices=np.arange(0, N, 2)),
    "own": OfOnesOwn(),
    "listing": Listing(),
    "weighted": data(sampler=WeightedSampler(np.ones(N))),
    "choice": bu.ChoiceDataSource([data(), OfOnesOwn()]),
    "composite": bu.CompositeDataSource([data(), OfOnesOwn()]),
    "nest": bu.CompositeDataSource([bu.ChoiceDataSource([data(), data()]), OfOnesOwn()]),
    "concat": bu.concat([data(), OfOnesOwn()]),
    "zip": bu.data_source.ZipDataSource([data(), OfOnesOwn()]),
    "subset": bu.subset(OfOnesOwn(), np.arange(5)[::-1]),
    "map": data().map(lambda x: (x,)),
}


@pytest.fixture(scope="module")
def all_pools(pools: Any) -> Any:
    with bu.SerialPool() as serial:
        yield [serial, *pools]


@pytest.mark.parametrize("name", GRAPHS)
def test_rows_are_read_only_in_every_pool(name: str, all_pools: Any) -> None:
    source = GRAPHS[name]
    for shuffle in (None, 7, np.random.RandomState(1)):
        if name == "weighted" and shuffle is None:
            continue
        for each in (source, *[pool.parallel_data_source(source) for pool in all_pools]):
            batches = list(itertools.islice(each.batch_iterator(4, shuffle=shuffle), 5))  # some never end
            assert batches
            assert all(array.all() for batch in batches for array in batch)


def test_rows_that_a_user_asks_for_are_read_only_for_accessors() -> None:
    rows = np.array([3, 1])
    assert data().samples_by_indices_nomapping(rows)[0].all()
    assert OfOnesOwn().samples_by_indices(rows)[0].all()
    both = bu.CompositeDataSource([data(), OfOnesOwn()])
    for batch in (both.samples_by_indices((rows, rows)), both.samples_by_indices_nomapping((rows, rows))):
        assert all(array.all() for array in batch)
    assert rows.flags.writeable


def test_an_accessor_that_sorts_rows_in_place_is_told_of_in_every_pool(all_pools: Any) -> None:
    source = bu.ArrayDataSource([Sorts(), np.arange(N) * 10])
    for each in (source, *[pool.parallel_data_source(source) for pool in all_pools]):
        with raises(ValueError):
            list(each.batch_iterator(4, shuffle=np.random.RandomState(1)))
