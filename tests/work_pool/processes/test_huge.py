"""Copies are moved to huge pages while they are read."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.work_pool.processes import huge
from batchup_ng.work_pool.processes.mapping import HUGE
from batchup_ng.work_pool.processes.shared_arrays import Bulk, SharedCopies
from batchup_ng.work_pool.processes.shared_memory import Arena


def huge_bytes() -> int:
    """Return how many bytes of shared memory this process has mapped by huge pages."""
    found = re.findall(r"^ShmemPmdMapped: +([0-9]+) kB$", Path("/proc/self/smaps").read_text(), re.M)
    return sum(map(int, found)) * 1024


def bytes_of(n: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, n, np.uint8)


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena(64 * HUGE)
    yield arena
    arena.close()


@pytest.fixture
def copies(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedCopies]:
    monkeypatch.setattr(huge, "PAUSE", 0.0)
    copies = SharedCopies(arena)
    yield copies
    copies.close()


def wait_until(true: Any) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_copy_gets_huge_pages_and_keeps_its_bytes(arena: Arena, copies: SharedCopies) -> None:
    slot = arena.take(2 * HUGE)
    if not huge_bytes():
        pytest.skip("this system gives shared memory no huge pages")
    arena.give_back(slot)
    array = bytes_of(8 * HUGE + 12345)
    copy = copies.copy(Bulk(array))
    wait_until(lambda: huge_bytes() >= 8 * HUGE)
    found = np.asarray(arena.array(copy.placed))  # type: ignore[arg-type]  # offset and size, as an extent has
    assert (found == array).all()


def test_a_copy_that_nobody_uses_is_left_out(copies: SharedCopies, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = []
    begun, go_on = threading.Event(), threading.Event()

    def collapse(self: Arena, extent: Any) -> None:
        moved.append(extent)
        begun.set()
        assert go_on.wait(20)

    monkeypatch.setattr(Arena, "collapse", collapse)
    held = copies.copy(Bulk(bytes_of(4 * HUGE)))
    dropped = copies.copy(Bulk(bytes_of(2 * HUGE)))
    place = dropped.placed.offset
    assert begun.wait(20)
    del dropped
    go_on.set()
    wait_until(lambda: copies._huge._thread is None)
    assert len(moved) == 4
    assert place not in [extent.offset for extent in moved]
    assert held.placed.size == 4 * HUGE


def test_closing_does_not_wait_for_the_rest(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge, "PAUSE", 0.0)
    moved = threading.Semaphore(0)

    def collapse(self: Arena, extent: Any) -> None:
        moved.release()

    monkeypatch.setattr(Arena, "collapse", collapse)
    monkeypatch.setattr(huge, "SHARE", 1e-9)  # it rests for ever after the first
    copies = SharedCopies(arena)
    copy = copies.copy(Bulk(bytes_of(8 * HUGE)))
    assert moved.acquire(timeout=20)
    copies.close()
    assert copies._huge._thread is not None
    assert not copies._huge._thread.is_alive()
    assert not moved.acquire(blocking=False)
    del copy


def test_batches_stay_the_same_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge, "PAUSE", 0.0)
    monkeypatch.setattr(huge, "SHARE", 1.0)
    array = bytes_of(4 * HUGE).reshape(-1, 4096)
    source = bu.ArrayDataSource([array])
    with bu.WorkerProcessPool(2) as pool:
        parallel = pool.parallel_data_source(source, arrays="shared")
        for epoch in range(3):
            rows = source.batch_indices_iterator(64, shuffle=5, epoch=epoch)
            for (x,), own in zip(parallel.batch_iterator(64, shuffle=5, epoch=epoch), rows, strict=True):
                np.testing.assert_array_equal(x, array[own])
