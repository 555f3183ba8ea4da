"""Programs that ask for more than their limit allows: rows stay right, the table stays below, and goes back to zero."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.accessors.storage.arrow_column import Recent
from batchup_ng.accessors.storage.chunks import Whole
from batchup_ng.memory import limits
from batchup_ng.memory.budget import BYTES_BETWEEN_LOOKS, MemoryBudget
from tests.accessors.storage.test_chunks import Chunked

MB = 10**6

MOST = 63 * MB
"""What may be held at a limit of 60 MB: a batch that is needed now is made all the same."""


class Column(Chunked):
    """Chunks of 16 rows; each number of a row is the row."""

    def _open(self, path: str) -> Any:
        return np.load(path, mmap_mode="r")

    def _read_chunk(self, handle: Any, number: int, out: np.ndarray) -> None:
        out[...] = 16 * number + np.arange(len(out), dtype=np.int32)[:, None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file for columns of 256 rows of 40 kB."""
    np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.int32, (256, 10_000)).flush()
    return tmp_path / "x.npy"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def source(path: Path, columns: int = 4) -> bu.ArrayDataSource:
    read = [Column(path, 16, cache="64MB") for _ in range(columns)]
    return bu.ArrayDataSource([*read, np.arange(256)])


def checked(batch: Any) -> int:
    """Return the rows of a batch, each of which must be right."""
    *parts, rows = batch
    assert all((part == rows[:, None]).all() for part in parts)
    return len(rows)


def test_a_limit_that_is_lowered_in_mid_epoch_is_reached_as_batches_are_used(budget: MemoryBudget, path: Path) -> None:
    bu.memory_limit("200MB")
    with bu.WorkerProcessPool(2) as pool:
        batches = pool.parallel_data_source(source(path)).batch_iterator(8)
        seen = sum(checked(next(batches)) for _ in range(4))
        assert sum(bu.memory().values()) > 60 * MB
        bu.memory_limit("60MB")
        for batch in batches:
            seen += checked(batch)
            assert seen < 200 or sum(bu.memory().values()) <= MOST
            del batch
        assert seen == 256


def test_two_pools_share_a_limit(budget: MemoryBudget, path: Path) -> None:
    bu.memory_limit("60MB")
    with bu.WorkerProcessPool(2) as one, bu.WorkerProcessPool(2) as other:
        first = one.parallel_data_source(source(path)).batch_iterator(8)
        second = other.parallel_data_source(source(path)).batch_iterator(8, shuffle=1)
        seen = 0
        for batches in zip(first, second, strict=True):
            seen += sum(map(checked, batches))
            del batches
            assert sum(bu.memory().values()) <= MOST
    assert seen == 512


@pytest.mark.in_turn
@pytest.mark.parametrize("limit", ["500kB", "20MB"])
def test_a_cache_that_is_larger_than_the_limit_keeps_what_fits(budget: MemoryBudget, path: Path, limit: str) -> None:
    bu.memory_limit(limit)
    kept = source(path).cache(limit="8GB")
    assert sum(bu.memory().values()) <= bu.memory().limit
    with bu.WorkerProcessPool(2) as pool:
        for epoch in range(2):
            assert sum(map(checked, pool.parallel_data_source(kept).batch_iterator(8, shuffle=1, epoch=epoch))) == 256


@pytest.mark.in_turn
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_nothing_is_held_after_twenty_programs(budget: MemoryBudget, path: Path, kind: str, in_full: bool) -> None:
    bu.memory_limit("100MB")
    for seed in range(20 if in_full else 3):
        with bu.WorkerThreadPool(2) if kind == "threads" else bu.WorkerProcessPool(2) as pool:
            batches = pool.parallel_data_source(source(path, 2).cache()).batch_iterator(64, shuffle=seed)
            assert sum(map(checked, batches)) == 256
        del pool, batches
        deadline = time.monotonic() + 120
        while (held := still_held()) and time.monotonic() < deadline:  # a thread of the pool may be at its end
            time.sleep(0.01)
        assert held == {}


def still_held() -> dict[str, int]:
    gc.collect()
    return {kind: nbytes for kind, nbytes in bu.memory().items() if nbytes}


def test_a_batch_that_is_larger_than_the_limit_is_made_and_told_of(budget: MemoryBudget, path: Path) -> None:
    bu.memory_limit("1MB")
    with bu.WorkerProcessPool(2) as pool, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert sum(map(checked, pool.parallel_data_source(source(path)).batch_iterator(64))) == 256
    said = [str(each.message) for each in told if "a batch has" in str(each.message)]
    assert len(said) == 1
    assert said[0].startswith("a batch has 10240512 bytes, and the limit on memory is 1000000 bytes; held already: ")


def test_chunks_of_values_count_and_make_room_for_others(budget: MemoryBudget) -> None:
    recent = Recent(8 * MB)
    for number in range(10):
        recent.put(number, f"chunk {number}", MB)
    assert budget.table()["decoded chunks"] == 8 * MB
    budget.set_limit(6 * MB)
    assert budget.within(MB)
    assert budget.table()["decoded chunks"] == 5 * MB
    assert [recent.get(number) for number in (2, 9)] == [None, "chunk 9"]
    recent.put(10, "chunk 10", 3 * MB)
    assert budget.table()["decoded chunks"] <= 6 * MB
    recent.put(11, "chunk 11", 7 * MB)
    assert recent.get(11) is None, "it alone is more than the limit"


def test_each_process_has_few_small_arrays(budget: MemoryBudget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "available", lambda: 64 * 20.0 * MB)
    columns = [Whole() for _ in range(100)]
    assert sum(column.fits(8 * MB) for column in columns) == 2
    assert columns[0].fits(8 * MB), "once it does, it does"
    columns[0].array = np.zeros(8 * MB, np.uint8)
    assert budget.table()["decoded chunks"] == 8 * MB
    columns.pop(1)
    assert columns[50].fits(8 * MB)


def test_no_more_is_kept_when_the_machine_is_short(budget: MemoryBudget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "can_spare", lambda: False)
    recent = Recent(8 * MB)
    for number in range(8):
        recent.put(number, number, MB)
    assert budget.table()["decoded chunks"] == BYTES_BETWEEN_LOOKS // MB * MB, "it looks only now and then"


def test_caches_need_no_more_room_than_there_are_chunks(budget: MemoryBudget, path: Path) -> None:
    column = Column(path, 16, cache="64MB")
    column[np.arange(0, 256, 7)]
    assert 256 * 40_000 <= budget.table()["decoded chunks"] < 256 * 40_000 + 200_000
