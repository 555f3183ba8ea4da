"""A sampler that packs rows into bins of a given number of tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import validation
from ..errors import ArgumentError
from ..randomness import OrderKey
from .base import BatchSampler, array_fingerprint
from .lengths import check_longest, chosen_rows, row_lengths
from .plans.packed import PackOptions, PackPlan

MAX_TOKENS = (1 << 53) - 1
"""The most tokens of a bin: up to this, sums of lengths are exact as floats."""


MAX_WINDOW = 16384
"""The most rows of a window: the time for each grows with their number."""


class PackSampler(BatchSampler):
    """Packs rows into batches of at most `max_tokens` tokens, nearly full; each row comes once an epoch.

    A batch is a bin: rows to be put one after the other, as :func:`~batchup_ng.pack` does. So there is no padding
    between rows, and nearly none at the end. The number of rows differs from batch to batch.

    The order of the epoch is cut into windows of `window` rows. In each window the sampler puts the rows into bins, the
    longest row first, each into the bin with the least room that has enough (best-fit decreasing). Then it packs the
    emptiest bins of some windows, 65,536 rows or at least 32 windows, once more, so that these bins are about equally
    full. The bins of these windows are sorted by cost, and runs of 192 of them are shuffled. So the ranks of one step
    get bins of similar cost; most similar, if the number of ranks divides 192. Without ``shuffle=`` the windows come in
    the order of the rows, and bins of a run by ascending cost.

    The ``batch_size`` of ``batch_iterator`` is the most samples that a batch may have. In a ``Loader`` without
    ``batch_size`` only `max_tokens` limits a batch. No batch counts as one that is not whole: in a world of one,
    ``drop_last`` leaves out nothing.

    The sampler orders whole batches, so an epoch is resumed with the same batch size, and a source with such a sampler
    cannot be part of ``concat``, ``subset``, ``split`` or ``zip``; in a ``CompositeDataSource`` use ``trim=False``.
    Epochs may differ in their number of batches. ``len`` of an epoch, the part of a rank, and an epoch that is resumed
    need the bins of all windows: docs/samplers.md has the seconds.
    Memory: 2 bytes a row, 4 if `max_tokens` is above 65,535, and 8 bytes for each of the latest million rows of an
    epoch.

    Args:
        lengths: Length of each row of the data in tokens: ``(n,) int``, not negative. An empty row counts as one token.
        max_tokens: The most tokens of a batch.
        window: How many rows of the shuffled order to pack together, at most 16,384. More rows fill bins better,
            and take longer.
        balance: The cost that the bins of a step should have in common. ``"tokens"``: the sum of the lengths.
            ``"squares"``: the sum of their squares, which the time of attention within rows is in proportion to.
        longer: What to do with a row of more than `max_tokens`. ``"error"``: refuse it. ``"cut"``: count it as
            `max_tokens`; pass ``longer="cut"`` to :func:`~batchup_ng.pack` too.
        indices: The rows to hand out: ``(m,) int``, not negative; None for all.

    Raises:
        ArgumentError: a length is negative, or above `max_tokens` with ``longer="error"``; a number is below 1; one of
            `indices` is out of range; `balance` or `longer` is none of the words above.
        ArgumentTypeError: the lengths are not whole numbers.

    >>> sampler = PackSampler([5, 2, 6, 3, 1, 7], max_tokens=8)
    >>> [rows.tolist() for rows in sampler.in_order_indices_batch_iterator(8)]
    [[4, 5], [1, 2], [0, 3]]
    """

    @validation.known_names({})
    def __init__(
        self,
        lengths: Any,
        max_tokens: int,
        *,
        window: int = 2048,
        balance: str = "tokens",
        longer: str = "error",
        indices: Any = None,
    ) -> None:
        sizes = row_lengths(lengths)
        self.n_rows: int = len(sizes)
        self.max_tokens = validation.positive_int("max_tokens", max_tokens)
        if self.max_tokens > MAX_TOKENS:
            raise ArgumentError(f"max_tokens must be below 2^53, and is {self.max_tokens}; pass the tokens of a batch")
        self.window = validation.positive_int("window", window)
        if self.window > MAX_WINDOW:
            raise ArgumentError(
                f"window must be at most {MAX_WINDOW}, not {window}; 2048 rows fill bins nearly as well as more do"
            )
        self.balance = validation.one_of("balance", balance, ("tokens", "squares"))
        if longer == "split":
            raise ArgumentError(
                "longer must be 'error' or 'cut', not 'split': a sampler hands out whole rows; split long rows into "
                "rows of their own when you store them, or pass longer='cut'"
            )
        self.longer = validation.one_of("longer", longer, ("error", "cut"))
        self.indices = None if indices is None else chosen_rows(indices, self.n_rows)
        sizes = sizes if self.indices is None else sizes[self.indices]
        if longer == "error":
            check_longest(sizes, self.indices, self.max_tokens, "pass longer='cut', ")
        self._lengths = np.clip(sizes, 1, self.max_tokens).astype(np.min_scalar_type(self.max_tokens))
        self._fingerprint = [
            array_fingerprint(self._lengths), None if self.indices is None else array_fingerprint(self.indices)
        ]

    def fingerprint(self) -> list[Any]:
        options = [self.max_tokens, self.window, self.balance]
        return [type(self).__name__, len(self._lengths), *options, *self._fingerprint]

    def num_indices_generated(self) -> Any:
        return len(self._lengths)

    @property
    def batch_size(self) -> int:  # type: ignore[override]  # computed
        """The size that leaves it to `max_tokens` how many samples a batch has."""
        return self.max_tokens

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> PackPlan:
        options = PackOptions(self.max_tokens, self.window, self.balance == "squares")
        return PackPlan(self.indices, self._lengths, options, batch_size, key)
