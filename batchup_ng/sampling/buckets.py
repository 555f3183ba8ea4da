"""A sampler that puts rows of similar length into a batch.

One table holds the rows sorted by length. A bucket is a stretch of it. All batches of a bucket have as many rows as its
longest row allows. Rows that do not fill a batch go to the front of the next bucket, whose rows are longer. So an epoch
has at most one batch that is not whole, in any order, and a few steps find the rows of any batch in the table.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from typing import Any

import numpy as np

from .. import validation
from ..errors import ArgumentError
from ..randomness import OrderKey
from .base import BatchSampler, array_fingerprint
from .lengths import check_longest, chosen_rows, row_lengths
from .plans.permutation import keyed_permutation, sent_to
from .plans.rows import RowPlan, Sizes

BALANCED = "balanced"
"""The value of ``ranks=`` by which the number of batches decides."""

MOST_BALANCED = 64
"""The most batches of similar length that ``ranks="balanced"`` keeps together."""


class BucketSampler(BatchSampler):
    """Puts rows of similar length into a batch, to save padding; each row comes once an epoch.

    With ``shuffle=``, the rows of each bucket are shuffled among themselves and cut into batches, and the batches of
    all buckets are shuffled. A batch that is not whole comes last. In order, rows come by ascending length. Many
    buckets save padding, few buckets mix more rows: aim at some dozens of batches in each.

    The ``batch_size`` of ``batch_iterator`` is the most samples that a batch may have. With `max_tokens`, also the size
    after padding is limited: a batch of n samples with the greatest length m has n·m <= `max_tokens`. A batch counts as
    whole if it has as many samples as the longest row of its bucket allows. In a ``Loader`` without ``batch_size`` only
    `max_tokens` limits a batch.

    The sampler orders whole batches, so an epoch is resumed with the same batch size, and a source with such a sampler
    cannot be part of ``concat``, ``subset``, ``split`` or ``zip``; in a ``CompositeDataSource`` use
    ``trim=False``. Memory: 8 bytes a row.

    Ranks share whole batches: in a step of 8 ranks, each trains on one of 8 batches that follow one another, and all
    wait for the rank with the most tokens. With `ranks`, the batches are shuffled in groups of neighbours by length, so
    those of a step need about as much padding. A step then has one length, and steps differ. The batches that fill no
    group are drawn at random and come last.

    Args:
        lengths: Length of each row of the data, in the unit of `max_tokens`: ``(n,) int``, not negative.
        boundaries: Lengths at which a bucket ends and the next begins, ascending: a row of length m is in the bucket
            between the boundaries a and b if a <= m < b. None: `num_buckets` buckets of about as many tokens each, or
            fewer buckets if there are not so many different lengths.
        num_buckets: How many buckets to make without `boundaries`.
        max_tokens: The most tokens of a batch after padding; None for any number.
        indices: The rows to hand out: ``(m,) int``, not negative; None for all.
        ranks: How many batches of similar length follow one another with ``shuffle=``: the number of ranks, or a
            multiple of it. ``"balanced"``: as many as fit twice into a bucket, a power of 2 up to 64. None: 1.

    Attributes:
        boundaries: The boundaries in use: a tuple.

    Raises:
        ArgumentError: a length is negative, or above `max_tokens`; the boundaries do not ascend; a number is below 1;
            one of `indices` is out of range.
        ArgumentTypeError: the lengths are not whole numbers.

    >>> sampler = BucketSampler([3, 9, 2, 8, 1, 9], boundaries=[5], max_tokens=18)
    >>> [rows.tolist() for rows in sampler.in_order_indices_batch_iterator(2)]
    [[4, 2], [0, 3], [1, 5]]
    """

    @validation.known_names({})
    def __init__(
        self,
        lengths: Any,
        *,
        boundaries: Any = None,
        num_buckets: int = 16,
        max_tokens: int | None = None,
        indices: Any = None,
        ranks: int | str | None = None,
    ) -> None:
        sizes = row_lengths(lengths)
        self.n_rows: int = len(sizes)
        self.max_tokens = None if max_tokens is None else validation.positive_int("max_tokens", max_tokens)
        self.indices = None if indices is None else chosen_rows(indices, self.n_rows)
        rows = np.arange(self.n_rows) if self.indices is None else self.indices
        sizes = sizes[rows]
        if self.max_tokens is not None:
            check_longest(sizes, rows, self.max_tokens, "")
        order = np.argsort(sizes, kind="stable")
        self._rows = rows[order]
        ascending = sizes[order]
        del sizes, rows, order
        many = validation.positive_int("num_buckets", num_buckets)
        self.boundaries = _even_boundaries(ascending, many) if boundaries is None else _as_boundaries(boundaries)
        ends = np.unique([*np.searchsorted(ascending, self.boundaries), len(ascending)])
        self._ends = ends[ends > 0]
        self._longest = ascending[self._ends - 1]
        if isinstance(ranks, str) and ranks != BALANCED:
            raise ArgumentError(f"ranks must be a number of batches or {BALANCED!r}, not {ranks!r}")
        self._ranks = 1 if ranks is None else ranks if ranks == BALANCED else validation.positive_int("ranks", ranks)
        self._fingerprint = [array_fingerprint(ascending), array_fingerprint(self._rows)]

    def fingerprint(self) -> list[Any]:
        ranks = [] if self._ranks == 1 else [f"ranks={self._ranks}"]
        return [type(self).__name__, len(self._rows), self.max_tokens, self._ends.tolist(), *self._fingerprint, *ranks]

    def num_indices_generated(self) -> Any:
        return len(self._rows)

    @property
    def batch_size(self) -> int | None:  # type: ignore[override]  # computed
        """The size that leaves it to `max_tokens` how many samples a batch has; None without that."""
        return self.max_tokens

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> BucketPlan:
        return BucketPlan(self._rows, self._ends, self._batch_sizes(batch_size), key, drop_last, self._ranks)

    def _batch_sizes(self, batch_size: int) -> np.ndarray:
        """Return how many rows a batch of each bucket has."""
        if self.max_tokens is None:
            return np.full(len(self._ends), batch_size)
        most = min(self.max_tokens, np.iinfo(np.int64).max)
        return np.asarray(np.minimum(batch_size, most // np.maximum(self._longest, 1)))


class BucketPlan(RowPlan):
    """The batches of one epoch, in order if `key` is None.

    `rows` are sorted by length. Each bucket ends at one of `ends` there and has batches of one of `sizes`. Its first
    batch begins with the rows that did not fill a batch of the bucket before. `ranks` batches stay together.
    """

    def __init__(
        self,
        rows: np.ndarray,
        ends: np.ndarray,
        sizes: np.ndarray,
        key: OrderKey | None,
        drop_last: bool,
        ranks: int | str = 1,
    ) -> None:
        self._rows = rows
        self._bounds = [0, *ends.tolist()]
        self._sizes = sizes.tolist()
        self._begins = [0]  # where in `rows` the batches of each bucket begin, with the rows left from earlier buckets
        self._firsts = [0]  # the number of the first batch of each bucket
        for end, size in zip(self._bounds[1:], self._sizes, strict=True):
            whole, left = divmod(end - self._begins[-1], size)
            self._begins.append(end - left)
            self._firsts.append(self._firsts[-1] + whole)
        self._n_whole = self._firsts[-1]
        self.n_batches = self._n_whole + (self._begins[-1] < self._bounds[-1] and not drop_last)
        self._word = None if key is None else key.word("batches")
        group = _group_of(self._n_whole, len(self._sizes)) if ranks == BALANCED else int(ranks)
        self._grouped = GroupedOrder(self._n_whole, key, group) if key is not None and group > 1 else None
        self._before = np.zeros(1, np.int64)
        self._words = [] if key is None else [key.word("bucket", i) for i in range(len(self._sizes))]

    @functools.cached_property
    def sizes(self) -> Sizes | None:  # type: ignore[override]
        if len(set(self._sizes)) != 1:
            return None
        left = self._bounds[-1] - self._begins[-1]
        return Sizes(self._sizes[0], {self._n_whole: (left, left)} if self.n_batches > self._n_whole else {})

    def samples_before(self, number: int) -> int:
        if self.sizes is not None:
            return super().samples_before(number)
        return self._bounds[-1] if number > self._n_whole else int(self._counted(number)[number])

    def batches_until(self, n_samples: int) -> int:
        if self.sizes is not None or not self._n_whole:
            return super().batches_until(n_samples)
        most = min(self._n_whole, -(-n_samples // min(self._sizes)))
        found = int(np.searchsorted(self._counted(most)[: most + 1], n_samples))
        return found if found <= most else int(self.n_batches)

    def _counted(self, n: int) -> np.ndarray:
        """Count the samples up to the start of each of the first `n` whole batches or more, and up to the last end."""
        if n >= len(self._before):
            numbers = np.arange(min(self._n_whole, 2 * n))
            if self._grouped is not None:
                numbers = self._grouped(numbers)
            elif self._word is not None:
                numbers = keyed_permutation(self._n_whole, self._word)(numbers)
            buckets = np.searchsorted(self._firsts, numbers, side="right") - 1
            self._before = np.cumsum([0, *np.asarray(self._sizes)[buckets]])
        return self._before

    def rows(self, number: int) -> np.ndarray:
        if number == self._n_whole:  # the batch that is not whole
            return self._between(self._begins[-1], self._bounds[-1])
        if self._grouped is not None:
            number = int(self._grouped(np.array([number]))[0])
        elif self._word is not None:
            number = sent_to(self._n_whole, self._word, number)
        bucket = bisect.bisect_right(self._firsts, number) - 1
        start = self._begins[bucket] + (number - self._firsts[bucket]) * self._sizes[bucket]
        return self._between(start, start + self._sizes[bucket])

    def _between(self, start: int, stop: int) -> np.ndarray:
        """Return the rows of a stretch of the table; the rows of each bucket are shuffled among themselves."""
        parts = []
        while start < stop:
            bucket = bisect.bisect_right(self._bounds, start) - 1
            first, end = self._bounds[bucket : bucket + 2]
            places = np.arange(start, min(stop, end)) - first
            if self._words:
                places = keyed_permutation(end - first, self._words[bucket])(places)
            parts.append(self._rows[first + places])
            start = end
        return np.concatenate(parts)


class GroupedOrder:
    """The order of `n` batches by which `group` neighbours stay together, and the groups are shuffled.

    The batches that fill no group are drawn at random, because those that come last must not always be the longest.
    """

    def __init__(self, n: int, key: OrderKey, group: int) -> None:
        self._group = group
        self._n_groups, n_left = divmod(n, group)
        self._word = key.word("groups")
        self._left = np.sort(keyed_permutation(n, key.word("left"))(np.arange(n_left)))
        self._left_before = self._left - np.arange(n_left)  # how many others lie before each of them

    def __call__(self, numbers: np.ndarray) -> np.ndarray:
        """Return the batches, by their number in the table, that come at these numbers of the epoch."""
        groups, places = np.divmod(numbers, self._group)
        last = groups == self._n_groups
        found = np.empty_like(numbers)
        found[last] = self._left[places[last]]
        if self._n_groups:
            among = keyed_permutation(self._n_groups, self._word)(groups[~last]) * self._group + places[~last]
            found[~last] = among + np.searchsorted(self._left_before, among, side="right")
        return found


def _group_of(n_batches: int, n_buckets: int) -> int:
    """Return how many batches stay together for a balance of ranks: two groups or more in a bucket."""
    fit = n_batches // max(2 * n_buckets, 1)
    return min(MOST_BALANCED, 1 << max(fit.bit_length() - 1, 0))


def _as_boundaries(boundaries: Any) -> tuple[int, ...]:
    given = tuple(validation.integer(f"boundaries[{i}]", bound) for i, bound in enumerate(boundaries))
    for before, bound in itertools.pairwise((0, *given)):
        if bound <= before:
            raise ArgumentError(f"boundaries must ascend from at least 1, not {before}, {bound}; pass them sorted")
    return given


def _even_boundaries(ascending: np.ndarray, many: int) -> tuple[int, ...]:
    """Return boundaries between at most `many` buckets of about as many tokens each."""
    tokens = np.cumsum(np.maximum(ascending, 1), dtype=np.float64)  # does not overflow
    if len(tokens) == 0:
        return ()
    shares = np.arange(1, many) * (float(tokens[-1]) / many)
    return tuple(sorted({int(ascending[place]) for place in np.searchsorted(tokens, shares)} - {int(ascending[0])}))
