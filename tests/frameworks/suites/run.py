"""Runs the tests of a framework in a process of their own, which imports it once and no other.

TensorFlow, torch and JAX each start threads and take over signals and settings of their own; and Keras reads its
backend once, when it is imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.extent import THOROUGH

ROOT = Path(__file__).parents[3]
MINUTES = 100 if THOROUGH else 14.0


def run_suite(suite: str, home: Path, needs: list[str], **environment: str) -> None:
    """Fail if one of the tests of a suite fails.

    Args:
        suite: Name of a file in this folder.
        home: Where libraries may write their settings.
        needs: The libraries that the suite imports, without which it is skipped.
        environment: Variables for its process.
    """
    absent = [library for library in needs if find_spec(library) is None]
    if absent:
        pytest.skip(f"{', '.join(absent)} not installed")
    file = f"tests/frameworks/suites/{suite}.py"
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_HOME": str(home / "keras")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *["--thorough"] * THOROUGH, file],
        cwd=ROOT,
        env={**os.environ, "BATCHUP_NG_SUITE": suite, **quiet, **environment},
        capture_output=True,
        text=True,
        timeout=60 * MINUTES,
        check=False,
    )
    last = done.stdout.strip().splitlines()[-1:]
    if done.returncode or " passed" not in "".join(last):
        pytest.fail(f"{suite} with {environment}, exit code {done.returncode}:\n{done.stdout}\n{done.stderr}", False)
