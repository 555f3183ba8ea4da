"""Samples that raise or cannot travel are named: F7 to F9."""

from __future__ import annotations

from typing import Any

import pytest

from .accounting import BATCH, BATCHES, POOLS, N
from .scenes import exceptions
from .settings import PARALLEL, Extent, cover, kinds
from .stage import play


@pytest.mark.parametrize(
    ("kind", "workers", "size"),
    cover(("forkserver", 2, "0 B"), pools=POOLS),
)
def test_f7_an_error_tells_row_map_epoch_batch_and_traceback(kind: str, workers: int, size: str) -> None:
    found = play(exceptions.named, kind=kind, workers=workers, size=size)
    assert_named(found)
    assert "LookupError" in found["types"]
    assert found["delivered"] == exceptions.POSITION // BATCH
    assert "fails_at_the_bad_row" in found["op"]
    assert "fails_at_the_bad_row" in found["traceback"]
    assert found["message"].startswith("the row is bad")
    for part in (str(found["bad"]), "fails_at_the_bad_row"):
        assert part in found["message"]


def assert_named(found: dict[str, Any]) -> None:
    """Assert that the error names the bad row and its place, and that the pool went on."""
    assert found["is_batch_error"], found["types"]
    assert (found["row"], found["epoch"]) == (found["bad"], 0)
    assert found["batch"] == exceptions.POSITION // BATCH
    assert found["usable"]


@pytest.mark.parametrize(
    ("kind", "workers", "size"),
    cover(("forkserver", 2, "0 B"), pools=POOLS),
)
def test_f7_the_rest_of_the_epoch_can_be_had(kind: str, workers: int, size: str) -> None:
    figures = play(exceptions.skipped, kind=kind, workers=workers, size=size)
    assert figures["batches"] == BATCHES
    assert "the row is bad" in figures["message"]


@pytest.mark.parametrize("kind", kinds(pools=PARALLEL))
def test_f8_odd_exceptions_are_named_like_others(kind: str, extent: Extent) -> None:
    ways = [way for way in exceptions.ODD if way != "100 MB" or extent.thorough]
    for which, found in zip(ways, play(exceptions.odd, kind=kind, ways=ways), strict=True):
        assert_named(found)
        assert len(found["message"].encode()) <= 65 << 10, which
        assert str(found["bad"]) in found["message"], which
        assert not {"SystemExit", "KeyboardInterrupt", "StopIteration", "GeneratorExit"} & set(found["types"]), which


@pytest.mark.parametrize("kind", kinds(pools=PARALLEL))
def test_f8_odd_exceptions_can_be_skipped(kind: str) -> None:
    ways = [way for way in exceptions.ODD if way != "100 MB"]
    assert play(exceptions.odd_skipped, kind=kind, ways=ways) == [BATCHES] * len(ways)


CANNOT_TRAVEL = {
    "lock": ("['meta'].lock", "lock"),
    "load raises": ("['meta']", "LoadRaises"),
    "load exits": ("['meta']", "LoadExits"),
}
"""What is said of a result: where in the batch it is, and what."""


@pytest.mark.parametrize("kind", kinds())
def test_f9_a_result_that_cannot_travel_is_named(kind: str) -> None:
    told = play(exceptions.results_that_cannot_travel, kind=kind, ways=list(CANNOT_TRAVEL))
    for found, (where, what) in zip(told, CANNOT_TRAVEL.values(), strict=True):
        assert_named(found)
        assert "SerializationError" in found["types"]
        assert where in found["message"]
        assert what in found["message"]


@pytest.mark.parametrize("kind", kinds())
def test_f9_a_result_that_kills_or_cannot_be_loaded_costs_one_error(kind: str) -> None:
    ways = ["load kills", "load raises here", "end kills"]
    loaded, here, ended = play(exceptions.results_that_cannot_travel, kind=kind, ways=ways)
    assert loaded["is_batch_error"]
    assert loaded["row"] == loaded["bad"]
    assert "not to be loaded here" in here["message"]
    assert ended.get("whole") == N or (ended["is_batch_error"] and ended["row"] == ended["bad"])
    assert loaded["usable"] and here["usable"] and ended["usable"]  # noqa: PT018
