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

RNG = np.random.RandomState(1)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: BlockShuffleSampler(-1, 3), ArgumentError, "length must not be negative"),
        (lambda: BlockShuffleSampler(10, 0), ArgumentError, "block must be at least 1"),
        (lambda: BlockShuffleSampler(10, 3, 0), ArgumentError, "window must be at least 1"),
        (lambda: BlockShuffleSampler(10, 3.0), ArgumentTypeError, "block must be a whole number"),  # type: ignore[arg-type]
        (lambda: BlockShuffleSampler(10, 3, repeats=0), ArgumentError, "repeats"),
        (lambda: BlockShuffleSampler(0, 3, repeats=-1), ArgumentError, "no rows to repeat"),
        (lambda: measure_mixing(range(10), 6), ArgumentError, "batch_size must be at most half of the 10 rows"),
        (lambda: BucketSampler([[1]]), ArgumentError, "lengths must be one-dimensional"),
        (lambda: BucketSampler([1.5]), ArgumentTypeError, "lengths must be whole numbers, not float64"),
        (
            lambda: BucketSampler([[1, 2], [3]]),
            ArgumentTypeError,
            r"is a list of lists; pass \[len\(row\) for row in rows\]",
        ),
        (lambda: BucketSampler([1, -2]), ArgumentError, r"lengths\[1\] is -2"),
        (lambda: BucketSampler(np.array([3, 2**63], np.uint64)), ArgumentError, "lengths must be below 2.63"),
        (lambda: BucketSampler([1], num_buckets=0), ArgumentError, "num_buckets must be at least 1, not 0"),
        (lambda: BucketSampler([1], max_tokens=0), ArgumentError, "max_tokens must be at least 1, not 0"),
        (lambda: BucketSampler([1], boundaries=[3, 3]), ArgumentError, "from at least 1, not 3, 3; pass them sorted"),
        (lambda: BucketSampler([1], boundaries=[0]), ArgumentError, "from at least 1, not 0, 0; pass them sorted"),
        (lambda: BucketSampler([1], boundaries=[1.5]), ArgumentTypeError, r"boundaries\[0\] must be a whole number"),
        (lambda: BucketSampler([1], indices=[1]), ArgumentError, "indices must be row numbers from 0, below 1, and"),
        (lambda: BucketSampler([1], indices=[-1]), ArgumentError, "reach from -1 to -1"),
        (
            lambda: BucketSampler([1, 9, 2, 7], max_tokens=6, indices=[0, 3]),
            ArgumentError,
            r"max_tokens is 6, and row 3 alone is longer: 7; raise it.*flatnonzero\(lengths <= 6\)",
        ),
        (lambda: BatchSampler().row_plan(3, None, False), NotImplementedError, "Abstract for type"),
        (lambda: StridedSampler(-1), ArgumentError, "length must not be negative, and is -1"),
        (lambda: StridedSampler(5, stride=0), ArgumentError, "stride must not be 0"),
        (lambda: StridedSampler(5, stride=1.5), ArgumentTypeError, "stride must be a whole number"),  # type: ignore[arg-type]
        (lambda: StridedSampler(5, start=5), ArgumentError, "start=5, stop=None, stride=1 leave no row of 5"),
        (lambda: StridedSampler(5, repeats=0), ArgumentError, "repeats"),
        (lambda: StridedSampler(0, repeats=-1), ArgumentError, "no rows to repeat"),
        (
            lambda: bu.ArrayDataSource([np.arange(7)], sampler=StridedSampler(6, stop=2)),
            ArgumentError,
            "sampler is for data of 6 rows, but there are 7",
        ),
        (lambda: StridedSampler(2**62 + 1, stop=5), ArgumentError, "length must be at most 2\\^62"),
        (lambda: StridedSampler(2**70), ArgumentError, "length must be at most 2\\^62"),
        (lambda: WeightedSampler([1, 2], num_samples=0), ArgumentError, "num_samples must be at least 1, not 0"),
        (lambda: WeightedSampler([1, 2], num_samples=1.5), ArgumentTypeError, "num_samples must be a whole number"),
        (lambda: WeightedSampler([1, 2], replacement=0), ArgumentTypeError, "replacement must be True or False, not 0"),
        (
            lambda: WeightedSampler([1, 0, 2], replacement=False, num_samples=3),
            ArgumentError,
            "num_samples must be at most 2, the number of weights above 0, with replacement=False, not 3",
        ),
        (
            lambda: WeightedSubsetSampler([1, -1], [5, 6]),
            ArgumentError,
            r"sub_weights must be finite and not negative, but sub_weights\[1\] is -1",
        ),
        (lambda: WeightedSampler(["a", "b"]), ArgumentTypeError, "weights must be numbers, not <U1"),
        (lambda: WeightedSampler([[1], [2, 3]]), ArgumentTypeError, "weights must be one-dimensional, and is"),
        (lambda: WeightedSampler([1j]), ArgumentTypeError, "weights must be numbers, not complex"),
        (lambda: WeightedSampler([object(), 1.0]), ArgumentTypeError, "weights must be numbers"),
        (
            lambda: WeightedSampler([1.0] * CHUNK_WEIGHTS + [np.inf]),
            ArgumentError,
            rf"weights\[{CHUNK_WEIGHTS}\] is inf",
        ),
        (
            lambda: WeightedSampler([1.0] * CHUNK_WEIGHTS + [0, np.nan]),
            ArgumentError,
            rf"weights\[{CHUNK_WEIGHTS + 1}\] is nan",
        ),
        (lambda: WeightedSampler([1, 2], True), TypeError, "positional"),
        (lambda: WeightedSampler([1]).rows_at(np.arange(1), None), InOrderNotSupported, "pass shuffle="),
        (lambda: WeightedSampler([1]).row_plan(1, None, False), InOrderNotSupported, "pass shuffle="),
        (lambda: StandardSampler(3).shuffled_indices_batch_iterator(0, RNG), ArgumentError, "at least 1, not 0"),
        (lambda: StandardSampler(3).in_order_indices_batch_iterator(0), ArgumentError, "batch_size must be at least 1"),
        (lambda: MixtureSampler([3]).shuffled_indices_batch_iterator(0, RNG), ArgumentError, "at least 1, not 0"),
        (lambda: BucketSampler([1]).in_order_indices_batch_iterator(2.5), ArgumentTypeError, "whole number"),  # type: ignore[arg-type]
        (lambda: WeightedSampler([1]).shuffled_indices_batch_iterator(2.5, RNG), ArgumentTypeError, "whole number"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_is_refused(make: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        make()
