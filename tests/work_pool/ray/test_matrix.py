"""One stream, whoever makes it: actors of a Ray cluster beside other pools, ranks, resumes after each batch.

The source, and what is compared, are those of ``tests/properties/test_matrix.py``.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from batchup_ng.testing.sources import assert_same_batches
from tests.properties.matrix import BATCHES, BUFFERS, EPOCH, SEED, SIZE, WORLDS, augmented, opened
from tests.properties.test_matrix import STEP, check_tail, iterators, mixed

from ...extent import quick

pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = [
    pytest.mark.in_turn,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of Ray, which leaves files to the collector
]

ACTORS = (1, 4)
OTHERS = [("serial", 1), ("processes", 2)]


@pytest.fixture(scope="module")
def pools(lone: Any, four: Any) -> Iterator[dict[tuple[str, int], Any]]:
    """Pools of one and four actors, and others that go on where those stopped."""
    with opened(OTHERS) as made:
        yield {**made, ("ray", 1): lone, ("ray", 4): four}


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    """The batches of a plain loop."""
    return list(augmented(True).batch_iterator(SIZE, SEED, epoch=EPOCH))


@pytest.mark.parametrize(
    ("actors", "buffer", "world"),
    quick([(1, 7, 2), (4, 7, 1), (4, 1, 3)], list(itertools.product(ACTORS, BUFFERS, WORLDS))),
)
def test_actors_hand_out_the_one_stream_and_any_other_pool_goes_on_with_it(
    actors: int, buffer: int, world: int, pools: dict[tuple[str, int], Any], expected: list[Any], in_full: bool
) -> None:
    made = functools.cache(lambda pool, buffer: pools[pool].parallel_data_source(augmented(True), buffer))
    settings = itertools.cycle([((pool, 7), world) for pool in pools for world in WORLDS])
    ranks, given = iterators(made(("ray", actors), buffer), world, epoch=EPOCH), []
    for round_ in range(BATCHES // world):
        if in_full or round_ % STEP == 0:
            state = ranks[0].state_dict()
            check_tail(next(settings), made, state, expected, round_ * world, True, in_full)
        given += mixed(ranks, 1)
    assert_same_batches(given, expected)
    assert mixed(ranks) == []
