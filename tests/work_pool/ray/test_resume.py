"""A training on two nodes that stops in mid-epoch goes on with one, with the process pool, or without a pool."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import batchup_ng as bu
from batchup_ng.testing.sources import assert_same_batches

from . import faulty

pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = [
    pytest.mark.in_turn,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of Ray, which leaves files to the collector
]

WORLD, ROUNDS = 2, 4


def epoch(pool: Any, **options: Any) -> Any:
    """Return an iterator over an epoch; None as the pool is a plain loop."""
    source = faulty.source() if pool is None else pool.parallel_data_source(faulty.source(), 6)
    return source.batch_iterator(faulty.SIZE, 5, **options)


@contextlib.contextmanager
def ranks(**options: Any) -> Iterator[list[Any]]:
    """Give the iterators of two ranks, each with an actor that takes next to all of a node."""
    with contextlib.ExitStack() as stack:
        pools = [stack.enter_context(bu.WorkerRayPool(actors=1, num_cpus=6)) for _ in range(WORLD)]
        yield [epoch(pool, shard=(rank, WORLD), **options) for rank, pool in enumerate(pools)]
        assert len({each["node"] for pool in pools for each in pool.stats()}) == WORLD


@pytest.fixture(scope="module")
def stopped(nodes: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], list[Path]]:
    """Give what two ranks handed out before they stopped, in the order of the stream, and the state that each saved."""
    folder = tmp_path_factory.mktemp("states")
    paths = [folder / f"rank_{rank}.json" for rank in range(WORLD)]
    with ranks(epoch=3) as iterators:
        given = [next(iterator) for _ in range(ROUNDS) for iterator in iterators]
        for iterator, path in zip(iterators, paths, strict=True):
            iterator.save_state(path)
    return given, paths


@pytest.mark.parametrize("place", ["ray", "processes", "no pool"])
@pytest.mark.parametrize("saved_by", range(WORLD))
def test_what_two_nodes_began_goes_on_in_one_process(
    stopped: Any, lone: Any, pools: list[Any], place: str, saved_by: int
) -> None:
    given, paths = stopped
    with epoch({"ray": lone, "processes": pools[1], "no pool": None}[place], epoch=3) as iterator:
        iterator.load_state(paths[saved_by])
        assert_same_batches(given + list(iterator), list(epoch(None, epoch=3)))


def test_what_processes_began_goes_on_with_two_nodes(nodes: Any, pools: list[Any]) -> None:
    with epoch(pools[1], epoch=3) as iterator:
        given = [next(iterator) for _ in range(ROUNDS)]
        state = iterator.state_dict()
    with ranks(state=state) as iterators:
        for together in zip(*iterators, strict=True):
            given += together
    assert_same_batches(given, list(epoch(None, epoch=3)))
