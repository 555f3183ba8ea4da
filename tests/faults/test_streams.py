"""Several streams, forks, pools in odd places: F22, F28."""

from __future__ import annotations

import pytest

from .accounting import BATCHES, POOLS
from .scenes import streams
from .settings import PARALLEL, cover, kinds
from .stage import play

SETTING = ("kind", "workers", "size")


@pytest.mark.parametrize(SETTING, cover(("forkserver", 2, "64 kB"), pools=POOLS))
def test_f22_three_iterators_at_once_are_whole(kind: str, workers: int, size: str) -> None:
    assert play(streams.three_at_once, kind=kind, workers=workers, size=size) == [BATCHES] * 3


@pytest.mark.parametrize(SETTING, cover(("forkserver", 2, "64 kB"), pools=PARALLEL))
def test_f22_three_consumers_on_threads_get_whole_epochs(kind: str, workers: int, size: str) -> None:
    assert play(streams.three_threads, kind=kind, workers=workers, size=size)


@pytest.mark.parametrize("kind", kinds(pools=POOLS))
def test_f22_after_the_end_there_is_nothing_more(kind: str) -> None:
    assert play(streams.after_the_end, kind=kind)


@pytest.mark.parametrize("kind", kinds(pools=PARALLEL))
def test_f22_streams_share_the_workers_fairly(kind: str) -> None:
    assert min(counts := play(streams.fairness, kind=kind)) >= max(counts) / 4, counts


@pytest.mark.parametrize("kind", kinds(pools=PARALLEL))
def test_f28_a_fork_of_the_users_is_told_what_is_wrong(kind: str) -> None:
    said = play(streams.fork_with_pool_open, kind=kind)
    assert said.pop("close") == "nothing"
    for use in ("next", "iterate", "stream"):
        assert said[use].startswith("PoolClosed: "), said
        assert "fork" in said[use], said
    assert said["source"].startswith("PoolClosed: ") or said["source"] == "nothing", said


@pytest.mark.parametrize("kind", kinds(pools=PARALLEL))
def test_f28_a_fork_of_the_users_that_ends_harms_nobody(kind: str) -> None:
    assert play(streams.fork_child_exits, kind=kind)
