"""The soak as a test: a moment of it, or five minutes for each pool by option."""

from __future__ import annotations

import json

import pytest

from .settings import PARALLEL, Extent, kinds
from .soak import judge, soak
from .stage import LIMIT, play


@pytest.mark.parametrize("kind", kinds(pools=PARALLEL))
def test_soak(kind: str, seed: int, extent: Extent) -> None:
    seconds = 300.0 if extent.thorough else 0.3
    setting = {
        "kind": kind,
        "seconds": seconds,
        "seed": seed,
        "stops": extent.thorough,
        "pause": 0.5 if extent.thorough else 0.05,
    }
    figures = play(soak, limit=seconds + LIMIT, alone=extent.thorough, **setting)
    print(json.dumps(figures, indent=2))
    assert figures["batches"] > 0
    assert figures["kills"] > 0 or kind == "threads"
    if extent.thorough:
        assert not judge(figures), figures
