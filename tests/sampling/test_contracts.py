"""The contract of samplers, held by each of them with several options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from batchup_ng.sampling import (
    BalancedBatchSampler,
    BlockShuffleSampler,
    BucketSampler,
    FeedbackSampler,
    MixtureSampler,
    PackSampler,
    StandardSampler,
    StratifiedSampler,
    StridedSampler,
    SubsetSampler,
    WeightedSampler,
    WeightedSubsetSampler,
)
from batchup_ng.testing.samplers import BatchSamplerContract, SamplerContract
from tests.extent import thorough

Y = np.array([0, 3, 3, 0, 3, 3, 7, 3, 3, 0, 3, 7, 3])
LENGTHS = np.arange(53) * 31 % 40
SIZES, FEW = (1, 3, 7, 1000), (1, 100)


def reported(sampler: FeedbackSampler) -> FeedbackSampler:
    """Report losses for some epochs."""
    for epoch in range(3):
        sampler.update(np.arange(9), np.arange(9.0) + epoch, epoch)
    return sampler


MADE: list[Any] = [
    (lambda: StandardSampler(23), SIZES),
    thorough((lambda: StandardSampler(11, repeats=3), SIZES)),
    (lambda: StandardSampler(11, repeats=-1), FEW),
    (lambda: StandardSampler(10_000), SIZES),
    (lambda: SubsetSampler(np.array([3, 9, 1, 4, 100, 7, 50, 2]), repeats=2), SIZES),
    (lambda: StridedSampler(60, start=1, stride=3), SIZES),
    (lambda: StridedSampler(20, stride=-1, repeats=2), SIZES),
    (lambda: StridedSampler(20, 5, 15, 2, repeats=-1), FEW),
    (lambda: BlockShuffleSampler(103, 10, 3), SIZES),
    (lambda: BlockShuffleSampler(103, 10, 3, groups=4, run=6), SIZES),
    thorough((lambda: BlockShuffleSampler(60, 5, 4, repeats=2), SIZES)),
    (lambda: BlockShuffleSampler(300, 7, 2, repeats=-1), FEW),
    thorough((lambda: StratifiedSampler(Y), SIZES)),
    (lambda: StratifiedSampler(Y, indices=np.array([12, 0, 3, 5, 6, -1, 2]), repeats=3), SIZES),
    (lambda: StratifiedSampler(np.tile(Y, 20), repeats=-1), FEW),
    (lambda: BalancedBatchSampler(Y, 2), (6,)),
    (lambda: BalancedBatchSampler(np.arange(40) % 7, 2, classes_per_batch=3), (6,)),
    (lambda: MixtureSampler([11, 5, 2], [0.5, 0.3, 0.2]), SIZES),
    (lambda: MixtureSampler([7, 30], [1, 2], length=-1), FEW),
    (lambda: MixtureSampler([7, 30, 4], [22, 7, 0], length=80), SIZES),
    (lambda: WeightedSampler(np.arange(30)), SIZES),
    (lambda: WeightedSampler(np.arange(30), num_samples=45), SIZES),
    thorough((lambda: WeightedSampler(np.arange(30), replacement=False), SIZES)),
    (lambda: WeightedSampler(np.arange(30), replacement=False, num_samples=11), SIZES),
    (lambda: WeightedSubsetSampler(np.arange(1, 31), np.arange(100, 130)), SIZES),
    (lambda: reported(FeedbackSampler(30, 0.8, num_samples=45)), SIZES),
    (lambda: WeightedSubsetSampler(np.arange(1, 31), np.arange(100, 130), replacement=False), SIZES),
]
IN_BATCHES = [
    lambda: BucketSampler(LENGTHS, num_buckets=3),
    lambda: BucketSampler(LENGTHS, boundaries=range(1, 60)),
    lambda: BucketSampler(LENGTHS, max_tokens=90, indices=np.arange(50, 2, -1)),
    lambda: PackSampler(LENGTHS, 90),
    lambda: PackSampler(LENGTHS, 45, window=7, balance="squares", indices=np.arange(50, 2, -1)),
]


class TestSamplers(SamplerContract):
    @pytest.fixture(autouse=True, params=MADE)
    def options(self, request: pytest.FixtureRequest) -> None:
        self.made, self.batch_sizes = request.param  # type: ignore[misc]
        self.in_order = not isinstance(self.make(), (WeightedSampler, FeedbackSampler))  # type: ignore[misc]

    def make(self) -> Any:
        return self.made()


class TestBatchSamplers(BatchSamplerContract):
    @pytest.fixture(autouse=True, params=IN_BATCHES)
    def options(self, request: pytest.FixtureRequest) -> None:
        self.made = request.param

    def make(self) -> Any:
        return self.made()


def test_every_option_is_told_apart_by_the_fingerprint_by_which_states_are_refused() -> None:
    other = Y[::-1]
    made = [
        *[BlockShuffleSampler(*options) for options in ((9, 3), (10, 3), (9, 2), (9, 3, 2), (9, 3, 16, 2))],
        *[BlockShuffleSampler(9, 3, groups=groups, run=run) for groups, run in ((2, 2), (3, 2), (3, 4))],
        *[StridedSampler(*each) for each in ((9, 0), (10, 0), (9, 1), (9, 0, 8), (9, 0, None, 2), (9, 0, None, 1, 2))],
        *[MixtureSampler(*each) for each in (([3, 4],), ([4, 3],), ([3, 4], [2, 1]), ([3, 4], [1, 2]))],
        *[MixtureSampler([3, 4], None, length) for length in (9, -1)],
        *[StratifiedSampler(*each) for each in ((Y,), (other,), (Y, None, 2), (Y, np.arange(13)), (Y, [1, 2]))],
        StratifiedSampler(Y, [2, 1]),
        *[BalancedBatchSampler(*options) for options in ((Y, 1), (other, 1), (Y, 2), (Y, 1, 2))],
        *[BucketSampler(LENGTHS, max_tokens=most) for most in (None, 90, 91)],
        BucketSampler(LENGTHS, max_tokens=90, num_buckets=5),
        *[BucketSampler(lengths, max_tokens=90) for lengths in (LENGTHS[::-1], LENGTHS[1:])],
        *[PackSampler(LENGTHS, *options) for options in ((90,), (91,))],
        *[PackSampler(LENGTHS, 90, window=9), PackSampler(LENGTHS, 90, balance="squares")],
        *[PackSampler(lengths, 90) for lengths in (LENGTHS[::-1], LENGTHS[1:])],
        PackSampler(LENGTHS, 90, indices=np.arange(53)[::-1]),
        *[WeightedSampler(Y), WeightedSampler(other), WeightedSampler(Y, num_samples=5)],
        WeightedSampler(Y, replacement=False, num_samples=5),
        *[FeedbackSampler(*options) for options in ((9, 1), (9, 2), (10, 1))],
        *[FeedbackSampler(9, 1, floor=0.5), FeedbackSampler(9, 1, num_samples=5)],
        *[WeightedSubsetSampler(Y, rows) for rows in (np.arange(13), np.arange(1, 14))],
        *[WeightedSampler(some) for some in (np.ones(100_000), np.arange(100_000) != 12_345)],  # no entry is left out
    ]
    assert len({str(sampler.fingerprint()) for sampler in made}) == len(made)
