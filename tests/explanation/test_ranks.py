"""The straggler among the ranks of a training is named, with what is slow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchup_ng.explanation.ranks import MOST_SHOWN, RankFigures, Straggler, lines, straggler

MS = 1e-3


def in_lockstep(own: Sequence[tuple[float, float]]) -> list[RankFigures]:
    """Return figures of ranks whose steps end together. `own` has the wait and the own work of each, in ms."""
    batch = max(wait + work for wait, work in own)
    return [
        RankFigures(rank, "host", batch * MS, wait * MS, (batch - wait) * MS, work * MS, "workers")
        for rank, (wait, work) in enumerate(own)
    ]


def alone(own: Sequence[tuple[float, float]]) -> list[RankFigures]:
    """Return figures of ranks that do not wait for each other."""
    return [
        RankFigures(rank, "host", (wait + work) * MS, wait * MS, work * MS, work * MS, "loop")
        for rank, (wait, work) in enumerate(own)
    ]


def found(ranks: list[RankFigures]) -> tuple[int, str] | None:
    told = straggler(ranks)
    return None if told is None else (told.rank, told.slow)


PLACES = st.integers(2, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1)))


@pytest.mark.parametrize("world", [in_lockstep, alone])
@pytest.mark.parametrize(("planted", "slow"), [((30, 20), "data"), ((0, 60), "step"), ((5, 90), "step")])
@given(PLACES)
def test_a_planted_straggler_is_found(world: Any, planted: tuple[float, float], slow: str, place: Any) -> None:
    n, at = place
    own = [planted if rank == at else (0.0, 20.0) for rank in range(n)]
    assert found(world(own)) == (at, slow)


@given(st.integers(1, 6))
def test_ranks_that_are_alike_have_none(n: int) -> None:
    assert found(in_lockstep([(3, 20)] * n)) is None
    assert found(alone([(3, 20 + 0.1 * rank) for rank in range(n)])) is None


def test_what_is_not_known_is_left_out() -> None:
    ranks = in_lockstep([(0, 20), (0, 20), (30, 20)])
    without = [RankFigures(rank.rank, rank.host, *rank[2:5], math.nan, rank.cause) for rank in ranks]
    assert found(without) == (2, "data")
    lost = RankFigures(2, "host", error="too few batches")
    assert found([*ranks[:2], lost]) is None
    assert found([ranks[0], lost]) is None
    same = [each._replace(step_cpu_seconds=math.nan) for each in in_lockstep([(0, 20), (0, 60)])]
    assert found(same) is None  # a step on a device shows no CPU time


def test_lines_are_as_many_as_are_read() -> None:
    ranks = [*in_lockstep([(0, 20)] * 500), RankFigures(500, "host", error="too few batches")]
    told = list(lines(ranks, None))
    assert sum("host" in line for line in told) == MOST_SHOWN
    assert told[-1] == f"  and {501 - MOST_SHOWN} more"
    assert "too few batches" in told[3]
    sentence = Straggler(1, "data", "Rank 1 is the straggler.")
    assert next(lines(ranks[:2], sentence)) == sentence.sentence
