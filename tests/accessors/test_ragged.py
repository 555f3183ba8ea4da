"""Sequences of different lengths that lie in one array."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.testing.accessors import AccessorContract, Made
from tests.messages import raises

VALUES = np.arange(20 * 2, dtype=np.int16).reshape(20, 2)
OFFSETS = [1, 4, 4, 9, 10, 19]


class TestRagged(AccessorContract):
    """Values in memory."""

    def make(self, tmp_path: Path) -> Made:
        return bu.Ragged(self.values(tmp_path), OFFSETS), np.split(VALUES[1:19], np.array(OFFSETS[1:-1]) - 1)

    def values(self, folder: Path) -> Any:
        return VALUES


class TestMapped(TestRagged):
    """Values in a file."""

    def values(self, folder: Path) -> Any:
        np.save(folder / "x.npy", VALUES)
        return np.load(folder / "x.npy", mmap_mode="r")


class TestStored(TestRagged):
    """Values of an accessor."""

    def values(self, folder: Path) -> Any:
        np.save(folder / "x.npy", VALUES)
        return bu.NpyRows(folder / "x.npy")


@pytest.mark.parametrize("rows", [
    [[2**63 + 1, 1], [2**63 + 3, 5]], [[b"\x01\x00", b"ab"], [b"cd"]], [["a\0", "b"], ["c"]], [[True, 2], [3, 4]],
    [["a", 1]], [[None]], [[1, [2]]], [np.array(1), np.array(2)], [[1.5], [2]], [],
])  # fmt: skip
def test_lists_that_an_array_would_change_are_refused(rows: Any) -> None:
    with raises(ArgumentError):
        bu.Ragged.from_rows(rows)


def test_rows_without_elements_keep_their_lengths() -> None:
    assert bu.Ragged.from_rows([np.zeros((3, 0)), np.zeros((1, 0))]).lengths.tolist() == [3, 1]
    assert bu.Ragged.from_rows([[], [1.5, np.nan], []]).lengths.tolist() == [0, 2, 0]
    boxes = bu.Ragged.from_rows([np.zeros((0, 4)), np.ones((2, 4), np.float64), []])
    assert (boxes.lengths.tolist(), boxes[0].shape) == ([0, 2, 0], (0, 4))


def test_rows_are_the_callers_own() -> None:
    rows = bu.Ragged(VALUES.copy(), OFFSETS)
    rows[0][...] = 0
    for row in rows[1:]:
        row[...] = 0
    np.testing.assert_array_equal(rows.values, VALUES)


def test_neighbours_are_read_at_once() -> None:
    class Counted:
        shape, dtype, natural_block, natural_window = VALUES.shape, VALUES.dtype, 12, 5
        asked: list[Any] = []  # noqa: RUF012

        def __len__(self) -> int:
            return len(VALUES)

        def __getitem__(self, rows: Any) -> Any:
            self.asked.append(rows)
            return VALUES[rows]

    rows = bu.Ragged(Counted(), OFFSETS)
    rows[[1, 2, 3, 0]]
    assert Counted.asked == [slice(4, 10), slice(1, 4)]
    assert (rows.natural_block, rows.natural_window) == (3, 5)  # rows have 3.6 values on average
    assert not hasattr(bu.Ragged(VALUES, OFFSETS), "natural_block")


def test_errors_name_the_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", VALUES)
    path = str(tmp_path / "x.npy")
    for values in (np.load(path, mmap_mode="r"), bu.NpyRows(path)):
        rows = bu.Ragged(values, [0, 20, 20])
        assert rows.sample_name(1) == path
        assert rows.file_paths([0]) == [path]
    assert bu.Ragged(VALUES, [0, 20]).sample_name(0) is None
    assert bu.Ragged(VALUES, [0, 20]).file_paths([0]) == []


def test_a_source_says_what_it_is_and_runs_no_code_of_the_user() -> None:
    assert not bu.ArrayDataSource([bu.Ragged(VALUES, OFFSETS)]).node.traits.runs_user_code
    assert repr(bu.Ragged(VALUES, OFFSETS)) == "Ragged(5 rows of int16 (20, 2))"
    assert "Ragged(5 rows of int16 (20, 2))" in repr(bu.ArrayDataSource([bu.Ragged(VALUES, OFFSETS)]))


@pytest.mark.parametrize(
    ("values", "offsets", "error"),
    [
        (VALUES, [0, 5, 3], ArgumentError),
        (VALUES, [-1, 5], ArgumentError),
        (VALUES, [0, 21], ArgumentError),
        (VALUES, [[0, 2]], ArgumentTypeError),
        (VALUES, [0.0, 2.0], ArgumentTypeError),
        (VALUES, [], ArgumentTypeError),
        ([[1], [2]], [0, 2], ArgumentTypeError),
    ],
)
def test_offsets_are_checked(values: Any, offsets: Any, error: type[Exception]) -> None:
    with raises(error):
        bu.Ragged(values, offsets)
    assert len(bu.Ragged(VALUES, [7])) == 0


def test_offsets_of_an_accessor_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "offsets.npy", [0, 1, 3])
    offsets, read, asked = bu.NpyRows(tmp_path / "offsets.npy"), bu.NpyRows.__getitem__, list[Any]()
    monkeypatch.setattr(bu.NpyRows, "__getitem__", lambda self, rows: asked.append(rows) or read(self, rows))
    assert bu.Ragged(np.arange(3), offsets).lengths.tolist() == [1, 2]
    assert asked == [slice(None)]
