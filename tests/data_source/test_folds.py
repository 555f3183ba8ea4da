"""Folds for cross-validation: each sample in one validation part, by classes and in whole groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from tests.messages import raises

seeds = st.integers(0, 2**40)


def validations(source: Any, *args: Any, **kwargs: Any) -> list[np.ndarray]:
    """Return the rows of each validation part. Check that each sample is in one, and in the other training parts."""
    n = source.num_samples()
    pairs = bu.folds(source, *args, **kwargs)
    for train, validation in pairs:
        np.testing.assert_array_equal(train.rows, np.setdiff1d(np.arange(n), validation.rows), strict=True)
    parts = [validation.rows for _, validation in pairs]
    assert all(np.all(np.diff(part) > 0) for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    return parts


def spread(parts: list[np.ndarray], values: np.ndarray) -> int:
    """Return the largest difference of the numbers of samples of a class in two parts."""
    counts = np.array([np.bincount(values[part], minlength=values.max() + 1) for part in parts])
    return int(np.ptp(counts, axis=0).max())


@given(n=st.integers(2, 40), data=st.data(), seed=seeds)
def test_each_sample_is_in_one_validation_part_and_sizes_differ_by_at_most_one(n: int, data: Any, seed: int) -> None:
    k = data.draw(st.one_of(st.just(n), st.integers(2, n)))
    source = bu.ArrayDataSource([np.arange(n)])
    parts = validations(source, k, seed)
    assert len(parts) == k
    assert spread(parts, np.zeros(n, np.int64)) <= 1
    assert [part.rows.tolist() for _, part in bu.folds(source, k, seed)] == [part.tolist() for part in parts]


@given(counts=st.lists(st.integers(1, 12), min_size=1, max_size=5), k=st.integers(2, 6), seed=seeds)
def test_each_class_is_spread_as_evenly_as_whole_samples_allow(counts: list[int], k: int, seed: int) -> None:
    counts = [*counts, 6]
    classes = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    source = bu.ArrayDataSource({"x": np.zeros(len(classes)), "label": classes})
    parts = validations(source, k, seed, stratify="label")
    assert spread(parts, classes) <= 1  # also of a class of fewer than k samples
    assert spread(parts, np.zeros_like(classes)) <= 1
    others = validations(source, k, seed + 1, stratify=classes.astype(str))
    for part, other in zip(parts, others, strict=True):
        assert np.sort(classes[part]).tolist() == np.sort(classes[other]).tolist()


@given(sizes=st.lists(st.integers(1, 9), min_size=2, max_size=20), data=st.data(), seed=seeds)
def test_a_group_is_in_one_validation_part_and_none_is_empty(sizes: list[int], data: Any, seed: int) -> None:
    k = data.draw(st.one_of(st.just(len(sizes)), st.integers(2, len(sizes))))
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)) * 3 - 5, sizes))
    parts = validations(bu.ArrayDataSource({"patient": groups}), k, seed, groups="patient")
    assert sum(len(set(groups[part])) for part in parts) == len(sizes)
    lengths = sorted(map(len, parts))
    assert lengths[0] > 0
    # The group that made a part the largest came when that part was the smallest.
    assert lengths[-1] - lengths[0] <= max(sizes)


@given(counts=st.lists(st.integers(1, 12), min_size=1, max_size=4), k=st.integers(2, 6), seed=seeds)
def test_groups_of_one_sample_are_spread_like_samples(counts: list[int], k: int, seed: int) -> None:
    counts = [*counts, 6]
    classes = np.repeat(np.arange(len(counts)), counts)
    parts = validations(bu.ArrayDataSource([classes]), k, seed, classes, np.arange(len(classes)))
    assert spread(parts, classes) <= 1


@given(n_groups=st.integers(20, 60), k=st.integers(2, 5), seed=seeds)
def test_groups_of_several_classes_are_stratified(n_groups: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, n_groups)
    groups = np.repeat(np.arange(n_groups), sizes)
    classes = (rng.random(len(groups)) < rng.choice([0.1, 0.8], n_groups)[groups]).astype(np.int64)
    classes[:2] = 0, 1
    parts = validations(bu.ArrayDataSource([groups]), k, seed, stratify=classes, groups=groups)
    assert sum(len(set(groups[part])) for part in parts) == n_groups
    most = max(np.bincount(groups[classes == each]).max() for each in (0, 1))
    assert spread(parts, classes) <= 2 * most  # at most 5 of a class in a group, of 30 to 180 samples


def test_seeds_give_other_folds_and_a_seed_names_its_folds_for_ever() -> None:
    source = bu.ArrayDataSource([np.arange(8)])
    assert [part.tolist() for part in validations(source, 3, 7)] == [[0, 1, 2], [3, 4, 6], [5, 7]]
    stratified = validations(source, 3, 7, stratify=np.arange(8) % 2)
    assert [part.tolist() for part in stratified] == [[0, 4, 7], [1, 5, 6], [2, 3]]
    grouped = validations(source, 3, 7, groups=np.arange(8) // 2)
    assert [part.tolist() for part in grouped] == [[0, 1, 4, 5], [6, 7], [2, 3]]
    many = bu.ArrayDataSource([np.arange(60)])
    found = [validations(many, 3, seed, groups=np.arange(60) // 3) for seed in range(20)]
    assert len({tuple(parts[0].tolist()) for parts in found}) == 20


def test_parts_are_sources_with_the_maps_of_the_whole() -> None:
    source = bu.ArrayDataSource({"x": np.arange(20) * 2, "label": np.arange(20) % 3}).map(lambda x: x + 1, on="x")
    for pair in bu.folds(source, 4, 1, stratify="label"):
        for part in pair:
            np.testing.assert_array_equal(part[:]["x"], part.rows * 2 + 1)
            rows = np.concatenate([batch["x"] for batch in part.batch_iterator(3, shuffle=2)])
            np.testing.assert_array_equal(np.sort(rows), part.rows * 2 + 1)


def test_what_cannot_be_folded_is_refused() -> None:
    source = bu.ArrayDataSource({"x": np.zeros(6), "patient": np.array([1, 1, 1, 2, 2, 3])})
    for refused in (
        lambda: bu.folds(source, 7, 1), lambda: bu.folds(source, 1, 1), lambda: bu.folds(source, -2, 1),
        lambda: bu.folds(bu.ArrayDataSource([np.zeros(0)]), 2, 1), lambda: bu.folds(source, 4, 1, groups="patient"),
        lambda: bu.folds(source, 2, 1, groups="patients"), lambda: bu.folds(source, 2, 1, stratify=np.arange(5)),
        lambda: bu.folds(source, 2, 1, stratify=np.arange(6)), lambda: bu.folds(source.repeat(2), 2, 1),
    ):  # fmt: skip
        with raises(ArgumentError):
            refused()  # type: ignore[no-untyped-call]
    stream: Any = bu.IteratorDataSource(iter([]))
    for wrong in (lambda: bu.folds(source, 2.0, 1), lambda: bu.folds(source, 2, None), lambda: bu.folds(stream, 2, 1)):  # type: ignore[arg-type]
        with raises(ArgumentTypeError):
            wrong()
    assert len(bu.folds(source, 3, 1, groups="patient")) == 3


