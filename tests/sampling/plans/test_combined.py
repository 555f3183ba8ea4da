"""Plans of plans: their batches, and what is known of batches without making them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng import batch as batches
from batchup_ng.randomness import OrderKey
from batchup_ng.sampling.plans.combined import first_samples
from batchup_ng.sampling.plans.rows import first_rows
from tests.messages import raises

KEY = OrderKey(1, 0)


def array(n: int) -> bu.ArrayDataSource:
    return bu.ArrayDataSource([np.zeros(n, np.uint8)])


def buckets(n: int) -> bu.ArrayDataSource:
    lengths = np.arange(n) ** 2 % 13 + 1
    return bu.ArrayDataSource([np.zeros(n, np.uint8)], sampler=bu.BucketSampler(lengths, num_buckets=3, max_tokens=40))


def endless(n: int) -> bu.ArrayDataSource:
    return bu.ArrayDataSource([np.zeros(n, np.uint8)], repeats=-1)


def composite(parts: list[Any], trim: bool) -> bu.CompositeDataSource:
    try:
        return bu.CompositeDataSource(parts, trim=trim)
    except bu.ArgumentError:  # buckets, from which `trim` would cut samples off
        return bu.CompositeDataSource(parts, trim=False)


def nests(inner: Any) -> Any:
    some = st.lists(inner, min_size=1, max_size=4)
    return st.one_of(
        st.builds(bu.ChoiceDataSource, some, st.booleans()),
        st.builds(composite, some, st.booleans()),
        st.builds(lambda source, n: bu.take(source, n), inner, st.integers(1, 60)),
        st.builds(lambda source, n: bu.repeat(source, n), inner, st.integers(1, 3)),
    )


lengths = st.integers(2, 30)
leaves = st.one_of(lengths.map(array), lengths.map(array), lengths.map(buckets), lengths.map(endless))
sources = st.recursive(leaves, nests, max_leaves=8)
keys = st.none() | st.builds(OrderKey, st.integers(0, 99), st.integers(0, 9))


@given(source=sources, n=st.integers(1, 100), batch_size=st.integers(1, 9), key=keys, drop_last=st.booleans())
def test_the_first_samples_are_those_of_the_first_batches(
    source: Any, n: int, batch_size: int, key: OrderKey | None, drop_last: bool
) -> None:
    whole = source.node.row_plan(batch_size, key, drop_last)
    plan = first_samples(whole, batch_size, n, drop_last)
    left = n
    again = source.node.row_plan(batch_size, key, drop_last)
    for number in range(int(plan.n_batches)):
        assert again.samples_before(number) == n - left
        assert plan.samples_before(number) == n - left
        taken, rows = plan.rows(number), whole.rows(number)
        assert batches.length(taken) == min(batches.length(rows), left)
        assert str(taken) == str(first_rows(rows, left))
        left -= batches.length(taken)
    if left > 0 and not drop_last:
        assert plan.n_batches == whole.n_batches
    assert again.batches_until(n) == whole.batches_until(n)
    assert whole.batches_until(0) == 0
    for m in range(1, n - left + 1):
        batch = whole.batches_until(m)
        assert whole.samples_before(batch) >= m > whole.samples_before(batch - 1)


MANY = 200_000_000


class Many:
    """Rows of which only the number matters."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, rows: Any) -> Any:
        return np.asarray(rows)


def large(n: int) -> Any:
    return bu.ArrayDataSource([Many(n)])


def counted(plan: Any) -> list[int]:
    """Return the list in which the numbers of the batches of `plan` are noted whose rows are made from now on."""
    asked, rows = [], plan.rows
    plan.rows = lambda number: (asked.append(number), rows(number))[1]
    return asked


@pytest.mark.parametrize(
    "source",
    [
        bu.ChoiceDataSource([large(MANY), large(MANY // 3)]),
        bu.ChoiceDataSource([large(MANY), large(MANY // 3)], stratified=True),
        bu.CompositeDataSource([bu.ChoiceDataSource([large(MANY), large(MANY + 1)]), large(2 * MANY)]),
        bu.CompositeDataSource([large(MANY), large(2 * MANY)], trim=False),
        bu.repeat(bu.ChoiceDataSource([large(MANY), large(MANY)], stratified=True), 3),
        bu.take(bu.take(bu.ChoiceDataSource([large(MANY), large(MANY + 2)]), MANY), MANY - 1),
    ],
    ids=["in turn", "stratified", "beside", "untrimmed", "rounds", "twice"],
)
def test_the_first_of_millions_of_batches_are_found_without_making_them(source: Any) -> None:
    """Ten million batches would take minutes."""
    for n in (MANY // 3, 10):
        plan = source.node.row_plan(20, KEY, False)
        asked = counted(plan)
        first = first_samples(plan, 20, n, False)
        last = int(first.n_batches) - 1
        assert batches.length(first.rows(last)) == n - plan.samples_before(last)
        assert asked == [last]


def test_the_first_of_many_buckets_are_found_without_making_them() -> None:
    for options in ({"max_tokens": 60}, {}):
        sampler = bu.BucketSampler(np.arange(300_000) % 29, **options)
        plan = sampler.row_plan(20, KEY, False)
        first = first_samples(plan, 20, 299_990, False)
        asked = counted(plan)
        lengths = [len(first.rows(int(first.n_batches) - 1 - back)) for back in range(3)]
        assert len(asked) == 3
        assert plan.samples_before(int(first.n_batches) - 3) + sum(lengths) == 299_990


@pytest.mark.parametrize("parts", [(7, 8), (7, 11, 5), (16, 16)])
@pytest.mark.parametrize("stratified", [False, True])
@pytest.mark.parametrize("key", [None, KEY])
def test_any_batch_of_many_rounds_of_a_choice_is_found(parts: Any, stratified: bool, key: OrderKey | None) -> None:
    choice = bu.ChoiceDataSource([array(n) for n in parts], stratified=stratified)
    plan = bu.repeat(choice, 300).node.row_plan(4, key, False)
    rounds = [choice.node.row_plan(4, None if key is None else key.child(which), False) for which in range(300)]
    expected = [rows for each in rounds for rows in map(each.rows, range(int(each.n_batches)))]
    assert plan.n_batches == len(expected)
    for number in (len(expected) - 1, 0, len(expected) // 2):
        assert str(plan.rows(number)) == str(expected[number])


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (bu.take(bu.ChoiceDataSource([array(7), array(11)]), 2), {"drop_last": True, "shuffle": 3}),
        (bu.take(bu.ChoiceDataSource([array(0), array(5)]), 3), {}),
    ],
)
def test_endless_rounds_without_a_batch_are_refused(source: Any, options: Any) -> None:
    with raises(bu.ArgumentError):
        next(bu.repeat(source, -1).batch_iterator(4, **options))
    assert list(bu.repeat(source, 1500).batch_iterator(4, **options)) == []


def test_empty_rounds_among_others_are_passed_over() -> None:
    source = bu.repeat(bu.ChoiceDataSource([array(0), array(5)]), -1)
    batches: Any = source.batch_iterator(4, shuffle=1)
    assert [len(next(batches)[0]) for _ in range(9)] == [4] * 9
