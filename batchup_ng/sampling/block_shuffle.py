"""A sampler that reads storage in runs and shuffles among a few of them, and a measure of how well that mixes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import validation
from ..errors import ArgumentError
from ..randomness import OrderKey, words_at
from .plans.batched_permutation import each_permuted
from .plans.permutation import keyed_permutation
from .standard import RepeatedSampler


class BlockShuffleSampler(RepeatedSampler):
    """Hands out each row once a repeat, in an order that suits storage: some blocks of neighbouring rows at a time.

    The rows lie in blocks of `block`; the last may be shorter. The blocks are shuffled and shared out to windows of at
    most `window` blocks. The rows of a window are shuffled among themselves and handed out before the next window is
    begun. So a cache of `window` blocks reads each block once. In order, without ``shuffle=``, the rows come as stored.

    The more blocks a window has for the size of a batch, the better the mixing: if a window is many batches long but a
    small part of the data, :func:`measure_mixing` gives about ``window / (window + batch_size)``, otherwise more. The
    length of the blocks hardly matters for mixing: choose the shortest blocks that storage reads well, and as many as
    memory holds.

    Args:
        length: How many rows there are, at most 2^62.
        block: Rows of a block, as in storage: for example the rows of a chunk of a compressed file.
        window: The most blocks that are mixed.
        repeats: How often each row is handed out; blocks and rows are shuffled again each time. -1: without end.

    Raises:
        ArgumentError: one of them is out of range.
    """

    @validation.known_names({})
    def __init__(self, length: int, block: int, window: int = 16, repeats: int = 1) -> None:
        super().__init__(length, repeats)
        self.n_rows = self.length
        self.block_rows = validation.positive_int("block", block)
        self._block_in_words = str(block)
        self.window = validation.positive_int("window", window)
        # One block of all rows is as good as a longer one, and no sum overflows 63 bits.
        self._block = min(self.block_rows, max(1, self.length))
        self._n_whole, self._short = divmod(self.length, self._block)
        self._n_blocks = self._n_whole + (self._short > 0)
        self._lacking = self._n_blocks * self._block - self.length
        self._n_windows = max(1, -(-self._n_blocks // self.window))
        # The first `_n_longer` windows have one block more than the others.
        self._blocks_each, self._n_longer = divmod(self._n_blocks, self._n_windows)

    def fingerprint(self) -> list[Any]:
        return [*super().fingerprint(), self.block_rows, self.window]

    def _shuffled(self, places: np.ndarray, key: OrderKey, repeat: int) -> np.ndarray:
        at = self._n_blocks  # the slot of the short block among all
        if self._short:
            at = key.word("short block", repeat) % self._n_blocks
        slots, _ = self._slots(places, at)
        windows = self._windows(slots)
        starts, ends = self._start(windows, at), self._start(windows + 1, at)
        keys = words_at(key.word("windows", repeat), windows)
        slots, within = self._slots(starts + each_permuted(places - starts, ends - starts, keys), at)
        return np.asarray(self.map_indices(self._blocks(slots, at, key.word("blocks", repeat)) * self._block + within))

    def _windows(self, slots: np.ndarray) -> np.ndarray:
        """Return the window of the block at each slot; windows share the blocks evenly."""
        each, n_longer = self._blocks_each, self._n_longer
        behind = slots - n_longer * (each + 1)
        return np.where(behind < 0, slots // (each + 1), n_longer + behind // each)

    def _start(self, windows: np.ndarray, at: int) -> np.ndarray:
        """Return the place of each window's start."""
        slots = windows * self._blocks_each + np.minimum(windows, self._n_longer)
        return np.asarray(slots * self._block - np.where(slots > at, self._lacking, 0))

    def _slots(self, places: np.ndarray, at: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the slot of the block at each place, for blocks in order, and the place within the block."""
        behind = places >= at * self._block + self._short
        return np.divmod(places + np.where(behind, self._lacking, 0), self._block)

    def _blocks(self, slots: np.ndarray, at: int, word: int) -> np.ndarray:
        """Return the number of the block at each slot of their order; the short block is at slot `at`."""
        blocks = np.full(len(slots), self._n_whole)
        whole = np.flatnonzero(slots != at)
        numbers = slots[whole] - (slots[whole] > at)
        blocks[whole] = keyed_permutation(self._n_whole, word)(numbers) if len(whole) else numbers
        return blocks


def measure_mixing(rows: Any, batch_size: int) -> float:
    """Return how well the batches of an order are mixed: about 1.0 for a full shuffle, ``1 / batch_size`` for none.

    The result is ``V_full / V``. V is the mean squared distance between the mean row number of a batch and the mean of
    all rows, over all whole batches. V_full is its value for a full shuffle of n rows in batches of b:
    ``(n² - 1) / (12·b) · (n - b) / (n - 1)``. If the data are sorted by something, a batch represents all of them as
    well as ``V_full / V · b`` samples drawn at random: the effective size of a sample of whole clusters (Kish, "Survey
    Sampling", 1965). For a full shuffle the result is 1.0 give or take ``sqrt(2·b / n)``.

    Args:
        rows: The row at each position of an epoch, each of 0 to n - 1 once: ``(n,) int``.
        batch_size: Samples a batch, at most half the rows.

    Raises:
        ArgumentError: there are fewer than two whole batches.

    >>> round(measure_mixing(range(100_000), 100), 3)
    0.01
    """
    rows = np.asarray(rows)
    size = validation.positive_int("batch_size", batch_size)
    n, n_batches = len(rows), len(rows) // size
    if n_batches < 2:
        raise ArgumentError(f"batch_size must be at most half of the {n} rows to compare batches, not {size}")
    means = rows[: n_batches * size].reshape(n_batches, size).mean(axis=1)
    strayed = float(((means - (n - 1) / 2) ** 2).mean())
    full = (n * n - 1) / (12 * size) * (n - size) / (n - 1)
    return full / strayed if strayed else math.inf
