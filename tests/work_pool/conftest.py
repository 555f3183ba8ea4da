"""The pools that the tests of this folder share."""

from __future__ import annotations

import pytest

import batchup_ng as bu
from batchup_ng.work_pool import AbstractWorkerPool


@pytest.fixture(params=["serial", "threads", "processes"])
def pool(request: pytest.FixtureRequest, pools: list[AbstractWorkerPool]) -> AbstractWorkerPool:
    """Each kind of pool in turn, for tests that end neither it nor a worker."""
    return dict(zip(["serial", "threads", "processes"], [bu.SerialPool(), *pools], strict=True))[request.param]
