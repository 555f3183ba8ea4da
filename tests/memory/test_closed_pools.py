"""Memory of pools that are closed before their loaders, and of loaders that stay open; errors of what was ready."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.interpreter import FREE_THREADED
from batchup_ng.memory.budget import MemoryBudget
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises

KINDS: dict[str, Callable[[], AbstractWorkerPool]] = {
    "serial": bu.SerialPool,
    "threads": lambda: bu.WorkerThreadPool(2),
    "processes": lambda: bu.WorkerProcessPool(2),
}

ROWS = np.arange(96 * 20_000, dtype=np.float32).reshape(96, 20_000)
"""Rows of 80 kB: large enough for slots, and for a copy that processes share."""

BATCH_BYTES = 8 * ROWS[0].nbytes


def listed() -> dict[str, int]:
    return {kind: nbytes for kind, nbytes in bu.memory().items() if nbytes}


def holds_batches() -> bool:
    return bool(listed().keys() & {"slots", "buffers"})


def wait_for_buffered(iterator: Any, n: int) -> None:
    """Wait until `n` batches are done, which the loop did not take."""
    deadline = time.monotonic() + 20
    while iterator.buffered() < n and time.monotonic() < deadline:
        time.sleep(0.001)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", [("pool",), ("pool", "loader"), ("loader", "pool")])
def test_what_is_listed_after_a_pool_is_closed_is_what_the_program_holds(
    budget: MemoryBudget, kind: str, order: tuple[str, ...]
) -> None:
    data: Any = {"x": ROWS, "y": np.arange(96)} if len(order) == 1 else (ROWS, np.arange(96))
    pool = KINDS[kind]()
    loader = bu.Loader(data, 8, pool=pool, buffer=6, shuffle=3)
    iterator = iter(loader)
    for _ in range(3):  # the first results of processes come over their sockets, as their size is not known yet
        batch = next(iterator)
        if kind != "serial":
            wait_for_buffered(iterator, 6)
    assert sum(listed().values()) >= BATCH_BYTES
    for name in order:
        {"pool": pool, "loader": loader}[name].close()
    assert BATCH_BYTES <= sum(listed().values()) <= 1.2 * BATCH_BYTES, listed()
    x, y = batch.values() if isinstance(batch, dict) else batch
    np.testing.assert_array_equal(x, ROWS[y], strict=True)
    del batch, x, y
    assert listed() == {}
    loader.close()


@pytest.mark.parametrize("kind", KINDS)
def test_batches_that_were_ready_when_the_pool_was_closed_are_an_error_in_every_pool(kind: str) -> None:
    pool = KINDS[kind]()
    with bu.Loader([np.arange(12)], 4, pool=pool) as loader:
        whole = [x.tolist() for (x,) in loader]
        iterator = iter(loader)
        first = next(iterator)
        if kind != "serial":
            wait_for_buffered(iterator, 2)
        state = loader.state_dict()
        for _ in range(2):
            pool.close()
        for _ in range(2):
            with raises(bu.PoolClosed):
                next(iterator)
        assert loader.state_dict() == state
    with bu.Loader([np.arange(12)], 4, pool="serial") as other:
        other.load_state_dict(state)
        assert [first[0].tolist(), *[x.tolist() for (x,) in other]] == whole


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_whose_last_batch_was_handed_out_ends_though_its_pool_is_closed(kind: str) -> None:
    pool = KINDS[kind]()
    batches = pool.parallel_data_source(bu.ArrayDataSource([np.arange(6)])).batch_iterator(3)
    assert [next(batches)[0].tolist() for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]
    pool.close()
    assert list(batches) == []


@pytest.mark.parametrize("kind", KINDS)
def test_results_of_a_stream_whose_pool_is_closed_are_an_error_and_no_end(kind: str) -> None:
    pool = KINDS[kind]()
    stream = pool.work_stream((abs, (-i,)) for i in range(3))
    assert stream.retrieve() == 0
    pool.close()
    with raises(bu.PoolClosed):
        stream.retrieve()


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_an_open_loader_whose_epochs_are_over_holds_no_batch(budget: MemoryBudget, kind: str) -> None:
    with bu.Loader((ROWS, np.arange(96)), 32, pool=kind, workers=1, shuffle=3) as loader:
        for _, y in loader.epochs(2):
            assert len(y) == 32
        del _, y
        deadline = time.monotonic() + 20
        while FREE_THREADED and holds_batches() and time.monotonic() < deadline:
            time.sleep(0.001)  # the threads that made the batches free them
        assert not holds_batches()
