"""The poison of the other tests works: what lets go of a batch too early is seen, with every pool."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.work_pool import AbstractWorkerPool
from tests.frameworks.poison import BATCH_SIZE, ROWS, kept_late, numbered_rows, poisoned_leases

KINDS = ["serial", "threads", "processes"]


def pool_of(kind: str, pools: list[AbstractWorkerPool]) -> AbstractWorkerPool:
    return bu.SerialPool() if kind == "serial" else pools[KINDS.index(kind) - 1]


def without_its_lease(x: np.ndarray, y: np.ndarray) -> Any:
    """Return x as a careless adapter would hand it over: by its address, with nothing that keeps the lease."""
    memory = (ctypes.c_float * x.size).from_address(x.ctypes.data)
    return np.frombuffer(memory, np.float32).reshape(x.shape), y.copy()


@pytest.mark.parametrize("kind", KINDS)
def test_what_lets_go_of_a_lease_too_early_is_seen(kind: str, pools: list[AbstractWorkerPool]) -> None:
    with poisoned_leases() as sizes, bu.Loader(numbered_rows(), BATCH_SIZE, pool=pool_of(kind, pools)) as loader:
        n_batches, n_changed = kept_late(loader.map(without_its_lease), np.asarray)
        assert n_batches == ROWS // BATCH_SIZE
        assert n_changed > n_batches // 2
        sizes.clear()
        assert kept_late(loader, np.asarray) == (n_batches, 0)
        assert len(sizes) > n_batches // 2
