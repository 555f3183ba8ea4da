"""Loaders that are stopped: what is lost or comes twice is counted, and how they end is said."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import stops
from benchmarks.__main__ import main
from benchmarks.peers import stopping
from benchmarks.records import Epoch, Outcome, Reading
from benchmarks.report.columns import most_cell, note_cell
from benchmarks.stops import crash, resume
from benchmarks.workloads import make, open_data
from benchmarks.workloads.base import Workload
from benchmarks.workloads.numbers import STRUCK
from tests.messages import raises

ROWS = [np.arange(start, start + 4) for start in range(0, 40, 4)]


class Feed:
    """Ten batches of four rows. A function gets the number of a batch before it is handed out."""

    def __init__(self, skip: int = 0, before: Any = None) -> None:
        self.skip, self.before, self.closed = skip, before or (lambda number: None), 0

    def epoch(self, number: int) -> Iterator[Any]:
        for at, rows in enumerate(ROWS):
            if self.before(at) != "leave out":
                yield (rows,)

    def state(self, taken: int) -> int:
        return taken + self.skip

    def resume(self, state: int) -> Iterator[Any]:
        assert self.closed == 1
        return iter([(rows,) for rows in ROWS[state:]])

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def forty(tmp_path: Path) -> Workload:
    return Workload(kind="numbered", folder=str(tmp_path), samples=40, batch_size=4, detail={"row": 13})


@pytest.mark.parametrize(("skip", "lost", "twice"), [(0, 0, 0), (2, 8, 0), (-1, 0, 4), (-5, 0, 20)])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.7])
def test_rows_that_are_lost_or_come_twice_are_counted(
    skip: int, lost: int, twice: int, share: float, forty: Workload
) -> None:
    taken = max(1, int(10 * share))
    if taken + skip < 0:
        pytest.skip("no state is before the beginning")
    epoch = resume(Feed(skip), forty, 0, {"share": share})
    assert (epoch.figures["lost"], epoch.figures["twice"]) == (lost, twice)
    assert epoch.batches == 10 - taken - skip
    assert 0 < epoch.first_batch_seconds <= epoch.seconds


def test_a_loader_from_whose_state_nothing_follows_says_so(forty: Workload) -> None:
    epoch = resume(Feed(5), forty, 0, {"share": 0.5})
    assert (epoch.batches, epoch.figures["lost"], epoch.notes) == (0, 20.0, {"end": "no batch followed"})


def struck(workload: Workload, then: Any) -> Any:
    """What hits batch 3, which has the row of the blow."""

    def before(number: int) -> Any:
        if number == 3:
            Path(workload.folder, STRUCK).write_text(repr(time.monotonic()))
            return then()
        return None

    return before


def fails() -> None:
    raise MemoryError("no memory")


def swallows() -> None:
    """A loader that catches every Exception, and then hangs all the same."""
    try:
        time.sleep(1000)
    except Exception:
        time.sleep(1000)


def test_each_end_has_its_words(forty: Workload) -> None:
    """A SIGALRM ends the wait, which also ends the clock of pytest-timeout for this test."""
    ends = {
        "goes on": (lambda: None, 0.0, 30.0), "MemoryError": (fails, None, 30.0),
        "goes on without a word, rows are missing": (lambda: "leave out", 4.0, 30.0),
        "no batch for 0.05 s": (swallows, None, 0.05),
    }  # fmt: skip
    for end, (then, lost, limit) in ends.items():
        feed = Feed(before=struck(forty, then))
        epoch = crash(feed, forty, 0, {"limit": limit})
        assert epoch.notes == {"end": end}
        assert epoch.figures.get("lost") == lost
        assert epoch.figures["hung"] == float(end.startswith("no batch"))
        assert epoch.figures["reaction_seconds"] >= 0
        assert feed.closed == 1


def test_a_blow_that_hits_nobody_is_a_failure(forty: Workload) -> None:
    with raises(RuntimeError):
        crash(Feed(), forty, 0, {"limit": 30.0})


def test_a_blow_hits_once(tmp_path: Path) -> None:
    workload = make("numbered", tmp_path, quick=True)
    workload.detail.update(blow="error", row=5)
    data = open_data(workload)
    data.sample(4)
    with raises(ValueError):
        data.sample(5)
    assert float((tmp_path / STRUCK).read_text()) <= time.monotonic()
    assert data.sample(5) == (5,)
    np.testing.assert_array_equal(data.map(np.arange(4, 8))[0], np.arange(4, 8))


def test_cells_have_the_worst_round_and_all_ends() -> None:
    outcome = Outcome(name="x", family="x")
    for lost, end in ((1.0, "goes on"), (3.0, "a|b"), (2.0, "goes on")):
        outcome = outcome.add(
            Epoch(seconds=1, first_batch_seconds=1, batches=1, samples=1, bytes=1, figures={"lost": lost},
                  notes={"end": end}),
            fresh=True,
        )  # fmt: skip
    assert most_cell(outcome, Reading("lost")) == "3.00"
    assert note_cell(outcome, Reading("end")) == "goes on; or a/b"


def test_variants_in_threads_are_named_right() -> None:
    assert set(stopping.IN_THREADS) < {variant.name for variant in stopping.VARIANTS}


@pytest.mark.in_turn
def test_ours_goes_on_from_a_state_and_after_a_worker_was_killed(tmp_path: Path) -> None:
    words = ["--parts", "resume-50,crash-kill", "--peers", "ours", "--quick", "--rounds", "1"]
    assert main(["resume", "crash", *words, "--output", str(tmp_path)]) == 0
    for study, names in (
        ("resume", {"ours-loader-processes", "ours-loader-threads"}), ("crash", {"ours-loader-processes"}),
    ):  # fmt: skip
        (case,) = json.loads((tmp_path / f"{study}.json").read_text())["cases"]
        assert {each["name"] for each in case["variants"]} == names
        for each in case["variants"]:
            (epoch,) = each["rounds"]
            assert (epoch["figures"]["lost"], epoch["figures"]["twice"]) == (0, 0)
            assert epoch["notes"]["end"] in ("", "goes on")
    assert stops.STRUCK == STRUCK
