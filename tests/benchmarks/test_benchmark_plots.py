"""The plots of the comparison are drawn from the JSON of the studies, and losses stand there as plainly as wins."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.records import Epoch, Outcome
from benchmarks.report import bars, compared
from benchmarks.studies import STUDIES

ARRAYS, START = compared.PLOTS[0], compared.PLOTS[3]
SETTING = {
    "command": "python -m benchmarks arrays", "date": "2026-11-28", "version": "0.1.0 (abc)", "cpus": 2,
    "system": "Linux x86_64", "python": "3.11.7", "libraries": {"batchup_ng": "0.1.0 (abc)"}, "quick": False,
}  # fmt: skip


def outcome(name: str, family: str, *seconds: float) -> dict[str, Any]:
    """A variant that took so many seconds for each gigabyte, in its first epoch and the rounds."""
    told = Outcome(name=name, family=family)
    for each in seconds:
        one = Epoch(seconds=each, first_batch_seconds=each, batches=1, samples=1, bytes=10**9)
        told = told.add(one, fresh=False)
    return asdict(told)


def fields(study: str, part: str, *variants: dict[str, Any]) -> dict[str, Any]:
    return {"study": study, "setting": SETTING, "cases": [{"name": part, "variants": list(variants)}]}


OURS = outcome("ours-threads", "ours", 9.0, 1.0, 2.0, 4.0)
FAST = outcome("plain", "plain", 9.0, 0.5, 1.0, 2.0)
SLOW = outcome("torch", "torch", 9.0, 4.0, 8.0, 8.0)
ABSENT = asdict(Outcome(name="ffcv", family="ffcv", status="absent", detail="not installed: ffcv"))


def test_bars_are_medians_the_best_first() -> None:
    values = ARRAYS.panels[0].values(fields("arrays", "arrays", SLOW, OURS, ABSENT, FAST))
    assert [(each.name, each.ours, each.median, each.low, each.high) for each in values] == [
        ("plain", False, 1.0, 0.5, 2.0), ("ours-threads", True, 0.5, 0.25, 1.0), ("torch", False, 0.125, 0.125, 0.25),
    ]  # fmt: skip
    values = START.panels[0].values(fields("startup", "new", SLOW, OURS, FAST))
    assert [each.name for each in values] == ["plain", "ours-threads", "torch"]


def test_a_loss_is_said_as_plainly_as_a_win() -> None:
    told = [
        compared.standing(panel, panel.values(fields("x", panel.part, OURS, *others)))
        for panel in (ARRAYS.panels[0], START.panels[0])
        for others in ((SLOW, FAST), (SLOW,), ())
    ]
    assert told == [
        "GB/s: **Ours loses**: place 2 of 3. `ours-threads` 0.500, `plain` 1.00, 0.50 times as much.",
        "GB/s: Ours is the best. `ours-threads` 0.500, `torch` 0.125, 4.00 times as much.",
        "GB/s: nothing to compare.",
        "s: **Ours loses**: place 2 of 3. `ours-threads` 2.00, `plain` 1.00, 2.00 times as much.",
        "s: Ours is the best. `ours-threads` 2.00, `torch` 8.00, 0.25 times as much.",
        "s: nothing to compare.",
    ]


def test_plots_are_drawn_again_from_the_files_alone(tmp_path: Path) -> None:
    told = json.dumps(fields("arrays", "arrays", SLOW, OURS, ABSENT, FAST))
    (tmp_path / "arrays.json").write_text(told)
    (tmp_path / "startup.md").write_text("## startup\n\n`python -m benchmarks startup`, 2026-11-21: 3 rounds")
    assert main(["plots", str(tmp_path)]) == 0
    drawn = (tmp_path / "compared_arrays.svg").read_text()
    text = (tmp_path / "compared.md").read_text()
    assert bars.OUR_COLOUR in drawn
    assert all(name in drawn for name in ("plain", "ours-threads", "torch"))
    assert "ffcv" not in drawn
    assert "- `ffcv`: absent, not installed: ffcv" in text
    assert "`python -m benchmarks arrays`, 2026-11-28: 2 CPUs" in text
    assert text.count("figures/compared_arrays.svg") == 1
    assert "Not drawn yet: the table of 2026-11-21 is under" in text
    assert "Not drawn yet: there is no figure yet" in text
    assert main(["plots", str(tmp_path)]) == 0
    assert (tmp_path / "compared_arrays.svg").read_text() == drawn
    assert not (tmp_path / "compared_start.svg").exists()


@pytest.mark.parametrize("plot", compared.PLOTS, ids=lambda plot: plot.name)
def test_each_panel_is_a_part_of_a_study(plot: compared.Plot) -> None:
    for panel in plot.panels:
        part = next(part for part in STUDIES[plot.study].parts if part.name == panel.part)
        assert panel.study == plot.study
        assert panel.less_is_better == part.less_is_better or panel.reading != part.reading
