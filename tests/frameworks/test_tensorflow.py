"""TensorFlow takes the batches of a loader."""

from __future__ import annotations

from pathlib import Path

from tests.frameworks.suites.run import run_suite


def test_the_suite_of_tensorflow(tmp_path: Path) -> None:
    run_suite("tensorflow_suite", tmp_path, ["tensorflow"])
