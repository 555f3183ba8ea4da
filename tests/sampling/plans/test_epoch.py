"""Plans of an epoch: what a drawn one remembers of its order, and the keys that ranks have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source.epoch.opening import epoch_plan
from batchup_ng.data_source.epoch_options import epoch_options
from batchup_ng.sampling.plans.listed import REMEMBERED_BATCHES
from tests.messages import raises


def drawn(repeats: int, seed: int = 0) -> Any:
    source = bu.ArrayDataSource([np.arange(10)], repeats=repeats)
    return source.plan(1, shuffle=np.random.RandomState(seed))


def test_an_endless_drawn_plan_gives_its_latest_batches_again() -> None:
    plan, far = drawn(-1), REMEMBERED_BATCHES + 100
    expected = [planned.rows.tolist() for planned, _ in zip(drawn(-1), range(far + 1), strict=False)]
    assert plan[far].rows.tolist() == expected[far]
    for number in (far - REMEMBERED_BATCHES + 1, far - 1):
        assert plan[number].rows.tolist() == expected[number]
        assert plan[number].key.start == number
    for number in (0, far - REMEMBERED_BATCHES):
        with raises(IndexError) as caught:
            plan[number]
        assert f"batch {number} of" in str(caught.value)


def test_who_walks_a_drawn_plan_that_was_left_far_behind_is_told_so() -> None:
    plan = drawn(-1)
    walk = iter(plan)
    next(walk)
    plan[REMEMBERED_BATCHES + 1]
    with raises(IndexError):
        next(walk)


def test_a_drawn_plan_that_ends_gives_any_batch_again() -> None:
    plan = drawn(500)
    rows = [planned.rows.tolist() for planned in plan]
    assert len(plan) == len(rows) == 5000 > REMEMBERED_BATCHES
    assert [plan[number].rows.tolist() for number in (0, 17, -1)] == [rows[0], rows[17], rows[-1]]
    with raises(IndexError):
        plan[5000]


def test_two_may_walk_one_drawn_plan() -> None:
    plan = drawn(3)
    one, other = iter(plan), iter(plan)
    pairs = [(next(one), next(other)) for _ in range(30)]
    assert all(a.rows.tolist() == b.rows.tolist() for a, b in pairs)
    assert list(one) == list(other) == []


@pytest.mark.parametrize("world", [2, 3])
def test_whole_batches_of_ranks_have_the_keys_that_they_have_alone(world: int) -> None:
    source = bu.ArrayDataSource([np.arange(40)])
    alone = source.plan(4, shuffle=1)
    for rank in range(world):
        plan = epoch_plan(source.node, epoch_options(4, 1, shard=(rank, world)))
        for number in range(10 // world):
            own, other = plan[number], alone[number * world + rank]
            assert own.rows.tolist() == other.rows.tolist()
            assert own.key == other.key
            assert own.key.generator().random() == other.key.generator().random()
