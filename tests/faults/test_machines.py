"""State machines: real processes (M2), threads (M4), leases (M5). M1 is a machine on pure code, beside that code."""

from __future__ import annotations

import pytest

from .scenes import leases, machines, threads
from .settings import Extent, only_full
from .stage import play


def test_m2_whatever_is_done_to_a_pool_its_epochs_are_right(seed: int, extent: Extent) -> None:
    # Measured: 40 examples of 15 steps take half a minute on two cores.
    for part in range(extent.times(1, 20)):
        play(machines.pool_machine, limit=120, examples=40, steps=15, seed=seed + part)


def test_m4_results_go_through_threads_without_loss(seed: int) -> None:
    found = play(threads.handed_through, limit=110, consumers=4, each=50_000, seed=seed)
    assert found["handed"] == 200_000
    # A wakeup that is missed shows as a wait without end, or until the next deadline of some wait: whole seconds. What
    # stays below is the system's: four consumers, three workers and all else on this machine share two cores.
    assert found["p99.9"] <= 0.1, found
    assert found["longest"] <= 1.0, found


def test_m4_loops_broken_off_while_threads_are_switched_harm_no_other(seed: int, extent: Extent) -> None:
    times = extent.times(100, 1000)
    assert play(threads.broken_off_all_the_time, limit=110, times=times, seed=seed) == times


def test_m4_memory_is_lent_to_one_at_a_time(seed: int) -> None:
    assert play(threads.leased_by_many, times=5000, threads=4, seed=seed) == 20_000


@pytest.mark.parametrize("kind", ["threads", "forkserver"])
def test_m5_what_is_held_is_never_overwritten(kind: str, seed: int, extent: Extent) -> None:
    play(leases.lease_machine, limit=60, kind=kind, examples=extent.times(15, 200), steps=25, seed=seed)


@pytest.mark.parametrize("kind", ["threads", "forkserver", only_full("spawn"), only_full("fork")])
def test_m5_memory_that_is_free_is_nobodys(kind: str) -> None:
    found = play(leases.poisoned_all_the_time, kind=kind, batches=1500)
    assert found["lenders"] > 0
    assert found["poisoned"] > 20


@pytest.mark.parametrize("how", leases.VIEWS)
@pytest.mark.parametrize("kind", ["threads", "forkserver", only_full("spawn"), only_full("fork")])
def test_m5_what_a_tensor_shows_is_never_overwritten_and_is_free_after_it(kind: str, how: str) -> None:
    library = how.partition(".")[0]
    pytest.importorskip(library, reason=f"{library} is not installed")
    found = play(leases.held_by, kind=kind, how=how, batches=300)
    assert found["freed"] == found["lent"], found
    assert found["lent"] == (0 if how == "jax.numpy" else 300 - leases.HELD), found  # that one makes a copy
