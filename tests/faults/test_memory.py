"""What is held stays as it is, and no more is held from epoch to epoch: F27."""

from __future__ import annotations

import pytest

from .accounting import BATCHES
from .scenes import memory
from .settings import PARALLEL, Extent, kinds, quick
from .stage import play


@pytest.mark.parametrize(
    ("kind", "mapped", "width"),
    quick(
        [("threads", False, 15_000), ("forkserver", True, 15_000)],
        [
            *[("forkserver", False, 15_000), ("forkserver", False, 150_000)],
            *[("spawn", True, 15_000), ("threads", True, 150_000)],
        ],
    ),
)
def test_f27_a_batch_that_is_held_is_never_overwritten(
    kind: str, mapped: bool, width: int, seed: int, extent: Extent
) -> None:
    batches = extent.times(400, 10_000 if width < 100_000 else 2_000)
    found = play(memory.kept_and_written, kind=kind, batches=batches, width=width, seed=seed, mapped=mapped)
    assert found["batches"] == batches


@pytest.mark.parametrize("kind", kinds(pools=PARALLEL))
def test_f27_a_consumer_that_keeps_everything_gets_everything(kind: str) -> None:
    found = play(memory.all_kept, kind=kind)
    assert (found["kept"], found["changed"]) == (BATCHES, 0)


@pytest.mark.parametrize("kind", kinds(pools=PARALLEL))
def test_f27_batches_outlive_the_pool(kind: str) -> None:
    assert play(memory.after_the_pool, kind=kind)


@pytest.mark.parametrize("kind", kinds(pools=PARALLEL))
def test_fifty_epochs_hold_no_more_than_two(kind: str, extent: Extent) -> None:
    found = play(memory.over_epochs, alone=extent.thorough, kind=kind, times=extent.times(3, 50))
    steady = [memory for memory, _, _ in found[1:]]
    assert max(abs(memory - steady[0]) for memory in steady) <= 2e6, found
    assert len({descriptors for _, _, descriptors in found[1:]}) == 1, found
