"""Shuffling in blocks: each row once, few blocks at a time, and how well that mixes."""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.randomness import OrderKey
from batchup_ng.sampling import BlockShuffleSampler, RandomAccessSampler, StandardSampler, measure_mixing
from tests.extent import quick


def order(sampler: RandomAccessSampler, key: OrderKey = OrderKey(1, 0)) -> np.ndarray:  # noqa: B008  # a constant
    return sampler.rows_at(np.arange(sampler.num_indices_generated()), key)


@given(
    n=st.integers(0, 200), block=st.integers(1, 40), window=st.integers(1, 12), repeats=st.integers(1, 3),
    seed=st.integers(0, 2**64), epoch=st.integers(0, 9),
)  # fmt: skip
def test_each_row_once_a_repeat_and_a_window_at_a_time(
    n: int, block: int, window: int, repeats: int, seed: int, epoch: int
) -> None:
    rows = order(BlockShuffleSampler(n, block, window, repeats), OrderKey(seed, epoch))
    for repeat in rows.reshape(repeats, n):
        assert sorted(repeat) == list(range(n))
        blocks = repeat // block
        done = 0
        while done < n:  # a window is what shares no block with the rest
            mine: set[int] = {int(blocks[done])}
            while (grown := set(blocks[done : done + int(np.isin(blocks, [*mine]).sum())].tolist())) != mine:
                mine = grown
            assert len(mine) <= window
            done += int(np.isin(blocks, [*mine]).sum())
        assert done == n


def test_in_order_the_rows_come_as_they_lie() -> None:
    assert BlockShuffleSampler(10, 3, repeats=2).rows_at(np.arange(20), None).tolist() == [*range(10), *range(10)]


def test_any_row_may_stand_anywhere_that_of_a_short_block_too(in_full: bool) -> None:
    n_epochs, off = (3000, 0.3) if in_full else (200, 0.8)
    orders = np.stack([order(BlockShuffleSampler(11, 3, 2), OrderKey(1, epoch)) for epoch in range(n_epochs)])
    seen = np.stack([np.bincount(at, minlength=11) for at in orders.T])
    # If the short block is in the first of the two windows, that ends at position 5, where none of its rows can stand.
    assert seen[5, 9:].tolist() == [0, 0]
    elsewhere = np.delete(seen, 5, axis=0)
    assert elsewhere.min() > (1 - off) * n_epochs / 11
    assert elsewhere.max() < (1 + off) * n_epochs / 11
    last = np.isin(orders[:, -1], [9, 10]).mean()
    assert 0.12 < last < 0.25


def test_with_one_window_for_all_it_is_a_full_shuffle(in_full: bool) -> None:
    n_epochs = 3000 if in_full else 200
    orders = np.stack([order(BlockShuffleSampler(12, 4, 3), OrderKey(2, epoch)) for epoch in range(n_epochs)])
    seen = np.stack([np.bincount(at, minlength=12) for at in orders.T])
    chi2 = ((seen - n_epochs / 12) ** 2 / (n_epochs / 12)).sum()
    assert abs(chi2 - 121) < 5 * math.sqrt(2 * 121)


def test_a_place_in_a_huge_file_is_found_at_once() -> None:
    sampler = BlockShuffleSampler(10**12 + 17, 3200, 16)
    near = sampler.rows_at(np.arange(10**11, 10**11 + 51_200), OrderKey(1, 0))
    assert len(np.unique(near)) == 51_200
    assert len(np.unique(near // 3200)) <= 33  # of two windows, one of which may have the short block


@pytest.mark.parametrize("block", [1, 32, 3200, 2**31 + 1, 2**61 + 1, 2**62, 2**70])
def test_no_length_is_too_long_for_any_block_and_window(block: int) -> None:
    for length, window in itertools.product([10**12, 2**62, 2**62 - 1], [1, 16, 2**40, 2**70]):
        sampler = BlockShuffleSampler(length, block, window)
        for start in (0, length // 2, length - 40):
            rows = sampler.rows_at(np.arange(start, start + 40), OrderKey(1, 0))
            assert len(set(rows.tolist())) == 40
            assert rows.min() >= 0
            assert rows.max() < length
            assert len({row // block for row in rows.tolist()}) <= (40 // (block * window) + 2) * window


@given(n=st.integers(1, 300), window=st.integers(1, 400))
def test_windows_share_out_the_blocks_evenly(n: int, window: int) -> None:
    windows, starts, ends = BlockShuffleSampler(n, 1, window)._windows(np.arange(n), 0, n, n)
    sizes = np.bincount(windows)
    assert len(sizes) == -(-n // window)
    assert sizes.max() - sizes.min() <= 1
    bounds = np.array([0, *np.cumsum(sizes)])
    assert starts.tolist() == bounds[windows].tolist()
    assert ends.tolist() == bounds[windows + 1].tolist()


def groups_of(n: int, groups: int, run: int, at_end: int) -> np.ndarray:
    """Return the group of each place of an order, counted out one by one."""
    left = [n // groups + (group < n % groups) for group in range(groups)]
    order: list[int] = []
    for together in (run, at_end):
        while min(left) >= together:
            for group in range(groups):
                order += [group] * together
                left[group] -= together
    while any(left):
        for group in range(groups):
            if left[group]:
                order.append(group)
                left[group] -= 1
    return np.array(order)


@given(
    n=st.integers(1, 400), block=st.integers(1, 30), window=st.integers(1, 9), groups=st.integers(1, 70),
    run=st.integers(1, 20), at_end=st.integers(1, 7), seed=st.integers(0, 2**64), repeats=st.integers(1, 2),
)  # fmt: skip
def test_the_rows_of_groups_come_in_turn_and_each_has_its_own_blocks(
    n: int, block: int, window: int, groups: int, run: int, at_end: int, seed: int, repeats: int
) -> None:
    sampler = BlockShuffleSampler(n, block, window, repeats, groups, run)
    sampler.run_at_end = at_end
    key = OrderKey(seed, 0)
    rows = sampler.rows_at(np.arange(n * repeats), key).reshape(repeats, n)
    shuffled = np.random.default_rng(seed).permutation(n * repeats)
    assert (sampler.rows_at(shuffled, key) == rows.reshape(-1)[shuffled]).all()
    for order in rows:
        assert sorted(order) == list(range(n))
        if groups > n:
            continue
        owners = groups_of(n, groups, run, at_end)
        n_shared = 0
        for number in range(-(-n // block)):
            found = np.unique(owners[order // block == number])
            assert (np.diff(found) == 1).all(), "a block is shared out to neighbouring groups alone"
            n_shared += len(found) - 1
        assert n_shared <= groups - 1
        for group in range(groups):
            own = order[owners == group]
            open_blocks = 0
            for number in np.unique(own // block):
                places = np.flatnonzero(own // block == number)
                open_blocks = max(open_blocks, len(np.unique(own[places[0] : places[-1] + 1] // block)))
            assert open_blocks <= window, "a block is done with when its window is"


@given(n=st.integers(2, 60), seed=st.integers(0, 2**64))
def test_the_short_block_the_blocks_and_the_windows_are_drawn_by_words_of_their_own(n: int, seed: int) -> None:
    drawn: list[tuple[Any, ...]] = []

    class Listening(OrderKey):
        def word(self, *parts: int | str) -> int:
            drawn.append(parts)
            return super().word(*parts)

    BlockShuffleSampler(3 * n + 1, 3, 2).rows_at(np.arange(n), Listening(seed, 0))
    assert len(set(drawn)) == len(drawn) == 3


class ChunkReader:
    """Reads whole chunks of an HDF5 file, and keeps the latest.

    Args:
        data: The data set, in chunks.
        kept: How many are kept.
    """

    def __init__(self, data: Any, kept: int) -> None:
        self._data = data
        self._kept = kept
        self._chunks: OrderedDict[int, np.ndarray] = OrderedDict()
        self.shape, self.dtype = data.shape, data.dtype
        self.n_reads = 0

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, rows: Any) -> np.ndarray:
        size = self._data.chunks[0]
        return np.stack([self._chunk(int(row) // size)[int(row) % size] for row in rows])

    def _chunk(self, number: int) -> np.ndarray:
        if number not in self._chunks:
            size = self._data.chunks[0]
            self.n_reads += 1
            self._chunks[number] = self._data[number * size : (number + 1) * size]
            if len(self._chunks) > self._kept:
                self._chunks.popitem(last=False)
        self._chunks.move_to_end(number)
        return self._chunks[number]


@pytest.mark.parametrize("n", [3200, 3190])
def test_each_chunk_of_a_compressed_file_is_read_once(n: int, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="the compressed file is one of HDF5")
    block, window, n_chunks = 32, 8, 100
    x = np.arange(n * 4, dtype=np.float32).reshape(n, 4)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=x, chunks=(block, 4), compression="gzip")
    with h5py.File(tmp_path / "x.h5", "r") as file:
        reads = {}
        for name, sampler in {"blocks": BlockShuffleSampler(n, block, window), "full": StandardSampler(n)}.items():
            reader = ChunkReader(file["x"], kept=window)
            source = bu.ArrayDataSource([reader], sampler=sampler, include_indices=True)
            for rows, batch in source.batch_iterator(50, shuffle=4):
                np.testing.assert_array_equal(batch, x[rows])
            reads[name] = reader.n_reads
    assert reads["blocks"] == n_chunks
    assert reads["full"] > 0.8 * n


@pytest.mark.parametrize("batch_size", [2, 16, 256])
def test_a_full_shuffle_measures_one_and_no_shuffle_next_to_nothing(batch_size: int) -> None:
    n = 200_000
    shuffled = measure_mixing(order(StandardSampler(n)), batch_size)
    assert abs(shuffled - 1) < 5 * math.sqrt(2 * batch_size / n)
    assert measure_mixing(np.arange(n), batch_size) == pytest.approx(1 / batch_size, rel=0.01)


@pytest.mark.parametrize("window", quick([16], [4, 16, 64]))
def test_blocks_mix_as_the_documentation_says(window: int) -> None:
    sampler = BlockShuffleSampler(200_000, 100, window)
    strayed = [1 / measure_mixing(order(sampler, OrderKey(3, epoch)), 50) for epoch in range(30)]
    assert window / (window + 50) == pytest.approx(1 / np.mean(strayed), rel=0.15)


def test_each_window_is_mixed_in_an_order_of_its_own() -> None:
    rows = order(BlockShuffleSampler(640, 8, 4)).reshape(20, 32)
    assert len({tuple(window % 8) for window in rows}) == 20


def test_no_window_is_much_smaller_than_the_others() -> None:
    rows = order(BlockShuffleSampler(1010, 10, 100))  # 101 blocks, of which one would be left over
    first, last = rows[:510] // 10, rows[510:] // 10
    assert (len(set(first)), len(set(last))) == (51, 50)


def test_repeating_a_source_in_blocks_keeps_to_blocks() -> None:
    source = bu.repeat(bu.ArrayDataSource([np.arange(100)], sampler=BlockShuffleSampler(100, 10, 2)), 2)
    for (batch,) in source.batch_iterator(20, shuffle=1):
        assert len(np.unique(batch // 10)) == 2


def test_repeats_are_shuffled_anew_blocks_and_rows() -> None:
    repeats = BlockShuffleSampler(40, 4, 2, repeats=20).rows_at(np.arange(20 * 40), OrderKey(1, 0)).reshape(20, 40)
    assert len({frozenset(repeat[:8] // 4) for repeat in repeats}) > 10  # which blocks share the first window
    assert len({tuple(repeat[np.isin(repeat // 4, repeat[:1] // 4)] % 4) for repeat in repeats}) > 5
