"""Mixtures in the settings of the matrix: pools, workers, buffers, ranks, resumes, one after the other."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.testing import assert_reproducible
from batchup_ng.testing.sources import assert_same_batches
from tests.extent import quick
from tests.properties.matrix import BUFFERS, KINDS, WORKERS, WORLDS, opened

SEED, EPOCH, SIZE, LENGTH = 11, 2, 6, 252
POOLS = [("serial", 1), *itertools.product(KINDS[1:], WORKERS)]


def by_sample(x: np.ndarray, rng: bu.SampleRng) -> Any:
    return x, x + rng.normal()


def part(i: int, n: int, left_out: Any = ()) -> Any:
    rows = bu.ArrayDataSource([1000 * i + np.arange(n)])
    return bu.subset(rows, exclude=left_out) if left_out else rows


STEPS = bu.steps((0, [7, 2, 1]), (101, [4, 4, 2]), (180, [1, 1, 3]))
SOURCES: dict[str, Any] = {
    "steps": lambda: bu.mix(part(0, 90), part(1, 40), part(2, 50), weights=STEPS, length=LENGTH),
    "ramp": lambda: bu.mix(part(0, 90), part(1, 40), weights=bu.ramp((0, [9, 1]), (200, [1, 9])), length=LENGTH),
    "leaves": lambda: bu.mix(part(0, 150), part(1, 20), part(2, 150), weights=STEPS, length=LENGTH, max_repeats=2),
    "weighted": lambda: bu.mix(
        part(0, 90), part(1, 40).sample(weights=np.arange(1, 41)), weights=bu.steps((0, [3, 1]), (99, [1, 1])),
        length=LENGTH,
    ),
}  # fmt: skip


def adopted() -> tuple[Any, Any]:
    """Return a source, and the state of another after a part of a period, as one of this source."""
    before = bu.mix(part(0, 90), part(1, 40), weights=[5, 2], length=LENGTH).map(by_sample, rng="sample")
    iterator = before.batch_iterator(SIZE, SEED, epoch=EPOCH)
    for _ in range(5):
        next(iterator)
    source = bu.mix(part(0, 99), part(1, 40, [3, 17, 25]), weights=[1, 2], length=LENGTH).map(by_sample, rng="sample")
    other = source.batch_iterator(SIZE, SEED, epoch=EPOCH)
    other.load_state_dict(iterator.state_dict(), adopt=["weights", "rows"])
    return source, other.state_dict()


def made(name: str) -> tuple[Any, Any]:
    if name == "adopted":
        return adopted()
    return SOURCES[name]().map(by_sample, rng="sample"), None


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[tuple[str, int], Any]]:
    with opened(POOLS) as all_of_them:
        yield all_of_them


@pytest.mark.parametrize(("kind", "workers"), quick(POOLS[::3], POOLS))
@pytest.mark.parametrize("name", [*SOURCES, "adopted"])
def test_every_setting_hands_out_the_one_stream_and_any_other_goes_on(
    name: str, kind: str, workers: int, pools: dict[tuple[str, int], Any]
) -> None:
    pool = kind, workers
    source, state = made(name)
    others = itertools.cycle(itertools.product(POOLS, BUFFERS, WORLDS))
    for _ in range(POOLS.index(pool)):
        next(others)
    whole = list(source.batch_iterator(SIZE, SEED, epoch=EPOCH, state=state))
    left = whole
    buffer, world = BUFFERS[0], WORLDS[0]
    while left:
        parallel = pools[pool].parallel_data_source(source, buffer)
        ranks = [
            parallel.batch_iterator(SIZE, SEED, epoch=EPOCH, shard=(rank, world), state=state) for rank in range(world)
        ]
        given = [batch for batches in itertools.islice(zip(*ranks, strict=True), 4) for batch in batches]
        n = min(len(given), len(left) // world * world)
        assert_same_batches(given[:n], left[:n])
        state = json.loads(json.dumps(ranks[0].state_dict()))
        left = left[len(given) :]
        for rank in ranks:
            rank.close()
        pool, buffer, world = next(others)


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.in_turn
def test_the_check_for_users_finds_no_difference(name: str) -> None:
    assert_reproducible(made(name)[0], SIZE, max_batches=24, pools=("serial", "threads"))
