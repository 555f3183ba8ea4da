"""What the system limits is told of by the name of the limit, and does no lasting harm: F17."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from batchup_ng.interpreter import FREE_THREADED

from .accounting import BATCH, PROCESSES
from .groups import group_with
from .scenes import limits
from .settings import PARALLEL, Extent, kinds, quick
from .stage import play

OF_DESCRIPTORS = r"^PoolBroken: .*RLIMIT_NOFILE sets a limit of 64 descriptors; raise it by ulimit -n"
OF_PROCESSES = r"^PoolBroken: .*(ulimit -u.*pids\.max|pids\.max.*ulimit -u)"


def assert_each_told(found: dict[str, Any], pattern: str) -> None:
    """Assert that what could not work said so by an error of ours that names the limit."""
    for free, said in found.items():
        assert said is None or (said["typed"] and re.search(pattern, said["says"], re.S)), f"{free} free: {said}"


@pytest.mark.parametrize("kind", kinds())
def test_f17_too_few_descriptors_are_told_of_and_the_pool_works_when_there_are_more(kind: str, extent: Extent) -> None:
    numbers = [40, 12, 8, 6, 5, 4, 3, 2, 1, 0] if extent.thorough else [40, 0]
    found = play(limits.few_descriptors, kind=kind, numbers=numbers)
    assert found["40"] is None
    assert found["0"] is not None
    assert_each_told(found, OF_DESCRIPTORS)


@pytest.mark.parametrize("kind", kinds())
def test_f17_a_pool_that_is_made_without_a_descriptor_works_when_there_are_some(kind: str) -> None:
    assert play(limits.made_without_descriptors, kind=kind)


@pytest.mark.parametrize(
    ("kind", "killed", "lifted_after"),
    quick([], [(kind, *how) for kind in PROCESSES for how in ((1, None), (2, 1.5))]),
)
def test_f17_workers_are_replaced_when_there_are_descriptors(
    kind: str, killed: int, lifted_after: float | None
) -> None:
    # One of two goes on alone; without any, the pool tries again each second, for five seconds.
    found = play(limits.no_descriptor_for_a_new_worker, kind=kind, killed=killed, lifted_after=lifted_after)
    assert found == {"completed": True}


@pytest.mark.parametrize("kind", quick([], PROCESSES))
def test_f17_workers_that_cannot_be_replaced_are_told_of(kind: str) -> None:
    found = play(limits.no_descriptor_for_a_new_worker, kind=kind, killed=2, lifted_after=None)
    assert_each_told({"0": found}, OF_DESCRIPTORS)


@pytest.fixture(params=quick(["RLIMIT_NPROC"], ["pids.max"]))
def group(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """What limits processes: a control group, or, None, the limit of a user; skips the test where neither can be."""
    if request.param == "pids.max":
        with group_with("pids", "pids.max") as made:
            yield str(made)
        return
    if os.geteuid() != 0:
        pytest.skip("only root can have its processes counted as those of another user, who has no others")
    yield None


@pytest.mark.parametrize("kind", kinds())
def test_f17_too_few_processes_are_told_of_and_the_pool_works_when_there_may_be_more(
    kind: str, group: str | None, extent: Extent
) -> None:
    numbers = [*range(8)] if extent.thorough else [0]
    found = play(limits.few_processes, kind=kind, group=group, numbers=numbers)
    assert found["0"] is not None
    assert_each_told(found, OF_PROCESSES)


@pytest.mark.skipif(FREE_THREADED, reason="this interpreter's allocator keeps addresses that no limit takes back")
@pytest.mark.parametrize(
    ("kind", "how"),
    quick([("forkserver", "none left to pack it")], [(kind, "absurd") for kind in PARALLEL]),
)
def test_f17_a_worker_without_memory_is_told_of(kind: str, how: str) -> None:
    found = play(limits.no_memory_in_a_worker, kind=kind, how=how)
    assert (found["row"], found["memory"]) == (200, True), found
    assert found["delivered"] == 200 // BATCH
