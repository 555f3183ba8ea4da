"""Samples that cannot travel are named: F9."""

from __future__ import annotations

from typing import Any

import pytest

from .accounting import BATCH, N
from .scenes import exceptions
from .settings import kinds
from .stage import play


def assert_named(found: dict[str, Any]) -> None:
    """Assert that the error names the bad row and its place, and that the pool went on."""
    assert found["is_batch_error"], found["types"]
    assert (found["row"], found["epoch"]) == (found["bad"], 0)
    assert found["batch"] == exceptions.POSITION // BATCH
    assert found["delivered"] == exceptions.POSITION // BATCH
    assert found["usable"]


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
