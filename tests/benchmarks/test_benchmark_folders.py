"""The measurement of `from_folder` runs."""

from __future__ import annotations

import pytest

from benchmarks import folders


def test_every_row_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    folders.main(["--files", "20", "--rounds", "1"])
    first, *rows = capsys.readouterr().out.splitlines()
    assert first.startswith("20 files")
    assert len(rows) == 5
    assert rows[0].endswith("1.00 × the walk")
