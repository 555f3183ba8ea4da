"""Orders and draws are the same in every release: a state that was saved with one goes on with another."""

from __future__ import annotations

import json
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
    PackSampler,
    StandardSampler,
    StratifiedSampler,
    StridedSampler,
    SubsetSampler,
    WeightedSampler,
)
from batchup_ng.testing.sources import assert_same_batches

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
    "balanced, few": (lambda: rows_of(BalancedBatchSampler(CLASSES, 2, 3), 36), 0xf23a81b98aa7c9b5),
    "blocks": (lambda: rows_of(BlockShuffleSampler(30, 4, 2, repeats=2), 60), 0x443d048e2fc30cc6),
    "interleave": (lambda: rows_of(MixtureSampler([9, 5, 3], [3, 2, 1]), 60), 0x9fa05a0feeeb4874),
    "buckets": (lambda: batches_of(numbers(40, BucketSampler(LENGTHS, max_tokens=60)), 8), 0xb350612ee5d17b9d),
    "packed": (lambda: batches_of(numbers(40, PackSampler(LENGTHS, 60, window=15)), 8), 0x43cae01ffd782055),
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


class Rows:
    natural_block, natural_window = 5, 3

    def __len__(self) -> int:
        return 40

    def __getitem__(self, rows: Any) -> Any:
        return np.arange(40)[rows]


class Counting:
    given = 0

    def __iter__(self) -> Counting:
        return self

    def __next__(self) -> Any:
        if self.given == 9:
            raise StopIteration
        self.given += 1
        return (np.full(3, self.given),)

    def state_dict(self) -> Any:
        return {"given": self.given}

    def load_state_dict(self, state: Any) -> None:
        self.given = state["given"]


def noisy(x: np.ndarray, rng: Any) -> Any:
    return x, rng.random()


SOURCES: dict[str, tuple[Callable[[], Any], Any]] = {
    "in order": (lambda: numbers(20), None),
    "seed": (lambda: numbers(20), 7),
    "blocks": (lambda: bu.ArrayDataSource([Rows()]), ("blocks", 7)),
    "choice": (lambda: bu.ChoiceDataSource([numbers(9), numbers(30)], stratified=True), 7),
    "stream": (lambda: bu.IteratorDataSource(Counting()).map(noisy, rng="sample"), None),
}
SAVED_BY_VERSION_2 = """
{"in order": {"format": "batchup_ng epoch", "version": 2, "source": "54989c05a46ee4b048b1788653b47a6a", "told":
"['ArrayDataSource', ['StandardSampler', 20, 1], 1]", "order": "in order", "seed": 0, "epoch": 3, "batch_size": 4,
"drop_last": false, "world": 1, "samples": 8, "batches": 2, "inner": null, "counts": [8, 8, 0, 0,
"70782b0ee46e96e3a7919b5cb2490a44"], "digest": "282e383e994c43d8dbfff33e89df8a9a"},
"seed": {"format": "batchup_ng epoch", "version": 2, "source": "54989c05a46ee4b048b1788653b47a6a", "told":
"['ArrayDataSource', ['StandardSampler', 20, 1], 1]", "order": "seed", "seed": 7, "epoch": 3, "batch_size": 4,
"drop_last": false, "world": 1, "samples": 8, "batches": 2, "inner": null, "counts": [8, 8, 0, 0,
"397578d83206469ba5082c63c5f57ea4"], "digest": "5a6e8f752d0dcc92f374d23ac2d3ec8d"},
"blocks": {"format": "batchup_ng epoch", "version": 2, "source": "ddec304e6018794d8b6edbc8db31f811", "told":
"['ArrayDataSource', ['StandardSampler', 40, 1], 1]", "order": "blocks [(5, 3)]", "seed": 7, "epoch": 3,
"batch_size": 4, "drop_last": false, "world": 1, "samples": 8, "batches": 2, "inner": null, "counts": [8, 8, 0, 0,
"b44541d58f44bcb01b3e426f7260765b"], "digest": "b321744d1ad06607fe808299c4cd5853"},
"choice": {"format": "batchup_ng epoch", "version": 2, "source": "d34699e33e6a01c8f2556b69fca78611", "told":
"['ChoiceDataSource', True, ['ArrayDataSource', ['StandardSampler', 9, 1], 1], ['ArrayDataSource',
['StandardSampler', 30, 1], 1]]", "order": "seed", "seed": 7, "epoch": 3, "batch_size": 4, "drop_last": false,
"world": 1, "samples": 8, "batches": 2, "inner": null, "counts": [8, 8, 0, 0, "47b1645e22d94a698634763aaa2f3cd9"],
"digest": "5930b20f93a6136175c7bec417f65786"},
"stream": {"format": "batchup_ng epoch", "version": 2, "source": "df459d980babc42e248a8cb08802f64b", "told":
"['MapDataSource', 'sample', ['IteratorDataSource', 'None']]", "order": "stream", "seed": 0, "epoch": 3,
"batch_size": 4, "drop_last": false, "world": 1, "samples": 6, "batches": 2, "inner": {"iterator": {"given": 2},
"counted": [[[], 6]]}, "counts": [6, 6, 0, 0, "e59d9d4aff233936a0d6cc0ca9e7d37a"], "digest":
"f46463b3f33ac9df89555065deec2f2f"}}
"""


@pytest.mark.parametrize("name", SOURCES)
def test_a_state_of_version_2_goes_on(name: str) -> None:
    make, shuffle = SOURCES[name]
    whole = list(make().batch_iterator(4, shuffle=shuffle, epoch=3))
    state = json.loads(SAVED_BY_VERSION_2.replace("\n", " "))[name]
    assert_same_batches(list(make().batch_iterator(4, shuffle=shuffle, state=state)), whole[2:])
    if name != "stream":
        with bu.Loader(make(), 4, shuffle=shuffle, pool="serial") as loader:
            loader.load_state_dict({"epoch": 3, "seed": None, "batches": state})
            assert_same_batches(list(loader), whole[2:])
