"""The sampler that reads storage in runs and shuffles among few of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import checks
from ..errors import ArgumentError
from ..randomness import OrderKey
from .base import RandomAccessSampler
from .permutation import keyed_permutation


class BlockShuffleSampler(RandomAccessSampler):
    """Hands out each row once, in an order that storage likes: blocks of neighbouring rows, mixed some at a time.

    The rows lie in blocks of `block`, the last perhaps shorter. The blocks are shuffled; the rows of each `window` of them
    are shuffled among themselves and handed out before those of the next are begun. So at any time rows leave storage
    from `window` places, in runs that a disk or a compressed file reads at once, where a full shuffle goes anywhere.

    Args:
        length: How many rows there are.
        block: Rows of a block, as storage has them: of a chunk of a compressed file, say.
        window: How many blocks are mixed: as many as the system's cache holds.

    Raises:
        ArgumentError: a number is below 1, or `length` is negative.
    """

    def __init__(self, length: int, block: int, window: int = 16) -> None:
        self.length = checks.integer("length", length)
        if self.length < 0:
            raise ArgumentError(f"length must not be negative, and is {self.length}; pass the number of rows")
        self.block_rows = checks.positive_int("block", block)
        self.window = checks.positive_int("window", window)
        self._n_whole, self._short = divmod(self.length, self.block_rows)

    def outline(self) -> list[Any]:
        return [type(self).__name__, self.length, self.block_rows, self.window]

    def num_indices_generated(self) -> Any:
        return self.length

    def rows_at(self, positions: np.ndarray, key: OrderKey | None) -> np.ndarray:
        if key is None or len(positions) == 0:
            return positions
        order = _BlockOrder(self, key)
        windows = order.window_of(positions)
        rows = np.empty(len(positions), np.int64)
        for window in np.unique(windows):
            mine = windows == window
            rows[mine] = order.rows(int(window), positions[mine])
        return rows

    def shuffled_indices_batch_iterator(self, batch_size: int, shuffle_rng: Any) -> Iterator[np.ndarray]:
        """Return an iterator of the rows of each batch; one permutation of the blocks is drawn, one of each window."""
        return self._drawn(checks.positive_int("batch_size", batch_size), shuffle_rng)

    def _drawn(self, batch_size: int, rng: Any) -> Iterator[np.ndarray]:
        blocks = np.asarray(rng.permutation(self._n_whole + (self._short > 0)))
        held = np.arange(0)
        for start in range(0, len(blocks), self.window):
            own = [self._rows_of(int(block)) for block in blocks[start : start + self.window]]
            held = np.concatenate([held, np.asarray(rng.permutation(np.concatenate(own)))])
            while len(held) >= batch_size:
                yield held[:batch_size]
                held = held[batch_size:]
        if len(held):
            yield held

    def _rows_of(self, block: int) -> np.ndarray:
        first = block * self.block_rows
        return np.arange(first, min(first + self.block_rows, self.length))

    def mixing(self, batch_size: int) -> float:
        """Return how well batches of that size are mixed: 1 as by a full shuffle, 0 as without any.

        It compares how likely two samples of one batch come from the same block with how likely that is after a full
        shuffle: ``1 - (here - full) / (unshuffled - full)``.
        """
        size = min(checks.positive_int("batch_size", batch_size), self.length)
        if size < 2 or self.length <= self.block_rows:
            return 1.0  # there is but one block, which is shuffled whole
        full = (self.block_rows - 1) / (self.length - 1)
        within = min(self.window * self.block_rows, self.length)
        here = (self.block_rows - 1) / (within - 1)
        unshuffled = _same_block_in_order(size, self.block_rows)
        return 1.0 if unshuffled <= full else float(np.clip(1 - (here - full) / (unshuffled - full), 0.0, 1.0))


def _same_block_in_order(size: int, block: int) -> float:
    """Return how likely two samples of a batch of consecutive rows that begins with a block come from the same block."""
    whole, rest = divmod(size, block)
    return (whole * block * (block - 1) + rest * (rest - 1)) / (size * (size - 1))


class _BlockOrder:
    """The order of one epoch.

    The whole blocks are permuted; a short one, if there is one, is put in at a place that the key picks. So how many rows
    stand before a window is known without going through the blocks.

    Args:
        sampler: The sampler.
        key: Names the order.
    """

    def __init__(self, sampler: BlockShuffleSampler, key: OrderKey) -> None:
        self._key = key
        self._block = sampler.block_rows
        self._window = sampler.window
        self._n_whole = sampler._n_whole
        self._short = sampler._short
        self._blocks = keyed_permutation(max(1, self._n_whole), key.word("blocks"))
        self._place = key.word("short") % (self._n_whole + 1) if self._short else -1  # of the short block, in the order
        self._missing = self._block - self._short if self._short else 0

    def window_of(self, positions: np.ndarray) -> np.ndarray:
        """Return the number of the window in which each position lies."""
        span = self._block * self._window
        if self._place < 0:
            return positions // span
        # Behind the short block everything stands as many rows earlier as that lacks.
        last_of_its_window = (self._place // self._window + 1) * span - self._missing
        return np.where(positions < last_of_its_window, positions, positions + self._missing) // span

    def rows(self, window: int, positions: np.ndarray) -> np.ndarray:
        """Return the rows at positions of one window."""
        first = window * self._window
        start = first * self._block - (self._missing if 0 <= self._place < first else 0)
        slots = np.arange(first, min(first + self._window, self._n_whole + (self._short > 0)))
        sizes = np.where(slots == self._place, self._short, self._block)
        ends = np.cumsum(sizes)
        mixed = keyed_permutation(int(ends[-1]), self._key.word("window", window))(positions - start)
        slot = np.searchsorted(ends, mixed, side="right")
        return self._first_rows(slots)[slot] + mixed - (ends - sizes)[slot]

    def _first_rows(self, slots: np.ndarray) -> np.ndarray:
        """Return the first row of the block that stands at each place in the order of the blocks."""
        if self._place < 0:
            return self._blocks(slots) * self._block
        whole = np.where(slots > self._place, slots - 1, slots)
        blocks = np.full(len(slots), self._n_whole)
        permuted = slots != self._place
        blocks[permuted] = self._blocks(whole[permuted])
        return blocks * self._block
