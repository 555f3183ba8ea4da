"""What no sampler can be made of is refused when it is made, with a message that says what to pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError, InOrderNotSupported
from batchup_ng.sampling import (
    BatchSampler,
    BlockShuffleSampler,
    BucketSampler,
    MixtureSampler,
    StandardSampler,
    StridedSampler,
    WeightedSampler,
    WeightedSubsetSampler,
    measure_mixing,
)
from batchup_ng.sampling.weight_table import CHUNK_WEIGHTS
from tests.messages import raises

RNG = np.random.RandomState(1)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: BlockShuffleSampler(-1, 3), ArgumentError),
        (lambda: BlockShuffleSampler(10, 0), ArgumentError),
        (lambda: BlockShuffleSampler(10, 3, 0), ArgumentError),
        (lambda: BlockShuffleSampler(10, 3, groups=0), ArgumentError),
        (lambda: BlockShuffleSampler(10, 3, groups=2, run=0), ArgumentError),
        (lambda: BlockShuffleSampler(10, 3.0), ArgumentTypeError),  # type: ignore[arg-type]
        (lambda: BlockShuffleSampler(10, 3, repeats=0), ArgumentError),
        (lambda: BlockShuffleSampler(0, 3, repeats=-1), ArgumentError),
        (lambda: measure_mixing(range(10), 6), ArgumentError),
        (lambda: BucketSampler([[1]]), ArgumentError),
        (lambda: BucketSampler([1.5]), ArgumentTypeError),
        (lambda: BucketSampler([[1, 2], [3]]), ArgumentTypeError),
        (lambda: BucketSampler([1, -2]), ArgumentError),
        (lambda: BucketSampler(np.array([3, 2**63], np.uint64)), ArgumentError),
        (lambda: BucketSampler([1], num_buckets=0), ArgumentError),
        (lambda: BucketSampler([1], max_tokens=0), ArgumentError),
        (lambda: BucketSampler([1], boundaries=[3, 3]), ArgumentError),
        (lambda: BucketSampler([1], boundaries=[0]), ArgumentError),
        (lambda: BucketSampler([1], boundaries=[1.5]), ArgumentTypeError),
        (lambda: BucketSampler([1], indices=[1]), ArgumentError),
        (lambda: BucketSampler([1], indices=[-1]), ArgumentError),
        (lambda: BucketSampler([1, 9, 2, 7], max_tokens=6, indices=[0, 3]), ArgumentError),
        (lambda: BatchSampler().row_plan(3, None, False), NotImplementedError),
        (lambda: StridedSampler(-1), ArgumentError),
        (lambda: StridedSampler(5, stride=0), ArgumentError),
        (lambda: StridedSampler(5, stride=1.5), ArgumentTypeError),  # type: ignore[arg-type]
        (lambda: StridedSampler(5, start=5), ArgumentError),
        (lambda: StridedSampler(5, repeats=0), ArgumentError),
        (lambda: StridedSampler(0, repeats=-1), ArgumentError),
        (lambda: bu.ArrayDataSource([np.arange(7)], sampler=StridedSampler(6, stop=2)), ArgumentError),
        (lambda: StridedSampler(2**62 + 1, stop=5), ArgumentError),
        (lambda: StridedSampler(2**70), ArgumentError),
        (lambda: WeightedSampler([1, 2], num_samples=0), ArgumentError),
        (lambda: WeightedSampler([1, 2], num_samples=1.5), ArgumentTypeError),
        (lambda: WeightedSampler([1, 2], replacement=0), ArgumentTypeError),
        (lambda: WeightedSampler([1, 0, 2], replacement=False, num_samples=3), ArgumentError),
        (lambda: WeightedSubsetSampler([1, -1], [5, 6]), ArgumentError),
        (lambda: WeightedSampler(["a", "b"]), ArgumentTypeError),
        (lambda: WeightedSampler([[1], [2, 3]]), ArgumentTypeError),
        (lambda: WeightedSampler([1j]), ArgumentTypeError),
        (lambda: WeightedSampler([object(), 1.0]), ArgumentTypeError),
        (lambda: WeightedSampler([1.0] * CHUNK_WEIGHTS + [np.inf]), ArgumentError),
        (lambda: WeightedSampler([1.0] * CHUNK_WEIGHTS + [0, np.nan]), ArgumentError),
        (lambda: WeightedSampler([1, 2], True), TypeError),
        (lambda: WeightedSampler([1]).rows_at(np.arange(1), None), InOrderNotSupported),
        (lambda: WeightedSampler([1]).row_plan(1, None, False), InOrderNotSupported),
        (lambda: StandardSampler(3).shuffled_indices_batch_iterator(0, RNG), ArgumentError),
        (lambda: StandardSampler(3).in_order_indices_batch_iterator(0), ArgumentError),
        (lambda: MixtureSampler([3]).shuffled_indices_batch_iterator(0, RNG), ArgumentError),
        (lambda: BucketSampler([1]).in_order_indices_batch_iterator(2.5), ArgumentTypeError),  # type: ignore[arg-type]
        (lambda: WeightedSampler([1]).shuffled_indices_batch_iterator(2.5, RNG), ArgumentTypeError),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_is_refused(make: Any, error: type) -> None:
    with raises(error):
        make()
