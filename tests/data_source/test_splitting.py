"""Splits by classes and groups, which are columns or arrays."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.accessors.packed_texts import PackedTexts
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from tests.data_source.test_labels import NeverRead, files
from tests.messages import raises

N = 20
KIND = np.array(list("aabbb") * 4)
PATIENT = np.repeat([7, 3, 9, 1, 5], [8, 5, 4, 2, 1])

counts = st.lists(st.integers(1, 9), min_size=1, max_size=4)
fractions = st.builds(lambda counts, rest: [n / (sum(counts) + rest) for n in counts], counts, st.sampled_from([0, 1]))


def rows_of(parts: list[Any]) -> list[list[int]]:
    return [part.rows.tolist() for part in parts]


def sources() -> list[tuple[Any, Any, Any]]:
    """Sources of unread images, classes and groups, with the names of the last two."""
    texts = PackedTexts(KIND.tolist())
    named = bu.ArrayDataSource({"x": NeverRead(), "kind": texts, "patient": PATIENT})
    return [
        (named, "kind", "patient"), (bu.ArrayDataSource([NeverRead(), KIND, PATIENT]), 1, -1),
        (files(image=NeverRead(), label=texts, patient=PATIENT), "label", "patient"),
        (named.zip(bu.ArrayDataSource({"more": PATIENT})), "kind", "more"),
        (named.concat(named).subset(np.arange(N, 2 * N)), "kind", "patient"),
        (named.map(lambda x: x + 1, on="x").rename({"kind": "k"}), "k", "patient"),
    ]  # fmt: skip


@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=6), tenths=st.integers(1, 9), seed=st.integers(0, 2**40)
)
def test_each_class_is_divided_as_near_as_whole_samples_allow(counts: list[int], tenths: int, seed: int) -> None:
    classes = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    source = bu.ArrayDataSource([classes])
    try:
        first, second = rows_of(source.split([tenths / 10, 1 - tenths / 10], seed, stratify=classes))
    except ArgumentError:
        return  # a part would be without a sample, or each class has one
    assert sorted(first + second) == list(range(len(classes)))
    for each, n in enumerate(counts):
        assert np.sum(classes[first] == each) in (n * tenths // 10, -(-n * tenths // 10))
    total = sum(counts) * tenths / 10
    assert abs(len(first) - total) <= 0.5


@pytest.mark.parametrize("number", range(6))
def test_a_column_says_the_same_as_an_array(number: int) -> None:
    source, kind, patient = sources()[number]
    plain = bu.ArrayDataSource([np.arange(N)])
    for given_column, array in (({"stratify": kind}, {"stratify": KIND}), ({"groups": patient}, {"groups": PATIENT})):
        parts = source.split([0.5, 0.4], 3, **given_column)
        expected = plain.split([0.5, 0.4], 3, **array)
        assert [part.node.rows.tolist() for part in parts] == rows_of(expected)


@given(sizes=st.lists(st.integers(1, 9), min_size=4, max_size=30), shares=fractions, seed=st.integers(0, 2**40))
def test_groups_stay_whole_and_shares_are_as_near_as_they_allow(
    sizes: list[int], shares: list[float], seed: int
) -> None:
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)) * 3 - 5, sizes))
    try:
        parts = rows_of(bu.ArrayDataSource([groups]).split(shares, seed, groups=groups))
    except ArgumentError:
        return  # a part would be without a group
    rest = np.setdiff1d(np.arange(len(groups)), np.concatenate(parts))
    assert sum(map(len, parts)) + len(rest) == len(groups)
    assert all(part == sorted(part) for part in parts)
    assert sum(len(set(groups[part])) for part in [*parts, rest]) == len(sizes)
    ends = np.cumsum([len(part) for part in parts])
    assert (np.abs(ends - np.cumsum(shares) * len(groups)) <= max(sizes) / 2 + 1e-6).all()
    assert rows_of(bu.ArrayDataSource([groups]).split(shares, seed, groups=groups)) == parts


def test_groups_are_divided_at_random_and_some_are_left_out() -> None:
    groups = np.repeat(np.arange(40), 5)
    source = bu.ArrayDataSource({"patient": groups})
    found = [rows_of(source.split([0.5, 0.25], seed, groups="patient")) for seed in range(30)]
    assert {(len(train), len(test)) for train, test in found} == {(100, 50)}
    counts = np.bincount(np.concatenate([test for _, test in found]), minlength=200)
    assert counts.max() < 20  # of 30 seeds; each patient is expected 7.5 times
    assert counts.min() > 0
    assert len({tuple(train) for train, _ in found}) == 30


@given(n_groups=st.lists(st.integers(1, 12), min_size=1, max_size=5), seed=st.integers(0, 2**40))
def test_groups_are_stratified_by_their_classes(n_groups: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, sum(n_groups))
    order = rng.permutation(int(sizes.sum()))
    groups = np.repeat(rng.permutation(len(sizes)), sizes)[order]
    classes = np.repeat(np.repeat(np.arange(len(n_groups)), n_groups), sizes)[order].astype(str)
    source = bu.ArrayDataSource([groups])
    try:
        train, test = rows_of(source.split([0.5, 0.5], seed, stratify=classes, groups=groups))
    except ArgumentError:
        return
    assert sorted(train + test) == list(range(len(groups)))
    assert not set(groups[train]) & set(groups[test])
    ends = np.cumsum([np.sum(classes[train] == each) - np.sum(classes[test] == each) for each in np.unique(classes)])
    assert np.abs(ends).max() <= max(sizes)  # each class so far is halved up to a half of a group


def test_what_cannot_be_split_by_is_refused() -> None:
    source = bu.ArrayDataSource({"x": np.zeros((N, 2)), "label": np.arange(N) % 2, "patient": PATIENT})
    ragged = bu.ArrayDataSource({"tokens": bu.Ragged(np.arange(6), [0, 1, 6])})
    for refused in (
        lambda: source.split([0.5], 1, stratify="lable"),
        lambda: source.split([0.5], 1, stratify=0),
        lambda: source.split([0.5], 1, groups="x"),
        lambda: source.split([0.5], 1, groups=np.zeros(3)),
        lambda: source.split([0.5], 1, groups=np.where(np.arange(N) == 3, np.nan, 1.0)),
        lambda: source.split([0.5], 1, stratify="label", groups="patient"),
        lambda: source.split([0.9, 0.1], 1, groups=np.zeros(N)),
        lambda: source.map(lambda **batch: batch).split([0.5], 1, stratify="label"),
        lambda: ragged.split([0.5], 1, stratify="tokens"),
        lambda: bu.ArrayDataSource([np.zeros(0)]).split([0.5], 1, groups=[]),
    ):
        with raises(ArgumentError):
            refused()  # type: ignore[no-untyped-call]
    for wrong in ([None] * 10 + ["a"] * 10, [[1], [2, 3]]):
        with raises(ArgumentTypeError):
            source.split([0.5], 1, groups=wrong)


def test_errors_about_several_classes_and_about_maps_say_what_works() -> None:
    tags = [["cat|indoors", "dog", "cat"][row % 3] for row in range(12)]
    hot = np.array([["cat" in tag, "dog" in tag, "indoors" in tag] for tag in tags], np.float32)
    source = bu.ArrayDataSource({"x": np.zeros(12), "label": hot, "tags": tags})
    expected = rows_of(source.split([0.5, 0.5], 1, stratify=np.array(tags)))
    for given_classes in ("label", hot, source.labels):
        with raises(ArgumentError):
            source.split([0.5, 0.5], 1, stratify=given_classes)
    assert rows_of(source.split([0.5, 0.5], 1, stratify="tags")) == expected

    named = source.map(lambda **batch: batch)
    placed = bu.ArrayDataSource([np.zeros(12), tags]).map(lambda *batch: batch)
    made = source.map(lambda tags: np.array(tags), on="tags", out="made")
    for mapped, column, remedy in (
        (made, "made", "source.select('made')[:]['made']"), (placed, 1, "source.select(1)[:][0]"),
        (named, "tags", "source.select('tags')[:]['tags']"),
    ):  # fmt: skip
        with raises(ArgumentError) as caught:
            mapped.split([0.5, 0.5], 1, stratify=column)
        assert remedy in str(caught.value)
        read = mapped.select(column)[:]
        classes = read[column] if isinstance(read, dict) else read[0]
        assert rows_of(mapped.split([0.5, 0.5], 1, stratify=classes)) == expected
    assert rows_of(source.map(lambda x: x + 1, on="x").split([0.5, 0.5], 1, stratify="tags")) == expected


def test_values_that_are_no_classes_are_refused_and_the_remedies_work() -> None:
    score = np.random.default_rng(0).random(N)
    source = bu.ArrayDataSource({"x": np.zeros(N), "score": score, "name": [f"n{row}" for row in range(N)]})
    half_steps = np.repeat([0.5, 1.0], N // 2)
    missing = np.where(np.arange(N) % 3, score, np.nan)
    for refused in ("score", "name", half_steps, missing, np.arange(N), score.astype(np.float32)):
        for groups in (None, np.arange(N)):
            with raises(ArgumentError):
                source.split([0.5, 0.5], 1, stratify=refused, groups=groups)
    ranges = np.digitize(score, np.quantile(score, [0.25, 0.5, 0.75]))
    for part in rows_of(source.split([0.5, 0.5], 1, stratify=ranges)):
        assert np.isin(np.bincount(ranges[part]), [2, 3]).all()
    steps = np.unique(half_steps, return_inverse=True)[1]
    assert [np.bincount(steps[part]).tolist() for part in rows_of(source.split([0.5, 0.5], 1, stratify=steps))] == [
        [5, 5], [5, 5]
    ]  # fmt: skip
    whole = np.where(np.arange(N) % 2, 1.0, np.nan)  # whole numbers, as pandas holds classes of which some are missing
    assert rows_of(source.split([0.5, 0.5], 1, stratify=whole)) == rows_of(
        source.split([0.5, 0.5], 1, stratify=np.where(np.arange(N) % 2, 1, 2))
    )
    assert rows_of(source.take(1).split([1.0], 1, stratify=[0])) == [[0]]


def test_splits_without_groups_are_those_of_before() -> None:
    """A seed names a split for ever."""
    source = bu.ArrayDataSource([np.arange(12)])
    assert rows_of(source.split([0.5, 0.25], 7)) == [[4, 5, 6, 8, 9, 11], [0, 1, 2]]
    stratified = source.split([0.5, 0.25], 7, stratify=np.arange(12) % 3)
    assert rows_of(stratified) == [[0, 1, 2, 3, 5, 7], [4, 6, 11]]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.integers(0, 2**32), st.integers(0, 2**32))
def test_how_many_of_a_class_a_part_has_does_not_depend_on_the_seed(sizes: list[int], one: int, other: int) -> None:
    labels = np.repeat(np.arange(len(sizes) + 1), [*sizes, 9])
    source = bu.ArrayDataSource([labels])
    splits = [source.split((0.5, 0.3, 0.2), seed, stratify=0) for seed in (one, other)]
    found = [[np.bincount(labels[part.rows], minlength=len(sizes) + 1).tolist() for part in parts] for parts in splits]
    assert found[0] == found[1]


@given(counts=fractions, n=st.integers(1, 60), gap=st.integers(0, 6))
def test_a_split_in_order_is_slices_without_the_gaps(counts: list[float], n: int, gap: int) -> None:
    bounds = np.rint(np.cumsum([0, *counts]) * n).astype(int).tolist()
    expected = [list(range(start, end - gap)) for start, end in itertools.pairwise(bounds[:-1])]
    expected.append(list(range(bounds[-2], bounds[-1])))
    source = bu.ArrayDataSource([np.arange(n)])
    if not all(expected):
        with raises(ArgumentError):
            source.split(counts, shuffle=False, gap=gap)
        return
    assert rows_of(source.split(counts, shuffle=False, gap=gap)) == expected
    assert rows_of(bu.split(source, counts, shuffle=False, gap=gap)) == expected


def test_a_split_by_a_column_of_times_is_a_subset_in_their_order() -> None:
    times = np.array([5, 1, 4, 1, 3, 2])
    source = bu.ArrayDataSource({"time": times})
    train, test = source.subset(np.argsort(times, kind="stable")).split([0.5, 0.5], shuffle=False)
    assert (train[:]["time"].tolist(), test[:]["time"].tolist()) == ([1, 1, 2], [3, 4, 5])


def test_what_draws_is_refused_in_order_and_a_gap_at_random() -> None:
    source = bu.ArrayDataSource([np.arange(N)])
    for options in ({"seed": 1}, {"stratify": KIND}, {"groups": PATIENT}, {"gap": -1}):
        with raises(ArgumentError):
            source.split([0.5, 0.5], shuffle=False, **options)
    with raises(ArgumentError):
        source.split([0.5, 0.5], 1, gap=2)
    wrong: Any = {"shuffle": 1, "seed": 1}, {}, {"shuffle": False, "gap": 1.5}
    for options in wrong:
        with raises(ArgumentTypeError):
            source.split([0.5, 0.5], **options)


def test_sources_that_repeat_samples_are_refused() -> None:
    source = bu.ArrayDataSource({"id": np.arange(92), "label": np.repeat([0, 1, 2], [80, 11, 1])})
    sampled = source.sample(balanced=True, per_class=10)
    mapped = sampled.map(lambda **each: each)
    for repeated in (source.repeat(2), source.concat(source), sampled, mapped, sampled.take(60)):
        with raises(ArgumentError):
            repeated.split([0.8, 0.2], seed=1)
    assert len(source.concat(source.take(92)).take(92).split([0.5, 0.5], seed=1)) == 2


def test_sources_that_repeat_samples_beside_others_are_refused() -> None:
    rare, common, third = (bu.ArrayDataSource([np.arange(n)]) for n in (5, 20, 7))
    mapped = rare.map(lambda x: x)
    inner = bu.concat(rare, common)
    for repeated in (
        bu.concat(rare, rare, common), bu.concat(rare, common, rare), bu.concat(common, rare, mapped),
        bu.concat(inner, third, rare), bu.concat(bu.concat(third, rare), inner), bu.concat(inner, inner, third),
        bu.concat(rare.subset([0, 1]), common, rare.subset([1, 2])), bu.concat(rare, common).repeat(2),
        bu.concat(rare, common).subset([0, 6, 6]), bu.concat(rare, rare.repeat(2), common),
    ):  # fmt: skip
        for divide in (lambda: repeated.split([0.8, 0.2], seed=1), lambda: bu.folds(repeated, 2, 1)):  # noqa: B023
            with raises(ArgumentError):
                divide()
    for once in (
        inner, bu.concat(inner, third), bu.concat(rare.subset([0, 1]), common, rare.subset([4, 2])),
        bu.concat(rare, common, rare).subset([*range(25)]), bu.concat(rare, rare, common).subset([0, 6, 2, 11]),
    ):  # fmt: skip
        train, validation = once.split([0.5, 0.5], seed=1)
        assert len(train) + len(validation) == len(once)


def test_a_column_that_a_reader_of_tables_left_out_is_named_with_the_remedy() -> None:
    table = {"path": ["a.png", "b.png"], "label": ["x", "y"], "patient": [1, 2]}
    source = bu.from_table(table, missing="ignore")
    for use in (lambda: source.split([0.5, 0.5], 1, groups="patient"), lambda: source.sample(weights="patient")):
        with raises(ArgumentError):
            use()
    kept = bu.from_table(table, missing="ignore", columns=["patient"])
    assert len(kept.split([0.5, 0.5], 1, groups="patient")) == 2
