"""Orders and draws are the same in every release: a state that was saved with one goes on with another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.randomness import BatchKey, OrderKey, SampleRng, word
from batchup_ng.sampling import (
    BalancedBatchSampler,
    BlockShuffleSampler,
    BucketSampler,
    MixtureSampler,
    StandardSampler,
    StratifiedSampler,
    StridedSampler,
    SubsetSampler,
    WeightedSampler,
)

KEY = OrderKey(7, 3, (1, 0))
CLASSES = np.repeat([0, 1, 2, 5], [11, 3, 5, 2])
LENGTHS = np.arange(40) * 7 % 23


def rows_of(sampler: Any, n: int) -> np.ndarray:
    return np.asarray(sampler.rows_at(np.arange(n), KEY))


def batches_of(source: Any, batch_size: int) -> np.ndarray:
    return np.concatenate([x for x, *_ in source.batch_iterator(batch_size, shuffle=7, epoch=3)])


def numbers(n: int, sampler: Any = None) -> Any:
    return bu.ArrayDataSource([np.arange(n)], sampler=sampler)


MADE: dict[str, tuple[Callable[[], Any], int]] = {
    "standard": (lambda: rows_of(StandardSampler(30, repeats=2), 60), 0x3890667bb5bb0a89),
    "long": (lambda: rows_of(StandardSampler(10**12), 20), 0x541dc3f852914306),
    "subset": (lambda: rows_of(SubsetSampler(np.arange(20) * 3), 20), 0x7c5fa903e57534e9),
    "sequential": (lambda: rows_of(StridedSampler(60, stride=-3), 20), 0xf7053463768fda2b),
    "weighted": (lambda: rows_of(WeightedSampler(np.arange(50)), 60), 0x4c3f96dc52502415),
    "in turn": (lambda: rows_of(WeightedSampler(np.arange(30), replacement=False), 29), 0xeea09563bf81fcf8),
    "stratified": (lambda: rows_of(StratifiedSampler(CLASSES, repeats=2), 42), 0x4b7dd606f71e211d),
    "balanced": (lambda: rows_of(BalancedBatchSampler(CLASSES, 2), 48), 0xc6a0089a1fd0a780),
    "balanced, few": (lambda: rows_of(BalancedBatchSampler(CLASSES, 2, 3), 36), 0xd92788c540f55079),
    "blocks": (lambda: rows_of(BlockShuffleSampler(30, 4, 2, repeats=2), 60), 0x443d048e2fc30cc6),
    "interleave": (lambda: rows_of(MixtureSampler([9, 5, 3], [3, 2, 1]), 60), 0x9fa05a0feeeb4874),
    "buckets": (lambda: batches_of(numbers(40, BucketSampler(LENGTHS, max_tokens=60)), 8), 0xb350612ee5d17b9d),
    "choice": (lambda: batches_of(bu.ChoiceDataSource([numbers(9), numbers(30)]), 4), 0xc9b2e29aee6c173f),
    "stratified choice": (
        lambda: batches_of(bu.ChoiceDataSource([numbers(9), numbers(30)], stratified=True), 4),
        0x064ca4c89671017b,
    ),
    "composite": (lambda: batches_of(bu.CompositeDataSource([numbers(9), numbers(9)]), 4), 0x21986a034fa036c9),
    "repeated": (lambda: batches_of(bu.repeat(numbers(9), 3), 4), 0x49effc17cfbcff90),
    "random": (lambda: SampleRng(5, np.arange(4), np.array([0, 0, 1, 2])).random(3), 0x4b1b00c772a7a969),
    "normal": (lambda: SampleRng(5, np.arange(9)).normal(size=3), 0x05f9970c8d58daa2),
    "integers": (lambda: SampleRng(5, np.arange(9)).integers(-(2**40), 2**50, size=3), 0xd3c02262f3f2cd38),
    "weighted choice": (lambda: SampleRng(5, np.arange(9)).choice(9, p=np.arange(9)), 0xfb917823280f70d0),
    "of samples": (lambda: BatchKey(7, 3, 2, 8, (1, 0)).sample_rng(4).random(2), 0x081d8319304299d7),
    "of a batch": (
        lambda: BatchKey(7, 3, 2, 8, (1, 0)).generator().bit_generator.state["state"]["key"],
        0x85803b3ebbad065b,
    ),
    "of each sample": (
        lambda: [g.bit_generator.state["state"]["key"] for g in SampleRng(5, np.arange(3)).generators()],
        0x1776bc31da3d2de2,
    ),
}

@pytest.mark.parametrize("name", MADE)
def test_it_is_the_same_for_ever(name: str) -> None:
    make, kept = MADE[name]
    made = np.asarray(make())
    plain = made.astype(made.dtype.newbyteorder("<"))
    assert f"{word(plain.tobytes().hex()):#018x}" == f"{kept:#018x}"
