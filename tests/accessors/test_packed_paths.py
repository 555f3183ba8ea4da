"""Paths in two arrays: what goes in comes out, in little memory, which worker processes share."""

from __future__ import annotations

import importlib
import pickle
import tracemalloc
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import batchup_ng as bu
from batchup_ng.accessors.packed_paths import PackedPaths, packed_paths
from tests.extent import quick

packed_paths_module = importlib.import_module(PackedPaths.__module__)
any_text = st.text(st.characters(exclude_categories=()))


@given(st.lists(any_text))
def test_any_text_comes_back(paths: list[str]) -> None:
    packed = PackedPaths(iter(paths))
    assert list(packed) == paths
    assert [packed[row - len(paths)] for row in range(len(paths))] == paths
    assert packed[::2] == paths[::2]
    assert list(pickle.loads(pickle.dumps(packed))) == paths
    for beyond in (len(paths), -len(paths) - 1):
        with pytest.raises(IndexError):
            packed[beyond]


@given(st.lists(st.tuples(any_text, st.lists(any_text))))
def test_folders_and_names_are_joined(folders: list[tuple[str, list[str]]]) -> None:
    assert list(PackedPaths.of_folders(folders)) == [folder + name for folder, names in folders for name in names]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> int:
    """Have few paths packed at once; return how many."""
    monkeypatch.setattr(packed_paths_module, "PATHS_ENCODED_AT_ONCE", 1000)
    return 1000


def test_more_paths_than_are_packed_at_once(small_pieces: int) -> None:
    count = 2 * small_pieces + 3
    packed = PackedPaths(Path(f"{row}") for row in range(count))
    assert list(packed) == list(map(str, range(count)))
    with pytest.raises(bu.ArgumentTypeError, match=f"at {small_pieces + 1} it holds b'x'"):
        PackedPaths([*["a"] * (small_pieces + 1), b"x"])  # type: ignore[list-item]  # which is wrong
    assert repr(packed) == f"<{count} paths: '0', '1', '2', ...>"
    assert packed_paths(packed) is packed


def test_the_building_takes_little_more_than_what_is_built(small_pieces: int) -> None:
    count = 60 * small_pieces
    tracemalloc.start()
    try:
        packed = PackedPaths(f"/data/pictures/of/some/folder/{row:010}.jpg" for row in range(count))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    kept = sum(array.nbytes for array in vars(packed).values())
    assert kept == count * (44 + 8) + 8
    assert peak < 1.6 * kept + 500 * small_pieces  # bytes of the objects of one piece


def anonymous(pid: int) -> int:
    """Bytes of a process that no file is behind, copies of pages of the shared one that it wrote to included."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))


def growth_of_workers(small: Any, large: Any) -> int:
    """By how many bytes at most a worker grows that reads rows of one source after those of another."""
    with bu.WorkerProcessPool(2) as pool:

        def read(source: Any) -> dict[int, int]:
            for _ in islice(pool.parallel_data_source(source).batch_iterator(64, shuffle=1), 40):
                pass
            return {child.pid: anonymous(child.pid) for child in psutil.Process().children(recursive=True)}

        before, after = read(small), read(large)
        assert before.keys() == after.keys()
        assert len(after) >= 2
        return max(after[pid] - before[pid] for pid in after)


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the system tells no such figure (not Linux)")
@pytest.mark.parametrize("count", quick([300_000], [300_000, 10_000_000]))
def test_a_worker_holds_next_to_nothing_of_many_paths(count: int, tmp_path: Path) -> None:
    files = [tmp_path / f"{number:030}.png" for number in range(100)]
    for file in files:
        Image.new("L", (4, 4)).save(file)

    def source(length: int) -> bu.ArrayDataSource:
        paths = PackedPaths(islice(cycle(files), length))
        return bu.ArrayDataSource([bu.ImageFiles(paths, 4), np.zeros(length, np.int64)])

    large = source(count)
    held = count * (len(str(files[0])) + 16)
    grown = growth_of_workers(source(10_000), large)
    assert grown < 5_000_000 < held, f"a worker grew by {grown / 1e6} MB, and paths and labels have {held / 1e6}"
