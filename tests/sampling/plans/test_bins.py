"""Best fit in many windows at once, against a plain loop, and the levelling of bins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchup_ng.sampling.plans.bins import best_fit, levelled


def plain_best_fit(lengths: list[int], most: int, most_samples: int) -> list[int]:
    """Put each sample into the bin with the least room that has enough, the first of several; else into a new one."""
    room: list[int] = []
    counts: list[int] = []
    found = []
    for length in lengths:
        open_bins = [i for i in range(len(room)) if room[i] >= length and counts[i] < most_samples]
        if open_bins:
            best = min(open_bins, key=lambda i: room[i])
        else:
            best = len(room)
            room.append(most)
            counts.append(0)
        room[best] -= length
        counts[best] += 1
        found.append(best)
    return found


@given(
    windows=st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=60), min_size=1, max_size=6),
    most=st.sampled_from([30, 31, 47, 200, 65535, 65536, 2**32, 2**53 - 1]),
    scaled=st.booleans(),
    most_samples=st.sampled_from([1, 2, 5, 1000]),
)
def test_each_window_is_packed_as_a_plain_loop_does(
    windows: list[list[int]], most: int, scaled: bool, most_samples: int
) -> None:
    scale = most // 30 if scaled else 1
    n = max(map(len, windows))
    lengths = np.zeros((len(windows), n), np.int64)
    for row, window in zip(lengths, windows, strict=True):
        row[: len(window)] = sorted((length * scale for length in window), reverse=True)
    found = best_fit(lengths, most, most_samples)
    for row, bins, window in zip(lengths, found, windows, strict=True):
        expected = plain_best_fit(row[: len(window)].tolist(), most, most_samples)
        assert bins[: len(window)].tolist() == expected


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=60),
    most=st.integers(30, 90),
    most_samples=st.sampled_from([1, 3, 1000]),
    most_bins=st.integers(1, 60),
)
def test_levelled_bins_are_within_the_bounds_and_none_is_empty(
    lengths: list[int], most: int, most_samples: int, most_bins: int
) -> None:
    found = levelled(np.array(lengths), most, most_samples, most_bins)
    if found is None:
        return
    tokens, counts = np.bincount(found, lengths), np.bincount(found)
    assert len(tokens) <= most_bins
    assert tokens.max() <= most
    assert 1 <= counts.min() <= counts.max() <= most_samples
    if most_samples == 1000:  # else a bin may be closed early
        assert tokens.max() - tokens.min() <= max(lengths)


@pytest.mark.parametrize(("most_bins", "n_bins"), [(2, None), (3, 3), (60, 3)])
def test_bins_are_levelled_only_if_they_are_few_enough(most_bins: int, n_bins: int | None) -> None:
    found = levelled(np.array([6, 6, 6]), 10, 9, most_bins)  # 18 tokens, but no two samples fit into 10
    assert (None if found is None else len(set(found.tolist()))) == n_bins
