"""Samplers on any source: the method ``sample``, and a loader with the batch size of a sampler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError, InOrderNotSupported
from batchup_ng.testing.sources import SourceContract, assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.data_source.chains import STEPS
from tests.messages import raises

N = 60
Y = np.repeat([0, 2, 5], [40, 15, 5])


def named() -> Any:
    rng = np.random.default_rng(3)
    return bu.ArrayDataSource({"x": rng.random(N), "label": Y, "row": np.arange(N), "weight": rng.integers(0, 4, N)})


def same(one: Any, other: Any, size: int, shuffle: Any = 4) -> None:
    assert len(one) == len(other)
    assert_same_batches(list(one.batch_iterator(size, shuffle)), list(other.batch_iterator(size, shuffle)))


class TestBalanced(SourceContract):
    shuffles = (5, "RandomState", "Generator")

    def make(self) -> Any:
        return named().split([0.7], 1)[0].sample(balanced=True, num_samples=30).map(lambda row: row, on="row")


@pytest.mark.parametrize("step", sorted(STEPS))
def test_sampling_is_that_of_the_sampler_over_the_labels_of_any_source(step: str) -> None:
    source = STEPS[step](named())
    labels = source[:]["label"]
    if len(np.unique(labels)) == 3:
        balanced = bu.BalancedBatchSampler(labels, 2)
        same(source.sample(balanced=True, per_class=2), bu.concat(source, sampler=balanced), 6)
    few = bu.BalancedBatchSampler(labels, 3, classes_per_batch=1)
    same(source.sample(balanced="label", per_class=3, classes_per_batch=1), bu.concat(source, sampler=few), 3)
    weights = bu.WeightedSampler.class_balancing_sample_weights(labels)
    drawn = bu.WeightedSampler(weights, num_samples=len(source))
    same(source.sample(balanced=labels), bu.concat(source, sampler=drawn), 7)
    same(source.sample(stratified=True), bu.concat(source, sampler=bu.StratifiedSampler(labels)), 7)
    own = bu.StandardSampler(len(source), 2)
    same(source.sample(own), bu.concat(source, sampler=own), 7, None)


def test_weights_are_a_column_or_an_array() -> None:
    part = named().subset(np.arange(0, N, 2))
    weights = named().data[3][::2]
    for given in ("weight", weights, weights.tolist()):
        drawn = part.sample(weights=given, num_samples=100)
        same(drawn, bu.concat(part, sampler=bu.WeightedSampler(weights, num_samples=100)), 8)
        once = bu.WeightedSampler(weights, replacement=False)
        same(part.sample(weights=given, replacement=False), bu.concat(part, sampler=once), 8)
    assert len(part.sample(weights="weight")) == len(part)
    assert part.sample(weights="weight", num_samples=-1).num_samples() == np.inf
    rows = np.concatenate([batch["row"] for batch in part.sample(weights="weight").batch_iterator(8, shuffle=1)])
    assert set(rows.tolist()) <= set(np.flatnonzero(weights) * 2)


@pytest.mark.parametrize("classes", [Y - 3, Y > 1, np.array(["a", "b", "ç", "d", "e", "f"])[Y], Y.astype(np.uint8)])
def test_classes_may_be_any_numbers_or_text(classes: np.ndarray) -> None:
    source = bu.ArrayDataSource({"kind": classes})
    n = len(np.unique(classes))
    for batch in source.sample(balanced="kind", per_class=4).batch_iterator(4 * n, shuffle=1):
        assert np.unique(batch["kind"], return_counts=True)[1].tolist() == [4] * n
    drawn = source.sample(balanced="kind", num_samples=3000)
    counts = np.unique(next(drawn.batch_iterator(3000, shuffle=2))["kind"], return_counts=True)[1]
    np.testing.assert_allclose(counts, 3000 / n, rtol=0.15)


def test_pools_give_the_same_balanced_batches(pools: list[AbstractWorkerPool]) -> None:
    train, _ = named().split([0.8, 0.2], 1, stratify="label")
    source = train.sample(balanced=True, per_class=2)
    expected = list(source.batch_iterator(6, shuffle=3))
    assert {tuple(batch["label"]) for batch in expected} == {(0, 0, 2, 2, 5, 5)}
    for pool in pools:
        assert_same_batches(list(pool.parallel_data_source(source).batch_iterator(6, shuffle=3)), expected)


def test_a_loader_takes_the_batch_size_of_a_sampler() -> None:
    train, test = named().split([0.8, 0.2], 1, stratify="label")
    balanced = train.sample(balanced=True, per_class=2)
    with bu.Loader(balanced.map(lambda **batch: batch), shuffle=1, pool="serial") as loader:
        assert len(loader) == len(balanced) // 6 == 16
        assert [len(batch["x"]) for batch in loader] == [6] * 16
    tokens = bu.ArrayDataSource({"n": np.arange(1, 9)}).sample(bu.BucketSampler(np.arange(1, 9), max_tokens=16))
    with bu.Loader(tokens, shuffle=1, pool="serial") as loader:
        batches = [batch["n"] for batch in loader]
        assert sorted(np.concatenate(batches)) == list(range(1, 9))
        assert max(len(n) * max(n) for n in batches) <= 16
    pair = bu.CompositeDataSource([balanced.select("x"), test.repeat(-1).select("row")])
    with bu.Loader(pair, shuffle=1, pool="serial") as loader:
        assert {tuple(map(len, batch.values())) for batch in loader} == {(6, 6)}
    two = bu.CompositeDataSource([balanced, test.sample(balanced=True, per_class=3)], flatten=False)
    lengths = bu.ArrayDataSource([np.arange(3)]).sample(bu.BucketSampler([1, 2, 3]))  # any size will do
    for source in (train, train.sample(balanced=True), two, lengths, [Y]):
        with raises(ArgumentTypeError):
            bu.Loader(source)
    with raises(ArgumentError):
        bu.Loader(balanced, 7)


def test_an_epoch_that_balances_by_draws_has_an_end() -> None:
    with bu.Loader(named().split([0.5], 1)[0].sample(balanced=True), 8, shuffle=1, pool="serial") as loader:
        assert len(loader) == len(list(loader)) == 4
        assert [len(batch["x"]) for batch in loader.batches([3, 0])] == [6, 8]  # as Keras asks for them
    endless = named().sample(balanced=True, num_samples=-1)
    with bu.Loader(endless, 8, shuffle=1, pool="serial") as loader, raises(ArgumentTypeError):
        len(loader)


def test_what_cannot_be_sampled_is_refused_with_what_to_do() -> None:
    source = named()
    for refused in (
        lambda: source.sample(),
        lambda: source.sample(balanced=True, weights="weight"),
        lambda: source.sample(balanced=False),
        lambda: source.sample(balanced=True, per_class=2, num_samples=9),
        lambda: source.sample(balanced=True, classes_per_batch=2),
        lambda: source.sample(balanced=True, replacement=False),
        lambda: source.sample(stratified=True, num_samples=9),
        lambda: source.sample(weights="weight", per_class=2),
        lambda: source.sample(bu.StandardSampler(N), num_samples=3),
        lambda: source.sample(bu.WeightedSampler([1.0])),
        lambda: source.sample(balanced="lable"),
        lambda: source.drop("label").sample(balanced=True),
        lambda: source.sample(stratified=np.eye(3)),
        lambda: source.map(lambda **batch: batch).sample(balanced=True),
        lambda: source.sample(weights=-np.ones(N)),
        lambda: source.repeat().sample(balanced=True),
        lambda: source.subset([]).sample(balanced=True),
    ):
        with raises(ArgumentError):
            refused()  # type: ignore[no-untyped-call]
    for wrong in (lambda: source.sample(balanced="x"), lambda: source.sample(weights="weight", replacement="no"),
                  lambda: source.sample("balanced"),
                  lambda: bu.ChoiceDataSource([source]).sample(balanced=True)):  # fmt: skip
        with raises(ArgumentTypeError):
            wrong()  # type: ignore[no-untyped-call]


def test_hints_lead_to_sample() -> None:
    weighted = bu.ArrayDataSource([Y], sampler=bu.WeightedSampler(np.ones(N)))
    with raises(ArgumentTypeError):
        weighted.split([0.5], 1)
    with raises(ArgumentTypeError):
        bu.Loader([Y], 4, sampler=bu.StandardSampler(N))  # type: ignore[call-arg]
    with raises(InOrderNotSupported), bu.Loader(named().sample(balanced=True), 4, pool="serial") as loader:
        next(iter(loader))
