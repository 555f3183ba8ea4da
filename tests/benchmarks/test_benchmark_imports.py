"""Seconds that imports take beside those of NumPy alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import imports
from benchmarks.__main__ import main


def test_a_row_has_the_medians_of_the_seconds_and_of_the_ratios() -> None:
    rows = imports.row("name", [0.3, 0.2, 0.4], [0.1, 0.1, 0.4])
    assert rows == ["name", "300", "200 to 400", "2.00"]
    assert "| name" in imports.page("command", {imports.NUMPY: [0.1, 0.1, 0.4], "name": [0.3, 0.2, 0.4]})


def test_a_run_writes_the_page_and_the_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [imports.NUMPY, "the first batch of a loader with one thread"]
    monkeypatch.setattr(imports, "PROGRAMS", {name: imports.PROGRAMS[name] for name in names})
    assert main(["imports", "--rounds", "2", "--output", str(tmp_path)]) == 0
    assert "| the first batch of a loader with one thread" in capsys.readouterr().out
    found = json.loads((tmp_path / "imports.json").read_text())["figures"]
    assert {name: len(each) for name, each in found.items()} == dict.fromkeys(names, 2)
