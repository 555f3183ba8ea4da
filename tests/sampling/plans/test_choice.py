"""The turns of the sources in a stratified choice."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.sampling.plans.choice import even_order


def sources_in(counts: list[int]) -> list[int]:
    turns: list[int] = np.repeat(np.arange(len(counts)), counts)[even_order(counts)].tolist()
    return turns


@given(counts=st.lists(st.integers(0, 20), max_size=6))
def test_sources_are_spread_as_by_counting_what_is_due_round_by_round(counts: list[int]) -> None:
    most, order, due, done = max(counts, default=0), [], [0.0] * len(counts), [-1 if n else 0 for n in counts]
    for _ in range(most):
        for i, n in enumerate(counts):
            if int(due[i] + 0.25 / most) > done[i]:
                order.append(i)
                done[i] = int(due[i] + 0.25 / most)
            due[i] += n / most
    assert sources_in(counts) == order


def test_a_source_without_a_batch_has_no_turn_in_a_stratified_choice() -> None:
    source = bu.ChoiceDataSource([bu.ArrayDataSource([np.zeros(n)]) for n in (2, 7)], stratified=True)
    assert [len(x) for (x,) in source.batch_iterator(3, drop_last=True)] == [3, 3]


def test_in_a_spread_choice_of_many_batches_the_few_begin_as_soon_as_they_are_due() -> None:
    assert np.flatnonzero(sources_in([300_000, 3])).tolist() == [1, 100_002, 200_003]
