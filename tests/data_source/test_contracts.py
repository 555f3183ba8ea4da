"""Each source under the contract of all sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source import PlannedDataSource
from batchup_ng.randomness import SampleRng
from batchup_ng.testing.sources import SourceContract, assert_same_batches

SHUFFLED = (5, "RandomState", "Generator")


def array(n: int = 23, first: int = 0, **options: Any) -> bu.ArrayDataSource:
    ids = np.arange(first, first + n)
    return bu.ArrayDataSource([ids, ids[:, None] * np.array([1.0, 0.5])], **options)


def double(i: Any, x: Any) -> Any:
    return i, x * 2


def noisy(i: Any, x: Any, rng: Any) -> Any:
    return i, x + (rng.normal(size=2) if isinstance(rng, SampleRng) else rng.normal(size=x.shape))


def noisy_sample(i: Any, x: Any, rng: np.random.Generator) -> Any:
    return i, x + rng.normal()


def contract(make: Callable[[], Any], **attributes: Any) -> Any:
    """Return the tests of a source that `make` makes anew each time."""
    return type("Contract", (SourceContract,), {"make": lambda self: make(), **attributes})


def weighted(**options: Any) -> bu.ArrayDataSource:
    return array(sampler=bu.WeightedSampler(np.arange(23), **options))


def choice(*more: bu.ArrayDataSource, **options: Any) -> bu.ChoiceDataSource:
    return bu.ChoiceDataSource([array(9), array(14, 100), *more], **options)


TestArray = contract(array)
TestArrayOfRepeatedIndices = contract(
    lambda: array(indices=np.array([3, 1, 4, 15, 9, 2, 6]), repeats=3, include_indices=True)
)
TestArrayForEver = contract(lambda: array(repeats=-1))
TestArrayWithWeights = contract(weighted, shuffles=SHUFFLED)
TestArrayInBuckets = contract(lambda: array(sampler=bu.BucketSampler(np.arange(23) * 7 % 10, num_buckets=3)))
TestMap = contract(lambda: array().map(double))
TestMapWithRandomBatches = contract(lambda: array().map(noisy, rng="batch"))
TestMapWithRandomSamples = contract(lambda: array().map(noisy, rng="sample").map(double))
TestMapOfSamples = contract(lambda: array().map_samples(lambda i, x: (i, x * x)))
TestMapOfRandomSamples = contract(lambda: array().map_samples(noisy_sample, rng="sample"))
TestComposite = contract(
    lambda: bu.CompositeDataSource([array(10, repeats=-1), array(18).map(noisy, rng="sample")])
)
TestCompositeOfCompositesUntrimmed = contract(
    lambda: bu.CompositeDataSource(
        [bu.CompositeDataSource([array(9), array(11)], flatten=False), array(10)], flatten=False
    )
)
TestChoice = contract(choice)
TestStratifiedChoice = contract(
    lambda: bu.ChoiceDataSource([array(9), array(25, 100).map(noisy, rng="sample")], stratified=True)
)
TestConcat = contract(
    lambda: bu.concat(array(9), array(25, 100).map(noisy, rng="sample"), bu.subset(array(30, 200), [3, 5, -1]))
)
TestSubset = contract(lambda: bu.subset(array().map(noisy, rng="batch"), np.arange(20, 3, -2)))
TestZip = contract(lambda: bu.zip(array(), array(first=50).map(noisy, rng="sample"), flatten=False))
TestTake = contract(lambda: bu.take(array(), 14))
TestTakeOfAChoice = contract(lambda: bu.take(choice(stratified=True), 13))
TestTakeOfWeights = contract(lambda: bu.take(weighted(), 14), shuffles=SHUFFLED)
TestRepeat = contract(lambda: bu.repeat(array(9).map(noisy, rng="sample"), 3))
TestRepeatOfAChoiceForEver = contract(lambda: bu.repeat(choice(stratified=True)))
TestArrayWithWeightsInTurn = pytest.mark.thorough(
    contract(lambda: weighted(replacement=False, num_samples=9), shuffles=SHUFFLED)
)
TestRepeatOfAChoice = pytest.mark.thorough(contract(lambda: bu.repeat(choice(array(5, 200)), 3)))


class TestArrayInBucketsOfSoManyTokens(SourceContract):
    def make(self) -> PlannedDataSource:
        return array(sampler=bu.BucketSampler(np.arange(23) * 7 % 10, num_buckets=3, max_tokens=24))

    def test_dropping_the_last_leaves_whole_batches(self) -> None:
        for kind in self.shuffles:
            assert_same_batches(self.epoch(kind, drop_last=True), self.epoch(kind)[:-1])


class TestArrayPacked(SourceContract):
    def make(self) -> PlannedDataSource:
        return array(sampler=bu.PackSampler(np.arange(23) * 7 % 10, 24, window=9))

    def test_dropping_the_last_leaves_whole_batches(self) -> None:
        for kind in self.shuffles:
            assert_same_batches(self.epoch(kind, drop_last=True), self.epoch(kind))


class MyStorage(bu.RandomAccessDataSource):
    """A source as a user of BatchUp wrote it."""

    def __init__(self) -> None:
        super().__init__(23)

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        return (np.asarray(indices) * 3,)


class OldSampler(bu.AbstractSampler):
    """A sampler as a user of BatchUp wrote it, without random access."""

    def num_indices_generated(self) -> int:
        return 22

    def in_order_indices_batch_iterator(self, batch_size: int) -> Any:
        return (np.arange(i, min(i + batch_size, 22)) for i in range(0, 22, batch_size))

    def shuffled_indices_batch_iterator(self, batch_size: int, shuffle_rng: Any) -> Any:
        order = shuffle_rng.permutation(22)
        return (order[i : i + batch_size] for i in range(0, 22, batch_size))


TestStorageOfTheUsers = contract(lambda: MyStorage().map(lambda x: (x, x + 1)))
TestSamplerOfTheUsers = contract(lambda: array(sampler=OldSampler()))
