"""Each source under the contract of all sources."""

from __future__ import annotations

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


class TestArray(SourceContract):
    def make(self) -> PlannedDataSource:
        return array()


class TestArrayOfRepeatedIndices(SourceContract):
    def make(self) -> PlannedDataSource:
        return array(indices=np.array([3, 1, 4, 15, 9, 2, 6]), repeats=3, include_indices=True)


class TestArrayForEver(SourceContract):
    def make(self) -> PlannedDataSource:
        return array(repeats=-1)


class TestArrayWithWeights(SourceContract):
    shuffles = SHUFFLED

    def make(self) -> PlannedDataSource:
        return array(sampler=bu.WeightedSampler(np.arange(23)))


@pytest.mark.thorough
class TestArrayWithWeightsInTurn(SourceContract):
    shuffles = SHUFFLED

    def make(self) -> PlannedDataSource:
        return array(sampler=bu.WeightedSampler(np.arange(23), replacement=False, num_samples=9, repeats=3))


class TestArrayInBuckets(SourceContract):
    def make(self) -> PlannedDataSource:
        return array(sampler=bu.BucketSampler(np.arange(23) * 7 % 10, num_buckets=3))


class TestArrayInBucketsOfSoManyTokens(SourceContract):
    def make(self) -> PlannedDataSource:
        return array(sampler=bu.BucketSampler(np.arange(23) * 7 % 10, num_buckets=3, max_tokens=24))

    def test_dropping_the_last_leaves_whole_batches(self) -> None:
        for kind in self.shuffles:
            assert_same_batches(self.epoch(kind, drop_last=True), self.epoch(kind)[:-1])


class TestMap(SourceContract):
    def make(self) -> PlannedDataSource:
        return array().map(double)


class TestMapWithRandomBatches(SourceContract):
    def make(self) -> PlannedDataSource:
        return array().map(noisy, rng="batch")


class TestMapWithRandomSamples(SourceContract):
    def make(self) -> PlannedDataSource:
        return array().map(noisy, rng="sample").map(double)


class TestMapOfSamples(SourceContract):
    def make(self) -> PlannedDataSource:
        return array().map_samples(lambda i, x: (i, x * x))


class TestMapOfRandomSamples(SourceContract):
    def make(self) -> PlannedDataSource:
        return array().map_samples(noisy_sample, rng="sample")


class TestComposite(SourceContract):
    def make(self) -> PlannedDataSource:
        return bu.CompositeDataSource([array(10, repeats=-1), array(18).map(noisy, rng="sample")])


class TestCompositeOfCompositesUntrimmed(SourceContract):
    def make(self) -> PlannedDataSource:
        inner = bu.CompositeDataSource([array(9), array(11)], flatten=False)
        return bu.CompositeDataSource([inner, array(10)], flatten=False)


class TestChoice(SourceContract):
    def make(self) -> PlannedDataSource:
        return bu.ChoiceDataSource([array(9), array(14, 100)])

    def test_dropping_the_last_leaves_whole_batches(self) -> None:
        super().test_dropping_the_last_leaves_whole_batches()


class TestStratifiedChoice(SourceContract):
    def make(self) -> PlannedDataSource:
        return bu.ChoiceDataSource([array(9), array(25, 100).map(noisy, rng="sample")], stratified=True)


class TestConcat(SourceContract):
    def make(self) -> PlannedDataSource:
        return bu.concat(array(9), array(25, 100).map(noisy, rng="sample"), bu.subset(array(30, 200), [3, 5, -1]))


class TestSubset(SourceContract):
    def make(self) -> PlannedDataSource:
        return bu.subset(array().map(noisy, rng="batch"), np.arange(20, 3, -2))


class TestZip(SourceContract):
    def make(self) -> PlannedDataSource:
        return bu.zip(array(), array(first=50).map(noisy, rng="sample"), flatten=False)


class TestTake(SourceContract):
    def make(self) -> PlannedDataSource:
        return bu.take(array(), 14)


class TestTakeOfAChoice(SourceContract):
    def make(self) -> PlannedDataSource:
        return bu.take(bu.ChoiceDataSource([array(9), array(14, 100)], stratified=True), 13)


class TestTakeOfWeights(SourceContract):
    shuffles = SHUFFLED

    def make(self) -> PlannedDataSource:
        return bu.take(array(sampler=bu.WeightedSampler(np.arange(23))), 14)


class TestRepeat(SourceContract):
    def make(self) -> PlannedDataSource:
        source = bu.repeat(array(9).map(noisy, rng="sample"), 3)
        assert isinstance(source, PlannedDataSource)
        return source


@pytest.mark.thorough
class TestRepeatOfAChoice(SourceContract):
    def make(self) -> PlannedDataSource:
        source = bu.repeat(bu.ChoiceDataSource([array(9), array(14, 100), array(5, 200)]), 3)
        assert isinstance(source, PlannedDataSource)
        return source


class TestRepeatOfAChoiceForEver(SourceContract):
    def make(self) -> PlannedDataSource:
        source = bu.repeat(bu.ChoiceDataSource([array(9), array(14, 100)], stratified=True))
        assert isinstance(source, PlannedDataSource)
        return source


class MyStorage(bu.RandomAccessDataSource):
    """A source as a user of BatchUp wrote it."""

    def __init__(self) -> None:
        super().__init__(23)

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        return (np.asarray(indices) * 3,)


class TestStorageOfTheUsers(SourceContract):
    def make(self) -> PlannedDataSource:
        return MyStorage().map(lambda x: (x, x + 1))


class OldSampler(bu.AbstractSampler):
    """A sampler as a user of BatchUp wrote it, without random access."""

    def num_indices_generated(self) -> int:
        return 22

    def in_order_indices_batch_iterator(self, batch_size: int) -> Any:
        return (np.arange(i, min(i + batch_size, 22)) for i in range(0, 22, batch_size))

    def shuffled_indices_batch_iterator(self, batch_size: int, shuffle_rng: Any) -> Any:
        order = shuffle_rng.permutation(22)
        return (order[i : i + batch_size] for i in range(0, 22, batch_size))


class TestSamplerOfTheUsers(SourceContract):
    def make(self) -> PlannedDataSource:
        return array(sampler=OldSampler())
