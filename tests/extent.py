"""What runs with ``--thorough`` alone, among the parameters of a test."""

from __future__ import annotations

from typing import Any

import pytest


def thorough(*values: Any, id: str | None = None) -> Any:
    """Return the parameters of a test that runs with ``--thorough`` alone."""
    return pytest.param(*values, marks=pytest.mark.thorough, id=id)
