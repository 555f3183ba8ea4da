"""A training program of PyTorch's needs three new lines at most, and learns what it learnt before."""

from __future__ import annotations

import difflib
import re
import tempfile
from pathlib import Path

import pytest

from tests.test_examples import EXAMPLES, run_example

BEFORE, AFTER = ({path.stem: path for path in EXAMPLES}[name] for name in ("before_torch", "after_torch"))


def test_at_most_three_lines_change() -> None:
    lines = [path.read_text(encoding="utf-8").splitlines() for path in (BEFORE, AFTER)]
    changed = [line for line in difflib.ndiff(*lines) if line.startswith(("+ ", "- "))]
    assert 0 < sum(line.startswith("+ ") for line in changed) <= 3, changed
    assert sum(line.startswith("- ") for line in changed) <= 3, changed


@pytest.mark.thorough
def test_the_loss_falls_alike() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    losses = []
    for path in (BEFORE, AFTER):
        with tempfile.TemporaryDirectory() as folder:  # a short name, as PyTorch's sockets need
            done = run_example(path, Path(folder))
        assert done.returncode == 0, done.stderr
        losses.append([float(found) for found in re.findall(r"mean loss (\S+)", done.stdout)])
    assert losses[0] == losses[1]
    assert losses[0][-1] < 0.1 < 0.5 < losses[0][0]
