"""The soak as a test: 90 seconds of it, or 20 minutes by option."""

from __future__ import annotations

import json

import pytest

from .settings import Extent, thorough
from .soak import judge, soak
from .stage import play


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("kind", ["forkserver", thorough("threads"), thorough("spawn"), thorough("fork")])
def test_soak(kind: str, seed: int, extent: Extent, request: pytest.FixtureRequest) -> None:
    seconds = request.config.getoption("--soak-seconds") or (300.0 if extent.thorough else 90.0)  # × 4 pools: 20 minutes
    figures = play(soak, limit=seconds + 30, kind=kind, seconds=seconds, seed=seed, stops=extent.thorough)
    print(json.dumps(figures, indent=2))
    assert not judge(figures), figures
