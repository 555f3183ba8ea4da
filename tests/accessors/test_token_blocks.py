"""Blocks of one length from one long array, with and without the borders of documents."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.testing.accessors import AccessorContract, Made
from tests.messages import raises

VALUES = np.arange(60 * 2, dtype=np.int16).reshape(60, 2)


def plain(block: int, stride: int, offsets: list[int]) -> list[list[int]]:
    """Return the places of the values of each block."""
    found = []
    for begin, end in itertools.pairwise(offsets):
        start = begin
        while start + block <= end:
            found.append(list(range(start, start + block)))
            start += stride
    return found


class TestBlocks(AccessorContract):
    """Values in memory, blocks side by side."""

    options: ClassVar[dict[str, Any]] = {"block": 7}

    def make(self, tmp_path: Path) -> Made:
        made = bu.TokenBlocks(self.values(tmp_path), **self.options)
        options = {"stride": 7, "offsets": [0, 60], **self.options}
        return made, [VALUES[places] for places in plain(**options)]

    def values(self, folder: Path) -> Any:
        return VALUES


class TestBlocksOfAMapOverlap(TestBlocks):
    options: ClassVar[dict[str, Any]] = {"block": 9, "stride": 4}

    def values(self, folder: Path) -> Any:
        np.save(folder / "x.npy", VALUES)
        return np.load(folder / "x.npy", mmap_mode="r")


class TestStoredBlocksOfDocuments(TestBlocks):
    options: ClassVar[dict[str, Any]] = {"block": 3, "stride": 2, "offsets": [1, 1, 9, 11, 40, 58]}

    def values(self, folder: Path) -> Any:
        np.save(folder / "x.npy", VALUES)
        return bu.NpyRows(folder / "x.npy")


@given(
    lengths=st.lists(st.integers(0, 12), min_size=1, max_size=6),
    begin=st.integers(0, 3),
    block=st.integers(1, 6),
    stride=st.integers(1, 9),
    data=st.data(),
)
def test_rows_are_those_of_plain_loops(
    lengths: list[int], begin: int, block: int, stride: int, data: st.DataObject
) -> None:
    offsets = np.cumsum([begin, *lengths])
    expected = plain(block, stride, offsets.tolist())
    if not expected:
        with raises(bu.ArgumentError):
            bu.TokenBlocks(np.arange(99), block, stride, offsets=offsets)
        return
    blocks = bu.TokenBlocks(np.arange(99), block, stride, offsets=offsets)
    assert blocks.shape == (len(blocks), block) == (len(expected), block)
    assert blocks[:].tolist() == expected
    rows = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=9))
    assert blocks[np.array(rows, int)].tolist() == [expected[row] for row in rows]


def test_a_stream_is_read_in_few_pieces_and_in_memory_of_its_own() -> None:
    class Counted:
        shape, dtype, natural_block, natural_window = (100,), np.dtype(int), 32, 5
        reads: ClassVar[list[slice]] = []

        def __len__(self) -> int:
            return 100

        def __getitem__(self, part: slice) -> Any:
            self.reads.append(part)
            return np.arange(100)[part]

    blocks = bu.TokenBlocks(Counted(), 9, 8)
    assert blocks[[2, 3, 4, 7]][:, 0].tolist() == [16, 24, 32, 56]
    assert Counted.reads == [slice(16, 41), slice(56, 65)]
    assert (blocks.natural_block, blocks.natural_window) == (4, 5)
    values = np.arange(20)
    bu.TokenBlocks(values, 5)[0][:] = -1
    assert values.tolist() == list(range(20))


def test_inputs_and_targets_come_from_blocks_of_one_more() -> None:
    source = bu.ArrayDataSource({"ids": bu.TokenBlocks(np.arange(33), 9, stride=8)})
    source = source.map(lambda ids: {"ids": ids[:, :-1], "targets": ids[:, 1:]})
    with bu.Loader(source, 2, shuffle=1, pool="processes") as loader:
        seen = list(loader)
    assert sorted(np.concatenate([batch["ids"].ravel() for batch in seen]).tolist()) == list(range(32))
    assert all((batch["targets"] == batch["ids"] + 1).all() for batch in seen)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: bu.TokenBlocks([1, 2, 3], 2), bu.ArgumentTypeError),
        (lambda: bu.TokenBlocks(np.array(3), 2), bu.ArgumentError),
        (lambda: bu.TokenBlocks(np.arange(9), 0), bu.ArgumentError),
        (lambda: bu.TokenBlocks(np.arange(9), 2, 0), bu.ArgumentError),
        (lambda: bu.TokenBlocks(np.arange(9), 10), bu.ArgumentError),
        (lambda: bu.TokenBlocks(np.arange(9), 5, offsets=[0, 4, 9, 8]), bu.ArgumentError),
        (lambda: bu.TokenBlocks(np.arange(9), 5, offsets=[0, 10]), bu.ArgumentError),
    ],
)
def test_what_cannot_be_is_refused(call: Any, kind: type[Exception]) -> None:
    with raises(kind):
        call()
