"""A sampler that reads storage in runs and shuffles among a few of them, and a measure of how well that mixes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .. import validation
from ..errors import ArgumentError
from ..randomness import OrderKey, words_at
from .plans.batched_permutation import each_permuted
from .plans.permutation import keyed_permutation
from .standard import RepeatedSampler


class OrderBlocks(NamedTuple):
    """The part of an order by blocks that storage and ranks decide: the arguments of :class:`BlockShuffleSampler`.

    Attributes:
        block: Rows of a block.
        window: The most blocks that are mixed.
        groups: How many groups the blocks are dealt to; 0 if that is left to the ranks of the epoch.
        batch_size: Samples of a batch that come from one group, as the epoch was begun.
    """

    block: int
    window: int
    groups: int = 1
    batch_size: int = 1


class BlockShuffleSampler(RepeatedSampler):
    """Hands out each row once a repeat, in an order that suits storage: some blocks of neighbouring rows at a time.

    The rows lie in blocks of `block`; the last may be shorter. The blocks are shuffled and shared out to windows of at
    most `window` blocks. The rows of a window are shuffled among themselves and handed out before the next window is
    begun. So a cache of `window` blocks reads each block once. In order, without ``shuffle=``, the rows come as stored.

    The more blocks a window has for the size of a batch, the better the mixing: if a window is many batches long but a
    small part of the data, :func:`measure_mixing` gives about ``window / (window + batch_size)``, otherwise more. The
    length of the blocks hardly matters for mixing: choose the shortest blocks that storage reads well, and as many as
    memory holds.

    For several ranks the shuffled blocks are dealt to `groups` of equal length, each with windows of its own. The rows
    come from the groups in turn, `run` at a time; at the end, when no group has as many left, one at a time. If `run`
    is the batch size, batch k has rows of group k mod `groups`. So each of W ranks reads every W-th group, if W divides
    `groups`.

    Args:
        length: How many rows there are, at most 2^62.
        block: Rows of a block, as in storage: for example the rows of a chunk of a compressed file.
        window: The most blocks that are mixed.
        repeats: How often each row is handed out; blocks and rows are shuffled again each time. -1: without end.
        groups: How many groups the blocks are dealt to.
        run: How many rows of a group follow each other.

    Attributes:
        run_at_end: Like `run`, for the rows at the end, when groups have fewer than `run` left.

    Raises:
        ArgumentError: one of them is out of range.
    """

    @validation.known_names({})
    def __init__(
        self, length: int, block: int, window: int = 16, repeats: int = 1, groups: int = 1, run: int = 1
    ) -> None:
        super().__init__(length, repeats)
        self.n_rows = self.length
        self.block_rows = validation.positive_int("block", block)
        self._block_in_words = str(block)
        self.window = validation.positive_int("window", window)
        self.groups = validation.positive_int("groups", groups)
        self.run = validation.positive_int("run", run)
        # One block of all rows is as good as a longer one, and no sum overflows 63 bits. So it is with the others.
        self._block = min(self.block_rows, max(1, self.length))
        self._n_whole, self._short = divmod(self.length, self._block)
        self._n_blocks = self._n_whole + (self._short > 0)
        self._lacking = self._n_blocks * self._block - self.length
        self._window = min(self.window, max(1, self._n_blocks))
        self._n_groups = min(self.groups, max(1, self.length))
        self._each, self._n_longer = divmod(self.length, self._n_groups)  # rows of a group; groups with one more
        self._run = min(self.run, self._each + 1)
        self.run_at_end = 1
        # A group begins and ends within blocks.
        self._most_windows = -(-(self._n_blocks // self._n_groups + 2) // self._window)

    def fingerprint(self) -> list[Any]:
        in_groups = [self.groups, self.run] if self.groups > 1 else []
        return [*super().fingerprint(), self.block_rows, self.window, *in_groups]

    def _shuffled(self, places: np.ndarray, key: OrderKey, repeat: int) -> np.ndarray:
        at = self._n_blocks  # the slot of the short block among all
        if self._short:
            at = key.word("short block", repeat) % self._n_blocks
        begin: Any = 0
        end: Any = self.length
        groups: Any = 0
        if self._n_groups > 1:
            groups, within_group = self._grouped(places)
            begin, end = self._first_of(groups), self._first_of(groups + 1)
            places = begin + within_group
        windows, starts, ends = self._windows(places, begin, end, at)
        keys = words_at(key.word("windows", repeat), groups * self._most_windows + windows)
        slots, within = self._slots(starts + each_permuted(places - starts, ends - starts, keys), at)
        return np.asarray(self.map_indices(self._blocks(slots, at, key.word("blocks", repeat)) * self._block + within))

    def _grouped(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the group of each place, and the place within the group."""
        groups, within = np.empty_like(places), np.empty_like(places)
        done = 0  # rows of each group in longer runs
        for run in (self._run, self.run_at_end, 1):
            at = np.flatnonzero(places >= done * self._n_groups)
            turns, rest = np.divmod(places[at] - done * self._n_groups, self._n_groups * run)
            groups[at], within[at] = np.divmod(rest, run)
            within[at] += done + turns * run
            done += (self._each - done) // run * run
        return groups, within

    def _first_of(self, groups: np.ndarray) -> np.ndarray:
        """Return the place where each group begins, for blocks in order."""
        return np.asarray(groups * self._each + np.minimum(groups, self._n_longer))

    def _windows(self, places: np.ndarray, begin: Any, end: Any, at: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the window of each place, for blocks in order, and its first place and the one behind its last.

        The windows of a group, which has the places from `begin` to `end`, share its blocks evenly.
        """
        first, last = self._slots(np.asarray(begin), at)[0], self._slots(np.asarray(end - 1), at)[0]
        n_blocks = last - first + 1
        n_windows = -(-n_blocks // self._window)
        each, n_longer = np.divmod(n_blocks, n_windows)  # the first `n_longer` windows have one block more
        slots = self._slots(places, at)[0] - first
        behind = slots - n_longer * (each + 1)
        windows = np.where(behind < 0, slots // (each + 1), n_longer + behind // each)
        bounds = [self._start(first + more * each + np.minimum(more, n_longer), at) for more in (windows, windows + 1)]
        return windows, np.maximum(bounds[0], begin), np.minimum(bounds[1], end)

    def _start(self, slots: np.ndarray, at: int) -> np.ndarray:
        """Return the place where the block at each slot starts."""
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
