"""The code of the page on frameworks, as a reader would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.extent import quick

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"
SHOWN = re.compile(r"^```\{code-block\} python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(not PAGE.exists(), reason="not run in a checkout")
@pytest.mark.parametrize("framework", quick(["jax"], ["jax", "keras", "tensorflow", "torch"]))
def test_what_the_page_shows_of_a_framework_runs(framework: str, tmp_path: Path) -> None:
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    (block,) = [code for code in SHOWN.findall(PAGE.read_text(encoding="utf-8")) if f".{framework} import" in code]
    environment = dict(os.environ, PYTHONPATH=str(PAGE.parents[1]), KERAS_HOME=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
