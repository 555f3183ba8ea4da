"""Every k-th row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.errors import ArgumentError
from batchup_ng.randomness import OrderKey
from batchup_ng.sampling import StridedSampler
from tests.messages import raises

ends = st.none() | st.integers(-40, 40)


@given(n=st.integers(0, 30), start=ends, stop=ends, stride=st.integers(-9, 9).filter(bool), seed=st.integers(0, 2**64))
def test_the_rows_are_those_of_a_slice(n: int, start: int | None, stop: int | None, stride: int, seed: int) -> None:
    expected = list(range(n)[start:stop:stride])
    if n and not expected:
        with raises(ArgumentError) as caught:
            StridedSampler(n, start, stop, stride)
        assert f"of {n}" in str(caught.value)
        return
    sampler = StridedSampler(n, start, stop, stride)
    positions = np.arange(len(expected))
    assert sampler.num_indices_generated() == len(expected)
    assert sampler.rows_at(positions, None).tolist() == expected
    assert sorted(sampler.rows_at(positions, OrderKey(seed, 0))) == sorted(expected)
    drawn = [*sampler.shuffled_indices_batch_iterator(4, np.random.RandomState(seed % 1000)), np.arange(0)]
    assert sorted(np.concatenate(drawn)) == sorted(expected)


def test_the_last_rows_of_a_huge_video_are_reached_at_once() -> None:
    sampler = StridedSampler(10**15, start=7, stride=1000)
    assert sampler.rows_at(np.array([10**12 - 1]), None).tolist() == [10**15 - 1000 + 7]
    assert sampler.rows_at(np.arange(5), OrderKey(1, 0)).max() < 10**15


@pytest.mark.parametrize("stride", [2**62, 2**63, 2**70, -(2**63), -(2**70)])
def test_a_stride_beyond_all_rows_leaves_the_first(stride: int) -> None:
    for n in (1, 10, 2**62):
        sampler = StridedSampler(n, stride=stride, repeats=2)
        first = 0 if stride > 0 else n - 1
        assert sampler.rows_at(np.arange(2), None).tolist() == [first, first]
        assert sampler.rows_at(np.arange(2), OrderKey(1, 0)).tolist() == [first, first]
        assert sampler.map_indices([0]).tolist() == [first]


def test_a_source_hands_out_every_kth_row() -> None:
    frames = np.arange(100, 110)
    source = bu.ArrayDataSource([frames], sampler=StridedSampler(10, start=2, stride=4, repeats=2))
    assert [x.tolist() for (x,) in source.batch_iterator(3)] == [[102, 106, 102], [106]]
    assert source.samples_by_indices(np.array([1, 0]))[0].tolist() == [106, 102]
    assert sorted(np.concatenate([x for (x,) in source.batch_iterator(3, shuffle=1)])) == [102, 102, 106, 106]


def test_a_subset_of_every_kth_row_counts_within_it() -> None:
    source = bu.ArrayDataSource([np.arange(10)], sampler=StridedSampler(10, stride=-3))
    assert [x.tolist() for (x,) in bu.subset(source, [0, 2]).batch_iterator(4)] == [[9, 3]]
