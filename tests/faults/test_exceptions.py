"""Samples that raise or cannot travel are named: F7 to F9."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .books import BATCH, BATCHES, N
from .books import POOLS as EVERY_POOL
from .scenes import exceptions
from .settings import matrix, thorough
from .stage import play

POOLS = ["serial", "threads", "forkserver", thorough("spawn"), thorough("fork")]


@pytest.mark.parametrize(
    ("kind", "workers", "size"),
    matrix(("serial", 1, "0 B"), ("threads", 2, "64 kB"), ("forkserver", 2, "0 B"), pools=EVERY_POOL),
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


def assert_named(found: dict[str, Any], seconds: float = 1.0) -> None:
    """Assert that the error names the bad row and its place, in time, and that the pool went on."""
    assert found["is_batch_error"], found["types"]
    assert (found["row"], found["epoch"]) == (found["bad"], 0)
    assert found["batch"] == exceptions.POSITION // BATCH
    assert found["seconds"] <= seconds
    assert found["usable"]


@pytest.mark.parametrize(
    ("kind", "workers", "size"),
    matrix(("serial", 1, "64 kB"), ("threads", 2, "0 B"), ("forkserver", 2, "64 kB"), pools=EVERY_POOL),
)
def test_f7_the_rest_of_the_epoch_can_be_had(kind: str, workers: int, size: str) -> None:
    figures = play(exceptions.skipped, kind=kind, workers=workers, size=size)
    assert figures["batches"] == BATCHES
    assert "the row is bad" in figures["message"]


@pytest.mark.parametrize("kind", POOLS)
def test_f7_a_damaged_file_is_named_by_its_path(kind: str, tmp_path: Path) -> None:
    found = play(exceptions.a_damaged_file, kind=kind, folder=str(tmp_path), on_error="raise")
    assert found["is_batch_error"]
    assert {"SampleReadError", "OSError"} <= set(found["types"])
    assert (found["row"], found["batch"], found["source"]) == (41, 41 // BATCH, found["path"])
    assert "41" in found["message"].replace(found["path"], "")
    assert found["path"] in found["message"]
    assert found["usable"]


@pytest.mark.parametrize("kind", POOLS)
def test_f7_a_damaged_file_can_be_skipped(kind: str, tmp_path: Path) -> None:
    found = play(exceptions.a_damaged_file, kind=kind, folder=str(tmp_path), on_error="skip")
    assert found["rows"] == [row for row in range(60) if row != 41]
    assert found["reported"] == [[41, found["path"]]]


@pytest.mark.parametrize("which", exceptions.ODD)
@pytest.mark.parametrize("kind", ["threads", "forkserver", thorough("spawn"), thorough("fork")])
def test_f8_odd_exceptions_are_named_like_others(kind: str, which: str) -> None:
    found = play(exceptions.odd, kind=kind, which=which)
    # A text of 100 MB is made and formatted more than once: 0.9 s, measured, 1.1 s on busy cores.
    assert_named(found, 3.0 if which == "100 MB" else 1.0)
    assert len(found["message"].encode()) <= 65 << 10
    assert str(found["bad"]) in found["message"]
    assert not {"SystemExit", "KeyboardInterrupt", "StopIteration", "GeneratorExit"} & set(found["types"])


@pytest.mark.parametrize(
    "which",
    [
        name if name in ("unpicklable", "SystemExit", "StopIteration") else thorough(name)
        for name in exceptions.ODD
    ],
)
@pytest.mark.parametrize("kind", ["threads", "forkserver"])
def test_f8_odd_exceptions_can_be_skipped(kind: str, which: str) -> None:
    assert play(exceptions.odd_skipped, kind=kind, which=which)["batches"] == BATCHES


@pytest.mark.parametrize("which", ["lock", "load raises", "load exits"])
@pytest.mark.parametrize("kind", ["forkserver", thorough("spawn"), thorough("fork")])
def test_f9_a_result_that_cannot_travel_is_named(kind: str, which: str) -> None:
    found = play(exceptions.result_that_cannot_travel, kind=kind, which=which)
    assert_named(found)
    assert "CannotTravel" in found["types"]
    where, what = {
        "lock": ("['meta'].lock", "lock"),
        "load raises": ("['meta']", "LoadRaises"),
        "load exits": ("['meta']", "LoadExits"),
    }[which]
    assert where in found["message"]
    assert what in found["message"]


@pytest.mark.parametrize("kind", ["forkserver", thorough("spawn"), thorough("fork")])
def test_f9_a_result_that_kills_whoever_loads_it_is_named(kind: str) -> None:
    found = play(exceptions.result_that_cannot_travel, kind=kind, which="load kills")
    assert found["is_batch_error"]
    assert found["row"] == found["bad"]
    assert found["usable"]


@pytest.mark.parametrize("kind", ["forkserver", thorough("spawn"), thorough("fork")])
def test_f9_a_result_that_only_the_consumer_cannot_load_costs_one_error(kind: str) -> None:
    found = play(exceptions.result_that_cannot_travel, kind=kind, which="load raises here")
    assert "not to be loaded here" in found["message"]
    assert found["usable"]


@pytest.mark.parametrize("kind", ["forkserver", thorough("spawn"), thorough("fork")])
def test_f9_a_result_that_kills_its_maker_arrives_or_is_named(kind: str) -> None:
    found = play(exceptions.result_that_cannot_travel, kind=kind, which="end kills")
    assert found.get("whole") == N or (found["is_batch_error"] and found["row"] == found["bad"])
    assert found["usable"]
