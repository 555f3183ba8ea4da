"""Matplotlib opens the files of its fonts once, and keeps them."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

import batchup_ng as bu


@pytest.fixture(autouse=True, scope="session")
def fonts() -> None:
    """Open the fonts before the first test, which is checked to leave no open file."""
    if find_spec("matplotlib") is not None:
        bu.show([np.arange(2)], 1)._repr_png_()
