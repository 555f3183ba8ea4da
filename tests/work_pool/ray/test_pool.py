"""The pool of Ray actors: the contract of every pool, on a cluster of several nodes."""

from __future__ import annotations

from typing import Any

import pytest

import batchup_ng as bu
from batchup_ng.work_pool import repair

from ..pool_contract import PoolContract
from .local_cluster import started

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # of Ray, which leaves files to the collector


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a sample that hangs looked for faster."""
    monkeypatch.setattr(repair, "SHORT", 0.1)


@pytest.mark.usefixtures("nodes")
class TestFourActors(PoolContract):
    """The contract, with actors on both nodes."""

    def make(self) -> Any:
        return started(bu.WorkerRayPool(actors=4))


@pytest.mark.thorough
@pytest.mark.usefixtures("nodes")
class TestOneActor(PoolContract):
    """The contract, with one actor."""

    def make(self) -> Any:
        return started(bu.WorkerRayPool(actors=1))
