"""Batches in what speaks DLPack: the importer shows the memory of the batch, and keeps it from being used again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.work_pool import AbstractWorkerPool
from tests.frameworks.poison import BATCH_SIZE, ROWS, kept_late, numbered_rows, poisoned_leases

KINDS = ["serial", "threads", "processes"]


@pytest.fixture(params=KINDS)
def pool(request: pytest.FixtureRequest, pools: list[AbstractWorkerPool]) -> AbstractWorkerPool:
    return bu.SerialPool() if request.param == "serial" else pools[KINDS.index(request.param) - 1]


@pytest.fixture(params=["numpy", "torch", "jax.numpy"])
def importer(request: pytest.FixtureRequest) -> Any:
    """A module with ``from_dlpack``."""
    return pytest.importorskip(request.param, reason=f"{request.param} is not installed")


def address(array: Any) -> int:
    """Return where the memory of an array of NumPy's, torch's or JAX's begins."""
    if hasattr(array, "data_ptr"):
        return int(array.data_ptr())
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.unsafe_buffer_pointer())


def test_the_importer_shows_the_memory_of_the_batch(pool: AbstractWorkerPool, importer: Any) -> None:
    with bu.Loader(numbered_rows(40), BATCH_SIZE, pool=pool) as loader:
        for x, _ in loader:
            assert address(importer.from_dlpack(x)) == x.ctypes.data


def test_memory_is_not_used_again_while_the_importer_shows_it(pool: AbstractWorkerPool, importer: Any) -> None:
    def imported(x: np.ndarray, y: np.ndarray) -> Any:
        return importer.from_dlpack(x), y

    with poisoned_leases() as sizes, bu.Loader(numbered_rows(), BATCH_SIZE, shuffle=1, pool=pool) as loader:
        assert kept_late(loader.map(imported), np.asarray) == (ROWS // BATCH_SIZE, 0)
        assert len(sizes) > ROWS // BATCH_SIZE // 2


def test_batches_of_data_that_must_not_be_written_may_be_written(pool: AbstractWorkerPool) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    data = np.ones((8, 20_000))
    data.flags.writeable = False
    with bu.Loader([data], 4, pool=pool) as loader:
        for (x,) in loader:
            tensor = torch.from_dlpack(x)
            tensor += 1
            assert (x == 2).all()
    assert (data == 1).all()
