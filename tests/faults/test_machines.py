"""State machines: real processes (M2), threads (M4), leases (M5). M1 is a machine on pure code, beside that code."""

from __future__ import annotations

from typing import Any

import pytest

from .scenes import leases, machines, threads
from .settings import PARALLEL, Extent, kinds, quick
from .stage import play


def test_m2_whatever_is_done_to_a_pool_its_epochs_are_right(seed: int, extent: Extent) -> None:
    examples, steps = extent.times(1, 40), extent.times(8, 15)
    for part in range(extent.times(1, 20)):
        play(machines.pool_machine, limit=300, examples=examples, steps=steps, seed=seed + part)


def test_m4_results_go_through_threads_without_loss(seed: int, extent: Extent) -> None:
    each = extent.times(1_000, 50_000)
    found = play(threads.handed_through, limit=400, consumers=4, each=each, seed=seed)
    assert found["handed"] == 4 * each
    assert_kept_up(found, steps=4 * 4 * each)  # begin, set_result, wait, result
    # The goal is 100 ms. Measured: 9 ms and 11 ms, p99.9 2 ms and 3 ms, while others used both cores. A wakeup
    # that is missed ends the test at a limit, or the wait at some deadline, which is later than this.
    assert found["longest"] <= 25.0, found


def test_m4_loops_broken_off_while_threads_are_switched_harm_no_other(seed: int, extent: Extent) -> None:
    times = extent.times(20, 1000)
    found = play(threads.broken_off_all_the_time, limit=400, times=times, seed=seed)
    assert found["times"] == times
    assert_kept_up(found, steps=30 * 4 * times)  # thirty batches on average


def test_m4_memory_is_lent_to_one_at_a_time(seed: int, extent: Extent) -> None:
    times = extent.times(1000, 5000)
    found = play(threads.leased_by_many, times=times, threads=4, seed=seed)
    assert found["times"] == 4 * times
    assert_kept_up(found, steps=4 * times)


def assert_kept_up(found: dict[str, Any], steps: int) -> None:
    """Assert that threads took about so many of the steps before which they may be kept up, and slept at one in 100."""
    assert steps / 2 <= found["steps"] <= steps * 2, found
    assert found["steps"] * 0.005 <= found["sleeps"] <= found["steps"] * 0.02, found


@pytest.mark.parametrize("kind", kinds(pools=PARALLEL))
def test_m5_what_is_held_is_never_overwritten(kind: str, seed: int, extent: Extent) -> None:
    play(leases.lease_machine, limit=300, kind=kind, examples=extent.times(1, 200), steps=25, seed=seed)


@pytest.mark.parametrize("kind", quick(["threads", "forkserver"], PARALLEL))
def test_m5_memory_that_is_free_is_nobodys(kind: str, extent: Extent) -> None:
    found = play(leases.poisoned_all_the_time, kind=kind, batches=extent.times(300, 1500))
    assert found["lenders"] > 0
    assert found["poisoned"] > 0


@pytest.mark.parametrize(
    ("kind", "how"), quick([], [(kind, how) for kind in PARALLEL for how in leases.VIEWS])
)
def test_m5_what_a_tensor_shows_is_never_overwritten_and_is_free_after_it(kind: str, how: str) -> None:
    library = how.partition(".")[0]
    pytest.importorskip(library, reason=f"{library} is not installed")
    found = play(leases.held_by, kind=kind, how=how, batches=300)
    assert found["freed"] == found["lent"], found
    assert found["lent"] == (0 if how == "jax.numpy" else 300 - leases.HELD), found  # that one makes a copy
