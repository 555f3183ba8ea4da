"""The bins of an epoch: windows of an order of samples, packed group by group.

A group is so many windows that NumPy's calls are shared, and is packed on its own: its bins are a function of its
samples alone. The number of bins differs between groups, so the place of a bin in the epoch needs the number of bins of
all groups before. The plan packs these when it is asked, and remembers each number.

The bins of a group are sorted by cost and cut into runs, and the runs are shuffled. Runs begin at multiples of
:data:`RUN_BINS` in the epoch. So the ranks of a step, if their number divides that, get neighbours in cost, and the
cost does not depend on the time. The two pieces of runs at the ends of a group have the costs in the middle. So a run
of two groups has similar costs, too.
"""

from __future__ import annotations

import bisect
import threading
from typing import NamedTuple

import numpy as np

from ...randomness import OrderKey
from .bins import LEVELLED_BINS, best_fit, levelled
from .permutation import keyed_permutation
from .rows import RowPlan, read_only

GROUP_SAMPLES = 65536
"""About how many samples a group has; more if that is fewer than :data:`GROUP_WINDOWS` windows."""

GROUP_WINDOWS = 32
"""The fewest windows of a whole group."""

RUN_BINS = 192
"""Neighbours in cost that stay together: a multiple of the usual numbers of ranks, such as 3, 8, 12 and 64."""

NEARLY_FULL = 0.995
"""Share of the most tokens of a bin that is full enough: it is not packed once more, and costs what full ones do."""

KEPT_GROUPS = 16
"""Latest groups whose rows are remembered, 8 bytes a row: a million rows, with the default window."""


class PackOptions(NamedTuple):
    """The options of packing.

    Attributes:
        max_tokens: The most tokens of a bin.
        window: The most samples of a window.
        squares: Whether the cost of a bin is the sum of squares of its lengths, not of its lengths.
    """

    max_tokens: int
    window: int
    squares: bool


class Packed(NamedTuple):
    """The bins of a group: bin i is ``rows[offsets[i]:offsets[i + 1]]``."""

    rows: np.ndarray
    offsets: np.ndarray


class PackPlan(RowPlan):
    """The bins of one epoch, in the order of `rows` if `key` is None.

    `rows` are ``(n,) int64``, or None for the rows 0 to n - 1. `lengths`, ``(n,) int``, are their numbers of tokens,
    from 1 to the most of a bin. A bin has at most `batch_size` samples. Safe to use from several threads.
    """

    n_in_any_order = None

    def __init__(
        self, rows: np.ndarray | None, lengths: np.ndarray, options: PackOptions, batch_size: int, key: OrderKey | None
    ) -> None:
        self._rows, self._lengths, self._options, self._batch_size = rows, lengths, options, batch_size
        self._key = key
        size = max(GROUP_SAMPLES // options.window, GROUP_WINDOWS) * options.window
        self._n_groups = -(-len(lengths) // size)
        self._firsts = [0]  # the number of the first bin of each group that was packed, and of the next one
        self._kept: dict[int, Packed] = {}
        self._lock = threading.Lock()

    @property
    def n_batches(self) -> int:  # type: ignore[override]  # packs all windows when it is first asked
        return self._first(self._n_groups)

    def has(self, number: int) -> bool:
        return self._group_with(number) < self._n_groups

    def rows(self, number: int) -> np.ndarray:
        group = self._group_with(number)
        packed, place = self._packed(group), number - self._firsts[group]
        return packed.rows[packed.offsets[place] : packed.offsets[place + 1]]

    def samples_before(self, number: int) -> int:
        group = self._group_with(number)
        if group == self._n_groups:
            return len(self._lengths)
        return self._start(group) + int(self._packed(group).offsets[number - self._firsts[group]])

    def batches_until(self, n_samples: int) -> int:
        if n_samples >= len(self._lengths):
            return self.n_batches
        group = bisect.bisect_right(range(self._n_groups), n_samples, key=self._start) - 1
        first = self._first(group)
        return first + int(np.searchsorted(self._packed(group).offsets, n_samples - self._start(group)))

    def _start(self, group: int) -> int:
        """Return the position in the epoch of the first sample of a group; all groups are about equally long."""
        return len(self._lengths) * group // self._n_groups

    def _first(self, group: int) -> int:
        """Return the number of the first bin of a group, or of all bins."""
        while len(self._firsts) <= group:
            self._packed(len(self._firsts) - 1)
        return self._firsts[group]

    def _group_with(self, number: int) -> int:
        """Return the group that has bin `number`, or the number of groups if there are fewer bins."""
        while self._firsts[-1] <= number and len(self._firsts) <= self._n_groups:
            self._packed(len(self._firsts) - 1)
        return bisect.bisect_right(self._firsts, number) - 1

    def _packed(self, group: int) -> Packed:
        """Return the bins of a group. All groups before it have been packed."""
        with self._lock:
            if group not in self._kept:
                self._kept[group] = packed = self._pack(group)
                if len(self._kept) > KEPT_GROUPS:
                    del self._kept[next(iter(self._kept))]
                if group == len(self._firsts) - 1:
                    self._firsts.append(self._firsts[-1] + len(packed.offsets) - 1)
            return self._kept[group]

    def _pack(self, group: int) -> Packed:
        places = np.arange(self._start(group), self._start(group + 1))
        if self._key is not None:
            places = keyed_permutation(len(self._lengths), self._key.word("pack"))(places)
        lengths = self._lengths[places]
        bins = self._binned(lengths)
        by_cost = self._by_cost(group, lengths, bins)
        numbers = np.empty_like(by_cost)
        numbers[by_cost[self._in_runs(group, len(by_cost))]] = np.arange(len(by_cost))
        bins = numbers[bins]
        order = np.argsort(bins.astype(np.min_scalar_type(len(numbers))), kind="stable")  # up to 16 bits by radix, fast
        rows = places if self._rows is None else self._rows[places]
        return Packed(read_only(rows[order]), np.concatenate([[0], np.cumsum(np.bincount(bins))]))

    def _by_cost(self, group: int, lengths: np.ndarray, bins: np.ndarray) -> np.ndarray:
        """Return the bins of a group by ascending cost: ``(bins,) int64``. Bins of equal cost are in random order.

        All bins that are nearly full cost the same here: in the order in which best fit makes them, the length of
        samples would fall.
        """
        tokens = lengths.astype(np.float64)  # exact; bincount adds in the order of the samples, on every machine
        cost = np.bincount(bins, tokens**2 if self._options.squares else tokens)
        if not self._options.squares:
            np.minimum(cost, NEARLY_FULL * self._options.max_tokens, out=cost)
        mixed = np.arange(len(cost))
        if self._key is not None:
            mixed = keyed_permutation(len(cost), self._key.word("bins", group))(mixed)
        return mixed[np.argsort(cost[mixed], kind="stable")]

    def _in_runs(self, group: int, n: int) -> np.ndarray:
        """Return the order of the `n` bins of a group, ``(n,) int64``. They count from the one of the least cost."""
        head = min(-self._firsts[group] % RUN_BINS, n)
        runs, tail = divmod(n - head, RUN_BINS)
        lower, head_part, tail_part, upper = np.split(np.arange(n), np.cumsum([runs // 2 * RUN_BINS, head, tail]))
        others = np.concatenate([lower, upper]).reshape(runs, RUN_BINS)
        if self._key is not None and runs:
            others = others[keyed_permutation(runs, self._key.word("runs", group))(np.arange(runs))]
        return np.concatenate([head_part, others.ravel(), tail_part])

    def _binned(self, lengths: np.ndarray) -> np.ndarray:
        """Return the bin of each sample of a group: ``(n,) int64``, from 0, none empty."""
        most, n = self._options.max_tokens, len(lengths)
        windows = -(-n // self._options.window)
        starts = np.arange(windows + 1) * n // windows
        places = starts[:-1, None] + np.arange(-(-n // windows))
        none = places >= starts[1:, None]
        places = np.minimum(places, n - 1)
        padded = np.where(none, 0, lengths[places])
        order = np.argsort(most - padded, axis=1, kind="stable")
        found = best_fit(np.take_along_axis(padded, order, 1), most, self._batch_size)
        real = ~np.take_along_axis(none, order, 1)
        per_window = np.where(real, found, -1).max(axis=1) + 1
        found = found + (np.cumsum(per_window) - per_window)[:, None]
        bins = np.empty(n, np.int64)
        bins[np.take_along_axis(places, order, 1)[real]] = found[real]
        return self._level(lengths, bins)

    def _level(self, lengths: np.ndarray, bins: np.ndarray) -> np.ndarray:
        """Pack the emptiest bins of a group once more, about equally full. Keep them if that would need more bins."""
        tokens, samples = np.bincount(bins, lengths), np.bincount(bins)
        # The bins that are not nearly full, and then the bins of the most samples: these are short and fit anywhere.
        emptiest = np.minimum(tokens, NEARLY_FULL * self._options.max_tokens)
        again = np.lexsort((-samples, emptiest))[:LEVELLED_BINS]
        chosen = np.zeros(len(tokens), bool)
        chosen[again] = True
        members = np.flatnonzero(chosen[bins])
        found = levelled(lengths[members], self._options.max_tokens, self._batch_size, len(again))
        if found is None:
            return bins
        bins = (np.cumsum(~chosen) - 1)[bins]  # numbers the bins that stay
        bins[members] = found + len(tokens) - len(again)
        return bins
