"""An order of a million million rows, or of as many as there may be, costs what a short one costs."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.randomness import OrderKey
from batchup_ng.sampling.plans.permutation import MAX_POSITIONS, KeyedPermutation
from batchup_ng.sampling.plans.rows import FIRST_BLOCK_POSITIONS

LONG = 10**12
MEGABYTE = 1_000_000


class RowNumbers:
    """Data that are computed: row k is k."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, rows: Any) -> Any:
        return np.array(rows)


def source_of(n: int) -> bu.ArrayDataSource:
    return bu.ArrayDataSource([RowNumbers(n)])


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many positions were computed in each call."""
    calls: list[int] = []
    original = KeyedPermutation.__call__

    def counting(self: KeyedPermutation, positions: np.ndarray) -> np.ndarray:
        calls.append(len(positions))
        return original(self, positions)

    monkeypatch.setattr(KeyedPermutation, "__call__", counting)
    return calls


def test_memory_does_not_grow_with_the_rows() -> None:
    source = source_of(LONG)
    next(source.batch_iterator(1024, shuffle=1))
    tracemalloc.start()
    try:
        batches = source.batch_iterator(1024, shuffle=7)
        for _ in range(150):
            next(batches)
        next(source.batch_iterator(1024, shuffle=7, state=batches.state_dict()))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5 * MEGABYTE


def test_the_first_batch_waits_for_no_more_than_a_small_block(computed: list[int]) -> None:
    next(source_of(LONG).batch_iterator(256, shuffle=7))
    assert computed == [FIRST_BLOCK_POSITIONS]


def test_nothing_of_what_was_handed_out_is_computed_again(computed: list[int]) -> None:
    source = source_of(LONG)
    batches = source.batch_iterator(1024, shuffle=7)
    for _ in range(500):
        next(batches)
    state = json.loads(json.dumps(batches.state_dict()))
    expected = [next(batches)[0] for _ in range(40)]
    computed.clear()
    resumed = source.batch_iterator(1024, shuffle=7, state=state)
    assert computed == []
    assert np.array_equal(next(resumed)[0], expected[0])
    assert computed == [FIRST_BLOCK_POSITIONS]
    for rows in expected[1:]:
        assert np.array_equal(next(resumed)[0], rows)


@pytest.mark.parametrize("n", [LONG, MAX_POSITIONS])
def test_any_batch_can_be_asked_for(n: int) -> None:
    plan = source_of(n).plan(1000, shuffle=7, epoch=2)
    permutation = KeyedPermutation(n, OrderKey(7, 2).word("shuffle", 0))
    assert len(plan) == -(-n // 1000)
    for number in (len(plan) - 1, 0, len(plan) // 2):
        positions = np.arange(number * 1000, min(number * 1000 + 1000, n))
        assert np.array_equal(plan[number].rows, permutation(positions))
