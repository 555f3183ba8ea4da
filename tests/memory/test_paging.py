"""Of a file that is larger than memory only the rows of a batch are read."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.memory import paging
from batchup_ng.platforms import unix

PAGE = mmap.PAGESIZE
AROUND = 64
"""Pages on each side of a row that are looked at; the least that systems read around a page is 16 on each."""


def cached_pages(array: np.ndarray, row: int) -> int:
    """Return how many pages of a row and around it are in the system's cache."""
    first = (array.ctypes.data + row * array[0].nbytes) // PAGE * PAGE
    found = (ctypes.c_ubyte * (2 * AROUND))()
    address = ctypes.c_void_p(first - AROUND * PAGE)
    assert ctypes.CDLL(None).mincore(address, ctypes.c_size_t(len(found) * PAGE), found) == 0
    return sum(flag & 1 for flag in found)


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="only Linux reads around what is asked for")
@pytest.mark.parametrize("width", [PAGE, 7 * PAGE // 2, 1000])
def test_nothing_around_the_rows_of_a_file_larger_than_memory_is_read(tmp_path: Path, width: int) -> None:
    n = 2 * os.sysconf("SC_PHYS_PAGES") * PAGE // width
    path = tmp_path / "rows.bin"
    try:
        with path.open("wb") as file:
            file.truncate(n * width)
    except OSError as error:
        pytest.skip(f"the file system has no sparse files of this size: {error}")
    array = np.memmap(path, np.uint8, "r", shape=(n, width))
    rows = np.arange(1, 40) * (n // 40)
    (batch,) = bu.ArrayDataSource([array]).samples_by_indices(rows[::-1])
    assert batch.shape == (39, width)
    pages = [(row * width + width - 1) // PAGE - row * width // PAGE + 1 for row in rows.tolist()]
    assert [cached_pages(array, int(row)) for row in rows] == pages
    path.unlink()


def test_of_a_file_that_fits_into_memory_the_system_reads_what_it_likes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(unix, "_LIBC", SimpleNamespace(madvise=lambda *advice: asked.append(advice)))
    np.save(tmp_path / "rows.npy", np.zeros((100, 3000)))
    source = bu.ArrayDataSource([np.load(tmp_path / "rows.npy", mmap_mode="r")])
    source.samples_by_indices(np.array([7, 3, 98]))
    assert not asked
    monkeypatch.setattr(paging, "_half_of_memory", lambda: 0.0)
    source.samples_by_indices(np.array([7, 3, 98]))
    assert len(asked) == 3


def over_file(source: bu.ArrayDataSource) -> bool:
    return paging.is_mapped(source.data[0])


def test_a_worker_process_knows_that_an_array_lies_over_a_file(tmp_path: Path, pools: list[Any]) -> None:
    np.save(tmp_path / "rows.npy", np.zeros((100, 3000)))
    mapped = bu.ArrayDataSource([np.load(tmp_path / "rows.npy", mmap_mode="r")[1:]])
    small = bu.ArrayDataSource([np.zeros(5)])
    for pool in pools:
        tasks = [(over_file, (pool.shared_constant(source),)) for source in (mapped, small)]
        assert list(pool.work_stream(iter(tasks))) == [True, False]


@pytest.mark.parametrize("kind", ["memmap", "view", "in memory"])
def test_rows_that_are_announced_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    numbers = np.arange(100 * 3000, dtype=np.int32).reshape(100, 3000)
    np.save(tmp_path / "rows.npy", numbers)
    array = numbers if kind == "in memory" else np.load(tmp_path / "rows.npy", mmap_mode="r")
    first = 1 if kind == "view" else 0
    monkeypatch.setattr(paging, "_half_of_memory", lambda: 0.0)
    rows = np.array([7, 3, 98, -1, 0, 50])
    (batch,) = bu.ArrayDataSource([array[first:]]).samples_by_indices(rows)
    np.testing.assert_array_equal(batch, numbers[first:][rows])


def test_only_arrays_over_files_are_announced(tmp_path: Path) -> None:
    numbers = np.zeros((4, 5000))
    np.save(tmp_path / "rows.npy", numbers)
    array = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert paging.file_name(array)
    assert paging.file_name(np.asarray(array)[1:].reshape(-1, 10))
    assert not paging.file_name(numbers[1:])


def test_memory_is_what_a_container_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = os.sysconf("SC_PHYS_PAGES") * PAGE
    for allowed, half in ((4000.0, 2000.0), (math.inf, machine / 2), (10.0 * machine, machine / 2)):
        monkeypatch.setattr(paging.limits, "memory_limits", lambda allowed=allowed: [(allowed, allowed)])
        assert paging._half_of_memory.__wrapped__() == half
