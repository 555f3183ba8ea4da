"""Packs samples into bins: best fit, longest first, in many windows at once.

Best-fit decreasing puts each sample, the longest first, into the bin with the least room among those that have enough.
Johnson et al., "Worst-case performance bounds for simple one-dimensional packing algorithms" (SIAM J. Comput. 3, 1974),
bound its number of bins. One step here places the next sample of every window: they share NumPy's calls.

The last bin of a window is seldom full. So the emptiest bins of all windows are packed once more together, each sample
into the bin with the fewest tokens (Graham's "longest processing time first", SIAM J. Appl. Math. 17, 1969): these bins
are then about equally full.
"""

from __future__ import annotations

import heapq

import numpy as np

LEVELLED_BINS = 256
"""How many bins, the emptiest, are packed once more. All but a share of 1/256 of each can be full."""

LEVELLING_TRIES = 8
"""For how many numbers of bins, from the fewest that could hold the samples."""

_COLUMNS = 16
"""By how many bins a window's searched part grows."""


def best_fit(lengths: np.ndarray, most: int, most_samples: int) -> np.ndarray:
    """Return the bin of each sample by best fit, in the order given: ``(windows, n) int64``.

    Args:
        lengths: Lengths from 1 to `most`, descending in each window: ``(windows, n) int``. Zeros at the end stand for
            no sample.
        most: The most tokens of a bin.
        most_samples: The most samples of a bin.

    The bins of a window count from 0. Of bins with equally much room, the first is taken.
    """
    windows, n = lengths.shape
    # Unsigned: for a bin without enough room, room - length wraps to a number above all others.
    unsigned = next(dtype for dtype in (np.uint16, np.uint32, np.uint64) if most <= np.iinfo(dtype).max)
    steps = np.ascontiguousarray(lengths.T, dtype=unsigned)
    room = np.full((windows, n + 1), most, unsigned)
    counts = np.zeros((windows, n + 1), np.int64) if most_samples < n else None
    bins = np.zeros((n, windows), np.int64)
    each, searched = np.arange(windows), 1
    flat, firsts = room.reshape(-1), each * (n + 1)
    for length, found in zip(steps, bins, strict=True):
        left = room[:, :searched] - length[:, None]
        left.argmin(axis=1, out=found)
        flat[firsts + found] -= length
        if counts is not None:
            counts[each, found] += 1
            full = counts[each, found] == most_samples
            room[each[full], found[full]] = 0
        if int(found.max()) == searched - 1:  # an empty bin must always be searched
            searched = min(searched + _COLUMNS, n + 1)
    return bins.T


def levelled(lengths: np.ndarray, most: int, most_samples: int, most_bins: int) -> np.ndarray | None:
    """Return the bin of each sample if at most `most_bins` bins can be about equally full, ``(n,) int64``; else None.

    `lengths` are ``(n,) int``, at most `most`, in any order.
    """
    order = np.argsort(most - lengths, kind="stable")
    descending = lengths[order].tolist()
    fewest = max(-(-sum(descending) // most), -(-len(descending) // most_samples))
    for n_bins in range(fewest, min(most_bins, fewest + LEVELLING_TRIES - 1) + 1):
        found = _emptiest_first(descending, n_bins, most, most_samples)
        if found is not None:
            bins = np.empty(len(lengths), np.int64)
            bins[order] = found
            return bins
    return None


def _emptiest_first(descending: list[int], n_bins: int, most: int, most_samples: int) -> list[int] | None:
    """Put each sample into the bin with the fewest tokens, and return the bins; None if one gets too long."""
    heap = list(range(n_bins))  # tokens * n_bins + number of the bin: compared faster than tuples
    limit = (most + 1) * n_bins
    counts = [0] * n_bins
    found = []
    for length in descending:
        entry = heap[0] + length * n_bins
        if entry >= limit:
            return None
        number = entry % n_bins
        found.append(number)
        counts[number] += 1
        if counts[number] == most_samples:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, entry)
    return found
