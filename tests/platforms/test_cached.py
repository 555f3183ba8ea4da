"""Rows are kept, by threads, where the system has no memory that processes share."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.memory.shared_file import LocalMemory
from batchup_ng.platforms import system


class Counting:
    """Rows that count how often they are read."""

    shape, dtype = (40, 3), np.dtype(np.float32)

    def __init__(self) -> None:
        self.read: list[int] = []

    def __len__(self) -> int:
        return 40

    def __getitem__(self, rows: Any) -> np.ndarray:
        self.read += np.atleast_1d(rows).tolist()
        return np.repeat(np.atleast_1d(rows)[:, None], 3, 1).astype(np.float32)

    def fingerprint(self) -> list[Any]:
        return ["counting"]


@pytest.mark.parametrize("in_folder", [False, True])
def test_cached_rows_are_read_once(in_folder: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "HAS_SHARED_FILES", False)
    accessor = Counting()
    cached = bu.Cached(accessor, *([tmp_path] if in_folder else []))
    with bu.Loader([cached], 7, shuffle=3, pool="threads", workers=1) as loader:  # of two, one would begin epoch 2
        for _ in range(3):
            rows = np.concatenate([x for (x,) in loader])
            assert sorted(rows[:, 0].tolist()) == list(range(40))
    assert sorted(accessor.read) == list(range(40))
    again = pickle.loads(pickle.dumps(cached))
    assert again[np.array([5, 0])].tolist() == [[5.0] * 3, [0.0] * 3]
    assert len(again.accessor.read) == len(accessor.read) + (0 if in_folder else 2)  # each process keeps its own


def test_memory_of_a_process_is_written_and_read() -> None:
    memory = LocalMemory(10)
    assert memory.write(b"abc", 2) == 5
    memory.reserve(0, 10)
    assert bytes(memory.map()) == b"\0\0abc" + b"\0" * 5
    assert memory.taken() == 10
    assert len(LocalMemory(0).map()) == 1
