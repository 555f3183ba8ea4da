"""Keras takes the batches of a loader, on each of its backends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.suites.run import run_suite


@pytest.mark.in_turn
@pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])
def test_the_suite_of_keras(backend: str, tmp_path: Path) -> None:
    run_suite("keras_suite", tmp_path, ["keras", backend], KERAS_BACKEND=backend)
