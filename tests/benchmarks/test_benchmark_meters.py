"""What the measurements of a loader cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import meters
from benchmarks.__main__ import main


def test_a_row_has_the_difference_of_the_quickest_turns_and_that_of_the_middle_one() -> None:
    turns = [(103e-6, 100e-6), (105e-6, 100e-6), (104e-6, 100e-6), (300e-6, 100e-6), (102e-6, 100e-6)]
    assert meters.row("name", "serial", turns) == ["name", "serial", "100", "2.0", "2.0%", "4.0", "2.5 to 102.5"]
    assert "| name" in meters.page("command", {"name": {"serial": turns}})


@pytest.mark.parametrize("name", meters.WORKLOADS)
def test_each_workload_makes_batches(name: str) -> None:
    workload = meters.WORKLOADS[name]
    batch = next(workload.source().batch_iterator(workload.batch_size))
    assert len(batch[0]) == workload.batch_size


def test_a_run_writes_the_page_and_the_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meters, "POOLS", {kind: meters.POOLS[kind] for kind in ("serial", "threads")})
    monkeypatch.setitem(meters.WORKLOADS, "a quick map", meters.Workload(lambda: meters._mapped(20, meters.plus_1), 4))
    assert main(["meters", "a quick", "--rounds", "3", "--output", str(tmp_path)]) == 0
    assert "| a quick map" in capsys.readouterr().out
    found = json.loads((tmp_path / "meters.json").read_text())["figures"]
    assert {kind: len(turns) for kind, turns in found["a quick map"].items()} == {"serial": 3, "threads": 3}


def test_no_name_that_has_a_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["meters", "much"])
    assert refused.value.code == 2
    assert "no name has much" in capsys.readouterr().err
