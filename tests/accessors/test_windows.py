"""Windows of series: the accessor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.accessors.contents import column_facts
from batchup_ng.accessors.windows import Windows
from batchup_ng.testing.accessors import AccessorContract, Made

VALUES = np.arange(20 * 2, dtype=np.int16).reshape(20, 2)


class TestWindows(AccessorContract):
    """Of an array in memory."""

    def make(self, tmp_path: Path) -> Made:
        made = bu.windows(self.values(tmp_path), 5, 3)
        return made.data[0], [VALUES[start : start + 5] for start in (0, 3, 6, 9, 12, 15)]

    def values(self, folder: Path) -> Any:
        return VALUES


class TestOfSeries(AccessorContract):
    """Of several series, of which some are too short."""

    def make(self, tmp_path: Path) -> Made:
        made = bu.windows(bu.Ragged(VALUES, [1, 5, 7, 7, 14, 19]), 4, 1, 1)
        return made.data[0], [VALUES[start : start + 4] for start in (7, 8, 9, 14)]


class TestMapped(TestWindows):
    """Of a memory map."""

    def values(self, folder: Path) -> Any:
        np.save(folder / "x.npy", VALUES)
        return np.load(folder / "x.npy", mmap_mode="r")


class TestStored(TestWindows):
    """Of an accessor with `read_into`."""

    def values(self, folder: Path) -> Any:
        np.save(folder / "x.npy", VALUES)
        return bu.NpyRows(folder / "x.npy")


class TestColumnsFirst(TestWindows):
    """Of an array whose rows do not lie one after the other."""

    def values(self, folder: Path) -> Any:
        return np.asfortranarray(VALUES)


class Plain:
    """An accessor with indexing alone, which keeps what it is asked for."""

    shape, dtype, natural_block, natural_window = VALUES.shape, VALUES.dtype, 12, 5

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def __len__(self) -> int:
        return len(VALUES)

    def __getitem__(self, rows: Any) -> Any:
        self.asked.append(np.asarray(rows).tolist())
        return VALUES[rows]


class TestPlain(TestWindows):
    """Of an accessor of a user's."""

    def values(self, folder: Path) -> Any:
        return Plain()


def test_a_step_is_read_once_a_batch_and_blocks_are_those_of_the_values() -> None:
    values = Plain()
    found = bu.windows(values, 5, 3).data[0]
    found[np.array([4, 0, 1])]
    assert values.asked == [[*range(8), *range(12, 17)]]
    assert (found.natural_block, found.natural_window) == (4, 5)
    assert bu.windows(values, 5, 13).data[0].natural_block == 1
    with pytest.raises(AttributeError):
        _ = bu.windows(VALUES, 5).data[0].natural_block


def test_places_of_windows_are_known(tmp_path: Path) -> None:
    x, y = bu.windows(bu.Ragged(VALUES, [1, 5, 7, 7, 14, 19]), 3, 1, 1).data
    assert x.series.tolist() == [0, 3, 3, 3, 3, 4, 4]
    assert x.starts.tolist() == [1, 7, 8, 9, 10, 14, 15]
    assert y.starts.tolist() == [4, 10, 11, 12, 13, 17, 18]
    np.save(tmp_path / "x.npy", VALUES)
    path = str(tmp_path / "x.npy")
    for values in (bu.NpyRows(path), np.load(path, mmap_mode="r")):
        found = bu.windows(values, 5).data[0]
        assert found.sample_name(3) == path
        assert found.file_paths([0, 3]) == [path]
    in_memory = bu.windows(VALUES, 5).data[0]
    assert (in_memory.sample_name(3), in_memory.file_paths([0])) == (None, [])
    assert repr(in_memory) == "Windows(16 of 5 steps of int16 (20, 2), stride=1)"


def test_any_change_of_windows_is_noticed() -> None:
    ragged = bu.Ragged(VALUES, [0, 10, 20])
    kinds: list[Windows] = [
        bu.windows(VALUES, 5).data[0], bu.windows(VALUES, 4).data[0], bu.windows(VALUES, 5, 2).data[0],
        bu.windows(VALUES, 5, horizon=1).data[0], bu.windows(VALUES, 5, horizon=5).data[1],
        bu.windows(VALUES + 1, 5).data[0], bu.windows(ragged, 5).data[0],
    ]  # fmt: skip
    facts = [repr(column_facts(each)) for each in kinds]
    assert len(set(facts)) == len(facts)
    assert repr(column_facts(bu.windows(VALUES.copy(), 5).data[0])) == facts[0]


def test_memory_in_any_order_is_written_to() -> None:
    found = bu.windows(VALUES, 5).data[0]
    out = np.zeros((5, 3, 2), VALUES.dtype).transpose(1, 0, 2)
    assert not out.flags.c_contiguous
    found.read_into(np.array([7, 0, 2]), out)
    np.testing.assert_array_equal(out, [VALUES[7:12], VALUES[:5], VALUES[2:7]])
