"""Programs under a limit on memory: a page with a row for each, all rows of their data right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.limits import study
from benchmarks.limits.settings import SETTINGS
from tests.extent import quick


def test_a_row_has_the_share_of_the_limit_and_the_largest_holders() -> None:
    held = {"slots": 30_000_000, "buffers": 10, "copies": 50_000_000, "free lists": 0}
    figures = {"name": "copies", "limit": 100_000_000, "peak": 93_400_000, "counted": 99_000_000,
               "baseline": 200_000_000, "held": held, "seconds": 2.6}  # fmt: skip
    assert study.row(figures)[1:] == ["100", "93", "93", "99", "copies 50, slots 30", "200", "3"]
    assert len(study.row(figures)) == len(study.HEAD)


@pytest.mark.in_turn
@pytest.mark.parametrize("name", quick(["slots"], list(SETTINGS)))
def test_a_quick_run_reads_right_rows_under_a_tenth_of_the_limit(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name in ("table", "texts"):
        pytest.importorskip("h5py" if name == "table" else "pyarrow", reason="the library of its files is missing")
    assert main(["limits", "--quick", name, "--output", str(tmp_path)]) == 0
    assert SETTINGS[name].title in capsys.readouterr().out
    (figures,) = json.loads((tmp_path / "limits.json").read_text())["figures"]
    assert figures["wrong"] == 0
    assert figures["samples"] > 0
    assert figures["limit"] == SETTINGS[name].limit * 100_000
    assert f"`python -m benchmarks limits --quick {name}`" in (tmp_path / "limits.md").read_text()


def test_a_setting_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["limits", "much"])
    assert refused.value.code == 2
    assert "no such setting: much; choose from threads, slots" in capsys.readouterr().err
