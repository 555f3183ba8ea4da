"""Loaders with ``workers="auto"`` beside fixed numbers of workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.bottlenecks.planted import BATCH
from benchmarks.tuning import neighbour, program, study
from benchmarks.tuning.program import WORKLOADS


def run(seconds: float, step: float, workers: int) -> dict[str, float]:
    return {"seconds": seconds, "step": step, "workers": workers}


def test_a_row_compares_medians_with_the_best_number() -> None:
    runs = {
        "1": [run(0.02, 0.002, 1)] * 3,
        "2": [run(0.01, 0.002, 2), run(0.5, 0.002, 2), run(0.011, 0.003, 2)],
        "auto": [run(0.0125, 0.002, 2), run(0.0125, 0.0025, 3), run(0.01, 0.0022, 2)],
    }
    assert study.row("name", runs) == ["name", "2", "11", "12.5", "0.88", "1.10", "2 or 3"]
    text = study.page("command", {"name": runs})
    assert "| name" in text
    assert "batches 50 to 200" in text


@pytest.mark.parametrize("name", WORKLOADS)
def test_each_workload_makes_batches(name: str) -> None:
    workload = WORKLOADS[name]
    assert workload.loop() is not None
    (batch,) = next(workload.source(2 * BATCH).batch_iterator(BATCH))
    assert len(batch) == BATCH


@pytest.mark.in_turn
def test_a_run_writes_the_page_and_the_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "a map in NumPy, threads"
    monkeypatch.setitem(study.WORKLOADS, name, WORKLOADS[name]._replace(numbers=(2,)))
    main(["tuning", name, "--rounds", "1", "--output", str(tmp_path)])
    assert f"| {name}" in capsys.readouterr().out
    found = json.loads((tmp_path / "tuning.json").read_text())["figures"]
    assert list(found) == [name]
    assert {number: len(runs) for number, runs in found[name].items()} == {"2": 1, "auto": 1}
    assert found[name]["2"][0]["seconds"] > 0.004
    assert program.TUNED == 50


def test_no_name_that_has_a_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["tuning", "much"])
    assert refused.value.code == 2
    assert "no name has much" in capsys.readouterr().err


def phases(*seconds: float, workers: int = 2, changed: float | None = None) -> list[dict[str, float | None]]:
    return [{"seconds": each, "workers": workers, "changed": changed} for each in seconds]


def test_a_row_beside_another_program_has_the_numbers_of_its_phase() -> None:
    runs = {
        "1": [phases(0.02, 0.04, 0.02)] * 3,
        "2": [phases(0.012, 0.02, 0.012)] * 3,
        "auto": [phases(0.012, 0.016, 0.012), phases(0.012, 0.015, 0.012, workers=3, changed=2.0)] * 2,
    }
    assert neighbour.row(0, runs) == ["alone", "2", "12", "12", "1.00", "2 or 3", "2.0 to 2.0"]
    assert neighbour.row(1, runs)[1:5] == ["2", "20", "15.5", "1.29"]
    assert "| alone again" in neighbour.page("command", runs)


@pytest.mark.in_turn
def test_a_run_beside_another_program_has_all_phases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbour, "NUMBERS", ("2",))
    assert main(["neighbour", "--rounds", "1", "--seconds", "0.5", "--output", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "neighbour.json").read_text())["figures"]
    assert [len(found[number][0]) for number in ("2", "auto")] == [len(neighbour.PHASES)] * 2
    assert all(phase["seconds"] > 0.012 and phase["changed"] is None for phase in found["2"][0])
